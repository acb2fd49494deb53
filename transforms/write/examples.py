"""Encode tf.Examples from Arrow columns and image bytes, and frame them without copying images.

A serialized tf.Example is `0x0a <length> <Features>`. Features is a sequence of map entries, so
entries that are encoded apart can be concatenated. `tfx_bsl` writes the entries of a message in a
random order (of a hash map), so columns are encoded one by one to get repeatable bytes. `tfx_bsl`
has no wheel for Python 3.14 and for Linux on ARM: there Python code makes the same bytes, more
slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
from google_crc32c import value

from shardwright.format.crc import combine, combine_all
from shardwright.format.example import bytes_entry_header, varint
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES, frame_footer, frame_header
from shardwright.format.schema import PICTURES, ExampleSchema, Source, StoredFeature
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.references import LABEL_INDEX, extra_name, stacked
from shardwright.transforms.write.made_records import ImageToStore

T = TypeVar("T")

_MEASURED = (Source.FORMAT, Source.HEIGHT, Source.WIDTH, Source.ORIENTATION)
_FEW_ROWS = 64
_COLUMNS = {Source.ID: "id", Source.LABEL: LABEL_INDEX, Source.LABEL_TEXT: "label"}


@dataclass(frozen=True, slots=True)
class FramedRecords:
    """Records ready to be written one after another.

    Attributes:
        pieces: The bytes, in order. Each image is a piece of its own, the object that was read.
        lengths: Length of each record in bytes, with its frame.
        image_offsets: Start of each image in bytes, from the start of its record; without an image,
            the end of the example.
        image_crcs: Plain CRC32C of each image.
        record_crcs: Plain CRC32C of the data of each record.
        crc32c: Plain CRC32C of all the bytes.
    """

    pieces: list[bytes]
    lengths: list[int]
    image_offsets: list[int]
    image_crcs: list[int]
    record_crcs: list[int]
    crc32c: int

    @property
    def num_bytes(self) -> int:
        return sum(self.lengths)


class ExampleEncoder:
    """A stateless encoder of references and images as tf.Examples of a schema."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._image_key = None if schema.image is None else schema.image.name.encode()
        small = [feature for feature in schema.small_features if feature.kind not in PICTURES]
        known = [
            (feature.source, stored)
            for feature in small
            if feature.source not in _MEASURED
            for stored in feature.stored
        ]
        self._known = [
            (_COLUMNS.get(source) or extra_name(stored.key), stored) for source, stored in known
        ]
        self._measured = [
            (str(feature.source), feature.stored[0])
            for feature in small
            if feature.source in _MEASURED
        ]

    def encode_known(self, references: pa.RecordBatch) -> list[bytes]:
        """Return the map entries of all features known before images are read, per row."""
        return _encode_columns(
            [(stored, references.column(name)) for name, stored in self._known], references.num_rows
        )

    def encode_measured(self, infos: Sequence[ImageInfo]) -> list[bytes]:
        """Return the map entries of format, height, width and orientation, per image."""
        columns = [
            (stored, pa.array([getattr(info, name) for info in infos]))
            for name, stored in self._measured
        ]
        return _encode_columns(columns, len(infos))

    @staticmethod
    def encode_pictures(pictures: Mapping[str, ImageToStore]) -> bytes:
        """Return the map entries of a record's additional images, by feature name."""
        return b"".join(
            bytes_entry_header(name.encode(), len(picture.data)) + picture.data
            for name, picture in pictures.items()
        )

    def frame(
        self,
        entries: Sequence[bytes],
        measured: Sequence[bytes],
        images: Sequence[bytes],
        image_crcs: Sequence[int],
    ) -> FramedRecords:
        """Frame records of `entries`, `measured` and the image, in this order, with checksums.

        The image is last, so it can be written without copying it. `measured` may end with the
        entries of additional images. Images are not read: their checksums are known.
        """
        sizes = [len(image) for image in images]
        heads = []
        for known, found, num_bytes in zip(entries, measured, sizes, strict=True):
            small = known + found
            if self._image_key is not None:
                small += bytes_entry_header(self._image_key, num_bytes)
            # The length includes the image, which is written after this head as the object that was
            # read.
            heads.append(b"\x0a" + varint(len(small) + num_bytes) + small)
        lengths = [len(head) + num_bytes for head, num_bytes in zip(heads, sizes, strict=True)]
        crcs = combine([value(head) for head in heads], image_crcs, sizes).tolist()
        # Moved by one: the footer of a record is written together with the header of the next.
        footers = [b"", *map(frame_footer, crcs)]
        # One piece from the last image to this one: footer, header and small features.
        joints = [
            footer + frame_header(num_bytes) + head
            for footer, num_bytes, head in zip(footers, lengths, heads, strict=False)
        ]
        joints.append(footers[-1])
        return FramedRecords(
            pieces=_interleave(joints, images),
            lengths=[HEADER_BYTES + num_bytes + FOOTER_BYTES for num_bytes in lengths],
            image_offsets=[HEADER_BYTES + len(head) for head in heads],
            image_crcs=list(image_crcs),
            record_crcs=crcs,
            # No byte of an image is read again for the shard's checksum.
            crc32c=combine_all(
                _interleave([value(joint) for joint in joints], image_crcs),
                _interleave([len(joint) for joint in joints], sizes),
            ),
        )


