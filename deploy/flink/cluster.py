"""Run a Flink cluster and Beam's job server as processes of this machine, on free local ports.

`python -m deploy.flink.cluster --workers 2` prints a command that builds on it. Ctrl-C stops it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.flink.java_programs import (
    JARS,
    JOB_MANAGER,
    JOB_SERVER,
    TASK_MANAGER,
    FlinkFailedError,
    job_server_options,
    start_java,
    wait_until,
)

HERE = Path(__file__).resolve().parent
STOP_S = 10


class FlinkMissingError(Exception):
    """Flink or Java is not installed."""


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
        process = start_java(
            self.folder, f"worker-{len(self.workers)}", TASK_MANAGER, f"--configDir={self.folder}"
        )
        self.workers.append(process)
        return process

    def wait_for_workers(self, number: int) -> None:
        """Wait until the JobManager lists exactly this number of TaskManagers."""
        wait_until(
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
        started.others.append(
            start_java(folder, "job-manager", JOB_MANAGER, f"--configDir={folder}")
        )
        started.others.append(
            start_java(
                folder, "job-server", JOB_SERVER, *job_server_options(folder, rest_port, job_port)
            )
        )
        for _ in range(workers):
            started.add_worker()
        started.wait_for_workers(workers)
        wait_until(lambda: _listens(job_port), started.others, folder)
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
