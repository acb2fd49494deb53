"""HTTP/1.1 on the wire for fault_proxy.py: connections, message heads, and bodies in pieces."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import cast

BUFFER_BYTES = 512 << 10  # reading pauses while this much waits to be taken
HEAD_BYTES = 64 << 10
CHUNKED, UNTIL_CLOSE = -1, -2  # framings other than a length in bytes


class GoneError(Exception):
    """The other side has closed its connection."""


class CutError(Exception):
    """A body was passed on up to the byte where a fault ends it."""


class Peer(asyncio.Protocol):
    """One end of a connection. asyncio's streams take twice the CPU for a small request."""

    def __init__(self, made: Callable[[Peer], None] | None = None) -> None:
        self.buffer = b""
        self.ended = False  # nothing more will come
        self.lost = False  # nothing more can be sent
        self._made = made
        self._full = False  # the other side does not read for now
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        if self._made:
            self._made(self)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        if len(self.buffer) >= BUFFER_BYTES:
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        self.ended = True
        _wake(self._reader)
        return True  # it may still read

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended = self.lost = True
        _wake(self._reader)
        self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)

    async def more(self) -> None:
        """Wait for bytes beyond those in the buffer; raise GoneError where none will come."""
        if self.ended:
            raise GoneError
        self._reader = self._loop.create_future()
        await self._reader

    def take(self, limit: int) -> bytes:
        """Return up to `limit` bytes of the buffer."""
        data, self.buffer = self.buffer[:limit], self.buffer[limit:]
        if len(self.buffer) < BUFFER_BYTES:
            self._transport.resume_reading()
        return data

    async def until(self, end: bytes) -> bytes:
        """Return the bytes up to and including `end`."""
        while (found := self.buffer.find(end)) < 0:
            if len(self.buffer) > HEAD_BYTES:
                start = self.buffer[:80]
                raise ValueError(f"no {end!r} in {HEAD_BYTES} bytes that begin with {start!r}")
            await self.more()
        return self.take(found + len(end))

    async def some(self, limit: int) -> bytes:
        """Return at least one byte, at most `limit`."""
        while not self.buffer:
            await self.more()
        return self.take(limit)

    async def send(self, data: bytes) -> None:
        """Send, and wait while the other side does not read; raise GoneError if it has left."""
        if self.lost:
            raise GoneError
        self._transport.write(data)
        if self._full:
            self._writer = self._loop.create_future()
            await self._writer

    async def flushed(self) -> None:
        """Wait until the other side's kernel has everything: a reset discards data in flight."""
        while not self.lost and (self._transport.get_write_buffer_size() or self._in_flight()):
            await asyncio.sleep(0.001)

    def _in_flight(self) -> int:
        if sys.platform != "linux":  # other kernels answer this for terminals only
            return 0
        descriptor = self._transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def end(self) -> None:
        """Send no more, but keep reading; raise GoneError if the other side has left."""
        if self.lost:
            raise GoneError
        try:
            self._transport.write_eof()
        except OSError as error:  # its reset is here, but has not been read yet
            raise GoneError from error

    def close(self) -> None:
        self._transport.close()

    def reset(self) -> None:
        """Send a TCP reset now, and in answer to whatever else comes."""
        if not self.lost:
            linger = struct.pack("ii", 1, 0)
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting and not waiting.done():
        waiting.set_result(None)


@dataclass(slots=True)
class Message:
    """The head of a request or an answer, as it came, and its meaning for the body."""

    head: bytes
    method: str  # an answer has that of its request
    target: str  # of a request
    status: int  # of an answer
    framing: int  # the body's length, CHUNKED or UNTIL_CLOSE
    closes: bool  # the connection ends after this message
    expects_continue: bool = False


def parse_request(head: bytes) -> Message:
    lowered = head.lower()
    method, target, version = head[: head.index(b"\r\n")].decode("latin-1").split(" ")
    framing, closes = _framing(lowered, 0), _closes(lowered, version)
    expects_continue = b"100-continue" in _field(lowered, b"expect")
    return Message(head, method, target, 0, framing, closes, expects_continue)


def parse_answer(head: bytes, request: Message) -> Message:
    lowered = head.lower()
    version, status = head[:12].decode("latin-1").split(" ")
    bodiless = request.method == "HEAD" or status in ("204", "304") or status[0] == "1"
    framing = 0 if bodiless else _framing(lowered, UNTIL_CLOSE)
    closes = framing == UNTIL_CLOSE or _closes(lowered, version)
    return Message(head, request.method, "", int(status), framing, closes)


def _framing(lowered: bytes, otherwise: int) -> int:
    if b"chunked" in _field(lowered, b"transfer-encoding"):
        return CHUNKED
    length = _field(lowered, b"content-length")
    return int(length) if length else otherwise


def _closes(lowered: bytes, version: str) -> bool:
    connection = _field(lowered, b"connection")
    return b"close" in connection or (version == "HTTP/1.0" and b"keep-alive" not in connection)


def _field(lowered: bytes, name: bytes) -> bytes:
    return lowered.partition(b"\r\n" + name + b":")[2].partition(b"\r\n")[0].strip()


async def pieces(source: Peer, framing: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield (bytes, is content) of a body as it comes; chunk sizes and trailers are no content."""
    if framing == CHUNKED:
        while True:
            line = await source.until(b"\r\n")
            yield line, False
            left = int(line.split(b";")[0], 16)
            if not left:
                break
            async for content in pieces(source, left):
                yield content
            yield await source.until(b"\r\n"), False
        while line != b"\r\n":
            line = await source.until(b"\r\n")
            yield line, False
    elif framing == UNTIL_CLOSE:
        while source.buffer or not source.ended:
            try:
                yield await source.some(BUFFER_BYTES), True
            except GoneError:
                return
    else:
        while framing:
            piece = await source.some(framing)
            framing -= len(piece)
            yield piece, True


async def discard(source: Peer, framing: int) -> None:
    """Read a body to its end."""
    async for _ in pieces(source, framing):
        pass


@dataclass(frozen=True, slots=True)
class BodyFault:
    """A fault in a body."""

    at_byte: int  # counted in content, from 0
    flip: bool  # flip a bit of that byte; otherwise nothing from it on is passed on
    hit: Callable[[], None]  # called when the body has that byte, before it is passed on

    def apply(self, piece: bytes, passed: int) -> tuple[bytes, bool]:
        """Return a piece that begins after `passed` bytes as it is passed on, and if it ends."""
        place = self.at_byte - passed
        if not 0 <= place < len(piece):
            return piece, False
        self.hit()
        if self.flip:
            return piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :], False
        return piece[:place], True


async def relay(
    source: Peer,
    sink: Peer,
    message: Message,
    count: Callable[[int], None],
    fault: BodyFault | None,
) -> None:
    """Pass a message on.

    Args:
        count: Called with the number of body bytes each time some are passed on.

    Raises:
        CutError: The fault cut the body.
        GoneError: Either side left too early.
    """
    if fault is None and 0 <= message.framing <= len(source.buffer):  # whole: the most frequent
        count(message.framing)
        await sink.send(message.head + source.take(message.framing))
        return
    await sink.send(message.head)  # at once: with `Expect: 100-continue` the body waits for it
    passed, cut = 0, False
    async for piece, is_content in pieces(source, message.framing):
        if is_content:
            if fault:
                piece, cut = fault.apply(piece, passed)
            passed += len(piece)
            count(len(piece))
        await sink.send(piece)
        if cut:
            raise CutError
