"""Stream pieces of bytes into a multipart upload: atomic, in bounded memory.

S3 checks each request against the SHA-256 in its signature, and the etag in its last answer says
how many parts the object has. For GCS, the CRC32C that it reports of the finished object is
compared with that of the bytes sent.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import google_crc32c
import obstore
from obstore.exceptions import BaseError

from shardwright.errors import MissingError, StorageError
from shardwright.storage import peers
from shardwright.storage.checksums import plain_etag
from shardwright.storage.clients import Client
from shardwright.storage.counters import COUNTERS
from shardwright.storage.faults import cause_of, fault_of
from shardwright.storage.object_reads import client_and_key, head
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import start_read

PART_BYTES = 5 << 20  # the minimum of stores; with at most 10,000 parts, 50 GB per object
_PARTS_AT_A_TIME = 5  # 25 MB in flight, plus two parts that wait and the one being filled


class _AbortedError(Exception):
    """The caller gave up an upload."""


class ObjectSink:
    """An open upload that counts its bytes and, for GCS, computes their CRC32C.

    A thread sends whole parts, each as soon as it is full. Less than one part is a single request.
    """

    def __init__(self, client: Client, key: str, uri: str) -> None:
        self._client, self._key, self._uri = client, key, uri
        self._pieces: list[bytes] = []  # of the part being filled
        self._room = PART_BYTES
        self._parts: queue.Queue[bytes | None] = queue.Queue(1)  # None at the end
        self._aborted = False
        self._upload: Future[Any] | None = None  # begins with the first part
        self.num_bytes = self.num_parts = 0
        self.crc32c = 0
        # Set after the upload, except on GCS, whose etags may change while the content stays.
        self.etag: str | None = None

    def write(self, pieces: Sequence[bytes]) -> None:
        """Append the pieces to the object.

        Raises:
            StorageError: A part in flight could not be written.
        """
        for piece in pieces:
            start = 0
            while len(piece) - start >= self._room:
                stop = start + self._room
                self._pieces.append(piece[start:stop])
                self._send()
                start = stop
            self._pieces.append(piece[start:])
            self._room -= len(piece) - start
            self.num_bytes += len(piece)

    def finish(self) -> str:
        """Send the rest, complete the upload, and return the etag in the store's answer."""
        if self._upload is None:
            data = self._take()
            put = obstore.put(self._client.uploads, self._key, data, use_multipart=False)
        else:
            if self._room < PART_BYTES:
                self._send()
            # The end of the iterator: obstore then completes the upload.
            self._hand_over(None)
            put = self._upload.result()
        return plain_etag(put["e_tag"])

    def abort(self) -> None:
        """End an upload that has not been completed; its thread aborts it."""
        self._aborted = True
        if self._upload is not None:
            with suppress(Exception):  # the caller raises the first error
                self._hand_over(None)
                self._upload.result()

    def _take(self) -> bytes:
        data = b"".join(self._pieces)  # obstore keeps the buffer, so never reuse one
        self._pieces, self._room = [], PART_BYTES
        if self._client.scheme == "gs":
            self.crc32c = google_crc32c.extend(self.crc32c, data)
        return data

    def _send(self) -> None:
        if self._upload is None:
            self._upload = Future()
            # A daemon: a process may end without the end of the block.
            run = partial(self._run, self._upload)
            threading.Thread(target=run, daemon=True, name="shardwright-upload").start()
        self.num_parts += 1
        self._hand_over(self._take())

    def _run(self, upload: Future[Any]) -> None:
        try:
            put = obstore.put(
                self._client.uploads,
                self._key,
                iter(self._next_part, None),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        except BaseException as error:
            upload.set_exception(error)
        else:
            upload.set_result(put)

    def _next_part(self) -> bytes | None:
        part = self._parts.get()
        # Not by an end of the iterator, which would complete the upload with half of its parts.
        if self._aborted:
            raise _AbortedError  # obstore then aborts the upload
        return part

    def _hand_over(self, part: bytes | None) -> None:
        assert self._upload is not None
        # With a timeout: if obstore has failed, nobody takes parts any more, and `put` would wait
        # for ever.
        while not self._upload.done():
            try:
                self._parts.put(part, timeout=0.1)
                return
            except queue.Full:
                continue
        try:
            self._upload.result()
        except (BaseError, OSError, ValueError) as error:
            fault = fault_of(error, self._uri, "write", self._client.endpoint)
            if fault is None:
                raise
            raise fault.error from cause_of(error)


@contextmanager
def open_upload(uri: str, options: StorageOptions) -> Iterator[ObjectSink]:
    """Open a sink whose object appears when the block ends; on an error nothing is left of it.

    Raises:
        StorageError: The object cannot be written.
    """
    client, key = client_and_key(uri, options)
    before = start_read(lambda: _etag_of(client, key, uri))  # while the upload begins
    if not client.has_answered:
        # A wrong endpoint then fails within seconds; an upload retries longer.
        before.result()
    sink, written, etag = ObjectSink(client, key, uri), False, ""
    try:
        yield sink
        # Before completing: afterwards the etag could be the new one, and a lost answer could not
        # be told from a failure.
        etag_before = before.result()
        written = True  # errors from here on come from completing the upload
        etag = sink.finish()
    except BaseException as error:
        sink.abort()
        # An error from inside the block is the caller's.
        fault = (
            fault_of(error, uri, "write", client.endpoint)
            if written and isinstance(error, Exception)
            else None
        )
        if fault is None or not _arrived_anyway(client, key, uri, sink, etag_before):
            if fault is None:
                raise
            raise fault.error from cause_of(error)
    COUNTERS.add("bytes_written", sink.num_bytes)
    _compare(client, key, uri, sink, etag)


def _etag_of(client: Client, key: str, uri: str) -> str | None:
    try:
        return head(client, uri, key, "write").etag or ""
    except MissingError:
        return None


def _arrived_anyway(
    client: Client, key: str, uri: str, sink: ObjectSink, before: str | None
) -> bool:
    """Return whether the upload succeeded and only the response to its last request was lost.

    Then the object exists, has the right length and an etag other than `before`.
    """
    try:
        found = head(client, uri, key, "write")
    except StorageError:
        return False
    return found.num_bytes == sink.num_bytes and (found.etag or "") != before


def _compare(client: Client, key: str, uri: str, sink: ObjectSink, etag: str) -> None:
    """Raise `StorageError` if the object in the store differs from the bytes that were sent.

    S3's etag of an upload ends with the number of its parts, each of which it has checked.
    """
    # Without a further request: the answer itself proves that all parts are in the object.
    if client.scheme == "s3" and etag.endswith(f"-{sink.num_parts}"):
        sink.etag = etag
        return
    if client.scheme == "gs":
        found = peers.stated_content(client, key)
    else:
        found = head(client, uri, key, "write")
        sink.etag = found.etag
    if found.num_bytes != sink.num_bytes or found.crc32c not in (None, sink.crc32c):
        raise StorageError(
            f"{uri} was damaged during the upload: the store has {found.num_bytes} bytes with "
            f"crc32c {found.crc32c}, sent were {sink.num_bytes} with {sink.crc32c}: "
            "run the build again"
        )
