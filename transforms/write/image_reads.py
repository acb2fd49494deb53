"""Read images: files on demand, objects of stores concurrently and ahead of their use."""

from __future__ import annotations

import errno
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

import pyarrow as pa

from shardwright.errors import ImageFault, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.object_reads import ObjectParts, read_object
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import REQUESTS_IN_FLIGHT, map_reads, start_read
from shardwright.transforms.inputs.file_rules import SPOOL_ETAG, etag_of, file_problem, size_problem
from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.references import QUERY, picture_columns, record_bytes
from shardwright.transforms.rejects import RejectReason, reason_of

T = TypeVar("T")


class ImageLocation(NamedTuple):
    """The place of an image.

    Attributes:
        uri: The file or object.
        offset: Start of the image in it, in bytes; None if the image is all of it.
        num_bytes: Length of the image in bytes.
        etag: A value that changes with the file's or object's content; None if not looked up.
        query: The query of a signed URL; None for any other address.
    """

    uri: str
    offset: int | None
    num_bytes: int
    etag: str | None
    query: str | None = None


ImageRead = Callable[[], bytes]  # returns an image's bytes, or raises ImageFault
NO_PICTURE: ImageRead = bytes  # the read of an image that a record lacks: no bytes

AHEAD_BYTES = 64 << 20  # of objects read ahead, per shard being written
# Concurrent local reads: reading waits for the disk, and what is computed may release the GIL.
_READERS = 16
_CHANGED = "the file changed between listing and reading: build again"
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def start_reads(
    references: pa.RecordBatch, storage: StorageOptions, in_flight: int | None = None
) -> list[ImageRead]:
    """Return a read per row, then one per row of each column of additional images.

    Reads of objects start at once.

    Args:
        references: Rows with `uri`, `offset`, `num_bytes`, `etag` and columns of `PICTURE_TYPE`.
        storage: Storage options for reading images.
        in_flight: Objects read at a time in this process; None is automatic.
    """
    return [
        start_read_of(place, storage, in_flight) if place else NO_PICTURE
        for place in places_of(references)
    ]


def places_of(references: pa.RecordBatch) -> list[ImageLocation | None]:
    """Return the places in the order of `start_reads`; None for an image that a record lacks."""
    # No bytes of a file are the place of a record without an image.
    places = [
        None if place.offset is not None and place.num_bytes == 0 else place
        for place in main_places(references)
    ]
    for name in picture_columns(references.schema):
        places += [
            None if picture is None else ImageLocation(**picture)
            for picture in references.column(name).to_pylist()
        ]
    return places


def place_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that hold the places of the records' own images, in their order."""
    return [name for name in ImageLocation._fields if name != QUERY or name in schema.names]


def main_places(references: pa.RecordBatch) -> list[ImageLocation]:
    """Return the place of each record's own image."""
    columns = (references.column(name).to_pylist() for name in place_columns(references.schema))
    return [ImageLocation(*row) for row in zip(*columns, strict=True)]


def start_read_of(
    place: ImageLocation, storage: StorageOptions, in_flight: int | None
) -> ImageRead:
    """Return a read of one image; the read of an object starts at once."""
    if is_remote(place.uri):
        read = functools.partial(read_remote_image, place, storage)
        return _BegunRead(start_read(read, in_flight or REQUESTS_IN_FLIGHT))
    return functools.partial(read_local_image, place)


def read_ahead(
    chunks: Iterable[pa.RecordBatch], storage: StorageOptions, in_flight: int | None = None
) -> Iterator[tuple[pa.RecordBatch, list[ImageRead]]]:
    """Yield each chunk with its reads, begun early enough to keep `in_flight` objects under way.

    At most about `AHEAD_BYTES` are read ahead.
    """
    waiting: deque[tuple[pa.RecordBatch, list[ImageRead], int]] = deque()
    # Twice, so that the pool always has a queue while a chunk is taken away.
    wanted = 2 * (in_flight or REQUESTS_IN_FLIGHT)
    images = num_bytes = 0
    try:
        for chunk in chunks:
            ahead = sum(record_bytes(chunk))
            waiting.append((chunk, start_reads(chunk, storage, in_flight), ahead))
            images, num_bytes = images + chunk.num_rows, num_bytes + ahead
            # Local files are read on demand, so their chunks never wait.
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
    """A read of an object that has started or is queued."""

    def __init__(self, future: Future[bytes]) -> None:
        self._future = future

    def __call__(self) -> bytes:
        return self._future.result()

    def cancel(self) -> None:
        """Cancel the read if it has not started."""
        self._future.cancel()


