"""Object stores as processes, each on a free port of the loopback interface."""

from __future__ import annotations

import importlib.util
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import ROOT
from tests.servers.store_server import StoreServer

BINARIES = ROOT / ".servers" / "bin"
START_S = 250  # moto imports for seconds, and on a busy machine for a minute
STOP_S = 0.5  # versitygw waits for connections that clients keep open
REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY, TOKEN = "test-access-key", "test-secret-key", "test-token"


class ServerMissingError(Exception):
    """The program of a server is not on this machine."""


class ServerFailedError(Exception):
    """A server did not start; the message ends with the tail of its log."""


@contextmanager
def start_versitygw(folder: Path) -> Iterator[StoreServer]:
    """Serve S3 with versitygw over `folder`, whose file system needs extended attributes.

    It refuses wrong credentials and checksums, and honors If-None-Match, also when a multipart
    upload is completed. All three servers raise ServerMissingError if they are not installed, and
    ServerFailedError if they do not answer.
    """
    binary = _binary("versitygw")
    buckets, users = folder / "buckets", folder / "users"
    for made in (buckets, users):
        made.mkdir(parents=True, exist_ok=True)

    def command(port: int) -> list[str]:
        keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION]
        # A folder of users makes it answer unknown keys as Amazon does: 403, InvalidAccessKeyId.
        flags = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--iam-dir", str(users)]
        return [binary, *flags, *keys, "posix", str(buckets)]

    with _running(command, folder / "versitygw.log") as endpoint:
        yield StoreServer("s3", endpoint, _s3_options(endpoint))


@contextmanager
def start_moto() -> Iterator[StoreServer]:
    """Serve S3 with moto, in memory: any credentials, any checksum, nothing to build."""
    if importlib.util.find_spec("moto") is None:
        raise ServerMissingError("moto is not installed: run `make install`")

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with (
        tempfile.TemporaryDirectory() as folder,
        _running(command, Path(folder) / "moto.log") as endpoint,
    ):
        yield StoreServer("s3", endpoint, _s3_options(endpoint))


@contextmanager
def start_gcs(
    folder: Path | None = None, *, token: str | None = TOKEN, deny: bool = False
) -> Iterator[StoreServer]:
    """Serve GCS with fake-gcs-server, changed for obstore (gcs/main.go), over files in `folder`.

    Args:
        folder: For objects and the log; None for a temporary folder.
        token: Refuse requests with another bearer token or none; None lets every request pass.
        deny: Refuse requests for objects whose name contains `denied/`.
    """
    binary = _binary("gcs-server")
    with tempfile.TemporaryDirectory() as temporary:
        root = folder or Path(temporary)

        def command(port: int) -> list[str]:
            flags = [*(["--token", token] if token else []), *(["--deny"] if deny else [])]
            return [binary, "--port", str(port), "--folder", str(root / "objects"), *flags]

        with _running(command, root / "gcs-server.log") as endpoint:
            # A client without a token would look for credentials, even if the server needs none.
            options = {"base_url": endpoint, "bearer_token": token or "any", "allow_http": "true"}
            yield StoreServer("gs", endpoint, options)


def _s3_options(endpoint: str) -> dict[str, str]:
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    return {"endpoint": endpoint, **keys, "region": REGION, "allow_http": "true"}


def _binary(name: str) -> str:
    path = BINARIES / name
    if not os.access(path, os.X_OK):
        raise ServerMissingError(f"{name} is not built: run `make servers` (it needs Go)")
    return str(path)


@contextmanager
def _running(command: Callable[[int], list[str]], log: Path) -> Iterator[str]:
    """Start a server, yield its endpoint, and stop it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(command(port), stdout=output, stderr=output)
    try:
        _wait_until_it_answers(process, endpoint, log)
        yield endpoint
    finally:
        _stop(process)


def free_port() -> int:
    """Return a port that the system gives to no connection: those are above 32767.

    Each of pytest's processes has ports of its own, as one may not be bound when others look.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = 20_000 + 10 * random.SystemRandom().randrange(1200) + number % 10
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken
                continue
            return port


def _wait_until_it_answers(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(endpoint):
            return
        time.sleep(0.02)
    state = f"ended with exit code {process.poll()}"  # None: it is still starting
    tail = log.read_text(errors="replace")[-2000:]
    raise ServerFailedError(f"the server at {endpoint}: {state}. The end of {log}:\n{tail}")


def _answers(endpoint: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True  # a refusal is an answer
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
