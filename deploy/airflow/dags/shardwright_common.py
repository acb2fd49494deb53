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
DATE = "{date}"  # in the params input and output: the run's logical date, as YYYY-MM-DD


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
            description="Images: folders, a table, COCO, tar, ... (INPUT of `build`); {date} in a "
            "file's name for a file of the day, such as /data/photos/{date}.csv",
        ),
        "output": Param(
            target,
            type="string",
            pattern=pattern,
            description="Folder of the dataset, to which each run adds what is new or changed; "
            "with {date}, such as /data/datasets/{date}, each day has a dataset of its own",
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
        "max_gone": Param(
            None,
            type=["null", "string"],
            pattern=r"^[0-9]+(\.[0-9]+)?%?$",
            description="Fail if INPUT lacks more records of the dataset, a number or a percentage "
            "such as 25%; empty: more than 10% and more than 20",
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


def date_of(context: Any) -> str:
    """Return the logical date of a run as YYYY-MM-DD; of a run started by hand, perhaps today."""
    run = context["dag_run"]
    return f"{run.logical_date or run.run_after:%Y-%m-%d}"


def dataset_of(context: Any) -> str:
    """Return the folder of a run's dataset."""
    return context["params"]["output"].rstrip("/").replace(DATE, date_of(context))


def build_options(context: Any) -> dict[str, Any]:
    """Return the options of `shardwright build` by name."""
    params = context["params"]
    own = {"name": params["name"], "split": params["split"], "shard-size": params["shard_size"]}
    given = {option: value for option, value in own.items() if value is not None}
    source = params["input"].replace(DATE, date_of(context))
    places = {"input": source, "output": dataset_of(context)}
    return {**_daily(params), **params["options"], **given, **places}


def _daily(params: Any) -> dict[str, Any]:
    """Return the options that add to the dataset of earlier days, if OUTPUT is one for all days."""
    if DATE in params["output"]:
        return {}
    # INPUT of a day does not list the images of other days.
    missing = {"keep-missing": True} if DATE in params["input"] else {}
    most = {} if params["max_gone"] is None else {"max-gone": params["max_gone"]}
    return {"if-exists": "append", **missing, **most}


def show_result(context: Any) -> None:
    """Log the newest version's counts, as the callback of a build that succeeded."""
    dataset, log = ObjectStoragePath(dataset_of(context)), logging.getLogger(__name__)
    versions = dataset / "versions"
    numbered = sorted(path.name for path in versions.iterdir()) if versions.exists() else []
    newest = versions / numbered[-1] if numbered else dataset / "manifest.json"
    manifest = json.loads(newest.read_text())
    if history := manifest.get("history"):
        log.info("version {version}: {added} added, {removed} removed".format(**history))
    else:
        log.info("report: %s/report.html", dataset)
        log.info("rejects: %s", manifest["rejects"] or "none")
    for name, split in manifest["splits"].items():
        log.info(
            "%s: %d records in %d shards, %d bytes",
            name,
            split["num_records"],
            len(split["shards"]),
            split["num_bytes"],
        )


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
# Two that add to one dataset lose nothing: the second one's commit comes after the first one's.
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
