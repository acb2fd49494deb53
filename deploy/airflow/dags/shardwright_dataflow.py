"""Add to a dataset of TFRecord shards every day on Dataflow, from the Flex Template.

Airflow only starts the job and waits for it, with the credentials of the connection
google_cloud_default. Each run adds to OUTPUT what is new or changed in INPUT, as a new version,
which the job commits. A retry resumes the last try, and running a date again writes nothing. With
{date} in OUTPUT, each logical date has a dataset of its own.
"""

from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowException
from shardwright_common import SETTINGS, build_options, build_params, date_of, show_result

CLOUD_PARAMS = {
    "template": Param(
        "gs://example-templates/shardwright.json",
        type="string",
        pattern="^gs://",
        description="Specification of the Flex Template",
    ),
    "project": Param("example-project", type="string", minLength=1),
    "region": Param("us-central1", type="string", minLength=1),
    "temp_location": Param(
        "gs://example-training/temp",
        type="string",
        pattern="^gs://",
        description="For the job's temporary files",
    ),
    "max_workers": Param(
        20,
        type="integer",
        minimum=1,
        description="More workers read faster, until the store limits their requests",
    ),
}


@task
def launch(**context: Any) -> dict[str, Any]:
    """Return the body of the launch request.

    Dataflow rejects a job if one of the same name is running, so a date is never built twice at
    once.
    """
    params = context["params"]
    options = build_options(context)
    texts = {
        option.replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value)
        for option, value in options.items()
    }
    return {
        "launchParameter": {
            "jobName": f"shardwright-{params['name'].replace('_', '-')}-{date_of(context)}",
            "containerSpecGcsPath": params["template"],
            "parameters": texts,
            "environment": {
                "tempLocation": params["temp_location"],
                "maxWorkers": params["max_workers"],
            },
        }
    }


class LaunchOperator(DataflowStartFlexTemplateOperator):
    """The provider's operator, which also logs the errors of a failed job."""

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except AirflowException:
            if self.job is not None:
                where = {"project_id": self.project_id, "location": self.location}
                for message in self.hook.fetch_job_messages_by_id(job_id=self.job["id"], **where):
                    if message["messageImportance"] == "JOB_MESSAGE_ERROR":
                        self.log.error("%s", message["messageText"])
            raise


with DAG(
    "shardwright_dataflow",
    **SETTINGS,
    params={
        **build_params(
            "gs://example-raw/photos", "gs://example-training/photos", pattern="^(gs|s3|az)://."
        ),
        **CLOUD_PARAMS,
    },
    doc_md=__doc__,
    tags=["shardwright", "beam", "dataflow"],
):
    LaunchOperator(
        task_id="build",
        project_id="{{ params.project }}",
        location="{{ params.region }}",
        body=launch(),
        append_job_name=False,
        wait_until_finished=True,
        on_success_callback=show_result,
    )
