"""A fake of Google Cloud Dataflow: its REST service, and workers that run staged pipelines.

    with start_gcs(token=None) as gcs, start_dataflow(gcs, folder, images={...}) as dataflow:
        argv = [..., "--runner=DataflowRunner", *dataflow.arguments]
        run(argv, env=os.environ | dataflow.environment)
        (job,) = dataflow.jobs

INPUT, OUTPUT and staged files are on the GCS server. `arguments` name the service to Beam's client;
gcloud and Airflow's operators, which insist on https://dataflow.googleapis.com, need `environment`
only: the fake is their proxy, with a certificate for that name that they trust. httplib2, below
Airflow's Dataflow operators, needs PySocks to use a proxy.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.dataflow.credentials import Credentials, make_credentials
from tests.servers.dataflow.launcher import Launcher
from tests.servers.dataflow.server import FakeServer
from tests.servers.dataflow.service import Job, Service
from tests.servers.dataflow.workers import Workers
from tests.servers.store_server import StoreServer

__all__ = ["DataflowFake", "start_dataflow"]
# 'sandbox' makes Beam's client speak plain REST; only the proxy can answer for a name that is none.
ARGUMENTS = ("--dataflow_endpoint=http://dataflow.sandbox.test",)
LAUNCHER = f"{shlex.quote(sys.executable)} -m shardwright.pipelines.commands.build"


@dataclass(frozen=True)
class DataflowFake:
    """A running fake.

    Attributes:
        endpoint: http://127.0.0.1:PORT
        service: Its jobs; `refuse_next` and `fail_next` set the end of the next one.
        workers: Run jobs; None leaves them running until `Job.end`.
        launcher: Starts Flex Templates' programs.
        environment: Variables for clients, and for workers.
        arguments: Options for Beam's client.
    """

    endpoint: str
    service: Service
    workers: Workers | None
    launcher: Launcher
    environment: Mapping[str, str]
    arguments: Sequence[str] = ARGUMENTS

    @property
    def jobs(self) -> list[Job]:
        """All jobs, oldest first."""
        return list(self.service.jobs.values())


@contextmanager
def start_dataflow(
    gcs: StoreServer,
    folder: Path,
    *,
    images: Mapping[str, Path] | None = None,
    launcher: str = LAUNCHER,
    port: int = 0,
) -> Iterator[DataflowFake]:
    """Serve in threads of this process.

    Args:
        gcs: A GCS server that takes any token.
        folder: For keys, staged files and workers' environments.
        images: Virtual environments in the place of container images, by name (environments.py);
            a job whose image is missing fails. None leaves jobs running until a test ends them.
        launcher: The command that Flex Templates start.
        port: On the loopback interface; 0 lets the system choose.
    """
    credentials = make_credentials(folder / "keys")
    workers = None if images is None else Workers(images, gcs, folder / "workers")
    launching = Launcher(shlex.split(launcher), gcs, folder, {})
    service = Service(workers.run if workers else None, launching.check, launching.launch)
    server = FakeServer(port, service, credentials.server_context())
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    credentials.write_key_file(f"{endpoint}/token")
    environment = _environment(endpoint, gcs, credentials)
    launching.environment = {**os.environ, **environment}
    if workers:
        (folder / "workers").mkdir()
        workers.environment = environment
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield DataflowFake(endpoint, service, workers, launching, environment)
    finally:
        for job in service.jobs.values():
            job.cancelled.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _environment(endpoint: str, gcs: StoreServer, credentials: Credentials) -> dict[str, str]:
    bundles = ("REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "SSL_CERT_FILE")
    return {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), endpoint),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        **dict.fromkeys(bundles, str(credentials.certificate)),
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials.key_file),
        "STORAGE_EMULATOR_HOST": gcs.endpoint,
        "NO_GCE_CHECK": "true",
    }
