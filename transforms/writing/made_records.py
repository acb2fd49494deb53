"""One row of a shard made a record: its image and further pictures read, checked and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from transforms.images import ImageToStore, store_image
from transforms.references import LABEL_INDEX
from transforms.writing.further_pictures import further_reads, take_pictures
from transforms.writing.image_reads import ImageRead
from transforms.writing.write_job import WriteJob


class MadeRecord(NamedTuple):
    """A record but for its frame.

    Attributes:
        row: Of which of its chunk's rows it is.
        id: Its id.
        label: Its label's index, None where there are no classes.
        entries: Its small features, encoded.
        image: Its image.
        pictures: Its further pictures by feature name.
    """

    row: int
    id: str
    label: int | None
    entries: bytes
    image: ImageToStore
    pictures: Mapping[str, ImageToStore]


def image_name(image_id: str, uri: str) -> str:
    """The name whose extension may say a picture's format: an archive's member is named by its id, but a table's id may say nothing."""
    return image_id if "." in image_id else uri


class StoredRows:
    """Rows as they are: a record each."""

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

    def records_of(self, row: int) -> list[MadeRecord]:
        """Raises ImageFault where the row is left out."""
        job, image_id = self._job, self._ids[row]
        name = image_name(image_id, self._uris[row])
        image = store_image(self._reads[row](), job.encode, check=job.check, name=name)
        pictures = take_pictures(self._further, row, job.check, job.encode)
        return [MadeRecord(row, image_id, self._labels[row], self._entries[row], image, pictures)]
