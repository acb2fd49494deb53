"""Download large objects into local files: 8 MB parts, four at a time, each retried separately."""

from __future__ import annotations

import os
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from shardwright.storage.cancellation import cancelable, check_not_canceled, current
from shardwright.storage.object_reads import ObjectParts
from shardwright.storage.options import StorageOptions

PART_BYTES = 8 << 20
_PARTS_AT_A_TIME = 4  # 32 MB in memory


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
    source = ObjectParts(uri, options, etag, num_bytes)
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
