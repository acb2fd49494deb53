"""A fake of Google Cloud Dataflow for tests: its REST service, and workers that run what was staged.

In a test, beside the project's GCS server, which holds INPUT, OUTPUT and what is staged:

    with start_gcs(token=None) as gcs, start_dataflow(gcs, folder, images={IMAGE: beam_image(folder / "image")}) as dataflow:
        run([..., "--runner=DataflowRunner", *dataflow.arguments], env=os.environ | dataflow.environment)
        (job,) = dataflow.jobs

`dataflow.arguments` name the service to Beam's client. Clients that insist on https://dataflow.googleapis.com (gcloud, Airflow's
operators) need nothing but the environment: the fake is their proxy, and has a certificate for that name which it lets them trust.
httplib2, which Airflow's Dataflow operators use through Google's API client, goes through a proxy only where PySocks is installed.

As a process of its own, with control over HTTP (server.py): `python -m tests.servers.dataflow --gcs http://127.0.0.1:PORT --port 8765
--folder FOLDER --launcher "PYTHON -m pipelines.build_dataset"`. It prints `endpoint`, `arguments` and `environment` as a line of
JSON, then serves until it is killed.
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
# 'sandbox' in the name makes Beam's client speak plain REST; the name exists nowhere, so only the proxy can answer for it.
ARGUMENTS = ("--dataflow_endpoint=http://dataflow.sandbox.test",)
LAUNCHER = f"{shlex.quote(sys.executable)} -m pipelines.build_dataset"


@dataclass(frozen=True)
class DataflowFake:
    """A running fake.

    Attributes:
        endpoint: http://127.0.0.1:PORT
        service: Its jobs; `refuse_next` and `fail_next` decide about the next one.
        workers: What runs jobs; None leaves them running until `Job.end`.
        launcher: What starts Flex Templates' programs.
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
        """Oldest first."""
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
        gcs: A GCS server that asks for no token, as the fake's clients bring one of their own.
        folder: For keys, for what was staged, and for workers' environments.
        images: Environments that play container images, by name (environments.py), looked up when a job starts, which fails if its
            image is not among them; None leaves jobs running until a test ends them.
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
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), endpoint)
    direct = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    login = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials.key_file),
        "STORAGE_EMULATOR_HOST": gcs.endpoint,
    }
    trust = dict.fromkeys(
        ("REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "SSL_CERT_FILE"), str(credentials.certificate)
    )
    return {**proxies, **direct, **login, **trust, "NO_GCE_CHECK": "true"}
