"""Read, check, encode and frame a chunk of a shard's images, in one task of the thread pool.

Quality signals describe the image as it is stored, so that they are a function of the dataset: a
sample read from finished shards has the same values. So a re-encoded image is decoded once more;
the pixels before a lossy encoder would give others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import value

from shardwright.errors import ImageFault
from shardwright.images.decode import StoredImage, stored_image
from shardwright.images.kinds import ImageInfo
from shardwright.images.pixel_measures import NO_PIXELS, ChannelSums
from shardwright.images.previews import decode_preview
from shardwright.images.signals import SIGNALS, PictureMeasures, measure_picture
from shardwright.images.signals_file import SIGNALS_SCHEMA
from shardwright.transforms.images.pixels import PIXELS
from shardwright.transforms.images.storing import ImageToStore
from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.examples import ExampleEncoder, FramedRecords
from shardwright.transforms.write.image_reads import ImageRead
from shardwright.transforms.write.made_records import MadeRecord, StoredRows
from shardwright.transforms.write.transformed_rows import TransformedRows
from shardwright.transforms.write.watchdog import Watched, watching
from shardwright.transforms.write.write_job import WriteJob

CHUNK_RECORDS = 64
CHUNK_BYTES = 4 << 20
MEASURED = ("format", "width", "height")  # columns of the index; null for records without an image
_UNKNOWN = (float("nan"),) * len(SIGNALS)


class MeasuredRecords(NamedTuple):
    """The measurements of some records.

    Attributes:
        rows: Rows of a file of signals.
        channels: The channel sums of all their images.
    """

    rows: pa.Table
    channels: ChannelSums


@dataclass(frozen=True, slots=True)
class Chunk:
    """A finished chunk of a shard.

    Attributes:
        framed: The records to write.
        rows: The row in the shard of each record.
        ids: The id of each record.
        labels: The label index of each record, or None.
        infos: Format and size of each image.
        image_bytes: Length of each image in bytes.
        rejects: Rejects of the rows that failed.
        fixes: Number of images by fix.
        signals: The measurements of the records; None unless they are wanted.
        columns: Of copied records, the columns of features with statistics; None if there are none.
    """

    framed: FramedRecords
    rows: list[int]
    ids: list[str]
    labels: list[int | None]
    infos: list[ImageInfo]
    image_bytes: list[int]
    rejects: list[Reject]
    fixes: Counter[str]
    signals: MeasuredRecords | None = None
    columns: pa.RecordBatch | None = None


def measured(chunk: Chunk, name: str) -> list[object]:
    """Return one of `MEASURED` for each record of a chunk, None for records without an image."""
    return [
        getattr(info, name) if num_bytes else None
        for info, num_bytes in zip(chunk.infos, chunk.image_bytes, strict=True)
    ]


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
    references: pa.RecordBatch,
    reads: Sequence[ImageRead],
    *,
    first_row: int,
    entries: Sequence[bytes],
    encoder: ExampleEncoder,
    job: WriteJob,
) -> Chunk:
    """Make the records of some rows of a shard.

    Args:
        references: The rows.
        reads: Reads from `start_reads`: of each row, then of each column of additional images.
        first_row: The number of the first row in its shard.
        entries: The rows' encoded known features; unused if users' functions make the records.
        encoder: Encoder of the job's schema.
        job: The settings of all shards.
    """
    rows = (
        TransformedRows(references, reads, encoder, job)
        if job.transforms
        else StoredRows(references, reads, entries, job)
    )
    with watching(references, job.image_seconds) as watched:
        made, crcs, rejects = _make_records(references, rows, watched)
        signals = _measure(made, job) if job.signals else None
    chunk = _frame(made, crcs, rejects, first_row, encoder)
    return replace(chunk, signals=signals)


def _measure(made: Sequence[MadeRecord], job: WriteJob) -> MeasuredRecords:
    ids, images = [record.id for record in made], [record.image for record in made]
    return measure_records(ids, images, stored_image(job.schema))


def _make_records(
    references: pa.RecordBatch, rows: TransformedRows | StoredRows, watched: Watched
) -> tuple[list[MadeRecord], list[int], list[Reject]]:
    """Return the records of the rows, the CRC32C of each image, and the rejects."""
    made: list[MadeRecord] = []
    crcs: list[int] = []
    rejects = []
    for row in range(references.num_rows):
        watched.begin(row)
        try:
            records = rows.records_of(row)
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
    first_row: int,
    encoder: ExampleEncoder,
) -> Chunk:
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
        [first_row + record.row for record in made],
        [record.id for record in made],
        [record.label for record in made],
    )
    return Chunk(framed, rows, ids, labels, infos, [len(image) for image in images], rejects, fixes)


def measure_records(
    ids: Sequence[str], images: Sequence[ImageToStore], stored: StoredImage
) -> MeasuredRecords:
    """Measure stored images; values are null without an image or if it does not decode."""
    found = [_measure_image(image, stored) for image in images]
    known = [each.signals if each else _UNKNOWN for each in found]
    values = np.array(known, np.float32).reshape(len(found), len(SIGNALS))
    missing = np.array([each is None for each in found], bool)
    columns = {
        "id": pa.array(ids, pa.string()),
        **{
            signal.name: pa.array(values[:, number], pa.float32(), mask=missing)
            for number, signal in enumerate(SIGNALS)
        },
    }
    channels = sum((each.channels for each in found if each), NO_PIXELS)
    return MeasuredRecords(pa.table(columns, schema=SIGNALS_SCHEMA), channels)


def join_records(parts: Sequence[MeasuredRecords]) -> MeasuredRecords:
    """Return the measurements of several chunks as one."""
    rows = pa.concat_tables([SIGNALS_SCHEMA.empty_table(), *(part.rows for part in parts)])
    return MeasuredRecords(rows, sum((part.channels for part in parts), NO_PIXELS))


def _measure_image(image: ImageToStore, stored: StoredImage) -> PictureMeasures | None:
    if not image.data:
        return None
    try:
        # Waits until all threads together hold few enough pixels.
        with PIXELS.hold(image.info.width * image.info.height):
            preview = decode_preview(image.data, stored)
    except ImageFault:
        return None
    return measure_picture(preview.pixels, width=preview.width, height=preview.height)
