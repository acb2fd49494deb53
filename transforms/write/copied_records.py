"""Copy records of a finished dataset: check their bytes, and write them unchanged.

No image is decoded. A record is copied only if its frame is intact and it is the record of the
index's row, so that rows of the new index never describe other bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value

from shardwright.errors import ImageFault
from shardwright.format.crc import combine_all
from shardwright.format.entries import find_features, read_values
from shardwright.format.example import ExampleFault
from shardwright.format.records import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    frame_footer,
    frame_header,
)
from shardwright.format.schema import StoredFeature
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.inputs.file_rules import Problem
from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.publish.feature_statistics import described_features
from shardwright.transforms.references import (
    HASH,
    LABEL_INDEX,
    ORIGIN,
    RECORD_CRC,
    concat,
    extra_name,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.examples import FramedRecords
from shardwright.transforms.write.image_reads import ImageRead
from shardwright.transforms.write.made_records import ImageToStore
from shardwright.transforms.write.watchdog import watching
from shardwright.transforms.write.write_job import Chunk, ReadRows, RecordMaker, ShardRows, WriteJob

_IMAGE_BYTES = "image_bytes"


@dataclass(frozen=True)
class CopiedRecords(RecordMaker):
    """A maker that copies records."""

    decodes, may_crash = False, False

    def places(self, references: pa.RecordBatch) -> pa.RecordBatch:
        return _record_places(references)

    def make(self, rows: ReadRows, job: WriteJob) -> Chunk:
        references = rows.references
        described = [feature.stored[0] for feature in described_features(job.schema)]
        found, faults = _read_copies(references, rows.reads, described)
        intact = _intact(found, faults)
        copies = [copy for copy, _ in intact]
        ids, uris, labels = (references.column(n).to_pylist() for n in ("id", "uri", LABEL_INDEX))
        ids_of_copies = [ids[copy.row] for copy in copies]
        with watching(references, job.image_seconds):
            images = [ImageToStore(copy.image, copy.info) for copy in copies]
            extra = job.measure(ids_of_copies, images)
        return Chunk(
            framed=_framed(intact),
            rows=[rows.first_row + copy.row for copy in copies],
            ids=ids_of_copies,
            labels=[labels[copy.row] for copy in copies],
            infos=[copy.info for copy in copies],
            image_bytes=[copy.image_bytes for copy in copies],
            rejects=[Reject(ids[n], uris[n], *faults[n]) for n in sorted(faults)],
            fixes=Counter(),
            extra=extra,
            columns=_columns_of(copies, described),
        )

    def described(self, shard: ShardRows) -> pa.RecordBatch | None:
        return concat(shard.columns) if shard.columns else None


class _Copy(NamedTuple):
    """A record that was read.

    Attributes:
        row: The number of its row in the chunk.
        frame: The record with its frame.
        image_offset: Start of the image in the frame; it ends with the record's data.
        crc: The CRC32C of its data by the index.
        origin: Its `ORIGIN`.
        values: The values of features with statistics.
    """

    row: int
    frame: bytes
    image_offset: int
    crc: int
    origin: dict[str, Any]
    values: list[Any]

    @property
    def image_bytes(self) -> int:
        return len(self.frame) - FOOTER_BYTES - self.image_offset

    @property
    def image(self) -> bytes:
        return self.frame[self.image_offset : -FOOTER_BYTES]

    @property
    def info(self) -> ImageInfo:
        origin = self.origin
        return ImageInfo(origin["format"] or "", origin["width"] or 0, origin["height"] or 0, 0)


def _record_places(references: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of records to copy, at the places of the records instead of their images."""
    names = ["id", "uri", "offset", "num_bytes", "etag", LABEL_INDEX, ORIGIN, HASH, RECORD_CRC]
    rows = references.select(names)
    rows = set_column(rows, _IMAGE_BYTES, rows.column("num_bytes"))
    # The record's span instead of the image's: `read_ahead` and the readers take them from the same
    # columns.
    rows = set_column(rows, "offset", pc.struct_field(rows.column(ORIGIN), "offset"))
    return set_column(rows, "num_bytes", pc.struct_field(rows.column(ORIGIN), "length"))


