"""An HTTP/1.1 proxy before an object store's test server: it delays, breaks and corrupts requests.

`with FaultProxy(server.endpoint) as proxy` runs it in a thread of this process. Heads are passed on
as they came, the Host header too, because S3's signatures cover it. Each client connection has one
connection to the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from tests.servers import fault_wire as wire
from tests.servers.fault_rules import Claim, Fault, Rules
from tests.servers.fault_wire import BodyFault, CutError, GoneError, Message, Peer, discard, relay

__all__ = ["Fault", "FaultProxy"]

SETTLE_S = 0.01  # for the client's kernel to hand over what was sent before a reset
LINGER_S = 60.0  # for a client to finish an upload that was answered early
CODES = {403: "AccessDenied", 429: "TooManyRequests", 503: "SlowDown"}


class FaultProxy:
    """The proxy, in a thread of its own until `close`; any thread may call its methods.

    Attributes:
        endpoint: `http://127.0.0.1:PORT`, for clients.
        latency_msec: Delay of every request before it is passed on.
        requests: (method, target) of every request in order of arrival, hit by a fault or not.
        num_requests, num_connections: What came from clients.
        connections: Those, in order.
        num_in_flight, max_in_flight: Unanswered requests, now and at most.
        num_bytes_up, num_bytes_down: Body bytes passed on to the server and to clients.
    """

    def __init__(self, upstream_endpoint: str, *, latency_msec: float = 0.0) -> None:
        parts = urlsplit(upstream_endpoint)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{upstream_endpoint!r}: the upstream must be http://HOST:PORT")
        self.upstream = (parts.hostname, parts.port or 80)
        self.latency_msec = latency_msec
        self.requests: list[tuple[str, str]] = []
        self.num_requests = self.num_connections = self.num_in_flight = self.max_in_flight = 0
        self.num_bytes_up = self.num_bytes_down = 0
        self._rules = Rules()
        self.connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._loop = loop = asyncio.new_event_loop()
        listening = loop.create_server(lambda: Peer(self._begin), "127.0.0.1", 0, backlog=1024)
        self._server = loop.run_until_complete(listening)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, *faults: Fault) -> None:
        """Hit matching requests from now on; of several matching faults, the first one added."""
        self._rules.add(faults)

    def clear(self) -> None:
        """Remove all faults; requests under way keep theirs."""
        self._rules.clear()

    def hits(self, fault: Fault) -> int:
        """Return the number of requests that this fault hit since it was added."""
        return self._rules.hits(fault)

    def close(self) -> None:
        """End all connections and the thread.

        Raises:
            RuntimeError: The proxy itself failed, for instance at a message it cannot parse.
        """
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        if self._failures:
            error = self._failures[0]
            raise RuntimeError(f"the fault proxy failed: {error!r}") from error

    async def _stop(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # `_ended` keeps what failed
        await asyncio.sleep(0)  # closed transports close their sockets in the loop's next round

    def _begin(self, client: Peer) -> None:
        self.num_connections += 1
        self.connections.append(connection := _Connection(self, client))
        task = self._loop.create_task(connection.serve())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)

    def arrived(self, request: Message) -> tuple[float, Claim | None]:
        """Return the seconds that a request waits, and its claim to a fault, if one matches."""
        self.num_requests += 1
        self.num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        self.requests.append((request.method, request.target))
        wait_msec, claim = self._rules.claim(request.method, request.target)
        return (wait_msec + self.latency_msec) / 1000, claim

    def count_up(self, num_bytes: int) -> None:
        self.num_bytes_up += num_bytes

    def count_down(self, num_bytes: int) -> None:
        self.num_bytes_down += num_bytes


class _Connection:
    """A client's connection and the one to the server that belongs to it.

    The methods that return a bool return whether another request may follow.
    """

    def __init__(self, proxy: FaultProxy, client: Peer) -> None:
        self.proxy = proxy
        self.client = client
        self.upstream: Peer | None = None

    async def serve(self) -> None:
        try:
            while await self._serve_one(wire.parse_request(await self.client.until(b"\r\n\r\n"))):
                pass
            await self._linger()
        except GoneError:
            pass  # either side may leave at any time; then the other is disconnected
        finally:
            self.client.close()
            if self.upstream:
                self.upstream.close()

    async def _serve_one(self, request: Message) -> bool:
        wait_sec, claim = self.proxy.arrived(request)
        try:
            if wait_sec:
                await asyncio.sleep(wait_sec)
            if claim and claim.fault.precedes_upstream:
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
        text = f"the fault proxy answers {fault.status}"
        await self.client.send(_error(request, fault.status, text, fault.retry_after_sec))
        return not (request.closes or request.expects_continue)

    async def _break_off(self, fault: Fault) -> None:
        """End the client's connection as the fault says, after what was sent before it."""
        if self.upstream:
            self.upstream.reset()
        if fault.kind == "stall":
            while True:  # until the client has left
                self.client.take(wire.BUFFER_BYTES)
                await self.client.more()
        if fault.kind != "truncate":
            await self.client.flushed()
            await asyncio.sleep(SETTLE_S)
            self.client.reset()

    async def _pass_on(self, request: Message, claim: Claim | None) -> bool:
        try:
            upstream = await self._connected()
        except OSError as error:
            text = f"the fault proxy cannot reach its upstream: {error}"
            await self.client.send(_error(request, 502, text))
            return False
        if 0 <= request.framing <= len(self.client.buffer):
            await self._upload(request, upstream, claim)
            return await self._answer(request, upstream, claim)
        return await self._exchange(request, upstream, claim)

    async def _connected(self) -> Peer:
        if not self.upstream or self.upstream.ended:
            if self.upstream:
                self.upstream.close()
            loop = asyncio.get_running_loop()
            _, self.upstream = await loop.create_connection(Peer, *self.proxy.upstream)
        return self.upstream

    async def _exchange(self, request: Message, upstream: Peer, claim: Claim | None) -> bool:
        """Pass on a request that is still coming, and meanwhile its answer, which may be early."""
        upload = asyncio.create_task(self._upload(request, upstream, claim))
        try:
            keep = await self._answer(request, upstream, claim)
            await asyncio.wait({upload}, timeout=0 if request.expects_continue else LINGER_S)
        finally:
            upload.cancel()
            [outcome] = await asyncio.gather(upload, return_exceptions=True)
            if isinstance(outcome, CutError):  # and so the disconnected server gave no answer
                raise outcome
        if isinstance(outcome, Exception) and not isinstance(outcome, GoneError):
            raise outcome
        return keep and outcome is None

    async def _upload(self, request: Message, upstream: Peer, claim: Claim | None) -> None:
        fault = _body_fault(claim, upload=True)
        try:
            await relay(self.client, upstream, request, self.proxy.count_up, fault)
        except (CutError, GoneError):
            upstream.reset()  # it must not wait for the rest
            raise

    async def _answer(self, request: Message, upstream: Peer, claim: Claim | None) -> bool:
        answer = wire.parse_answer(await upstream.until(b"\r\n\r\n"), request)
        while answer.status < 200:  # 100 Continue
            await self.client.send(answer.head)
            answer = wire.parse_answer(await upstream.until(b"\r\n\r\n"), request)
        if claim and claim.fault.kind == "reset_after_upstream" and answer.status < 300:
            await discard(upstream, answer.framing)
            claim.hit()
            raise CutError
        fault = _body_fault(claim, upload=False)
        await relay(upstream, self.client, answer, self.proxy.count_down, fault)
        return not (request.closes or answer.closes)

    async def _linger(self) -> None:
        """End the answer, and read the client's rest: closing with unread data sends a reset."""
        self.client.end()
        with contextlib.suppress(TimeoutError):  # it has had its time
            async with asyncio.timeout(LINGER_S):
                await discard(self.client, wire.UNTIL_CLOSE)


def _body_fault(claim: Claim | None, *, upload: bool) -> BodyFault | None:
    if claim is None or claim.fault.at_byte is None or claim.fault.upload != upload:
        return None
    return BodyFault(claim.fault.at_byte, claim.fault.kind == "corrupt", claim.hit)


def _error(request: Message, status: int, text: str, retry_after_sec: int | None = None) -> bytes:
    """Return an S3 error (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html)."""
    code = CODES.get(status, "InternalError")
    document = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>"
    retry = f"Retry-After: {retry_after_sec}\r\n" if retry_after_sec is not None else ""
    kind = f"Content-Type: application/xml\r\nContent-Length: {len(document)}\r\n"
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{kind}{retry}\r\n"
    return (head + ("" if request.method == "HEAD" else document)).encode()
