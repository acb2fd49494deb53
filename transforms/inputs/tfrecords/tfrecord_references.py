"""List TFRecord files as references: each image as a byte range, other features as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from shardwright.errors import RecordFault
from shardwright.format.entries import Block, Span, bytes_span, find_features, read_values
from shardwright.format.example import ExampleFault
from shardwright.format.records import HEADER_BYTES, RecordSpan
from shardwright.transforms.inputs.file_rules import Problem, size_problem
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.inputs.tfrecords.record_statistics import is_sequence_example
from shardwright.transforms.inputs.tfrecords.tfrecord_layout import WHOLE_RECORD, RecordLayout
from shardwright.transforms.inputs.tfrecords.tfrecord_look import TFRecordFacts
from shardwright.transforms.references import BATCH_ROWS, PICTURE_TYPE, extra_name
from shardwright.transforms.rejects import Reject, RejectReason, incomplete

MAX_BATCH_BYTES = 16 << 20  # of values in a batch, because a feature may be large
_KINDS = {
    pa.binary(): "bytes_list",
    pa.float32(): "float_list",
    pa.int64(): "int64_list",
    pa.string(): "int64_list",
}


class InPlace(NamedTuple):
    """The file of records whose images are read from it later.

    Attributes:
        uri: The file, for references.
        etag: Its etag.
    """

    uri: str
    etag: str | None


class _Misfit(Exception):  # noqa: N818 - becomes a reject
    """A record that cannot be a reference."""

    def __init__(self, detail: str, reason: RejectReason = RejectReason.BAD_VALUE) -> None:
        super().__init__(detail, reason)
        self.problem: Problem = (reason, detail)


class _Every(frozenset[bytes]):
    """A set that contains every key."""

    def __contains__(self, key: object) -> bool:
        return True


_EVERY = _Every()


def list_records(
    facts: TFRecordFacts,
    file: InputFile,
    frames: Iterator[RecordSpan | RecordFault],
    place: InPlace | SpoolWriter,
) -> Rows:
    """Yield the records of one file as references, and a reject for each invalid one.

    Args:
        facts: The facts about INPUT.
        file: The file; its name begins the ids of records without one, its split is their default.
        frames: The file's records and faults, from its start.
        place: The file itself, or the spool that images are copied to.
    """
    maker = _RowMaker(facts.layout, file, place)
    rows: list[dict[str, Any]] = []
    num_bytes = num_rows = 0
    for number, frame in enumerate(frames):
        if isinstance(frame, RecordFault):
            yield _broken(frame, file, number, num_rows)
            continue
        try:
            rows.append(maker.make(frame, number))
        except _Misfit as misfit:
            reason, detail = misfit.problem
            yield _reject(file, number, reason, f" at byte {frame.offset}: {detail}")
            continue
        num_rows += 1
        num_bytes += maker.value_bytes
        if len(rows) == BATCH_ROWS or num_bytes >= MAX_BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=facts.schema)
            rows, num_bytes = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=facts.schema)


def _broken(fault: RecordFault, file: InputFile, number: int, num_rows: int) -> Reject:
    told = f", {str(fault).removeprefix('record ')}"
    if fault.next_offset is None:  # the start of the next record is unknown
        return incomplete(file.name, file.uri, f"record {number}{told}", num_rows)
    return _reject(file, number, RejectReason.CORRUPT, told)


def _reject(file: InputFile, number: int, reason: RejectReason, detail: str) -> Reject:
    return Reject(f"{file.name}#{number}", file.uri, reason, f"record {number}{detail}")


class _RowMaker:
    """A maker of reference rows from records.

    Attributes:
        value_bytes: The length of the last record's bytes values, without its images.
    """

    def __init__(self, layout: RecordLayout, file: InputFile, place: InPlace | SpoolWriter) -> None:
        self._layout = layout
        self._file = file
        self._split = file.split
        self._place = place
        self._keys = {key.encode() for key in layout.keys}
        self._names = {
            feature.column_name: feature.names for feature in layout.features if feature.names
        }
        self.value_bytes = 0

    def make(self, frame: RecordSpan, number: int) -> dict[str, Any]:
        """Return the row of a record. Raises `_Misfit` if the record cannot be a reference."""
        layout = self._layout
        if layout.is_of_bytes:
            return self._of_bytes(frame.data, number)
        block, spans = self._features(frame.data)
        self.value_bytes = 0
        offset, num_bytes = self._main_picture(block, spans, frame)
        split = self._split if layout.split is None else self._text(layout.split, block, spans)
        record_id = self._text(layout.id, block, spans)
        row: dict[str, Any] = {
            "id": f"{self._file.name}#{number}" if layout.id is None else record_id or "",
            "uri": self._place.uri,
            "offset": offset,
            "num_bytes": num_bytes,
            "etag": self._place.etag,
            "row": number,
            "split": split,
            "group": self._text(layout.group, block, spans),
            "label": self._label(block, spans),
        }
        if not row["id"]:
            raise _Misfit(f"its id, {layout.id!r}, is empty", RejectReason.BAD_ID)
        for key, kind in layout.columns.items():
            row[extra_name(key)] = self._column(key, kind, block, spans, frame)
        return row

    def _of_bytes(self, data: bytes, number: int) -> dict[str, Any]:
        self.value_bytes = len(data)
        return {
            "id": f"{self._file.name}#{number}",
            "uri": self._place.uri,
            "offset": 0,
            "num_bytes": 0,
            "etag": self._place.etag,
            "row": number,
            "split": self._split,
            extra_name(WHOLE_RECORD): data,
        }

    def _features(self, data: bytes) -> tuple[Block, dict[bytes, Span]]:
        try:
            block, spans = find_features(data, 0, len(data), _EVERY)
        except (ExampleFault, UnicodeError) as error:
            raise _Misfit(str(error)) from error
        if block is not data and is_sequence_example(data):
            raise _Misfit(
                "a tf.SequenceExample, which is not supported: write one tf.Example for each image"
            )
        unknown = spans.keys() - self._keys
        if unknown:
            name = min(unknown).decode(errors="replace")
            raise _Misfit(f"it has the feature {name!r}, which the first records lack")
        return block, spans

    def _main_picture(
        self, block: Block, spans: dict[bytes, Span], frame: RecordSpan
    ) -> tuple[int, int]:
        """Return the place of the record's own image: (0, 0) if it may lack one, and does."""
        key, may_lack = self._layout.image, self._layout.may_lack_images
        if key is None or (may_lack and self._is_empty(key, block, spans)):
            return 0, 0
        return self._picture(key, block, spans, frame)

    def _is_empty(self, key: str, block: Block, spans: dict[bytes, Span]) -> bool:
        """Return whether an image is missing or b"", which means no image in own records, too."""
        span = bytes_span(block, spans[key.encode()]) if key.encode() in spans else None
        if span is not None:
            return span[0] == span[1]
        return not len(self._values(key, pa.binary(), block, spans))

    def _picture(
        self, key: str, block: Block, spans: dict[bytes, Span], frame: RecordSpan
    ) -> tuple[int, int]:
        """Return the offset and the length in bytes of an image in the file to read later."""
        found = spans.get(key.encode())
        span = None if found is None else bytes_span(block, found)
        if span is None:
            raise _Misfit(f"its image, {key!r}, is missing or not one bytes value")
        start, stop = span
        if problem := size_problem(stop - start):
            raise _Misfit(problem[1], problem[0])
        # Protobuf has reassembled the features; in the record, the image is one run of bytes.
        if block is not frame.data:
            start = frame.data.index(block[start:stop])
        num_bytes = stop - span[0]
        if isinstance(self._place, InPlace):
            return frame.offset + HEADER_BYTES + start, num_bytes
        return self._place.add(frame.data[start : start + num_bytes]), num_bytes

    def _column(
        self, key: str, kind: pa.DataType, block: Block, spans: dict[bytes, Span], frame: RecordSpan
    ) -> Any:
        if kind == PICTURE_TYPE:
            if self._is_empty(key, block, spans):
                return None
            offset, num_bytes = self._picture(key, block, spans, frame)
            return {
                "uri": self._place.uri,
                "offset": offset,
                "num_bytes": num_bytes,
                "etag": self._place.etag,
            }
        is_list = pa.types.is_list(kind)
        values = self._values(key, kind.value_type if is_list else kind, block, spans)
        if key in self._names:
            values = [_name_of(value, self._names[key]) for value in values]
        if is_list:
            return values
        if len(values) > 1:
            raise _Misfit(f"{key!r} has {len(values)} values, but one in the first records")
        return values[0] if len(values) else None

    def _label(self, block: Block, spans: dict[bytes, Span]) -> str | None:
        key = self._layout.label
        text = self._text(key, block, spans)
        if key is None or text is None or self._layout.types[key] != pa.int64():
            return text
        return _name_of(int(text), self._layout.class_names or ())

    def _text(self, key: str | None, block: Block, spans: dict[bytes, Span]) -> str | None:
        """Return one value as text: an id, label, split or group."""
        if key is None:
            return None
        values = self._values(key, self._layout.types[key], block, spans)
        if len(values) > 1:
            raise _Misfit(f"{key!r} has {len(values)} values, but one in the first records")
        value = values[0] if len(values) else None
        if not isinstance(value, bytes):
            return None if value is None else str(value)
        try:
            return value.decode().strip() or None
        except UnicodeDecodeError as error:
            raise _Misfit(f"{key!r} is {value[:40]!r}, which is not UTF-8") from error

    def _values(self, key: str, kind: pa.DataType, block: Block, spans: dict[bytes, Span]) -> Any:
        """Return the values of a feature, [] if the record lacks it."""
        span = spans.get(key.encode())
        if span is None:
            return []
        try:
            found, values = read_values(block, span)
        except ExampleFault as error:
            raise _Misfit(f"{key!r}: {error}") from error
        if len(values) and found != _KINDS[kind]:
            raise _Misfit(f"{key!r} is a {found}, but a {_KINDS[kind]} in the first records")
        if found == "bytes_list":
            self.value_bytes += sum(map(len, values))
        return values


def _name_of(index: int, names: tuple[str, ...]) -> str | None:
    """Return a class's name, None for TFDS's unknown class -1, or the number itself for others."""
    if 0 <= index < len(names):
        return names[index]
    return None if index == -1 else str(index)
