"""Make the record of a row: read, check and encode its image and additional images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from shardwright.format.schema import FeatureKind
from shardwright.transforms.images.storing import (
    NO_IMAGE,
    ImageToStore,
    check_stated_size,
    store_image,
    upright_size,
)
from shardwright.transforms.references import LABEL_INDEX, STATED_SIZE
from shardwright.transforms.write.further_pictures import further_reads, take_pictures
from shardwright.transforms.write.image_reads import NO_PICTURE, ImageRead
from shardwright.transforms.write.write_job import WriteJob


class MadeRecord(NamedTuple):
    """A record without its frame.

    Attributes:
        row: The number of its row in the chunk.
        id: The id.
        label: The label's index; None without classes.
        entries: The encoded small features.
        image: The image, without bytes if the record has none.
        pictures: The additional images by feature name.
    """

    row: int
    id: str
    label: int | None
    entries: bytes
    image: ImageToStore
    pictures: Mapping[str, ImageToStore]


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


class StoredRows:
    """A maker of records that stores each row unchanged, as one record."""

    def __init__(
        self,
        references: pa.RecordBatch,
        reads: Sequence[ImageRead],
        entries: Sequence[bytes],
        job: WriteJob,
    ) -> None:
        self._ids, self._uris, self._labels = (
            references.column(name).to_pylist() for name in ("id", "uri", LABEL_INDEX)
        )
        self._reads, self._entries, self._job = reads, entries, job
        self._further = further_reads(references, reads, job.schema)
        self._stated_sizes = stated_sizes(references)
        self._has_masks = any(each.kind == FeatureKind.MASK for each, _ in self._further)
        self._may_lack_image = job.schema.may_lack_image

    def records_of(self, row: int) -> list[MadeRecord]:
        """Return the record of a row, or raise ImageFault if it is rejected."""
        job, image_id, read = self._job, self._ids[row], self._reads[row]
        name = image_name(image_id, self._uris[row])
        image, size = NO_IMAGE, None
        # Where an image is required, a row without one goes on to `store_image`, which rejects no
        # bytes.
        if read is not NO_PICTURE or not self._may_lack_image:
            data = read()
            image = store_image(data, job.encode, check=job.check, name=name)
            if (stated := self._stated_sizes[row]) is not None:
                check_stated_size(data, stated, job.encode, check=job.check, stored=image)
            if self._has_masks:
                size = upright_size(data, job.encode, job.check, image)
        pictures = take_pictures(self._further, row, job.check, job.encode, size)
        return [MadeRecord(row, image_id, self._labels[row], self._entries[row], image, pictures)]
