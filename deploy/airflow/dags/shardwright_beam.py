"""Builds a dataset of TFRecord shards every day by Airflow's operator for Beam pipelines, on the runner of a param: by default this worker.

The dataset of a logical date is OUTPUT/YYYY-MM-DD. A retry goes on where the last try stopped, and running a date again writes nothing.
A runner's own options go into the param `options`, such as {"flink_master": "flink:8081"}, or Dataflow's project, region and temp_location.
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
# Used with DataflowRunner only; it refuses a job while one of its name runs, so a date is never built twice at once.
DATAFLOW = {
    "job_name": "shardwright-{{ params.name | replace('_', '-') }}-{{ (dag_run.logical_date or dag_run.run_after) | ds }}",
    "append_job_name": False,
    "project_id": "{{ params.options.get('project', '') }}",
    "location": "{{ params.options.get('region', 'us-central1') }}",
}


@task
def options(**context: Any) -> dict[str, Any]:
    """What the operator passes on, as --option=value."""
    return build_options(context)


class BuildOperator(BeamRunPythonPipelineOperator):
    """The provider's operator leaves its process running when the task is stopped, and takes no template for the interpreter."""

    template_fields = (*BeamRunPythonPipelineOperator.template_fields, "py_interpreter")

    def on_kill(self) -> None:
        super().on_kill()
        for process in psutil.Process().children():
            process.terminate()  # the build puts its temporary files away, and cancels its job if it has one


with DAG(
    "shardwright_beam",
    **SETTINGS,
    params={
        **build_params("/data/photos", "/data/datasets"),
        "runner": Param(RUNNERS[0], type="string", enum=RUNNERS),
    },
    doc_md=__doc__,
    tags=["shardwright", "beam"],
):
    BuildOperator(
        task_id="build",
        py_interpreter=f"{{{{ var.value.get('shardwright_venv', '{VENV}') }}}}/bin/python",
        py_options=[
            "-P",
            "-m",
        ],  # -P: a folder called pipelines in Airflow's working folder is not taken for the module's
        py_file="pipelines.build_dataset",
        runner="{{ params.runner }}",
        pipeline_options=options(),
        dataflow_config=DATAFLOW,
        on_success_callback=show_result,
    )
