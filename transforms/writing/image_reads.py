"""Reading images: files when their bytes are wanted, objects of stores ahead of that, many at a time."""

from __future__ import annotations

import errno
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import StorageError
from shardwright.storage import StorageOptions, is_remote, read_object, read_object_part
from shardwright.storage.reads import REQUESTS_IN_FLIGHT, start_read
from transforms.images import ImageFault
from transforms.inputs.file_rules import SPOOL_ETAG, etag_of, file_problem, size_problem
from transforms.references import picture_columns, record_bytes
from transforms.rejects import RejectReason, reason_of


class Place(NamedTuple):
    """Where a picture is.

    Attributes:
        uri: The file or object.
        offset: Where in it the picture begins; None where it is all of it.
        num_bytes: Of the picture.
        etag: What changes with the file's or object's content; None where nobody looked.
    """

    uri: str
    offset: int | None
    num_bytes: int
    etag: str | None


ImageRead = Callable[[], bytes]  # gives an image's bytes, or raises ImageFault
NO_PICTURE: ImageRead = bytes  # the read of a picture that a record does not have

AHEAD_BYTES = (
    64 << 20
)  # of objects that are read and not taken yet, for each shard that is being written
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def start_reads(
    references: pa.RecordBatch, storage: StorageOptions, in_flight: int | None = None
) -> list[ImageRead]:
    """A read for each row, then one for each row of each column of further pictures; those of objects have begun.

    Args:
        references: Rows with `uri`, `offset`, `num_bytes` and `etag`, and columns of `PICTURE_TYPE`.
        storage: Options of the stores.
        in_flight: Objects read at a time in this process, None for as many as pay.
    """
    return [
        start_read_of(place, storage, in_flight) if place else NO_PICTURE
        for place in places_of(references)
    ]


def places_of(references: pa.RecordBatch) -> list[Place | None]:
    """Of each row, then of each row of each column of further pictures; None where a record has none."""
    columns = (references.column(name).to_pylist() for name in Place._fields)
    places: list[Place | None] = [Place(*row) for row in zip(*columns, strict=True)]
    for name in picture_columns(references.schema):
        places += [
            None if picture is None else Place(**picture)
            for picture in references.column(name).to_pylist()
        ]
    return places


def start_read_of(place: Place, storage: StorageOptions, in_flight: int | None = None) -> ImageRead:
    """A read of one picture; that of an object has begun."""
    if is_remote(place.uri):
        read = functools.partial(read_remote_image, place, storage)
        return _BegunRead(start_read(read, in_flight or REQUESTS_IN_FLIGHT))
    return functools.partial(read_local_image, place)


def read_ahead(
    chunks: Iterable[pa.RecordBatch], storage: StorageOptions, in_flight: int | None = None
) -> Iterator[tuple[pa.RecordBatch, list[ImageRead]]]:
    """Each chunk with its reads, begun early enough that `in_flight` objects are always on their way, within `AHEAD_BYTES`."""
    waiting: deque[tuple[pa.RecordBatch, list[ImageRead], int]] = deque()
    wanted = 2 * (in_flight or REQUESTS_IN_FLIGHT)
    images = num_bytes = 0
    try:
        for chunk in chunks:
            ahead = sum(record_bytes(chunk))
            waiting.append((chunk, start_reads(chunk, storage, in_flight), ahead))
            images, num_bytes = images + chunk.num_rows, num_bytes + ahead
            while waiting and (
                images > wanted
                or num_bytes > AHEAD_BYTES
                or not is_remote(waiting[0][0].column("uri")[0].as_py())
            ):
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


def read_remote_image(place: Place, storage: StorageOptions) -> bytes:
    """A picture's bytes in a store, which must be those that were listed.

    Raises:
        ImageFault: It is gone, may not be read, has changed since it was listed, or fails where others are served.
        StorageError: The store fails altogether, which is no fault of the image.
    """
    uri, offset, num_bytes, etag = place
    try:
        if offset is None:
            data = read_object(
                uri, storage, num_bytes=None if etag is None else num_bytes, etag=etag
            ).data
        else:
            data = read_object_part(
                uri, storage, offset, num_bytes, etag=None if _is_spooled(place) else etag
            )
    except StorageError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise ImageFault(reason, str(error)) from error
    if problem := size_problem(len(data)):
        raise ImageFault(*problem)
    return data


def read_local_image(place: Place) -> bytes:
    """A picture's bytes on disk, which must be those that were listed.

    Raises:
        ImageFault: It is gone, may not be read, or has changed since it was listed.
        StorageError: This process has no files or memory left, which is no fault of the image.
    """
    uri = place.uri
    try:
        descriptor = os.open(
            uri, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # a named pipe would block for ever
        try:
            start, num_bytes = _checked_span(place, os.fstat(descriptor))
            data = os.pread(descriptor, num_bytes, start)
            while len(data) < num_bytes and (
                more := os.pread(descriptor, num_bytes - len(data), start + len(data))
            ):
                data += more
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ImageFault(RejectReason.MISSING_FILE, "there is no such file") from error
    except ValueError as error:  # a path with a NUL in it
        raise ImageFault(RejectReason.UNREADABLE, str(error)) from error
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise StorageError(
                f"cannot read {uri}: {error.strerror}; lower --threads or raise the limit (ulimit -n)"
            ) from error
        raise ImageFault(RejectReason.UNREADABLE, error.strerror or str(error)) from error
    return data


def _checked_span(place: Place, status: os.stat_result) -> tuple[int, int]:
    """(start, length) of the picture in its file, as far as the file is the one that was listed."""
    if place.offset is None and place.etag is None:  # nobody has looked at the file yet
        if problem := file_problem(status):
            raise ImageFault(*problem)
        return 0, status.st_size
    start = place.offset or 0
    is_cut = (
        status.st_size != place.num_bytes
        if place.offset is None
        else status.st_size < start + place.num_bytes
    )
    if is_cut or (
        not _is_spooled(place) and place.etag is not None and etag_of(status) != place.etag
    ):
        raise ImageFault(
            RejectReason.CHANGED, "the file changed between listing and reading: build again"
        )
    return start, place.num_bytes


def _is_spooled(place: Place) -> bool:
    """Whether it lies in a spool, whose etag is that of the input it was made of."""
    return place.etag is not None and place.etag.startswith(SPOOL_ETAG)
