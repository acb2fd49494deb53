"""Chunks: a run of a shard's images, read, checked, encoded and framed in one task of the thread pool."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from shardwright.errors import StorageError
from shardwright.schema import ExampleSchema
from transforms.examples import ExampleEncoder, FramedRecords
from transforms.folders import etag_of, file_problem
from transforms.images import EncodeOptions, ImageFault, ImageInfo, check_image, encode_image
from transforms.rejects import Reject, RejectReason

CHUNK_RECORDS = 64
CHUNK_BYTES = 4 << 20
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What is the same for all shards of a build.

    Attributes:
        root: The dataset's folder.
        schema: The features, class names included.
        check: "header", "decode" or "none".
        encode: What becomes of an image's bytes.
        threads: Chunks worked on at a time in one process, or None for as many as pay.
    """

    root: str
    schema: ExampleSchema
    check: str
    encode: EncodeOptions
    threads: int | None = None

    @property
    def computing_threads(self) -> int:
        """How many chunks can keep a core busy: those that decode run without Python's lock."""
        decodes = self.check == "decode" or self.encode.encode != "keep"
        return (os.cpu_count() or 1) if decodes else 1

    def with_class_names(self, class_names: tuple[str, ...]) -> WriteJob:
        return replace(self, schema=self.schema.with_class_names(class_names))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A finished chunk: the records that are ready, which of its rows they are, and the rows that failed."""

    framed: FramedRecords
    rows: list[int]
    infos: list[ImageInfo]
    image_bytes: list[int]
    rejects: list[Reject]


def chunk_bounds(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[start, stop) of chunks of up to `CHUNK_RECORDS` images and, but for single larger images, `CHUNK_BYTES` bytes."""
    start, total = 0, 0
    for row, size in enumerate(sizes):
        if row > start and (row - start == CHUNK_RECORDS or total + size > CHUNK_BYTES):
            yield start, row
            start, total = row, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


def make_chunk(references: pa.RecordBatch, first_row: int, entries: Sequence[bytes], encoder: ExampleEncoder, job: WriteJob) -> Chunk:
    """The records of some rows of a shard; rows are numbered from `first_row`, `entries` are their known features."""
    rows, infos, images, rejects = [], [], [], []
    columns = (references.column(name).to_pylist() for name in ("id", "uri", "num_bytes", "etag"))
    for row, (image_id, uri, num_bytes, etag) in enumerate(zip(*columns, strict=True)):
        try:
            image, info = _take_image(uri, num_bytes, etag, job)
        except ImageFault as fault:
            rejects.append(Reject(image_id, uri, fault.reason, fault.detail))
            continue
        rows.append(row)
        infos.append(info)
        images.append(image)
    framed = encoder.frame([entries[row] for row in rows], encoder.encode_measured(infos), images)
    return Chunk(framed, [first_row + row for row in rows], infos, [len(image) for image in images], rejects)


def _take_image(uri: str, num_bytes: int, etag: str | None, job: WriteJob) -> tuple[bytes, ImageInfo]:
    data = _read_image(uri, num_bytes, etag)
    stored = job.encode.encode == "keep"
    info = check_image(data, job.check, stored=stored)
    return (data, info) if stored else encode_image(data, job.encode)


def _read_image(uri: str, num_bytes: int, etag: str | None) -> bytes:
    """An image's bytes, which must be those that were listed.

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