def _interleave(joints: Sequence[T], images: Sequence[T]) -> list[T]:
    """Return the first joint, the first image, and so on to the last joint."""
    both = [item for pair in zip(joints, images, strict=False) for item in pair]
    return [*both, joints[-1]]


def _encode_columns(
    columns: Sequence[tuple[StoredFeature, pa.Array]], num_rows: int
) -> list[bytes]:
    entries: dict[int, list[bytes]] = {}
    # Of many rows, adding the keys takes longer than a call for each column.
    few = num_rows <= _FEW_ROWS
    rules = [
        (stored.type, stored.shape) if few else number for number, (stored, _) in enumerate(columns)
    ]
    for numbers, whole in stacked([column for _, column in columns], rules):
        stored = columns[numbers[0]][0]
        if len(numbers) == 1:
            entries[numbers[0]] = _encode_column(stored, whole, stored.key)
            continue
        # Each value without its key, to which the own key of each column is then added.
        values = [_strip_length(each)[2:] for each in _encode_column(stored, whole, "")]
        for start, number in enumerate(numbers):
            key = columns[number][0].key.encode()
            head = b"\x0a" + varint(len(key)) + key
            entries[number] = [
                b"\x0a" + varint(len(head) + len(each)) + head + each
                for each in values[start * num_rows : (start + 1) * num_rows]
            ]
    in_order = (entries[number] for number in range(len(columns)))
    return [b"".join(row) for row in zip(*in_order, strict=True)] if columns else [b""] * num_rows


def _encode_column(stored: StoredFeature, column: pa.Array, key: str) -> list[bytes]:
    """Return one map entry per row, each `0x0a <length>` and `key` with its Feature."""
    if stored.shape:
        lists = column.cast(pa.large_list(stored.type))
    else:
        lists = pa.LargeListArray.from_arrays(np.arange(len(column) + 1), column.cast(stored.type))
    return _encode_lists(lists, key)


def _encode_lists_by_tfx_bsl(lists: pa.LargeListArray, key: str) -> list[bytes]:
    """Return one map entry per row: the one-feature example without its outer `0x0a <length>`."""
    from tfx_bsl.coders import example_coder

    batch = pa.RecordBatch.from_arrays([lists], [key])
    return [
        _strip_length(example)
        for example in example_coder.RecordBatchToExamplesEncoder().encode(batch)
    ]


def _encode_lists_in_python(lists: pa.LargeListArray, key: str) -> list[bytes]:
    """Return the bytes of `_encode_lists_by_tfx_bsl`.

    The fields are those of `tensorflow/core/example/feature.proto`: a Feature is a BytesList (field
    1), a FloatList (2) or an Int64List (3); numbers are packed. All fields are length-delimited, so
    their tags are 0x0a, 0x12 and 0x1a.
    """
    head = _field(b"\x0a", key.encode())
    starts = lists.offsets.to_numpy()
    values = lists.values.slice(starts[0], starts[-1] - starts[0])
    rows = list(pairwise((starts - starts[0]).tolist()))
    if pa.types.is_float32(values.type):
        packed = values.to_numpy(zero_copy_only=False).astype("<f4").tobytes()
        tag, of_rows = b"\x12", [_packed(packed[4 * start : 4 * end]) for start, end in rows]
    elif pa.types.is_int64(values.type):
        # A negative number is the varint of its 64 bits.
        numbers = [
            varint(number) for number in values.to_numpy(zero_copy_only=False).view("u8").tolist()
        ]
        tag, of_rows = b"\x1a", [_packed(b"".join(numbers[start:end])) for start, end in rows]
    else:
        texts = [_field(b"\x0a", text) for text in values.to_pylist()]
        tag, of_rows = b"\x0a", [b"".join(texts[start:end]) for start, end in rows]
    return [
        _field(b"\x0a", head + _field(b"\x12", _field(tag, row) if valid else b""))
        for row, valid in zip(of_rows, lists.is_valid().to_pylist(), strict=True)
    ]


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def _packed(numbers: bytes) -> bytes:
    return _field(b"\x0a", numbers) if numbers else b""


_encode_lists = (
    _encode_lists_by_tfx_bsl if find_spec("tfx_bsl") is not None else _encode_lists_in_python
)


def _strip_length(example: bytes) -> bytes:
    # The varint ends with the first byte below 0x80.
    start = 1
    while example[start] & 0x80:
        start += 1
    return example[start + 1 :]
