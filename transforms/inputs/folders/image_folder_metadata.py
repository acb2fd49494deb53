"""Hugging Face ImageFolder as input: images, and a metadata file with a row for each.

The layout is that of `datasets/packaged_modules/folder_based_builder`: a `metadata.csv`, `.jsonl`
or `.parquet` in the folder itself, or one in each split folder. Its column `file_name` is relative
to it; columns `<name>_file_name` hold further images.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.inputs.file_rules import place_of
from shardwright.transforms.inputs.folders.folder_files import list_files
from shardwright.transforms.inputs.folders.image_folder_look import MetadataFolderFacts, look
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.tables.table_references import list_table
from shardwright.transforms.references import picture_columns, set_column
from shardwright.transforms.rejects import Reject, RejectReason


def list_part(facts: MetadataFolderFacts, part: str) -> Rows:
    """Yield the images of a metadata file or of a folder without one, and files without a row."""
    named: set[str | None] = set()
    if not part.endswith("/"):
        for found in list_table(facts.table, part):
            if isinstance(found, Reject):
                named |= {found.uri, f"{facts.root}/{found.id}"}
                yield found
            else:
                further = (
                    pc.struct_field(found.column(name), "uri")
                    for name in picture_columns(found.schema)
                )
                for uris in (found.column("uri"), *further):
                    named.update(uris.to_pylist())
                yield _with_splits(facts, found)
    yield from _without_rows(facts, part, named)


def _with_splits(facts: MetadataFolderFacts, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fill splits from the folders where the metadata states none."""
    if not facts.split_folders:
        return batch
    below = (uri.removeprefix(f"{facts.root}/") for uri in batch.column("uri").to_pylist())
    folders = pa.array(
        [place_of(facts.split_folders, relative)[0] for relative in below], pa.string()
    )
    return set_column(batch, "split", pc.coalesce(batch.column("split"), folders))


def _without_rows(
    facts: MetadataFolderFacts, part: str, named: set[str | None]
) -> Iterator[Reject]:
    """Yield a reject for each file without a metadata row."""
    folder = posixpath.dirname(part)
    root = f"{facts.root}/{folder}" if folder else facts.root
    known = named | set(map(facts.table.path_of, facts.table.files))
    for row in list_files(root, (), facts.table.storage):
        if row.uri in known:
            continue
        row_id = f"{folder}/{row.id}" if folder else row.id
        if isinstance(row, ImageRow):
            told = "the metadata has no row for it" if named else "it has no metadata file"
            yield Reject(row_id, row.uri, RejectReason.MISSING_LABEL, told)
        else:
            yield dataclasses.replace(row, id=row_id)


FORMAT = SourceFormat(
    "a folder of images with metadata.csv, .jsonl or .parquet (Hugging Face ImageFolder)",
    look,
    list_part,
    rank=60,
    lists_all=True,
    has_top_folders=True,
)
