"""TFRecord files as references: each image by its byte range in the file, and the other features of its record as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from shardwright.errors import RecordFault
from shardwright.example import ExampleFault
from shardwright.reader.entries import Block, Span, bytes_span, find_features, read_values
from shardwright.records import HEADER_BYTES, RecordSpan
from transforms.inputs.file_rules import Problem, size_problem
from transforms.inputs.input_files import FileState, InputFile
from transforms.inputs.tfrecords.tfrecord_layout import RecordLayout, is_sequence_example
from transforms.references import BATCH_ROWS, PICTURE_TYPE, extra_name
from transforms.rejects import Reject, RejectReason

MAX_BATCH_BYTES = 16 << 20  # of values in a batch: a feature may be large
_KINDS = {
    pa.binary(): "bytes_list",
    pa.float32(): "float_list",
    pa.int64(): "int64_list",
    pa.string(): "int64_list",
}
Place = tuple[int, int]  # offset, number of bytes
Keep = Callable[
    [bytes, int, Span], int
]  # (record, its offset, where in it a picture is) -> the offset of the picture in what is read later


class _Misfit(Exception):  # noqa: N818 - becomes a reject
    """A record that can be no reference."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.problem: Problem = (reason, detail)


class _Every(frozenset[bytes]):
    """All keys that there may be."""

    def __contains__(self, key: object) -> bool:
        return True


_EVERY = _Every()


def keep_in_place(record: bytes, offset: int, span: Span) -> int:
    """The offset in the file of a picture that stays where it is."""
    del record
    return offset + HEADER_BYTES + span[0]


def list_records(
    frames: Iterator[RecordSpan | RecordFault],
    file: InputFile,
    layout: RecordLayout,
    *,
    schema: pa.Schema,
    uri: str,
    state: FileState,
    keep: Keep = keep_in_place,
) -> Iterator[pa.RecordBatch | Reject]:
    """The records of one file as references, and a reject for each that can be none.

    Args:
        frames: Of the file, from its start.
        file: Whose records they are; its name is the start of ids, its split that of the records.
        layout: Which feature is what.
        schema: Of the batches.
        uri: Where the pictures are read later.
        state: Of the file at `uri`: its etag.
        keep: What becomes of a picture.
    """
    maker = _RowMaker(layout, file, uri, state.etag, keep)
    rows: list[dict[str, Any]] = []
    num_bytes = 0
    for number, frame in enumerate(frames):
        if isinstance(frame, RecordFault):
            yield _broken(frame, file, number)
            continue
        try:
            rows.append(maker.make(frame, number))
        except _Misfit as misfit:
            reason, detail = misfit.problem
            yield Reject(
                f"{file.name}#{number}",
                file.uri,
                reason,
                f"record {number} at byte {frame.offset}: {detail}",
            )
            continue
        num_bytes += maker.value_bytes
        if len(rows) == BATCH_ROWS or num_bytes >= MAX_BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows, num_bytes = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _broken(fault: RecordFault, file: InputFile, number: int) -> Reject:
    ends = "the file ends" in fault.what or "unpacked" in fault.what
    reason = RejectReason.TRUNCATED if ends else RejectReason.CORRUPT
    rest = (
        "" if fault.next_offset is not None else "; it and whatever follows in the file is left out"
    )
    return Reject(
        f"{file.name}#{number}",
        file.uri,
        reason,
        f"record {number}, {str(fault).removeprefix('record ')}{rest}",
    )


