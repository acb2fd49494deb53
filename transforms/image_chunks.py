"""Chunks: a run of a shard's images, read, checked, encoded and framed in one task of the thread pool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from shardwright.schema import ExampleSchema
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions
from transforms.examples import ExampleEncoder, FramedRecords
from transforms.image_reads import ImageRead
from transforms.images import EncodeOptions, ImageFault, ImageInfo, check_image, encode_image
from transforms.rejects import Reject

CHUNK_RECORDS = 64
CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What is the same for all shards of a build.

    Attributes:
        root: The dataset's folder.
        schema: The features, class names included.
        check: "header", "decode" or "none".
        encode: What becomes of an image's bytes.
        threads: Chunks of files worked on at a time in one process, or objects read at a time; None for as many as pay.
        storage: Options of the stores that images are in.
        fingerprint: Of the build's plan, which OUTPUT must still be about when a shard is put there; None outside of a build.
    """

    root: Folder
    schema: ExampleSchema
    check: str
    encode: EncodeOptions
    threads: int | None = None
    storage: StorageOptions = NO_OPTIONS
    fingerprint: str | None = None

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


def make_chunk(
    references: pa.RecordBatch,
    reads: Sequence[ImageRead],
    *,
    first_row: int,
    entries: Sequence[bytes],
    encoder: ExampleEncoder,
    job: WriteJob,
) -> Chunk:
    """The records of some rows of a shard; rows are numbered from `first_row`, `entries` are their known features."""
    rows, infos, images, rejects = [], [], [], []
    columns = (references.column(name).to_pylist() for name in ("id", "uri"))
    for row, (image_id, uri, read) in enumerate(zip(*columns, reads, strict=True)):
        try:
            image, info = _take_image(read, job)
        except ImageFault as fault:
            rejects.append(Reject(image_id, uri, fault.reason, fault.detail))
            continue
        rows.append(row)
        infos.append(info)
        images.append(image)
    framed = encoder.frame([entries[row] for row in rows], encoder.encode_measured(infos), images)
    return Chunk(framed, [first_row + row for row in rows], infos, [len(image) for image in images], rejects)


def _take_image(read: ImageRead, job: WriteJob) -> tuple[bytes, ImageInfo]:
    data = read()
    stored = job.encode.encode == "keep"
    info = check_image(data, job.check, stored=stored)
    return (data, info) if stored else encode_image(data, job.encode)
