"""Encoding: small features from Arrow, a column at a time, and records framed around image bytes that are never copied.

A serialized tf.Example is `0x0a <length> <Features>`, and Features is a sequence of map entries, so entries encoded apart can
be put one after another. `tfx_bsl` writes the entries of one message in an order that changes from call to call (a hash map's);
one column at a time there is only one entry, which makes the bytes repeatable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google_crc32c import extend, value
from tfx_bsl.coders import example_coder

from shardwright.example import bytes_entry_header, varint
from shardwright.records import FOOTER_BYTES, HEADER_BYTES, frame_footer, frame_header
from shardwright.schema import PICTURES, ExampleSchema, Source, StoredFeature
from transforms.images import ImageInfo
from transforms.references import LABEL_INDEX, extra_name

_MEASURED = (Source.FORMAT, Source.HEIGHT, Source.WIDTH, Source.ORIENTATION)
_COLUMNS = {Source.ID: "id", Source.LABEL: LABEL_INDEX, Source.LABEL_TEXT: "label"}


@dataclass(frozen=True, slots=True)
class FramedRecords:
    """Records ready to be written one after another.

    Attributes:
        pieces: The bytes, in order; image bytes are pieces of their own, the very objects that were read.
        lengths: Each record's length, frame and all.
        image_offsets: Where each record's image begins, from the record's own start.
        image_crcs: Plain CRC32C of each image.
    """

    pieces: list[bytes]
    lengths: list[int]
    image_offsets: list[int]
    image_crcs: list[int]


class ExampleEncoder:
    """Encodes references and images as the tf.Examples a schema declares. Has no state between calls."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._image_key = schema.image.name.encode()
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
        """The map entries of all features known before an image is read, one bytes object a row."""
        return _encode_columns(
            [(stored, references.column(name)) for name, stored in self._known], references.num_rows
        )

    def encode_measured(self, infos: Sequence[ImageInfo]) -> list[bytes]:
        """The map entries of the features read off each image: format, height, width."""
        columns = [
            (stored, pa.array([getattr(info, name) for info in infos]))
            for name, stored in self._measured
        ]
        return _encode_columns(columns, len(infos))

    @staticmethod
    def encode_pictures(pictures: Mapping[str, bytes]) -> bytes:
        """The map entries of a record's further pictures, by feature name."""
        return b"".join(
            bytes_entry_header(name.encode(), len(data)) + data for name, data in pictures.items()
        )

    def frame(
        self, entries: Sequence[bytes], measured: Sequence[bytes], images: Sequence[bytes]
    ) -> FramedRecords:
        """Records of `entries`, `measured` (after which further pictures may stand) and the image, each framed with its checksums."""
        framed = FramedRecords([], [], [], [])
        footer = b""
        for known, found, image in zip(entries, measured, images, strict=True):
            image_header = bytes_entry_header(self._image_key, len(image))
            small = known + found + image_header
            head = b"\x0a" + varint(len(small) + len(image)) + small
            num_bytes = len(head) + len(image)
            framed.pieces.append(footer + frame_header(num_bytes) + head)
            framed.pieces.append(image)
            footer = frame_footer(extend(value(head), image))
            framed.lengths.append(HEADER_BYTES + num_bytes + FOOTER_BYTES)
            framed.image_offsets.append(HEADER_BYTES + len(head))
            framed.image_crcs.append(value(image))
        framed.pieces.append(footer)
        return framed


def _encode_columns(
    columns: Sequence[tuple[StoredFeature, pa.Array]], num_rows: int
) -> list[bytes]:
    entries = [_encode_column(stored, column) for stored, column in columns]
    return [b"".join(row) for row in zip(*entries, strict=True)] if entries else [b""] * num_rows


def _encode_column(stored: StoredFeature, column: pa.Array) -> list[bytes]:
    """One map entry a row: the encoded one-feature example without its outer `0x0a <length>`."""
    if stored.shape:
        lists = column.cast(pa.large_list(stored.type))
    else:
        lists = pa.LargeListArray.from_arrays(np.arange(len(column) + 1), column.cast(stored.type))
    batch = pa.RecordBatch.from_arrays([lists], [stored.key])
    return [
        _strip_length(example)
        for example in example_coder.RecordBatchToExamplesEncoder().encode(batch)
    ]


def _strip_length(example: bytes) -> bytes:
    start = 1
    while example[start] & 0x80:
        start += 1
    return example[start + 1 :]
