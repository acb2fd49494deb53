"""A bucket of a test server, seen from both sides: by the project's own `Folder`, and by the stores' own clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

import pytest

from shardwright.storage import COUNTERS, Folder, StorageOptions
from shardwright.storage.clients import Client, client_for
from tests import object_stores
from tests.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer

SERVERS = ("s3_server", "moto_server", "gcs_server")


@dataclass(frozen=True)
class Bucket:
    """A bucket made for one test; no other has it."""

    server: StoreServer
    name: str

    @property
    def uri(self) -> str:
        return f"{self.server.scheme}://{self.name}"

    def options(self, **changes: str) -> StorageOptions:
        """The options that reach it, with some of them changed."""
        return StorageOptions.of({**self.server.options, **changes})

    def folder(self, prefix: str = "", **changes: str) -> Folder:
        return Folder.at(f"{self.uri}/{prefix}", self.options(**changes))

    def client(self, **changes: str) -> Client:
        return client_for(self.uri, self.options(**changes))

    def behind(self, proxy: FaultProxy) -> Bucket:
        """The same bucket, as reached through a proxy."""
        return self.at(proxy.endpoint)

    def at(self, endpoint: str) -> Bucket:
        """A bucket of the same name at another endpoint."""
        key = "endpoint" if self.server.scheme == "s3" else "base_url"
        server = dataclasses.replace(
            self.server, endpoint=endpoint, options={**self.server.options, key: endpoint}
        )
        return Bucket(server, self.name)

    def put(self, key: str, data: bytes) -> None:
        object_stores.put_object(self.server, f"{self.uri}/{key}", data)

    def get(self, key: str) -> bytes:
        return object_stores.get_object(self.server, f"{self.uri}/{key}")

    def keys(self) -> list[str]:
        return object_stores.list_keys(self.server, f"{self.uri}/")

    def fill(self, keys: Iterable[str], data: bytes = b"x") -> list[str]:
        """Write the same bytes under many keys, fast; the keys."""
        written = list(keys)
        folder = self.folder()
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda key: folder.write_bytes(key, data), written))
        return written


@pytest.fixture(params=SERVERS)
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A new bucket on each of the servers in turn."""
    return bucket_on(request, request.param)


@pytest.fixture
def s3_bucket(request: pytest.FixtureRequest) -> Bucket:
    return bucket_on(request, "s3_server")


@pytest.fixture
def moto_bucket(request: pytest.FixtureRequest) -> Bucket:
    return bucket_on(request, "moto_server")


@pytest.fixture
def gcs_bucket(request: pytest.FixtureRequest) -> Bucket:
    return bucket_on(request, "gcs_server")


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[FaultProxy]:
    """A fault proxy before the server of `bucket`."""
    with FaultProxy(bucket.server.endpoint) as running:
        yield running


@pytest.fixture
def s3_proxy(s3_bucket: Bucket) -> Iterator[FaultProxy]:
    with FaultProxy(s3_bucket.server.endpoint) as running:
        yield running


def bucket_on(request: pytest.FixtureRequest, name: str) -> Bucket:
    server: StoreServer = request.getfixturevalue(name)
    return Bucket(server, object_stores.new_bucket(server))


class Counted:
    """What `COUNTERS` counted since this was made."""

    def __init__(self) -> None:
        self._before = COUNTERS.snapshot()

    @property
    def all(self) -> dict[str, int]:
        now = COUNTERS.snapshot()
        return {
            name: number - self._before.get(name, 0)
            for name, number in now.items()
            if number != self._before.get(name, 0)
        }

    @property
    def retries(self) -> dict[str, int]:
        """kind -> how often a request was repeated for it."""
        return {
            name.removeprefix("retries_"): number
            for name, number in self.all.items()
            if name.startswith("retries_")
        }


class Request(NamedTuple):
    method: str
    path: str
    headers: Message


Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@contextmanager
def answering(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """The endpoint of a web server that answers as the function says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = answer(Request(self.command, self.path, self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
