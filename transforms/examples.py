"""Encoding: small features from Arrow, a column at a time, and records framed around image bytes that are never copied.

A serialized tf.Example is `0x0a <length> <Features>`, and Features is a sequence of map entries, so entries encoded apart can
be put one after another. `tfx_bsl` writes the entries of one message in an order that changes from call to call (a hash map's);
one column at a time there is only one entry, which makes the bytes repeatable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google_crc32c import extend, value
from tfx_bsl.coders import example_coder

from shardwright.example import bytes_entry_header, varint
from shardwright.records import FOOTER_BYTES, HEADER_BYTES, frame_footer, frame_header
from shardwright.schema import ARROW_TYPES, ExampleSchema, Feature, Source
from transforms.images import ImageInfo
from transforms.labels import LABEL_INDEX
from transforms.references import extra_name

_MEASURED = (Source.FORMAT, Source.HEIGHT, Source.WIDTH)


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
        self._known = [feature for feature in schema.small_features if feature.source not in _MEASURED]
        self._measured = [feature for feature in schema.small_features if feature.source in _MEASURED]

    def encode_known(self, references: pa.RecordBatch) -> list[bytes]:
        """The map entries of all features known before an image is read, one bytes object a row."""
        return _encode_features([(feature, _column(references, feature)) for feature in self._known], references.num_rows)

    def encode_measured(self, infos: Sequence[ImageInfo]) -> list[bytes]:
        """The map entries of the features read off each image: format, height, width."""
        columns = [(feature, pa.array([getattr(info, feature.source) for info in infos])) for feature in self._measured]
        return _encode_features(columns, len(infos))

    def frame(self, entries: Sequence[bytes], measured: Sequence[bytes], images: Sequence[bytes]) -> FramedRecords:
        """Records of `entries`, `measured` and the image, in that order, each framed with its checksums."""
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


def _column(references: pa.RecordBatch, feature: Feature) -> pa.Array:
    if feature.source == Source.COLUMN:
        return references.column(extra_name(feature.name))
    return references.column({Source.ID: "id", Source.LABEL: LABEL_INDEX, Source.LABEL_TEXT: "label"}[feature.source])


def _encode_features(columns: Sequence[tuple[Feature, pa.Array]], num_rows: int) -> list[bytes]:
    entries = [_encode_column(feature, column) for feature, column in columns]
    return [b"".join(row) for row in zip(*entries, strict=True)] if entries else [b""] * num_rows


def _encode_column(feature: Feature, column: pa.Array) -> list[bytes]:
    """One map entry a row: the encoded one-feature example without its outer `0x0a <length>`."""
    kind = ARROW_TYPES[feature.kind]
    if feature.is_list:
        lists = column.cast(pa.large_list(kind))
    else:
        lists = pa.LargeListArray.from_arrays(np.arange(len(column) + 1), column.cast(kind))
    batch = pa.RecordBatch.from_arrays([lists], [feature.name])
    return [_strip_length(example) for example in example_coder.RecordBatchToExamplesEncoder().encode(batch)]


def _strip_length(example: bytes) -> bytes:
    start = 1
    while example[start] & 0x80:
        start += 1
    return example[start + 1 :]
