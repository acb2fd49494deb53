"""Hugging Face ImageFolder as input: images, and a metadata file with a row for each.

The layout is that of `datasets/packaged_modules/folder_based_builder`: a `metadata.csv`, `.jsonl`
or `.parquet` in the folder itself, or one in each split folder. Its column `file_name` is relative
to it; columns `<name>_file_name` hold further images.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage import Folder
from transforms.inputs.detection import has_wildcard
from transforms.inputs.file_rules import place_of
from transforms.inputs.folders.folder_source import describe_folder, find_splits, list_files
from transforms.inputs.image_rows import ImageRow
from transforms.inputs.source import InputSource, SourceFacts, SourceFormat, SourceRequest
from transforms.inputs.tables.table_files import table_format
from transforms.inputs.tables.table_look import table_of
from transforms.inputs.tables.table_schemas import read_table_schema
from transforms.inputs.tables.table_source import TableSource
from transforms.references import picture_columns, set_column
from transforms.rejects import Reject, RejectReason

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_FILE_NAME = "file_name"
_OWN_NAMES = frozenset({"image", "label", "id"})


@dataclass(frozen=True, slots=True)
class MetadataFolderSource(InputSource):
    """A folder of images with metadata files.

    Attributes:
        root: Its absolute path, or a store's address.
        table: The rows of the metadata files.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
    """

    root: str
    table: TableSource
    split_folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, root: str, table: TableSource, split_folders: tuple[str, ...]
    ) -> MetadataFolderSource:
        """Return the source of a folder and the table of its metadata files."""
        pictures = table.layout.pictures
        taken = _OWN_NAMES | set(table.layout.columns.names)
        facts = SourceFacts(
            f"{describe_folder(root, split_folders)} with {table.facts.description}",
            table.facts.schema,
            tuple(
                _picture_feature(feature.name, taken) if feature.name in pictures else feature
                for feature in table.facts.features
            ),
            table.facts.unstorable,
            states_splits=table.facts.states_splits or bool(split_folders),
            has_integer_labels=table.facts.has_integer_labels,
        )
        return cls(facts, root, table, split_folders)

    def parts(self) -> Iterator[str]:
        yield from self.table.parts()
        for folder in self.split_folders:  # without metadata: all its images are rejects
            if not any(
                name.startswith(f"{folder}/") or "/" not in name for name in self.table.layout.files
            ):
                yield f"{folder}/"

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        named: set[str | None] = set()
        if not part.endswith("/"):
            for found in self.table.list_part(part):
                if isinstance(found, Reject):
                    named |= {found.uri, f"{self.root}/{found.id}"}
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
        if not self.split_folders:
            return batch
        below = (uri.removeprefix(f"{self.root}/") for uri in batch.column("uri").to_pylist())
        folders = pa.array(
            [place_of(self.split_folders, relative)[0] for relative in below], pa.string()
        )
        return set_column(batch, "split", pc.coalesce(batch.column("split"), folders))

    def _without_rows(self, part: str, named: set[str | None]) -> Iterator[Reject]:
        """Yield a reject for each file without a metadata row."""
        folder = posixpath.dirname(part)
        root = f"{self.root}/{folder}" if folder else self.root
        table = self.table.layout
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
        return self.of(self.root, self.table.for_features(features), self.split_folders)


class MetadataFolderFormat(SourceFormat):
    """A folder with metadata files that name its images."""

    name: ClassVar[str] = "image-folder"
    summary: ClassVar[str] = (
        "a folder of images with metadata.csv, .jsonl or .parquet (Hugging Face ImageFolder)"
    )
    rank: ClassVar[int] = 60

    def open(self, request: SourceRequest, *, forced: bool) -> MetadataFolderSource | None:
        is_folder = not has_wildcard(request.uri) and (
            request.is_remote or os.path.isdir(request.uri)
        )
        files, splits = _metadata_files(request) if is_folder else ((), ())
        image, pictures = _picture_columns(request, files) if files else (None, ())
        if image is None:
            if forced:
                raise UsageError(
                    f"{request.argument} {request.uri} has no metadata.csv, .jsonl or .parquet "
                    f"with a column {_FILE_NAME!r} in the folder itself or in its split folders"
                )
            return None
        if request.image_root is not None:
            raise UsageError(
                f"--image-root needs a table, but {request.argument} {request.uri} is a folder "
                f"with metadata files: give the metadata file itself as {request.argument}"
            )
        given = dataclasses.replace(request, columns={**request.columns, "image": image})
        table = table_of(given, request.uri, files)
        roles = {table.image, table.label, table.id, table.split, table.group, table.size}
        table = dataclasses.replace(
            table, pictures=tuple(name for name in pictures if name not in roles)
        )
        return MetadataFolderSource.of(request.uri, TableSource.of(table), splits)


def _metadata_files(request: SourceRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the metadata files below INPUT, and its split folders."""
    if request.uri.startswith(("http://", "https://")):  # a web server does not list its files
        return (), ()
    folder = Folder(request.uri, request.storage)
    here = _metadata_in(folder, "")
    splits = find_splits(request.uri, request.storage)
    if here:
        return (here,), splits
    below = (_metadata_in(folder, f"{split}/") for split in splits)
    return tuple(name for name in below if name), splits


def _metadata_in(folder: Folder, prefix: str) -> str | None:
    """Return the metadata file in a folder, looked up by name so that images are not listed."""
    found = [
        f"{prefix}{name}"
        for name in _METADATA
        if folder.num_bytes_of(f"{prefix}{name}") is not None
    ]
    if len(found) > 1:
        raise UsageError(f"{folder} has {' and '.join(found)}: keep one")
    return found[0] if found else None


def _picture_columns(
    request: SourceRequest, files: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the column of the image, or None, and the columns of further images."""
    kinds = {table_format(name) for name in files}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.argument} {request.uri} has metadata files of several formats, "
            f"{', '.join(files)}: convert them to one"
        )
    paths = [f"{request.uri}/{name}" for name in files]
    names = read_table_schema(paths, kinds.pop() or "", request.storage).names
    pictures = [name for name in names if name == _FILE_NAME or name.endswith(f"_{_FILE_NAME}")]
    given = request.columns.get("image")
    image = given or (_FILE_NAME if _FILE_NAME in pictures else pictures[0] if pictures else None)
    return image, tuple(name for name in pictures if name != image)


def _picture_feature(column: str, taken: set[str] | frozenset[str]) -> Feature:
    """Return an image's feature, called as its column without `_file_name` if that name is free.

    A row may have no such image.
    """
    name = column.removesuffix(f"_{_FILE_NAME}")
    return Feature(
        column if name in taken else name,
        FeatureKind.IMAGE,
        column="" if name in taken else column,
        default="",
    )
