"""Stream pieces of bytes into a multipart upload: atomic, in bounded memory.

S3 checks each request against the SHA-256 in its signature. For GCS, the CRC32C that it reports
of the finished object is compared with that of the bytes sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import google_crc32c
import obstore
from obstore.exceptions import BaseError

from shardwright.errors import MissingError, StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import parse_address
from shardwright.storage.clients import Client, client_for
from shardwright.storage.counters import COUNTERS
from shardwright.storage.etags import plain_etag
from shardwright.storage.faults import cause_of, fault_of
from shardwright.storage.heads import head
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import start_read

_LOG = logging.getLogger("shardwright.storage")
PART_BYTES = 5 << 20  # the minimum of stores; with at most 10,000 parts, 50 GB per object
_PARTS_AT_A_TIME = 5  # 25 MB in flight, plus the part being filled


class ObjectSink:
    """An open upload that counts its bytes and, for GCS, computes their CRC32C.

    Pieces are joined to whole parts: blocks of other sizes would stay in memory until each part
    that they share has been sent.
    """

    def __init__(self, writer: Any, client: Client, uri: str) -> None:
        self._writer, self._client, self._uri = writer, client, uri
        self._pieces: list[bytes] = []  # of the part being filled
        self._room = PART_BYTES
        self.num_bytes = 0
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
                self.flush()
                start = stop
            self._pieces.append(piece[start:])
            self._room -= len(piece) - start
            self.num_bytes += len(piece)

    def flush(self) -> None:
        """Send the part being filled, which only the last one may be before it is full."""
        data = b"".join(self._pieces)  # obstore's writer keeps the buffer, so never reuse one
        self._pieces, self._room = [], PART_BYTES
        try:
            self._writer.write(data)
        except (BaseError, OSError, ValueError) as error:
            fault = fault_of(error, self._uri, "write", self._client.endpoint)
            if fault is None:
                raise
            raise fault.error from cause_of(error)
        if self._client.scheme == "gs":
            self.crc32c = google_crc32c.extend(self.crc32c, data)


@contextmanager
def open_upload(uri: str, options: StorageOptions) -> Iterator[ObjectSink]:
    """Open a sink whose object appears when the block ends; on an error nothing is left of it.

    Raises:
        StorageError: The object cannot be written.
    """
    store, key = parse_address(uri)
    client = client_for(store, options)
    before = start_read(lambda: _etag_of(client, key, uri))  # while the upload begins
    if not client.has_answered:
        # A wrong endpoint then fails within seconds; an upload retries longer.
        before.result()
    writer: Any = obstore.open_writer(
        client.uploads, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_A_TIME
    )
    sink = ObjectSink(writer, client, uri)
    written = False
    try:
        with writer:
            yield sink
            sink.flush()
            etag_before = before.result()
            written = True  # errors from here on come from completing the upload
    except BaseException as error:
        # Leaving the block has aborted the upload. An error from inside the block is the caller's.
        fault = (
            fault_of(error, uri, "write", client.endpoint)
            if written and isinstance(error, Exception)
            else None
        )
        if fault is None or not _arrived_anyway(client, key, uri, sink, etag_before):
            _sweep(client, key)
            if fault is None:
                raise
            raise fault.error from cause_of(error)
    COUNTERS.add("bytes_written", sink.num_bytes)
    _compare(client, key, uri, sink)


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
        found = client.call(uri, "write", lambda: obstore.head(client.objects, key))
    except StorageError:
        return False
    return found["size"] == sink.num_bytes and plain_etag(found["e_tag"]) != before


def _compare(client: Client, key: str, uri: str, sink: ObjectSink) -> None:
    """Raise `StorageError` if the object in the store differs from the bytes that were sent."""
    if client.scheme == "gs":
        stated = peers.stated_content(client, key)
        num_bytes, crc32c = stated.num_bytes, stated.crc32c
    else:
        found = client.call(uri, "write", lambda: obstore.head(client.objects, key))
        num_bytes, crc32c, sink.etag = found["size"], None, plain_etag(found["e_tag"]) or None
    if num_bytes != sink.num_bytes or crc32c not in (None, sink.crc32c):
        raise StorageError(
            f"{uri} was damaged during the upload: the store has {num_bytes} bytes with crc32c "
            f"{crc32c}, sent were {sink.num_bytes} with {sink.crc32c}: run the build again"
        )


def _sweep(client: Client, key: str) -> None:
    """Abort an upload again: parts in flight at the first time may have arrived since."""
    try:
        peers.abort_uploads(client, key, lambda found: found == key)
    except StorageError as error:  # the caller raises the first error; the next build aborts, too
        _LOG.info("%s: an incomplete upload may remain: %s", key, error)
