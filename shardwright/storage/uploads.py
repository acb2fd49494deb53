"""Uploading: a stream of pieces as a multipart upload, in bounded memory, which is completed or leaves nothing.

S3 checks the content of every request against the SHA-256 in its signature; what arrives at GCS is compared with the CRC32C that
it states of the finished object.
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
from shardwright.storage.faults import fault_of
from shardwright.storage.heads import head
from shardwright.storage.options import StorageOptions

_LOG = logging.getLogger("shardwright.storage")
PART_BYTES = 5 << 20  # the least that stores take; up to 10,000 parts: 50 GB an object
_PARTS_AT_A_TIME = 6  # 30 MB on their way, one more being filled


class ObjectSink:
    """An upload under way that takes pieces of bytes and counts them."""

    def __init__(self, writer: Any, client: Client, uri: str) -> None:
        self._writer, self._client, self._uri = writer, client, uri
        self.num_bytes = 0
        self.crc32c = 0
        self.etag: str | None = (
            None  # once the object is there, where the store keeps it as long as the content stays
        )

    def write(self, pieces: Sequence[bytes]) -> None:
        """Send the pieces one after another.

        Raises:
            StorageError: A part that was on its way cannot be written.
        """
        data = b"".join(
            pieces
        )  # the writer keeps what it is given, so each call gives it bytes of its own
        try:
            self._writer.write(data)
        except (BaseError, OSError, ValueError) as error:
            fault = fault_of(error, self._uri, "write", self._client.endpoint)
            if fault is None:
                raise
            raise fault.error from error
        self.num_bytes += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)


@contextmanager
def open_upload(uri: str, options: StorageOptions) -> Iterator[ObjectSink]:
    """A sink whose object appears when the block ends without an error; after one, nothing is left of it.

    Raises:
        StorageError: It cannot be written; the message names it and the cause.
    """
    store, key = parse_address(uri)
    client = client_for(store, options)
    before = _etag_of(
        client, key, uri
    )  # the first contact, too: it is quick to fail, where an upload is patient
    writer: Any = obstore.open_writer(
        client.uploads, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_A_TIME
    )
    sink = ObjectSink(writer, client, uri)
    written = False
    try:
        with writer:
            yield sink
            written = True  # what fails from here on is the completion, and before it the block, whose errors are its own
    except BaseException as error:
        fault = (
            fault_of(error, uri, "write", client.endpoint)
            if written and isinstance(error, Exception)
            else None
        )
        if fault is None or not _arrived_anyway(client, key, uri, sink, before):
            _sweep(client, key)
            if fault is None:
                raise
            raise fault.error from error
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
    """Whether only the answer to the last request was lost: the object is there, of the right length, and not the one of before."""
    try:
        found = client.call(uri, "write", lambda: obstore.head(client.objects, key))
    except StorageError:
        return False
    return found["size"] == sink.num_bytes and plain_etag(found["e_tag"]) != before


def _compare(client: Client, key: str, uri: str, sink: ObjectSink) -> None:
    """Make sure that what the store has is what was sent.

    Raises:
        StorageError: It is not.
    """
    if client.scheme == "gs":
        stated = peers.stated_content(client, key)
        num_bytes, crc32c = stated.num_bytes, stated.crc32c
    else:
        found = client.call(uri, "write", lambda: obstore.head(client.objects, key))
        num_bytes, crc32c, sink.etag = found["size"], None, plain_etag(found["e_tag"]) or None
    if num_bytes != sink.num_bytes or crc32c not in (None, sink.crc32c):
        raise StorageError(
            f"{uri} did not arrive as it was sent: {num_bytes} bytes with crc32c {crc32c}, sent {sink.num_bytes} with {sink.crc32c}: "
            "run the build again"
        )


def _sweep(client: Client, key: str) -> None:
    """Parts that were on their way when the upload was aborted may have arrived after it: abort it once more."""
    try:
        peers.abort_uploads(client, key, lambda found: found == key)
    except (
        StorageError
    ) as error:  # the first failure is the one to tell; the next build sweeps, too
        _LOG.info("%s: an upload may be left: %s", key, error)
