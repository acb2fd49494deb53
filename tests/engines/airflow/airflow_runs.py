"""Runs of the shipped DAGs: `airflow dags test` runs their tasks for real, each in a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.engines.engine_builds import ROOT, Ended

DAGS = ROOT / "deploy" / "airflow" / "dags"
COMMAND = ROOT / ".venv" / "bin" / "shardwright"
DAY = "2026-03-04"
PER_DATE = "{date}"  # in OUTPUT: a dataset for each date
SECONDS = 600  # of one run on a busy machine


@dataclass
class Run:
    """A DAG run in progress."""

    process: subprocess.Popen[bytes]
    log: Path

    def builds(self) -> list[psutil.Process]:
        """Return the processes of `shardwright build` below it."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
            return [each for each in below if any("--output=" in word for word in each.cmdline())]
        except psutil.NoSuchProcess:  # one ended just now
            return []

    def wait(self) -> Ended:
        """Wait for its end; kill it and its builds if it takes too long."""
        try:
            return Ended(
                self.process.wait(SECONDS), self.log.read_text(errors="replace"), 0, left=False
            )
        finally:
            left = [self.process] if self.process.poll() is None else []
            for process in [*self.builds(), *left]:
                process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Airflow:
    """An AIRFLOW_HOME with a database.

    Attributes:
        folder: AIRFLOW_HOME.
        environment: All environment variables of its commands.
    """

    folder: Path
    environment: Mapping[str, str]

    def once(self, folder: Path) -> dict[str, str]:
        """Return the variables for runs of the shipped DAGs with one try a task."""
        shutil.copytree(self.folder / "dags", folder)
        common = folder / "shardwright_common.py"
        assert '"retries": 2' in common.read_text()
        common.write_text(common.read_text().replace('"retries": 2', '"retries": 0'))
        return {"AIRFLOW__CORE__DAGS_FOLDER": str(folder)}

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("airflow")), *words]

    def start(self, dag: str, conf: Mapping[str, Any], day: str = DAY, **environment: str) -> Run:
        """Start a run of a date; `environment` is added to the variables."""
        log = self.folder / f"{dag}-{len(list(self.folder.iterdir()))}.log"
        words = self.command("dags", "test", dag, day, "--conf", json.dumps(conf))
        variables = {**self.environment, **environment}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, cwd=self.folder, env=variables, stdout=output, **streams
            )
        return Run(process, log)

    def run(
        self,
        dag: str,
        conf: Mapping[str, Any],
        day: str = DAY,
        *,
        code: int = 0,
        **environment: str,
    ) -> str:
        """Return a run's log, when it has ended.

        Raises:
            AssertionError: It ended with another exit code.
        """
        ended = self.start(dag, conf, day, **environment).wait()
        assert ended.code == code, ended.log[-8000:]
        return ended.log


def verify(dataset: Path) -> None:
    """Check every byte of a dataset, by the command.

    Raises:
        AssertionError: It is not sound.
    """
    command = [COMMAND, "verify", dataset]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """(inode, mtime in ns) of every file by its path: another pair where it was written again."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(folder)): (status.st_ino, status.st_mtime_ns)
        for path, status in stats.items()
    }