def read_remote_image(place: ImageLocation, storage: StorageOptions) -> bytes:
    """Return an image's bytes from a store, if they are unchanged since they were listed.

    Raises:
        ImageFault: The object is missing, denied, changed, or fails while others are served.
        StorageError: The whole store fails.
    """
    uri, offset, num_bytes, etag, query = place
    try:
        if offset is None:
            # Without an etag the object was not looked up: its length is a guess of the plan.
            expected = None if etag is None else num_bytes
            data = read_object(uri, storage, num_bytes=expected, etag=etag, query=query)
        else:
            parts = ObjectParts(uri, storage, None if _is_spooled(place) else etag)
            data = parts.read(offset, offset + num_bytes)
    except StorageError as error:
        reason = reason_of(error, uri if offset is None else "")
        if reason is None:
            raise
        raise ImageFault(str(error), reason) from error
    if problem := size_problem(len(data)):
        raise ImageFault(problem[1], problem[0])
    return data


def read_local_image(place: ImageLocation) -> bytes:
    """Return an image's bytes from disk, if they are unchanged since they were listed.

    Raises:
        ImageFault: The file is missing, denied, or changed.
        StorageError: This process has run out of file descriptors or memory.
    """
    uri = place.uri
    try:
        # O_NONBLOCK, because opening a named pipe would block forever.
        descriptor = os.open(uri, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            start, num_bytes = _checked_span(place, status)
            # Of the descriptor whose status was checked, so that the file cannot be another one in
            # between.
            data = os.pread(descriptor, num_bytes, start)
            while len(data) < num_bytes and (
                more := os.pread(descriptor, num_bytes - len(data), start + len(data))
            ):
                data += more
            now = os.fstat(descriptor)
            is_same = (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
            # A container may grow while it is read.
            if len(data) < num_bytes or (place.offset is None and not is_same):
                raise ImageFault(_CHANGED, RejectReason.CHANGED)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ImageFault("there is no such file", RejectReason.MISSING_FILE) from error
    except ValueError as error:  # a path with a NUL character
        raise ImageFault(str(error), RejectReason.UNREADABLE) from error
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise StorageError(
                f"cannot read {uri}: {error.strerror}; lower --threads or raise the limit "
                "(ulimit -n)"
            ) from error
        raise ImageFault(error.strerror or str(error), RejectReason.UNREADABLE) from error
    return data


def _checked_span(place: ImageLocation, status: os.stat_result) -> tuple[int, int]:
    """Return (start, length) of the image in its file, if the file is unchanged."""
    if place.offset is None and place.etag is None:  # the file was not looked up before
        if problem := file_problem(status):
            raise ImageFault(problem[1], problem[0])
        return 0, status.st_size
    start = place.offset or 0
    is_cut = (
        # A whole file of another length has changed; a container may have grown behind its members.
        status.st_size != place.num_bytes
        if place.offset is None
        else status.st_size < start + place.num_bytes
    )
    if is_cut or (
        not _is_spooled(place) and place.etag is not None and etag_of(status) != place.etag
    ):
        raise ImageFault(_CHANGED, RejectReason.CHANGED)
    return start, place.num_bytes


def _is_spooled(place: ImageLocation) -> bool:
    """Return whether the image is in a spool, whose etag is that of the original input."""
    return place.etag is not None and place.etag.startswith(SPOOL_ETAG)


def scan_images(
    compute: Callable[[bytes], T],
    places: Sequence[ImageLocation],
    storage: StorageOptions,
    threads: int | None,
) -> list[T | None]:
    """Return `compute(bytes)` of each image, or None if it cannot be read or `compute` fails.

    Such images are no faults here: WriteShards meets them again and rejects them.

    Raises:
        StorageError: A whole store fails, rather than one object.
    """
    found: list[T | None] = []
    # By bytes, because `map_reads` bounds the number of images in memory, and they may be large.
    for start, stop in runs_of(places):
        in_flight = threads or (
            REQUESTS_IN_FLIGHT
            if is_remote(places[start].uri)
            else min(_READERS, 4 * (os.cpu_count() or 1))
        )
        scan = functools.partial(_scan_image, compute, storage)
        found += map_reads(scan, places[start:stop], in_flight)
    return found


def runs_of(places: Sequence[ImageLocation]) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of runs of at most `AHEAD_BYTES`; a larger image is a run of its own."""
    start = total = 0
    for row, place in enumerate(places):
        if row > start and total + place.num_bytes > AHEAD_BYTES:
            yield start, row
            start, total = row, 0
        total += place.num_bytes
    if start < len(places):
        yield start, len(places)


def _scan_image(
    compute: Callable[[bytes], T], storage: StorageOptions, place: ImageLocation
) -> T | None:
    try:
        remote = is_remote(place.uri)
        return compute(read_remote_image(place, storage) if remote else read_local_image(place))
    except Exception as error:
        fault_of(error)  # raises again what is no fault of the image
        return None
