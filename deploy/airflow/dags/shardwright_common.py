"""What the three DAGs share: what a run can be given, what the build is told, and what is logged when it ends.

Copy this folder into Airflow's DAG folder. Nothing here needs shardwright itself: the build runs in an environment of its own.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

from airflow.sdk import ObjectStoragePath, Param, Variable

VENV = "/opt/shardwright"  # where shardwright[build] is installed, unless the Variable shardwright_venv says otherwise
ALERT_SECONDS = 10


def build_params(source: str, target: str, *, pattern: str = ".") -> dict[str, Param]:
    """What a run can be given.

    Args:
        source: Default of `input`.
        target: Default of `output`.
        pattern: Regular expression that both must match.
    """
    return {
        "input": Param(
            source,
            type="string",
            pattern=pattern,
            description="Images: folders, a table, COCO, tar, ... (INPUT of `build`)",
        ),
        "output": Param(
            target,
            type="string",
            pattern=pattern,
            description="Folder of the datasets, which get a folder a day in it",
        ),
        "name": Param(
            "photos",
            type="string",
            pattern="^[a-z][a-z0-9_]*$",
            description="Start of the shards' file names",
        ),
        "split": Param(
            None,
            type=["null", "string"],
            minLength=1,
            description="Such as train=0.9,test=0.1; empty: as INPUT has it",
        ),
        "shard_size": Param(
            "150MB",
            type=["null", "string"],
            minLength=1,
            description="Shards of this size; empty: as `options` has it",
        ),
        "options": Param(
            {},
            type="object",
            propertyNames={"pattern": "^[A-Za-z][A-Za-z0-9_-]*$"},
            additionalProperties={"type": ["string", "number", "boolean", "array"]},
            description='More options of `build` and of its runner, without dashes: {"resize": "256x256", "stratify": true}',
        ),
    }


def dataset_of(context: Any) -> str:
    """Where a run's dataset is built: a folder for each logical date, so that one a trainer reads is never written again."""
    run = context["dag_run"]
    day = run.logical_date or run.run_after  # a run started by hand may have no logical date
    return f"{context['params']['output'].rstrip('/')}/{day:%Y-%m-%d}"


def build_options(context: Any) -> dict[str, Any]:
    """What `shardwright build` is told, by option."""
    params = context["params"]
    own = {"name": params["name"], "split": params["split"], "shard-size": params["shard_size"]}
    given = {option: value for option, value in own.items() if value is not None}
    return {**params["options"], **given, "input": params["input"], "output": dataset_of(context)}


def show_result(context: Any) -> None:
    """Callback of a build that succeeded: its report and its counts, in the task's log."""
    dataset = dataset_of(context)
    log = logging.getLogger(__name__)
    log.info("report: %s/report.html", dataset)
    manifest = json.loads(ObjectStoragePath(f"{dataset}/manifest.json").read_text())
    for name, split in manifest["splits"].items():
        log.info(
            "%s: %d records in %d shards, %d bytes",
            name,
            split["num_records"],
            len(split["shards"]),
            split["num_bytes"],
        )
    log.info("rejects: %s", manifest["rejects"] or "none")


def alert(context: Any) -> None:
    """Callback of a task that failed for good: an error in its log and, where the Variable shardwright_alert_url is set, a POST.

    The POST's body is {"text": "..."}, which Slack, Mattermost, Google Chat and others take.
    """
    task = context["task_instance"]
    text = f"{task.dag_id} {task.run_id}: task {task.task_id} failed at try {task.try_number}: {context.get('exception')}"
    logging.getLogger(__name__).error("alert: %s", text)
    if url := Variable.get("shardwright_alert_url", default=None):
        body = json.dumps({"text": text}).encode()
        urlopen(
            Request(url, body, {"Content-Type": "application/json"}), timeout=ALERT_SECONDS
        ).close()


# One build at a time: two would share a machine's disks and network, and a store's request limits. The wait between tries is
# Airflow's [core] default_task_retry_delay; a retry goes on after the last shard that was written.
SETTINGS: dict[str, Any] = {
    "schedule": "@daily",
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    "max_active_tasks": 1,
    "default_args": {
        "owner": "data",
        "retries": 2,
        "execution_timeout": timedelta(hours=12),
        "on_failure_callback": alert,
    },
}
