"""Start the Java programs of a Flink cluster, and wait until they answer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

JARS = Path(__file__).resolve().parents[2] / ".engines" / "flink"
START_S = 120
_OPENED = (
    "java.base/java.lang",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/sun.nio.ch",
)
# A build needs little of Java, so there are no collector threads and no second compiler.
_JAVA = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
)
_CLASS_PATH = ("-cp", f"{JARS}/classes:{JARS}/*")
JOB_MANAGER = (
    "-Xmx256m",
    *_CLASS_PATH,
    "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
)
TASK_MANAGER = (
    "-Xmx384m",
    "-XX:MaxDirectMemorySize=640m",
    *_CLASS_PATH,
    "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
)
JOB_SERVER = ("-Xmx256m", *_CLASS_PATH, "JobServer")


class FlinkFailedError(Exception):
    """A part of the cluster did not start; the message ends with the end of each log."""


def start_java(
    folder: Path, name: str, program: Sequence[str], *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a Java program with the jars; its log and temporary files are in the folder."""
    command = ["java", *_JAVA, f"-Djava.io.tmpdir={folder / 'tmp'}", *program, *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "FLINK_CONF_DIR": str(folder)},
            start_new_session=True,  # Ctrl-C goes only to this process, which stops the cluster
        )


def job_server_options(folder: Path, rest_port: int, job_port: int) -> list[str]:
    """Return the arguments of `JOB_SERVER`; the folder has Flink's configuration."""
    return [
        "--job-host=127.0.0.1",
        f"--job-port={job_port}",
        "--artifact-port=0",
        "--expansion-port=-1",
        f"--artifacts-dir={folder / 'artifacts'}",
        f"--flink-master=127.0.0.1:{rest_port}",
        f"--flink-conf-dir={folder}",
    ]


def wait_until(
    ready: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], folder: Path
) -> None:
    """Wait until something is ready. The folder has the logs of the processes.

    Raises:
        FlinkFailedError: One of them has ended, or it takes longer than `START_S`.
    """
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            if ready():
                return
        ended = [process for process in processes if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            state = (
                f"a process ended with exit code {ended[0].returncode}"
                if ended
                else f"not ready after {START_S} s"
            )
            logs = "\n".join(
                f"{log.name}: {log.read_text(errors='replace')[-2000:]}"
                for log in sorted(folder.glob("*.log"))
            )
            raise FlinkFailedError(
                f"the Flink cluster in {folder}: {state}. Its logs end with:\n{logs}"
            )
        time.sleep(0.1)
