"""HTTP/1.1 on the wire for fault_proxy.py: connections, message heads, and bodies passed on a piece at a time."""

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

BUFFER_BYTES = 512 << 10  # more is not read before what is here is taken
HEAD_BYTES = 64 << 10
CHUNKED, UNTIL_CLOSE = -1, -2  # instead of a body's length in bytes


class GoneError(Exception):
    """The other side has closed its connection."""


class CutError(Exception):
    """A body was passed on up to the byte where a fault ends it."""


class Peer(asyncio.Protocol):
    """One end of a connection. Plain asyncio streams take about twice the CPU of this for a small request."""

    def __init__(self, made: Callable[[Peer], None] | None = None) -> None:
        self.buffer = b""
        self.ended = False  # nothing more will come
        self.lost = False  # nothing more can be sent
        self._made = made
        self._held = False  # the other side is not read for now
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
            self._held = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self.ended = True
        self._wake_reader()
        return True  # it may still read

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended = self.lost = True
        self._wake_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._writer and not self._writer.done():
            self._writer.set_result(None)

    def _wake_reader(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    async def more(self) -> None:
        """Wait for bytes beyond those in the buffer.

        Raises:
            GoneError: none will come.
        """
        if self.ended:
            raise GoneError
        self._reader = self._loop.create_future()
        await self._reader

    def take(self, limit: int) -> bytes:
        """Up to `limit` bytes of the buffer."""
        data = self.buffer
        if len(data) <= limit:
            self.buffer = b""
        else:
            self.buffer, data = data[limit:], data[:limit]
        if self._held and len(self.buffer) < BUFFER_BYTES:
            self._held = False
            self._transport.resume_reading()
        return data

    async def until(self, end: bytes) -> bytes:
        """The bytes up to and with `end`."""
        while (found := self.buffer.find(end)) < 0:
            if len(self.buffer) > HEAD_BYTES:
                raise ValueError(
                    f"no {end!r} in {HEAD_BYTES} bytes that begin with {self.buffer[:80]!r}"
                )
            await self.more()
        return self.take(found + len(end))

    async def some(self, limit: int) -> bytes:
        """At least one byte, at most `limit`."""
        while not self.buffer:
            await self.more()
        return self.take(limit)

    async def send(self, data: bytes) -> None:
        """Send, and wait while the other side does not read.

        Raises:
            GoneError: it has left.
        """
        if self.lost:
            raise GoneError
        self._transport.write(data)
        if self._full:
            self._writer = self._loop.create_future()
            await self._writer

    async def flushed(self) -> None:
        """Wait until the other side's kernel has all that was sent: a reset discards what is on its way."""
        while not self.lost and (
            self._transport.get_write_buffer_size() or self._bytes_on_the_way()
        ):
            await asyncio.sleep(0.001)

    def _bytes_on_the_way(self) -> int:
        if (
            sys.platform != "linux"
        ):  # elsewhere the kernel tells only what a terminal has not written
            return 0
        answer = fcntl.ioctl(
            self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4)
        )
        return int(struct.unpack("i", answer)[0])

    def end(self) -> None:
        """Send no more, but go on reading.

        Raises:
            GoneError: the other side has left.
        """
        if self.lost:
            raise GoneError
        try:
            self._transport.write_eof()
        except OSError as error:  # its reset is here, but has not been read yet
            raise GoneError from error

    def close(self) -> None:
        self._transport.close()

    def reset(self) -> None:
        """Answer whatever else comes with a TCP reset, and send one now."""
        if not self.lost:
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._transport.abort()


@dataclass(slots=True)
class Message:
    """The head of a request or an answer, as it came, and what it says of the body."""

    head: bytes
    method: str  # an answer has that of its request
    target: str  # of a request
    status: int  # of an answer
    framing: int  # the body's length, CHUNKED or UNTIL_CLOSE
    closes: bool  # the connection ends after this message
    expects_continue: bool


def parse_request(head: bytes) -> Message:
    lowered = head.lower()
    method, target, version = head[: head.index(b"\r\n")].decode("latin-1").split(" ")
    framing = _framing(lowered, 0)
    return Message(
        head,
        method,
        target,
        0,
        framing,
        _closes(lowered, version),
        b"100-continue" in _field(lowered, b"expect"),
    )


def parse_answer(head: bytes, request: Message) -> Message:
    lowered = head.lower()
    version, status = head[:12].decode("latin-1").split(" ")
    bodiless = request.method == "HEAD" or status in ("204", "304") or status[0] == "1"
    framing = 0 if bodiless else _framing(lowered, UNTIL_CLOSE)
    closes = framing == UNTIL_CLOSE or _closes(lowered, version)
    return Message(head, request.method, "", int(status), framing, closes, False)


def _framing(lowered: bytes, otherwise: int) -> int:
    if b"chunked" in _field(lowered, b"transfer-encoding"):
        return CHUNKED
    length = _field(lowered, b"content-length")
    return int(length) if length else otherwise


def _closes(lowered: bytes, version: str) -> bool:
    connection = _field(lowered, b"connection")
    return b"close" in connection or (version == "HTTP/1.0" and b"keep-alive" not in connection)


def _field(lowered: bytes, name: bytes) -> bytes:
    start = lowered.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return lowered[start : lowered.index(b"\r\n", start)].strip()


async def pieces(source: Peer, framing: int) -> AsyncIterator[tuple[bytes, bool]]:
    """A body as it comes: bytes, and whether they are content (chunk sizes and trailers are not)."""
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
                piece = await source.some(BUFFER_BYTES)
            except GoneError:
                return
            yield piece, True
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


async def relay(
    source: Peer,
    sink: Peer,
    message: Message,
    count: Callable[[int], None],
    fault: BodyFault | None,
) -> None:
    """Pass a message on.

    Args:
        count: Told the number of body bytes each time some are passed on.

    Raises:
        CutError: the fault cut the body.
        GoneError: either side left too early.
    """
    if fault is None and 0 <= message.framing <= len(
        source.buffer
    ):  # in one piece, the most frequent case
        count(message.framing)
        await sink.send(
            message.head + source.take(message.framing) if message.framing else message.head
        )
        return
    await sink.send(
        message.head
    )  # at once: with `Expect: 100-continue` the body waits for an answer
    passed = 0
    async for piece, is_content in pieces(source, message.framing):
        if not is_content:
            await sink.send(piece)
            continue
        cut = None
        if fault and passed <= fault.at_byte < passed + len(piece):
            fault.hit()
            place = fault.at_byte - passed
            cut = None if fault.flip else place
            piece = piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :]
        passed += len(piece[:cut])
        count(len(piece[:cut]))
        await sink.send(piece[:cut])
        if cut is not None:
            raise CutError
