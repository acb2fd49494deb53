"""Add to a dataset of TFRecord shards every day: `shardwright build` on the Airflow worker.

The command runs in its own virtual environment. Each run adds to OUTPUT what is new or changed in
INPUT, as a new version. A retry resumes the last try, and running a date again writes nothing. With
{date} in OUTPUT, each logical date has a dataset of its own.
"""

import shlex
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Variable, task
from shardwright_common import SETTINGS, VENV, build_options, build_params, show_result


@task
def command(**context: Any) -> str:
    """Return the command line with every word quoted, so that the shell runs no code of a param."""
    program = f"{Variable.get('shardwright_venv', default=VENV)}/bin/shardwright"
    words = [program, "build"]
    for option, value in build_options(context).items():
        values = value if isinstance(value, list) else [value]
        words += [
            f"--{option}" if each is True else f"--{option}={each}"
            for each in values
            if each is not False
        ]
    return shlex.join(words)


with DAG(
    "shardwright_bash",
    **SETTINGS,
    params=build_params("/data/photos", "/data/dataset"),
    doc_md=__doc__,
    tags=["shardwright"],
):
    BashOperator(task_id="build", bash_command=command(), on_success_callback=show_result)
