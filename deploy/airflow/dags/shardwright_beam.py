"""Add to a dataset of TFRecord shards every day with Airflow's operator for Beam pipelines.

The param `runner` is the Beam runner; the default runs on the Airflow worker. The runner's own
options go into the param `options`, such as {"flink_master": "flink:8081"}, or project, region and
temp_location for Dataflow. Each run adds to OUTPUT what is new or changed in INPUT, as a new
version. A retry resumes the last try, and running a date again writes nothing. With {date} in
OUTPUT, each logical date has a dataset of its own.
"""

from typing import Any

import psutil
from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG, Param, task
from shardwright_common import SETTINGS, VENV, build_options, build_params, show_result

RUNNERS = [
    "FnApiRunner",
    "DirectRunner",
    "PrismRunner",
    "FlinkRunner",
    "PortableRunner",
    "DataflowRunner",
]
# Only for DataflowRunner. Dataflow rejects a job if one of the same name is running, so a date is
# never built twice at once.
DATAFLOW = {
    "job_name": "shardwright-{{ params.name | replace('_', '-') }}-"
    "{{ (dag_run.logical_date or dag_run.run_after) | ds }}",
    "append_job_name": False,
    "project_id": "{{ params.options.get('project', '') }}",
    "location": "{{ params.options.get('region', 'us-central1') }}",
}


@task
def options(**context: Any) -> dict[str, Any]:
    """Return the options that the operator passes on as --option=value."""
    return build_options(context)


class BuildOperator(BeamRunPythonPipelineOperator):
    """The provider's operator with two fixes.

    The original leaves its process running when the task is stopped, and it does not render a
    template in `py_interpreter`.
    """

    template_fields = (*BeamRunPythonPipelineOperator.template_fields, "py_interpreter")

    def on_kill(self) -> None:
        super().on_kill()
        for process in psutil.Process().children():
            # On SIGTERM a build removes its temporary files and cancels its remote job.
            process.terminate()


with DAG(
    "shardwright_beam",
    **SETTINGS,
    params={
        **build_params("/data/photos", "/data/dataset"),
        "runner": Param(RUNNERS[0], type="string", enum=RUNNERS),
    },
    doc_md=__doc__,
    tags=["shardwright", "beam"],
):
    BuildOperator(
        task_id="build",
        py_interpreter=f"{{{{ var.value.get('shardwright_venv', '{VENV}') }}}}/bin/python",
        # -P: do not import a folder called shardwright in Airflow's working folder.
        py_options=["-P", "-m"],
        py_file="shardwright.pipelines.commands.build",
        runner="{{ params.runner }}",
        pipeline_options=options(),
        dataflow_config=DATAFLOW,
        on_success_callback=show_result,
    )
