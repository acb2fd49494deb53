"""Hugging Face ImageFolder as input: images, and a metadata file with a row for each.

The layout is that of `datasets/packaged_modules/folder_based_builder`: a `metadata.csv`, `.jsonl`
or `.parquet` in the folder itself, or one in each split folder. Its column `file_name` is relative
to it; columns `<name>_file_name` hold further images.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import Feature
from transforms.inputs.file_rules import place_of
from transforms.inputs.folders.folder_files import list_files
from transforms.inputs.folders.image_folder_look import MetadataFolderFacts, facts_of, look
from transforms.inputs.image_rows import ImageRow
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.tables.table_references import list_table
from transforms.references import picture_columns, set_column
from transforms.rejects import Reject, RejectReason


@dataclass(frozen=True, slots=True)
class MetadataFolderSource(InputSource):
    """A folder of images with metadata files."""

    facts: MetadataFolderFacts

    def parts(self) -> Iterator[str]:
        yield from self.facts.table.files
        for folder in self.facts.split_folders:  # without metadata: all its images are rejects
            if not any(
                name.startswith(f"{folder}/") or "/" not in name for name in self.facts.table.files
            ):
                yield f"{folder}/"

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        named: set[str | None] = set()
        if not part.endswith("/"):
            for found in list_table(self.facts.table, part):
                if isinstance(found, Reject):
                    named |= {found.uri, f"{self.facts.root}/{found.id}"}
                    yield found
                else:
                    further = (
                        pc.struct_field(found.column(name), "uri")
                        for name in picture_columns(found.schema)
                    )
                    for uris in (found.column("uri"), *further):
                        named.update(uris.to_pylist())
                    yield self._with_splits(found)
        yield from self._without_rows(part, named)

    def _with_splits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fill splits from the folders where the metadata states none."""
        if not self.facts.split_folders:
            return batch
        below = (uri.removeprefix(f"{self.facts.root}/") for uri in batch.column("uri").to_pylist())
        folders = pa.array(
            [place_of(self.facts.split_folders, relative)[0] for relative in below], pa.string()
        )
        return set_column(batch, "split", pc.coalesce(batch.column("split"), folders))

    def _without_rows(self, part: str, named: set[str | None]) -> Iterator[Reject]:
        """Yield a reject for each file without a metadata row."""
        folder = posixpath.dirname(part)
        root = f"{self.facts.root}/{folder}" if folder else self.facts.root
        table = self.facts.table
        known = named | set(map(table.path_of, table.files))
        for row in list_files(root, (), table.storage):
            if row.uri in known:
                continue
            row_id = f"{folder}/{row.id}" if folder else row.id
            if isinstance(row, ImageRow):
                told = "the metadata has no row for it" if named else "it has no metadata file"
                yield Reject(row_id, row.uri, RejectReason.MISSING_LABEL, told)
            else:
                yield dataclasses.replace(row, id=row_id)

    def for_features(self, features: Sequence[Feature]) -> MetadataFolderSource:
        facts = self.facts
        table = facts.table.for_features(features)
        return MetadataFolderSource(facts_of(facts.root, table, facts.split_folders))


class MetadataFolderFormat(SourceFormat):
    """A folder with metadata files that name its images."""

    name: ClassVar[str] = "image-folder"
    summary: ClassVar[str] = (
        "a folder of images with metadata.csv, .jsonl or .parquet (Hugging Face ImageFolder)"
    )
    rank: ClassVar[int] = 60

    def open(self, request: SourceRequest, *, forced: bool) -> MetadataFolderSource | None:
        facts = look(request, forced=forced)
        return None if facts is None else MetadataFolderSource(facts)
