"""Read, check, encode and frame a chunk of a shard's images, in one task of the thread pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from google_crc32c import value

from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.made_records import MadeRecord
from shardwright.transforms.write.watchdog import Watched, watching
from shardwright.transforms.write.write_job import Chunk, ReadRows, WriteJob

CHUNK_RECORDS = 64
CHUNK_BYTES = 4 << 20


def chunk_bounds(sizes: Sequence[int], scale: int = 1) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of chunks of at most `CHUNK_RECORDS` images and `CHUNK_BYTES` bytes.

    `scale` multiplies both. A larger image is a chunk of its own.
    """
    most_records, most_bytes = scale * CHUNK_RECORDS, scale * CHUNK_BYTES
    start, total = 0, 0
    for row, size in enumerate(sizes):
        # By records, too: the fixed cost of a chunk is shared by 64 images, and memory is bounded
        # by bytes.
        if row > start and (row - start == most_records or total + size > most_bytes):
            yield start, row
            start, total = row, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


def make_chunk(
    rows: ReadRows, records_of: Callable[[int], list[MadeRecord]], job: WriteJob
) -> Chunk:
    """Make the records of some rows of a shard, a row at a time.

    Args:
        rows: The rows.
        records_of: Returns the records of a row, by its number; raises `ImageFault` to reject it.
        job: The settings of all shards.
    """
    with watching(rows.references, job.image_seconds) as watched:
        made, crcs, rejects = _make_records(rows.references, records_of, watched)
        images = [record.image for record in made]
        extra = job.measure([record.id for record in made], images)
    return replace(_frame(made, crcs, rejects, rows), extra=extra)


def _make_records(
    references: pa.RecordBatch, records_of: Callable[[int], list[MadeRecord]], watched: Watched
) -> tuple[list[MadeRecord], list[int], list[Reject]]:
    """Return the records of the rows, the CRC32C of each image, and the rejects."""
    made: list[MadeRecord] = []
    crcs: list[int] = []
    rejects = []
    for row in range(references.num_rows):
        watched.begin(row)
        try:
            records = records_of(row)
        # `fault_of` raises again what is no fault of this image, such as an unreachable store.
        except Exception as error:
            fault = fault_of(error)
            image_id, uri = (references.column(name)[row].as_py() for name in ("id", "uri"))
            rejects.append(Reject(image_id, uri, RejectReason(fault.reason), fault.what))
            continue
        made += records
        # Now, because the image is still in the processor's cache: later it takes several times
        # as long (benchmarks/writing.py).
        crcs += [value(record.image.data) for record in records]
    return made, crcs, rejects


def _frame(
    made: Sequence[MadeRecord],
    crcs: list[int],
    rejects: list[Reject],
    read: ReadRows,
) -> Chunk:
    encoder = read.encoder
    infos, images = [record.image.info for record in made], [record.image.data for record in made]
    measured = [
        known + encoder.encode_pictures(record.pictures) if record.pictures else known
        for known, record in zip(encoder.encode_measured(infos), made, strict=True)
    ]
    framed = encoder.frame([record.entries for record in made], measured, images, crcs)
    pictures = [picture for record in made for picture in record.pictures.values()]
    stored = [*(record.image for record in made), *pictures]
    fixes = Counter(fix for image in stored for fix in image.fixes)
    rows, ids, labels = (
        [read.first_row + record.row for record in made],
        [record.id for record in made],
        [record.label for record in made],
    )
    return Chunk(framed, rows, ids, labels, infos, [len(image) for image in images], rejects, fixes)
