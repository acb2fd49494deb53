"""Download large objects into local files: 8 MB parts, four at a time, each retried separately."""

from __future__ import annotations

import functools
import os
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import obstore
from obstore.exceptions import BaseError

from shardwright.errors import ChangedError
from shardwright.storage.cancellation import cancelable, check_not_canceled, current
from shardwright.storage.checksums import plain_etag
from shardwright.storage.clients import Client
from shardwright.storage.counters import COUNTERS
from shardwright.storage.faults import is_past_end
from shardwright.storage.object_reads import client_and_key
from shardwright.storage.options import StorageOptions

PART_BYTES = 8 << 20
_PARTS_AT_A_TIME = 4  # 32 MB in memory


@dataclass(frozen=True, slots=True)
class ObjectParts:
    """An object that is read in parts, all of the same version.

    Attributes:
        client: The client of its store.
        key: Its key.
        uri: Its address, for messages.
        etag: The etag that it must have, or None for any.
        num_bytes: The length that it must have, or None for any.
    """

    client: Client
    key: str
    uri: str
    etag: str | None
    num_bytes: int | None = None

    @classmethod
    def of(
        cls, uri: str, options: StorageOptions, etag: str | None, num_bytes: int | None = None
    ) -> ObjectParts:
        return cls(*client_and_key(uri, options), uri, etag, num_bytes)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop). Raises as `read_object`."""
        data = self.client.call(self.uri, "read", functools.partial(self._get, start, stop))
        COUNTERS.add("bytes_read", len(data))
        return data

    def _get(self, start: int, stop: int) -> bytes:
        changed = ChangedError(
            f"{self.uri} changed while it was downloaded"
            if self.num_bytes is None
            else f"{self.uri} is not {self.num_bytes:,} bytes long"
        )
        try:
            result = obstore.get(self.client.objects, self.key, options={"range": (start, stop)})
        except (BaseError, OSError, ValueError) as error:
            if is_past_end(error):
                raise changed from None
            raise
        # Compared in each part: the object may be replaced between two of them, at the same length.
        there = plain_etag(result.meta["e_tag"])
        if self.etag and there and there != self.etag:
            raise ChangedError(f"{self.uri} changed while it was downloaded")
        if self.num_bytes is not None and result.meta["size"] != self.num_bytes:
            raise changed
        data = bytes(result.bytes())
        # obstore passes a body that the server cut.
        if len(data) != stop - start:
            raise OSError(f"received {len(data)} of {stop - start} bytes")  # `call` retries it
        return data


def download(
    uri: str,
    options: StorageOptions,
    descriptor: int,
    num_bytes: int,
    *,
    etag: str | None = None,
) -> None:
    """Write an object to a local file.

    Args:
        uri: The object.
        options: Storage options.
        descriptor: The local file, open for writing.
        num_bytes: The length that the object must have.
        etag: The etag that it must have, or None for any.

    Raises:
        CanceledError: It is not wanted any more.
        MissingError, ChangedError, StorageError: As `read_object`.
        OSError: The file cannot be written.
    """
    source = ObjectParts.of(uri, options, etag, num_bytes)
    # A pool of its own, not that of `reads`: a download may be started there, and would wait for
    # itself.
    with ThreadPoolExecutor(_PARTS_AT_A_TIME, thread_name_prefix="shardwright-download") as pool:
        waiting: list[Future[None]] = [
            pool.submit(cancelable, current(), _download_part, source, descriptor, start)
            for start in range(0, num_bytes, PART_BYTES)
        ]
        # The first failure fails the object, so the parts that have not begun are left out.
        finished, unfinished = wait(waiting, return_when=FIRST_EXCEPTION)
        for future in unfinished:
            future.cancel()
    for future in finished:
        future.result()


def _download_part(source: ObjectParts, descriptor: int, start: int) -> None:
    check_not_canceled()
    data = source.read(start, min(start + PART_BYTES, source.num_bytes or 0))
    view, place = memoryview(data), start
    while view:  # a disk that is getting full writes less than asked, before it raises
        written = os.pwrite(descriptor, view, place)
        view, place = view[written:], place + written
