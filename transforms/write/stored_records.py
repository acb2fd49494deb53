"""Make a record of each row: read, check and encode its image and additional images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from shardwright.errors import ImageFault
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.transforms.images.masks import encode_mask
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import (
    check_stated_size,
    store_image,
    upright_size,
)
from shardwright.transforms.references import LABEL_INDEX, STATED_SIZE, extra_name, picture_columns
from shardwright.transforms.write.image_chunks import make_chunk
from shardwright.transforms.write.image_reads import NO_PICTURE, ImageRead
from shardwright.transforms.write.made_records import NO_IMAGE, ImageToStore, MadeRecord
from shardwright.transforms.write.write_job import Chunk, ReadRows, RecordMaker, ShardRows, WriteJob

FurtherReads = Sequence[tuple[Feature, Sequence[ImageRead]]]  # one read per row


def image_name(image_id: str, uri: str) -> str:
    """Return the name whose extension may tell the format.

    That is the id of an archive's member, but a table's id may have no extension.
    """
    return image_id if "." in image_id else uri


def stated_sizes(references: pa.RecordBatch) -> Sequence[Sequence[float] | None]:
    """Return the size that each row's boxes were divided by; None if they were not."""
    if STATED_SIZE not in references.schema.names:
        return [None] * references.num_rows
    found: list[list[float] | None] = references.column(STATED_SIZE).to_pylist()
    return found


@dataclass(frozen=True)
class StoredRecords(RecordMaker):
    """A maker of one record a row, with its image as the options say.

    Attributes:
        check: "header", "decode" or "none"; "header" decodes odd images.
        encode: How images are re-encoded, if at all.
    """

    check: str
    encode: EncodeOptions
    encodes_rows = True

    @property
    def decodes(self) -> bool:
        return self.check == "decode" or self.encode.decodes

    @property
    def may_crash(self) -> bool:
        return self.check != "none" or self.encode.decodes

    def make(self, rows: ReadRows, job: WriteJob) -> Chunk:
        return make_chunk(rows, _StoredRows(rows, job.schema, self).records_of, job)

    def described(self, shard: ShardRows) -> pa.RecordBatch | None:
        return shard.kept


class _StoredRows:
    """The rows of a chunk."""

    def __init__(self, rows: ReadRows, schema: ExampleSchema, maker: StoredRecords) -> None:
        references, reads = rows.references, rows.reads
        self._ids, self._uris, self._labels = (
            references.column(name).to_pylist() for name in ("id", "uri", LABEL_INDEX)
        )
        self._reads, self._entries, self._maker = reads, rows.entries, maker
        self._further = further_reads(references, reads, schema)
        self._stated_sizes = stated_sizes(references)
        self._has_masks = any(each.kind == FeatureKind.MASK for each, _ in self._further)
        self._may_lack_image = schema.may_lack_image

    def records_of(self, row: int) -> list[MadeRecord]:
        """Return the record of a row, or raise ImageFault if it is rejected."""
        maker, image_id, read = self._maker, self._ids[row], self._reads[row]
        name = image_name(image_id, self._uris[row])
        image, size = NO_IMAGE, None
        # Where an image is required, a row without one goes on to `store_image`, which rejects no
        # bytes.
        if read is not NO_PICTURE or not self._may_lack_image:
            data = read()
            image = store_image(data, maker.encode, check=maker.check, name=name)
            if (stated := self._stated_sizes[row]) is not None:
                check_stated_size(data, stated, maker.encode, check=maker.check, stored=image)
            if self._has_masks:
                size = upright_size(data, maker.encode, maker.check, image)
        pictures = {
            feature.name: take_picture(reads[row], feature, maker.check, maker.encode, size)
            for feature, reads in self._further
        }
        return [MadeRecord(row, image_id, self._labels[row], self._entries[row], image, pictures)]


def further_reads(
    references: pa.RecordBatch, reads: Sequence[ImageRead], schema: ExampleSchema
) -> FurtherReads:
    """Return the reads of each additional image, in writing order.

    Args:
        references: The rows.
        reads: Reads from `start_reads`: of each row, then of each column of additional images.
        schema: The features.
    """
    names, num_rows = picture_columns(references.schema), references.num_rows
    places = {
        name: reads[(number + 1) * num_rows : (number + 2) * num_rows]
        for number, name in enumerate(names)
    }
    return [
        (feature, places[name])
        for feature in schema.features
        if (name := extra_name(feature.name)) in places
    ]


def take_picture(
    read: ImageRead,
    feature: Feature,
    check: str,
    options: EncodeOptions,
    image_size: tuple[int, int] | None,
) -> ImageToStore:
    """Return one additional image to store, without bytes if the record lacks it.

    Args:
        read: Its read, `NO_PICTURE` without one.
        feature: The feature.
        check: As for `check_image`.
        options: Those of the images.
        image_size: Height and width of the record's image, as for `encode_mask`.

    Raises:
        ImageFault: The image is rejected, and its record with it; its text has the feature.
    """
    if read is NO_PICTURE:
        return NO_IMAGE
    try:
        data = read()
        if feature.kind == FeatureKind.MASK:
            return ImageToStore(*encode_mask(data, options, check=check, image_size=image_size))
        return store_image(data, options, check=check)
    except ImageFault as fault:
        # With the feature's name: a record may have several images, and the reject names one id.
        raise ImageFault(f"{feature.name}: {fault.what}", fault.reason) from fault
