"""Run a Flink cluster and Beam's job server as processes of this machine, on free local ports.

`python deploy/flink/cluster.py --workers 2` prints a command that builds on it. Ctrl-C stops it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".engines" / "flink"
START_S, STOP_S = 120, 10
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
_JOB_MANAGER = (
    "-Xmx256m",
    *_CLASS_PATH,
    "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
)
_TASK_MANAGER = (
    "-Xmx384m",
    "-XX:MaxDirectMemorySize=640m",
    *_CLASS_PATH,
    "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
)
_JOB_SERVER = ("-Xmx256m", *_CLASS_PATH, "JobServer")


class FlinkMissingError(Exception):
    """Flink or Java is not installed."""


class FlinkFailedError(Exception):
    """A part of the cluster did not start; the message ends with the end of each log."""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        folder: Folder for configuration, logs and Flink's temporary files.
        rest: Address of the JobManager's REST service, `http://127.0.0.1:port`.
        endpoint: The job server's `127.0.0.1:port`, for --job_endpoint.
        workers: Processes of the TaskManagers, including ended ones.
        others: Processes of the JobManager and the job server.
    """

    folder: Path
    rest: str
    endpoint: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def arguments(
        self,
        parallelism: int,
        *,
        python_processes: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the arguments of a build on this cluster, with this virtual environment.

        Args:
            parallelism: Number of task slots for the build; each worker has two.
            python_processes: Number of Python processes per worker, shared by its slots.
            environment: Environment variables for these processes.
        """
        boot = {
            "command": str(HERE / "boot.sh"),
            "env": {"SHARDWRIGHT_VENV": sys.prefix, **(environment or {})},
        }
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.endpoint}",
            f"--parallelism={parallelism}",
            f"--sdk_worker_parallelism={python_processes}",
            "--environment_cache_millis=3000",
            "--environment_type=PROCESS",
            f"--environment_config={json.dumps(boot)}",
        ]

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start one more TaskManager; `wait_for_workers` waits until it has joined."""
        process = _java(
            self.folder, f"worker-{len(self.workers)}", _TASK_MANAGER, f"--configDir={self.folder}"
        )
        self.workers.append(process)
        return process

    def wait_for_workers(self, number: int) -> None:
        """Wait until the JobManager lists exactly this number of TaskManagers."""
        _wait(
            lambda: self.get("/overview")["taskmanagers"] == number,
            [*self.others, *self.living],
            self.folder,
        )

    def get(self, path: str) -> Any:
        """Return the JSON response of the REST service."""
        return _ask(f"{self.rest}{path}")

    def jobs(self) -> dict[str, str]:
        """Return id -> state of every job."""
        return {job["id"]: job["status"] for job in self.get("/jobs")["jobs"]}

    def cancel(self, job: str) -> None:
        """Cancel a job, whoever submitted it."""
        _ask(f"{self.rest}/jobs/{job}?mode=cancel", method="PATCH")

    def stop(self) -> None:
        """End all processes; a TaskManager's Python processes end with it."""
        for process in (*self.others, *self.workers):
            process.terminate()
        for process in (*self.others, *self.workers):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            process.wait()

    @property
    def living(self) -> list[subprocess.Popen[bytes]]:
        """The workers that have not ended."""
        return [process for process in self.workers if process.poll() is None]


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a cluster during the block.

    Args:
        folder: A new folder for its configuration and logs.
        workers: Number of TaskManagers, of two slots each.

    Raises:
        FlinkMissingError: The jars or Java are not installed.
        FlinkFailedError: A part did not start.
    """
    if not (JARS / "made-of").exists():
        raise FlinkMissingError(f"Flink is not installed in {JARS}: run deploy/flink/install.sh")
    if shutil.which("java") is None:
        raise FlinkMissingError("Flink needs Java 11 or 17, and there is no java on the PATH")
    rest_port, rpc_port, job_port = _free_ports(3)
    _write_settings(folder, rest_port, rpc_port)
    started = Cluster(folder, f"http://127.0.0.1:{rest_port}", f"127.0.0.1:{job_port}")
    try:
        started.others.append(_java(folder, "job-manager", _JOB_MANAGER, f"--configDir={folder}"))
        started.others.append(
            _java(
                folder, "job-server", _JOB_SERVER, *_job_server_options(folder, rest_port, job_port)
            )
        )
        for _ in range(workers):
            started.add_worker()
        started.wait_for_workers(workers)
        _wait(lambda: _listens(job_port), started.others, folder)
        yield started
    finally:
        started.stop()


def _write_settings(folder: Path, rest_port: int, rpc_port: int) -> None:
    settings = {
        "jobmanager.rpc.port": rpc_port,
        "rest.port": rest_port,
        "rest.bind-port": rest_port,
        "io.tmp.dirs": folder / "tmp",
        "blob.storage.directory": folder / "blobs",
        "web.tmpdir": folder / "web",
    }
    hosts = (
        "jobmanager.rpc.address",
        "jobmanager.bind-host",
        "rest.address",
        "rest.bind-address",
        "taskmanager.host",
        "taskmanager.bind-host",
    )
    lines = [
        f"{name}: {value}\n"
        for name, value in {**dict.fromkeys(hosts, "127.0.0.1"), **settings}.items()
    ]
    for name in ("tmp", "blobs", "web", "artifacts"):
        (folder / name).mkdir(parents=True)
    (folder / "flink-conf.yaml").write_text((HERE / "flink-conf.yaml").read_text() + "".join(lines))


def _job_server_options(folder: Path, rest_port: int, job_port: int) -> list[str]:
    return [
        "--job-host=127.0.0.1",
        f"--job-port={job_port}",
        "--artifact-port=0",
        "--expansion-port=-1",
        f"--artifacts-dir={folder / 'artifacts'}",
        f"--flink-master=127.0.0.1:{rest_port}",
        f"--flink-conf-dir={folder}",
    ]


def _java(
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


def _wait(
    ready: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], folder: Path
) -> None:
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


def _ask(url: str, method: str = "GET") -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method=method), timeout=10) as answer:
        return json.load(answer)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def main() -> None:
    """Run a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="number of TaskManagers, with two task slots each (default: %(default)s)",
    )
    workers = parser.parse_args().workers
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="flink-") as folder,
        contextlib.suppress(KeyboardInterrupt),
    ):
        try:
            with cluster(Path(folder), workers) as started:
                options = " ".join(
                    f"'{argument}'" if '"' in argument else argument
                    for argument in started.arguments(2 * workers)
                )
                print(
                    f"Flink's dashboard and REST service: {started.rest}; logs: {folder}; Ctrl-C "
                    "stops the cluster. Build with:\n"
                )
                print(
                    f"  shardwright build IMAGES OUTPUT --shared-filesystem {options}", flush=True
                )
                signal.pause()
        except (FlinkMissingError, FlinkFailedError) as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