class _RowMaker:
    """Makes a reference's row of a record.

    Attributes:
        value_bytes: The length of the last record's bytes values, its images left out.
    """

    def __init__(
        self, layout: RecordLayout, file: InputFile, uri: str, etag: str | None, keep: Keep
    ) -> None:
        self._layout = layout
        self._file = file
        self._split = file.split
        self._uri, self._etag, self._keep = uri, etag, keep
        self._keys = {key.encode() for key in layout.keys}
        self._names = {
            feature.column_name: feature.names for feature in layout.features if feature.names
        }
        self.value_bytes = 0

    def make(self, frame: RecordSpan, number: int) -> dict[str, Any]:
        """Raises `_Misfit` where the record can be no reference."""
        layout = self._layout
        block, spans = self._features(frame.data)
        self.value_bytes = 0
        offset, num_bytes = self._picture(layout.image, block, spans, frame)
        split = self._split if layout.split is None else self._text(layout.split, block, spans)
        record_id = self._text(layout.id, block, spans)
        row: dict[str, Any] = {
            "id": f"{self._file.name}#{number}" if layout.id is None else record_id or "",
            "uri": self._uri,
            "offset": offset,
            "num_bytes": num_bytes,
            "etag": self._etag,
            "row": number,
            "split": split,
            "group": self._text(layout.group, block, spans),
            "label": self._label(block, spans),
        }
        if not row["id"]:
            raise _Misfit(RejectReason.BAD_ID, f"its id, {layout.id!r}, is empty")
        for key, kind in layout.columns.items():
            row[extra_name(key)] = self._column(key, kind, block, spans, frame)
        return row

    def _features(self, data: bytes) -> tuple[Block, dict[bytes, Span]]:
        try:
            block, spans = find_features(data, 0, len(data), _EVERY)
        except (ExampleFault, UnicodeError) as error:
            raise _Misfit(RejectReason.BAD_VALUE, str(error)) from error
        if block is not data and is_sequence_example(data):
            raise _Misfit(
                RejectReason.BAD_VALUE, "a tf.SequenceExample; one tf.Example a picture can be read"
            )
        unknown = spans.keys() - self._keys
        if unknown:
            name = min(unknown).decode(errors="replace")
            raise _Misfit(
                RejectReason.BAD_VALUE,
                f"it has the feature {name!r}, which none of the first records has",
            )
        return block, spans

    def _picture(
        self, key: str, block: Block, spans: dict[bytes, Span], frame: RecordSpan
    ) -> Place:
        """Where a picture is in what is read later."""
        found = spans.get(key.encode())
        span = None if found is None else bytes_span(block, found)
        if span is None:
            raise _Misfit(
                RejectReason.BAD_VALUE, f"its image, {key!r}, is missing or not one value of bytes"
            )
        start, stop = span
        if problem := size_problem(stop - start):
            raise _Misfit(*problem)
        if (
            block is not frame.data
        ):  # put together anew by protobuf; the picture is one run of bytes in the record all the same
            start = frame.data.index(block[start:stop])
        return self._keep(frame.data, frame.offset, (start, start + stop - span[0])), stop - span[0]

    def _column(
        self, key: str, kind: pa.DataType, block: Block, spans: dict[bytes, Span], frame: RecordSpan
    ) -> Any:
        if kind == PICTURE_TYPE:
            span = bytes_span(block, spans[key.encode()]) if key.encode() in spans else None
            is_empty = (
                span[0] == span[1] if span else not self._values(key, pa.binary(), block, spans)
            )
            if is_empty:  # how this project, too, stores that there is none
                return None
            offset, num_bytes = self._picture(key, block, spans, frame)
            return {"uri": self._uri, "offset": offset, "num_bytes": num_bytes, "etag": self._etag}
        is_list = pa.types.is_list(kind)
        values = self._values(key, kind.value_type if is_list else kind, block, spans)
        if key in self._names:
            values = [_name_of(value, self._names[key]) for value in values]
        if is_list:
            return values
        if len(values) > 1:
            raise _Misfit(
                RejectReason.BAD_VALUE,
                f"{key!r} has {len(values)} values, and one in the first records",
            )
        return values[0] if len(values) else None

    def _label(self, block: Block, spans: dict[bytes, Span]) -> str | None:
        key = self._layout.label
        text = self._text(key, block, spans)
        if key is None or text is None or self._layout.types[key] != pa.int64():
            return text
        return _name_of(int(text), self._layout.class_names or ())

    def _text(self, key: str | None, block: Block, spans: dict[bytes, Span]) -> str | None:
        """One value as a text: an id, a label, a split."""
        if key is None:
            return None
        values = self._values(key, self._layout.types[key], block, spans)
        if len(values) > 1:
            raise _Misfit(
                RejectReason.BAD_VALUE,
                f"{key!r} has {len(values)} values, and one in the first records",
            )
        value = values[0] if len(values) else None
        if not isinstance(value, bytes):
            return None if value is None else str(value)
        try:
            return value.decode().strip() or None
        except UnicodeDecodeError as error:
            raise _Misfit(
                RejectReason.BAD_VALUE, f"{key!r} is {value[:40]!r}, which is not UTF-8"
            ) from error

    def _values(self, key: str, kind: pa.DataType, block: Block, spans: dict[bytes, Span]) -> Any:
        """The values of a feature, [] where the record has none."""
        span = spans.get(key.encode())
        if span is None:
            return []
        try:
            found, values = read_values(block, span)
        except ExampleFault as error:
            raise _Misfit(RejectReason.BAD_VALUE, f"{key!r}: {error}") from error
        if len(values) and found != _KINDS[kind]:
            raise _Misfit(
                RejectReason.BAD_VALUE,
                f"{key!r} is a {found}, and a {_KINDS[kind]} in the first records",
            )
        if found == "bytes_list":
            self.value_bytes += sum(map(len, values))
        return values


def _name_of(index: int, names: tuple[str, ...]) -> str | None:
    """A class's name; none for -1, which is TFDS's way to say that it is not known, and for others the number itself."""
    if 0 <= index < len(names):
        return names[index]
    return None if index == -1 else str(index)
