"""Shared parts of the three DAGs: params, build options and callbacks.

Copy this folder into Airflow's DAG folder. It does not import shardwright: the build runs in its
own virtual environment.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import Request, urlopen

from airflow.sdk import ObjectStoragePath, Param, Variable

# Environment with shardwright[build]; the Variable shardwright_venv overrides it.
VENV = "/opt/shardwright"
ALERT_SECONDS = 10


def build_params(source: str, target: str, *, pattern: str = ".") -> dict[str, Param]:
    """Return the params of a run.

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
            description="Folder of the datasets; each day's dataset is a folder in it",
        ),
        "name": Param(
            "photos",
            type="string",
            pattern="^[a-z][a-z0-9_]*$",
            description="Prefix of the shards' file names",
        ),
        "split": Param(
            None,
            type=["null", "string"],
            minLength=1,
            description="Such as train=0.9,test=0.1; empty: the splits of INPUT",
        ),
        "shard_size": Param(
            "150MB",
            type=["null", "string"],
            minLength=1,
            description="Target shard size; empty: set it in `options`",
        ),
        "options": Param(
            {},
            type="object",
            propertyNames={"pattern": "^[A-Za-z][A-Za-z0-9_-]*$"},
            additionalProperties={"type": ["string", "number", "boolean", "array"]},
            description="More options of `build` and of its runner, without dashes: "
            '{"resize": "256x256", "stratify": true}',
        ),
    }


def dataset_of(context: Any) -> str:
    """Return the folder of a run's dataset, one per logical date.

    A dataset that a trainer is reading is thus never overwritten.
    """
    run = context["dag_run"]
    day = run.logical_date or run.run_after  # a run started by hand may have no logical date
    return f"{context['params']['output'].rstrip('/')}/{day:%Y-%m-%d}"


def build_options(context: Any) -> dict[str, Any]:
    """Return the options of `shardwright build` by name."""
    params = context["params"]
    own = {"name": params["name"], "split": params["split"], "shard-size": params["shard_size"]}
    given = {option: value for option, value in own.items() if value is not None}
    return {**params["options"], **given, "input": params["input"], "output": dataset_of(context)}


def show_result(context: Any) -> None:
    """Log the report's address and the counts, as the callback of a build that succeeded."""
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
    """Log an error, as the callback of a task that failed its last try.

    If the Variable shardwright_alert_url is set, also POST {"text": "..."} to it, the format of
    Slack, Mattermost, Google Chat and others.
    """
    task = context["task_instance"]
    text = (
        f"{task.dag_id} {task.run_id}: task {task.task_id} failed at try {task.try_number}: "
        f"{context.get('exception')}"
    )
    logging.getLogger(__name__).error("alert: %s", text)
    if url := Variable.get("shardwright_alert_url", default=None):
        body = json.dumps({"text": text}).encode()
        urlopen(
            Request(url, body, {"Content-Type": "application/json"}), timeout=ALERT_SECONDS
        ).close()


# One build at a time: two would share a machine's disks and network, and a store's request limits.
# The wait between tries is Airflow's [core] default_task_retry_delay; a retry resumes after the
# last finished shard.
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
