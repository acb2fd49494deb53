"""A small HTTP/1.1 proxy before an object store's test server: it delays, breaks and corrupts what tests and benchmarks ask it to.

`with FaultProxy(server.endpoint) as proxy` runs it in a thread of this process; `python -m tests.fault_proxy --upstream HOST:PORT
--latency-msec 30` as a process of its own, which prints its port on the first line. Every head is passed on as it came, the Host
header too, because S3's signatures cover it. Each client connection has one connection to the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import threading
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from tests.fault_rules import Claim, Fault, Rules
from tests.fault_wire import (
    BUFFER_BYTES,
    UNTIL_CLOSE,
    BodyFault,
    CutError,
    GoneError,
    Message,
    Peer,
    discard,
    parse_answer,
    parse_request,
    relay,
)  # fmt: skip

__all__ = ["Fault", "FaultProxy"]

SETTLE_S = 0.01  # for the client's kernel to hand over what was sent before a reset
LINGER_S = 1.0  # for a client to finish an upload that was answered early
CODES = {
    403: "AccessDenied",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "SlowDown",
}


class FaultProxy:
    """The proxy, in a thread of its own from construction to `close`; all methods may be called from any thread.

    Attributes:
        endpoint: `http://127.0.0.1:PORT`, for clients.
        latency_msec: Every request waits this long before it is passed on, all of them at the same time.
        requests: (method, target) of every request in order of arrival, those that a fault hits included.
        num_requests, num_connections: What came from clients.
        num_in_flight, max_in_flight: Requests that are not yet answered, now and at most.
        num_bytes_up, num_bytes_down: Body bytes passed on to the server and to clients.
    """

    def __init__(
        self, upstream_endpoint: str, *, latency_msec: float = 0.0, keep_requests: bool = True
    ) -> None:
        parts = urlsplit(
            upstream_endpoint if "//" in upstream_endpoint else f"//{upstream_endpoint}"
        )
        if parts.scheme not in ("", "http") or not parts.hostname:
            raise ValueError(
                f"{upstream_endpoint!r}: the upstream must be http://HOST:PORT or HOST:PORT"
            )
        self.upstream = (parts.hostname, parts.port or 80)
        self.latency_msec = latency_msec
        self.requests: list[tuple[str, str]] = []
        self.num_requests = self.num_connections = self.num_in_flight = self.max_in_flight = 0
        self.num_bytes_up = self.num_bytes_down = 0
        self._keep_requests = keep_requests
        self._rules = Rules()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._loop = asyncio.new_event_loop()
        listening = self._loop.create_server(
            lambda: Peer(self._begin), "127.0.0.1", 0, backlog=1024
        )
        self._server = self._loop.run_until_complete(listening)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fault-proxy", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, *faults: Fault) -> None:
        """Hit matching requests from now on; where several faults match, the first that was added."""
        self._rules.add(faults)

    def clear(self) -> None:
        """Pass on everything unharmed from now on; requests under way keep their faults."""
        self._rules.clear()

    def hits(self, fault: Fault) -> int:
        """How many requests this fault hit since it was added, and not cleared."""
        return self._rules.hits(fault)

    def close(self) -> None:
        """End all connections and the thread.

        Raises:
            RuntimeError: the proxy itself failed, at a message it cannot parse for instance.
        """
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        if self._failures:
            raise RuntimeError(
                f"the fault proxy failed: {self._failures[0]!r}"
            ) from self._failures[0]

    async def _stop(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # `_ended` keeps what failed
        await asyncio.sleep(0)  # closed transports close their sockets in the loop's next round

    def _begin(self, client: Peer) -> None:
        self.num_connections += 1
        task = self._loop.create_task(_Connection(self, client).serve())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)

    def arrived(self, request: Message) -> tuple[float, Claim | None]:
        """Seconds that a request is to wait, and its claim to a fault, if one matches."""
        self.num_requests += 1
        self.num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        if self._keep_requests:
            self.requests.append((request.method, request.target))
        wait_msec, claim = self._rules.claim(request.method, request.target)
        return (wait_msec + self.latency_msec) / 1000, claim

    def count_up(self, num_bytes: int) -> None:
        self.num_bytes_up += num_bytes

    def count_down(self, num_bytes: int) -> None:
        self.num_bytes_down += num_bytes


class _Connection:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, client: Peer) -> None:
        self.proxy = proxy
        self.client = client
        self.upstream: Peer | None = None

    async def serve(self) -> None:
        try:
            while await self._serve_one(parse_request(await self.client.until(b"\r\n\r\n"))):
                pass
            await self._linger()
        except GoneError:
            pass  # either side may leave at any time, and then the other is let go
        finally:
            self.client.close()
            if self.upstream:
                self.upstream.close()

    async def _serve_one(self, request: Message) -> bool:
        """Whether another request may follow on this connection."""
        wait_sec, claim = self.proxy.arrived(request)
        try:
            if wait_sec:
                await asyncio.sleep(wait_sec)
            if claim and claim.fault.asks_nobody:
                claim.hit()
                return await self._answer_alone(request, claim.fault)
            return await self._pass_on(request, claim)
        except CutError:
            assert claim
            await self._break_off(claim.fault)
            return False
        finally:
            self.proxy.num_in_flight -= 1
            if claim:
                claim.release()

    async def _answer_alone(self, request: Message, fault: Fault) -> bool:
        if fault.kind != "status":
            raise CutError
        if not request.expects_continue:
            await discard(self.client, request.framing)
        await self.client.send(
            _error(
                request,
                fault.status,
                f"the fault proxy answers {fault.status}",
                fault.retry_after_sec,
            )
        )
        return not (request.closes or request.expects_continue)

    async def _break_off(self, fault: Fault) -> None:
        """End the client's connection as the fault says; what was to be sent before it has been sent."""
        if self.upstream:
            self.upstream.reset()
        if fault.kind == "stall":
            while True:  # until the client has left
                self.client.take(BUFFER_BYTES)
                await self.client.more()
        if fault.kind != "truncate":
            await self.client.flushed()
            await asyncio.sleep(SETTLE_S)
            self.client.reset()

    async def _pass_on(self, request: Message, claim: Claim | None) -> bool:
        """Whether another request may follow."""
        try:
            upstream = await self._connected()
        except OSError as error:
            await self.client.send(
                _error(request, 502, f"the fault proxy cannot reach its upstream: {error}")
            )
            return False
        if 0 <= request.framing <= len(self.client.buffer):
            await self._upload(request, upstream, claim)
            return await self._answer(request, upstream, claim)
        return await self._exchange(request, upstream, claim)

    async def _connected(self) -> Peer:
        if not self.upstream or self.upstream.ended:
            if self.upstream:
                self.upstream.close()
            _, self.upstream = await asyncio.get_running_loop().create_connection(
                Peer, *self.proxy.upstream
            )
        return self.upstream

    async def _exchange(self, request: Message, upstream: Peer, claim: Claim | None) -> bool:
        """Pass on a request that is still coming, and meanwhile its answer: a server may answer early, with a refusal or `100 Continue`."""
        upload = asyncio.create_task(self._upload(request, upstream, claim))
        try:
            keep = await self._answer(request, upstream, claim)
            await asyncio.wait({upload}, timeout=0 if request.expects_continue else LINGER_S)
        finally:
            upload.cancel()
            [outcome] = await asyncio.gather(upload, return_exceptions=True)
            if isinstance(outcome, CutError):  # and so the server, let go, gave no answer
                raise outcome
        if isinstance(outcome, Exception) and not isinstance(outcome, GoneError):
            raise outcome
        return keep and outcome is None

    async def _upload(self, request: Message, upstream: Peer, claim: Claim | None) -> None:
        try:
            await relay(
                self.client, upstream, request, self.proxy.count_up, _body_fault(claim, upload=True)
            )
        except (CutError, GoneError):
            upstream.reset()  # it must not wait for the rest
            raise

    async def _answer(self, request: Message, upstream: Peer, claim: Claim | None) -> bool:
        """Pass on the answer; whether another request may follow it."""
        answer = parse_answer(await upstream.until(b"\r\n\r\n"), request)
        while answer.status < 200:  # 100 Continue
            await self.client.send(answer.head)
            answer = parse_answer(await upstream.until(b"\r\n\r\n"), request)
        if claim and claim.fault.kind == "reset_after_upstream" and answer.status < 300:
            await discard(upstream, answer.framing)
            claim.hit()
            raise CutError
        await relay(
            upstream, self.client, answer, self.proxy.count_down, _body_fault(claim, upload=False)
        )
        return not (request.closes or answer.closes)

    async def _linger(self) -> None:
        """End the answer, and read what the client still sends: closing at once would reset what it has not read yet."""
        self.client.end()
        with contextlib.suppress(TimeoutError):  # it has had its time
            async with asyncio.timeout(LINGER_S):
                await discard(self.client, UNTIL_CLOSE)


def _body_fault(claim: Claim | None, *, upload: bool) -> BodyFault | None:
    if claim is None or claim.fault.at_byte is None or claim.fault.upload != upload:
        return None
    return BodyFault(claim.fault.at_byte, claim.fault.kind == "corrupt", claim.hit)


def _error(
    request: Message, status: int, message: str, retry_after_sec: int | None = None
) -> bytes:
    """An answer with an S3 error document (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html)."""
    code = CODES.get(status, "InternalError")
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    retry = f"Retry-After: {retry_after_sec}\r\n" if retry_after_sec is not None else ""
    kind = f"Content-Type: application/xml\r\nContent-Length: {len(document)}\r\n"
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{kind}{retry}\r\n"
    return (head + ("" if request.method == "HEAD" else document)).encode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Print the port of a proxy before an object store, and run it until it is stopped."
    )
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT")
    parser.add_argument("--latency-msec", type=float, default=0.0, help="added to every request")
    args = parser.parse_args()
    with FaultProxy(args.upstream, latency_msec=args.latency_msec, keep_requests=False) as proxy:
        print(urlsplit(proxy.endpoint).port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # the usual end
            threading.Event().wait()


if __name__ == "__main__":
    main()
