"""The fake's HTTP: a server and a proxy in one, which answers for Google's hosts whether asked in the clear or through a TLS tunnel."""

from __future__ import annotations

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from tests.servers.dataflow.service import Answer, Service, error

TOKEN = "dataflow-test-token"


class FakeServer(ThreadingHTTPServer):
    """Listens on the loopback interface; `port` 0 lets the system choose."""

    daemon_threads = True

    def __init__(self, port: int, service: Service, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service, self.tls = service, tls

    def handle_error(self, request: object, client_address: object) -> None:
        """Leave out what every proxy meets: clients that hang up. All else is the fake's own fault, and is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_CONNECT(self) -> None:
        """Play the host at the other end of the tunnel; a request for any other host than Google's goes nowhere."""
        if not self.path.partition(":")[0].endswith(".googleapis.com"):
            self.send_error(403, "the fake of Dataflow lets nothing out")
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def _serve(self) -> None:
        url = urlsplit(self.path)  # a proxy is given the whole address
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = self._answer(url.path, dict(parse_qsl(url.query)), body)
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> Answer:
        if path == "/token":
            return 200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
        if path.endswith(
            "/allowedLocations"
        ):  # google-auth asks where the account may be used; 0x0 is everywhere
            return 200, {"locations": [], "encodedLocations": "0x0"}
        if path.startswith("/fake/"):
            return self._control(path.removeprefix("/fake/"), query)
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return error(401, "Request is missing required authentication credential.")
        return self.server.service.answer(self.command, path, body)

    def _control(self, what: str, query: dict[str, str]) -> Answer:
        """For tests in another process: /fake/refuse_next?status=...&message=..., /fake/fail_next?message=..., /fake/jobs."""
        service = self.server.service
        if what == "jobs":
            return 200, {
                "jobs": [
                    {**job.resource(), "request": job.request, "messages": job.messages}
                    for job in service.jobs.values()
                ]
            }
        if what == "fail_next":
            service.fail_next(query["message"])
        elif what == "refuse_next":
            service.refuse_next(int(query.get("status", "403")), query["message"])
        else:
            return error(404, f"no control {what!r}")
        return 200, {}

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: `Service.requests` is the log."""
