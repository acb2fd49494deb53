"""The fake's HTTP: a server and a proxy in one, which answers for Google's hosts."""

from __future__ import annotations

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.servers.dataflow.service import Answer, Service, error

TOKEN = "dataflow-test-token"


class FakeServer(ThreadingHTTPServer):
    """Listens on the loopback interface; `port` 0 lets the system choose."""

    daemon_threads = True

    def __init__(self, port: int, service: Service, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service, self.tls = service, tls

    def handle_error(self, request: object, client_address: object) -> None:
        """Print errors of the fake, but not clients that hang up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_CONNECT(self) -> None:
        """Answer for Google's hosts at the other end of a tunnel, and refuse all others."""
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
        url = urlsplit(self.path)  # proxies get the whole address
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = self._answer(url.path, body)
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def _answer(self, path: str, body: bytes) -> Answer:
        if path == "/token":
            return 200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
        if path.endswith("/allowedLocations"):  # of the account, for google-auth; 0x0: everywhere
            return 200, {"locations": [], "encodedLocations": "0x0"}
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return error(401, "Request is missing required authentication credential.")
        return self.server.service.answer(self.command, path, body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: `Service.requests` is the log."""
