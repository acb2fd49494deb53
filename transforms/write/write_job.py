"""The settings that all shards of a build share, and two seams on which optional parts hang.

A `RecordMaker` turns rows into records, a `ShardExtra` measures these. `pipelines/job/build.py`
chooses both.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from shardwright.format.contents import FileContent
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.images.kinds import ImageInfo
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.rejects import Reject
from shardwright.transforms.write.examples import ExampleEncoder, FramedRecords
from shardwright.transforms.write.image_reads import ImageRead
from shardwright.transforms.write.made_records import ImageToStore

IMAGE_SECONDS = 600.0


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
        extra: The measurements of the records; None unless they are wanted.
        columns: Columns of the records that the rows of the plan lack; None if there are none.
    """

    framed: FramedRecords
    rows: list[int]
    ids: list[str]
    labels: list[int | None]
    infos: list[ImageInfo]
    image_bytes: list[int]
    rejects: list[Reject]
    fixes: Counter[str]
    extra: Any = None
    columns: pa.RecordBatch | None = None


class ReadRows(NamedTuple):
    """Some rows of a shard, whose bytes are being read.

    Attributes:
        references: The rows, from `RecordMaker.places`.
        reads: Reads from `start_reads`: of each row, then of each column of additional images.
        first_row: The number of the first row in its shard.
        entries: The encoded features that the rows themselves have, if `RecordMaker.encodes_rows`.
        encoder: Encoder of the job's schema.
    """

    references: pa.RecordBatch
    reads: Sequence[ImageRead]
    first_row: int
    entries: Sequence[bytes]
    encoder: ExampleEncoder


class ShardRows(NamedTuple):
    """The records of a shard, once they are written.

    Attributes:
        kept: The row of the plan of each record.
        ids: The id of each record.
        columns: `Chunk.columns` of the chunks that have them.
    """

    kept: pa.RecordBatch
    ids: pa.Array
    columns: Sequence[pa.RecordBatch]


class RecordMaker(ABC):
    """Makes records of the rows of a plan. Workers get it with the job; threads share it.

    Attributes:
        encodes_rows: The features of rows are those of records, so they are encoded beforehand.
        makes_other_ids: Records may have other ids than their rows.
    """

    encodes_rows: ClassVar[bool] = False
    makes_other_ids: ClassVar[bool] = False

    @property
    @abstractmethod
    def decodes(self) -> bool:
        """True if it decodes images in any case, which releases the GIL."""

    @property
    @abstractmethod
    def may_crash(self) -> bool:
        """True if decoders or users' functions see an image."""

    def places(self, references: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the places of the bytes to read; usually those of their images."""
        return references

    @abstractmethod
    def make(self, rows: ReadRows, job: WriteJob) -> Chunk:
        """Make the records of some rows of a shard."""

    @abstractmethod
    def described(self, shard: ShardRows) -> pa.RecordBatch | None:
        """Return the columns that statistics of features describe; None without them."""

    def index_columns(self, shard: ShardRows) -> Mapping[str, pa.Array]:  # noqa: ARG002
        """Return the columns of a shard's index that differ from what the rows of its plan say."""
        return {}


class ShardExtra(ABC):
    """Measures each image as it is stored, and keeps the values beside the shard."""

    @abstractmethod
    def measure(
        self, ids: Sequence[str], images: Sequence[ImageToStore], schema: ExampleSchema
    ) -> Any:
        """Return the measurements of a chunk's records, in a thread of the pool."""

    @abstractmethod
    def write(self, root: Folder, name: ShardName, parts: Sequence[Any]) -> FileContent:
        """Write the shard's file of these measurements, and return its content."""

    @abstractmethod
    def describe(self, parts: Sequence[Any]) -> Mapping[str, Any]:
        """Return what they add to the shard's statistics."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The settings that all shards of a build share.

    Attributes:
        root: The dataset's folder.
        schema: The features, with vocabularies.
        maker: How rows become records.
        threads: Chunks of files in flight in one process, or objects read at a time; None is
            automatic.
        storage: Storage options for reading images.
        fingerprint: Fingerprint of the build's plan, which OUTPUT must still have when a shard is
            put there; None outside a build.
        unpublished: As in the Clearance: no dataset was finished in `root` before this build.
        extra: What else is measured of every image.
        image_seconds: Longest time to read, decode and transform one image.
        processes: Processes that share a machine's cores.
    """

    root: Folder
    schema: ExampleSchema
    maker: RecordMaker
    threads: int | None = None
    storage: StorageOptions = NO_OPTIONS
    fingerprint: str | None = None
    unpublished: bool = False
    extra: ShardExtra | None = None
    image_seconds: float = IMAGE_SECONDS
    processes: int = 1

    @property
    def computing_threads(self) -> int:
        """The number of chunks that can compute at once: decoding releases the GIL."""
        decodes = self.maker.decodes or self.extra is not None
        return -(-(os.cpu_count() or 1) // self.processes) if decodes else 1

    @property
    def may_crash(self) -> bool:
        """True if decoders or users' functions see an image."""
        return self.maker.may_crash or self.extra is not None

    def measure(self, ids: Sequence[str], images: Sequence[ImageToStore]) -> Any:
        """Return the measurements of some records as they are stored; None unless wanted."""
        return None if self.extra is None else self.extra.measure(ids, images, self.schema)

    def with_vocabularies(self, vocabularies: Mapping[str, tuple[str, ...]]) -> WriteJob:
        return replace(self, schema=self.schema.with_vocabularies(vocabularies))

    def cleared(self, clearance: Clearance) -> WriteJob:
        """Return the job of a build that may write."""
        return replace(
            self.with_vocabularies(clearance.vocabularies),
            root=self.root.below(clearance.folder),
            fingerprint=clearance.fingerprint,
            unpublished=clearance.unpublished,
        )
