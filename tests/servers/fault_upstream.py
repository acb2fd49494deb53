"""For the tests of fault_proxy.py: a server that frames answers by their path, and clients."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.servers.fault_proxy import FaultProxy

PIECE = 10_000  # bytes of a chunk in a chunked answer
HANG_S = 120  # ends a wait that would never end; no busy machine needs as long


class Upstream(ThreadingHTTPServer):
    """`PUT` keeps a body under its path; `GET` and `HEAD` return it.

    Bodies under `/chunked` and `/until-close` have no length; `GET /host` returns the Host header;
    `PUT /refused` is answered before its body is read; `DELETE` has no body; `If-None-Match` is
    always true.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        self.num_connections = 0
        self.num_broken_uploads = 0
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def running_upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer's head and body go out together
    disable_nagle_algorithm = True
    server: Upstream

    def setup(self) -> None:
        super().setup()
        self.server.num_connections += 1

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # faults leave so
            super().handle()

    def log_message(self, *_args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path))
        body = self.server.objects.get(self.path)
        if self.path == "/host":
            body = self.headers["Host"].encode()
        if body is None or "If-None-Match" in self.headers:
            self._answer_empty(*((404, 0) if body is None else (304, len(body))))
            return
        self.send_response(200)
        if self.path.startswith("/chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            chunks = [body[place : place + PIECE] for place in range(0, len(body), PIECE)]
            framed = [b"%x;note=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
            body = b"".join(framed) + b"0\r\nTrailer: 1\r\n\r\n"
        elif self.path.startswith("/until-close"):
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        self.server.seen.append((self.command, self.path))
        if self.path == "/refused":
            self._answer_empty(403)
            self.close_connection = "Expect" in self.headers or self._body() is None
            return
        body = self._body()
        if body is None:
            self.server.num_broken_uploads += 1
            self.close_connection = True
            return
        self.server.objects[self.path] = body
        self._answer_empty(200)

    def _answer_empty(self, status: int, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def handle_expect_100(self) -> bool:
        if self.path != "/refused":
            super().handle_expect_100()
            self.wfile.flush()
        return True

    def _body(self) -> bytes | None:
        """Return the request's body, or None if the client left before its end."""
        try:
            if self.headers.get("Transfer-Encoding") == "chunked":
                return b"".join(iter(self._chunk, b""))
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
        except (OSError, ValueError):  # a chunk without a size
            return None
        return body if len(body) == length else None

    def _chunk(self) -> bytes:
        chunk = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return chunk


def connect(endpoint: str) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=HANG_S)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def ask_once(
    proxy: FaultProxy, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    with contextlib.closing(connect(proxy.endpoint)) as connection:
        return ask(connection, method, path, body, **headers)


def raw(proxy: FaultProxy, data: bytes) -> socket.socket:
    parts = urlsplit(proxy.endpoint)
    client = socket.create_connection((parts.hostname, parts.port), timeout=HANG_S)
    client.sendall(data)
    return client


def read_to_end(client: socket.socket) -> bytes:
    with client, client.makefile("rb") as stream:
        return stream.read()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