def _read_copies(
    references: pa.RecordBatch, reads: Sequence[ImageRead], described: Sequence[StoredFeature]
) -> tuple[list[_Copy], dict[int, Problem]]:
    """Read the records; return those with an intact image, and the fault of each other row."""
    copies: list[_Copy] = []
    faults: dict[int, Problem] = {}
    columns = (references.column(n).to_pylist() for n in (ORIGIN, _IMAGE_BYTES, RECORD_CRC))
    for row, (read, origin, size, crc) in enumerate(zip(reads, *columns, strict=True)):
        try:
            copies.append(_opened(row, read(), origin, size, crc, described))
        except Exception as error:
            fault = fault_of(error)
            faults[row] = (RejectReason(fault.reason), fault.what)
    return copies, faults


def _opened(
    row: int,
    frame: bytes,
    origin: dict[str, Any],
    image_bytes: int,
    crc: int,
    described: Sequence[StoredFeature],
) -> _Copy:
    """Return a record whose length is intact, with the values of features."""
    # Compared as bytes: a right length with a right checksum is one value.
    if frame[:HEADER_BYTES] != frame_header(len(frame) - FRAME_BYTES):
        raise ImageFault(_damaged(origin, "its length is damaged"))
    try:
        values = _values_of(frame, described)
    except ExampleFault as error:
        raise ImageFault(_damaged(origin, str(error))) from error
    return _Copy(row, frame, len(frame) - FOOTER_BYTES - image_bytes, crc, origin, values)


def _intact(copies: Sequence[_Copy], faults: dict[int, Problem]) -> list[tuple[_Copy, int]]:
    """Return intact records, with the CRC32C of their data; add the others to `faults`."""
    intact = []
    for copy in copies:
        data = value(copy.frame[HEADER_BYTES:-FOOTER_BYTES])
        if copy.crc == data and copy.frame[-FOOTER_BYTES:] == frame_footer(data):
            intact.append((copy, data))
        else:
            told = _damaged(copy.origin, "its bytes or its index row are damaged")
            faults[copy.row] = (RejectReason.CORRUPT, told)
    return intact


def _damaged(origin: dict[str, Any], what: str) -> str:
    detail = f"the record at byte {origin['offset']} of the shard: {what}"
    return f"{detail}; `shardwright verify` lists all damaged records"


def _framed(intact: Sequence[tuple[_Copy, int]]) -> FramedRecords:
    copies = [copy for copy, _ in intact]
    lengths = [len(copy.frame) for copy in copies]
    return FramedRecords(
        pieces=[copy.frame for copy in copies],
        lengths=lengths,
        image_offsets=[copy.image_offset for copy in copies],
        image_crcs=[copy.origin["crc32c"] for copy in copies],
        record_crcs=[data for _, data in intact],
        crc32c=combine_all([value(copy.frame) for copy in copies], lengths),
    )


def _columns_of(
    copies: Sequence[_Copy], described: Sequence[StoredFeature]
) -> pa.RecordBatch | None:
    """Return the columns of features with statistics; None if there are none."""
    columns = {
        extra_name(one.key): pa.array(
            [copy.values[number] for copy in copies], pa.list_(one.type) if one.shape else one.type
        )
        for number, one in enumerate(described)
    }
    return pa.RecordBatch.from_pydict(columns) if columns else None


def _values_of(frame: bytes, described: Sequence[StoredFeature]) -> list[Any]:
    """Return a value or a list per feature, None or [] if the record lacks it.

    Raises:
        ExampleFault: The record is not an example, or a feature has another type.
    """
    if not described:
        return []
    keys = [one.key.encode() for one in described]
    block, spans = find_features(frame, HEADER_BYTES, len(frame) - FOOTER_BYTES, keys)
    found: list[Any] = []
    for key, one in zip(keys, described, strict=True):
        kind, values = read_values(block, spans[key]) if key in spans else (None, [])
        wanted = f"{one.told_kind}_list"
        if len(values) and kind != wanted:
            raise ExampleFault(f"feature {one.key!r} is a {kind}, expected {wanted}")
        if one.shape:
            found.append(values)
        else:
            found.append(values[0] if len(values) else None)
    return found
