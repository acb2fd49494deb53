"""A bucket of a test server, seen by the project's own `Folder` and by the stores' own clients."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

import pytest

from shardwright.storage import clients
from shardwright.storage.clients import Client, client_for
from shardwright.storage.counters import COUNTERS
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.storage.request_rate import RequestRate
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import object_stores

SERVERS = ("s3_server", "moto_server", "gcs_server")
on_s3_and_gcs = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)


@dataclass(frozen=True)
class Bucket:
    """A bucket made for one test; no other has it."""

    server: StoreServer
    name: str

    @property
    def uri(self) -> str:
        return f"{self.server.scheme}://{self.name}"

    def options(self, **changes: str) -> StorageOptions:
        """Return the options that reach it, with some of them changed."""
        return StorageOptions.of({**self.server.options, **changes})

    def args(self, **changes: str) -> list[str]:
        """Return the same for a command line."""
        settings = {**self.server.options, **changes}.items()
        return [arg for key, value in settings for arg in ("--storage-option", f"{key}={value}")]

    def folder(self, prefix: str = "", **changes: str) -> Folder:
        return Folder.at(f"{self.uri}/{prefix}", self.options(**changes))

    def client(self, **changes: str) -> Client:
        return client_for(self.uri, self.options(**changes))

    def behind(self, proxy: FaultProxy) -> Bucket:
        """Return the same bucket, as reached through a proxy."""
        return self.at(proxy.endpoint)

    def at(self, endpoint: str) -> Bucket:
        """Return a bucket of the same name at another endpoint."""
        return Bucket(self.server.at(endpoint), self.name)

    def put(self, key: str, data: bytes) -> None:
        object_stores.put_object(self.server, f"{self.uri}/{key}", data)

    def get(self, key: str) -> bytes:
        return object_stores.get_object(self.server, f"{self.uri}/{key}")

    def keys(self) -> list[str]:
        return object_stores.list_keys(self.server, f"{self.uri}/")

    def pending(self) -> list[str]:
        """Return the keys of unfinished uploads."""
        return self.server.pending_uploads(self.name)

    def fill(self, keys: Iterable[str], data: bytes = b"x") -> list[str]:
        """Write the same bytes under many keys, fast; return the keys."""
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


@contextmanager
def takes(least: float, most: float) -> Iterator[None]:
    """Check the seconds that a block takes, also one that ends with an error.

    `most` tells one deadline from the next larger one; leave room for a busy machine.
    """
    started = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - started
        assert least <= seconds < most, f"{seconds:.2f} s"


def timeout_for(fault: Fault) -> str:
    """Return the `read_timeout` for a fault: a stall exceeds it, and nothing else may."""
    return "1" if fault.kind == "stall" else "120"


class PauseClock:
    """The time of storage clients that are made after it: only their own pauses take time.

    So a deadline comes after the same tries on a fast and on a slow machine, and takes no time.

    Attributes:
        now: Seconds.
        in_pauses: Called in each pause before a retry.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.in_pauses: Callable[[], object] = lambda: None
        monkeypatch.setattr(clients, "time", self)
        monkeypatch.setattr(clients, "pause", self._pause)
        rate = functools.partial(RequestRate, self.monotonic, self._sleep)
        monkeypatch.setattr(clients, "RequestRate", rate)

    def monotonic(self) -> float:
        return self.now

    @contextmanager
    def takes(self, least: float, most: float) -> Iterator[None]:
        """Check the seconds that a block takes, also one that ends with an error."""
        started = self.now
        try:
            yield
        finally:
            assert least < self.now - started < most

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _pause(self, seconds: float) -> None:
        self._sleep(seconds)
        self.in_pauses()


class Counted:
    """The counts of `COUNTERS` since this was made."""

    def __init__(self) -> None:
        self._before = COUNTERS.snapshot()

    @property
    def all(self) -> dict[str, int]:
        now = {
            key: number - self._before.get(key, 0) for key, number in COUNTERS.snapshot().items()
        }
        return {key: number for key, number in now.items() if number}

    @property
    def retries(self) -> dict[str, int]:
        """Kind -> number of requests repeated for it."""
        start = "retries_"
        return {key[len(start) :]: n for key, n in self.all.items() if key.startswith(start)}


class Request(NamedTuple):
    method: str
    path: str
    headers: Message
    body: bytes = b""


Answer = tuple[int, dict[str, str], bytes]  # status, headers, body
OBJECT_HEADERS = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": '"x"'}


@contextmanager
def answering(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """Yield the endpoint of a web server that answers as the function says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = answer(Request(self.command, self.path, self.headers, sent))
            self.send_response(status)
            is_chunked = "Transfer-Encoding" in headers
            length = {} if is_chunked else {"Content-Length": str(len(body))}
            for name, value in {**length, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                self.wfile.write(chunks if is_chunked else body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Print nothing."""

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


@contextmanager
def recording(**headers: str) -> Iterator[tuple[str, list[Request]]]:
    """Yield the endpoint of a server with an object under every name, and its requests."""
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        return 200, {**OBJECT_HEADERS, **headers}, b"data"

    with answering(answer) as endpoint:
        yield endpoint, requests
