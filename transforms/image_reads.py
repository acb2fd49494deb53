"""Reading images: files when their bytes are wanted, objects of stores ahead of that, many at a time."""

from __future__ import annotations

import errno
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import pyarrow as pa

from shardwright.errors import StorageError
from shardwright.storage import StorageOptions, is_remote, read_object
from shardwright.storage.reads import REQUESTS_IN_FLIGHT, start_read
from transforms.folders import etag_of, file_problem, size_problem
from transforms.images import ImageFault
from transforms.rejects import RejectReason, reason_of

ImageRead = Callable[[], bytes]  # gives an image's bytes, or raises ImageFault

AHEAD_BYTES = 64 << 20  # of objects that are read and not taken yet, for each shard that is being written
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def start_reads(references: pa.RecordBatch, storage: StorageOptions, in_flight: int | None = None) -> list[ImageRead]:
    """A read for each row; those of objects have begun.

    Args:
        references: Rows with `uri`, `num_bytes` and `etag`.
        storage: Options of the stores.
        in_flight: Objects read at a time in this process, None for as many as pay.
    """
    columns = (references.column(name).to_pylist() for name in ("uri", "num_bytes", "etag"))
    wanted = in_flight or REQUESTS_IN_FLIGHT
    return [_start_read(uri, num_bytes, etag, storage, wanted) for uri, num_bytes, etag in zip(*columns, strict=True)]


def read_ahead(
    chunks: Iterable[pa.RecordBatch], storage: StorageOptions, in_flight: int | None = None
) -> Iterator[tuple[pa.RecordBatch, list[ImageRead]]]:
    """Each chunk with its reads, begun early enough that `in_flight` objects are always on their way, within `AHEAD_BYTES`."""
    waiting: deque[tuple[pa.RecordBatch, list[ImageRead], int]] = deque()
    wanted = 2 * (in_flight or REQUESTS_IN_FLIGHT)
    images = num_bytes = 0
    try:
        for chunk in chunks:
            ahead = sum(size or 0 for size in chunk.column("num_bytes").to_pylist())
            waiting.append((chunk, start_reads(chunk, storage, in_flight), ahead))
            images, num_bytes = images + chunk.num_rows, num_bytes + ahead
            while waiting and (images > wanted or num_bytes > AHEAD_BYTES or not is_remote(waiting[0][0].column("uri")[0].as_py())):
                first, reads, ahead = waiting.popleft()
                images, num_bytes = images - first.num_rows, num_bytes - ahead
                yield first, reads
        while waiting:
            first, reads, _ = waiting.popleft()
            yield first, reads
    finally:
        for _, reads, _ in waiting:
            for read in reads:
                if isinstance(read, _BegunRead):
                    read.cancel()


class _BegunRead:
    """A read that is on its way, or will be."""

    def __init__(self, future: Future[bytes]) -> None:
        self._future = future

    def __call__(self) -> bytes:
        return self._future.result()

    def cancel(self) -> None:
        """Leave it, if it has not left yet."""
        self._future.cancel()


def _start_read(uri: str, num_bytes: int, etag: str | None, storage: StorageOptions, in_flight: int) -> ImageRead:
    if is_remote(uri):
        return _BegunRead(start_read(functools.partial(read_remote_image, uri, num_bytes, etag, storage), in_flight))
    return functools.partial(read_local_image, uri, num_bytes, etag)


def read_remote_image(uri: str, num_bytes: int, etag: str | None, storage: StorageOptions) -> bytes:
    """An object's bytes, which must be those that were listed.

    Raises:
        ImageFault: It is gone, may not be read, has changed since it was listed, or fails where others are served.
        StorageError: The store fails altogether, which is no fault of the image.
    """
    try:
        data = read_object(uri, storage, num_bytes=None if etag is None else num_bytes, etag=etag).data
    except StorageError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise ImageFault(reason, str(error)) from error
    if problem := size_problem(len(data)):
        raise ImageFault(*problem)
    return data


def read_local_image(uri: str, num_bytes: int, etag: str | None) -> bytes:
    """A file's bytes, which must be those that were listed.

    Raises:
        ImageFault: It is gone, may not be read, or has changed since it was listed.
        StorageError: This process has no files or memory left, which is no fault of the image.
    """
    try:
        descriptor = os.open(uri, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe would block for ever
        try:
            status = os.fstat(descriptor)
            if etag is None:  # nobody has looked at the file yet
                if problem := file_problem(status):
                    raise ImageFault(*problem)
            elif status.st_size != num_bytes or etag_of(status) != etag:
                raise ImageFault(RejectReason.CHANGED, "the file changed between listing and reading: build again")
            data = os.read(descriptor, status.st_size)
            while len(data) < status.st_size and (more := os.read(descriptor, status.st_size - len(data))):
                data += more
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ImageFault(RejectReason.MISSING_FILE, "there is no such file") from error
    except ValueError as error:  # a path with a NUL in it
        raise ImageFault(RejectReason.UNREADABLE, str(error)) from error
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise StorageError(f"cannot read {uri}: {error.strerror}; lower --threads or raise the limit (ulimit -n)") from error
        raise ImageFault(RejectReason.UNREADABLE, error.strerror or str(error)) from error
    return data
