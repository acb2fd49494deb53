"""Recognize Hugging Face ImageFolder: its metadata files, their columns, and its split folders."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.addresses import join
from shardwright.storage.folder import files_of
from shardwright.transforms.inputs.folder_contents import is_web
from shardwright.transforms.inputs.folders.folder_look import describe_folder, find_splits
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.inputs.tables.table_files import table_format
from shardwright.transforms.inputs.tables.table_layout import TableLayout
from shardwright.transforms.inputs.tables.table_look import table_of
from shardwright.transforms.inputs.tables.table_schemas import read_table_schema
from shardwright.transforms.inputs.wildcards import has_wildcard

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_FILE_NAME = "file_name"
_OWN_NAMES = frozenset({"image", "label", "id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFolderFacts(SourceFacts):
    """The facts about a folder of images with metadata files.

    Attributes:
        root: Its absolute path, or a store's address.
        table: The table of the metadata files.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
    """

    root: str
    table: TableLayout
    split_folders: tuple[str, ...]

    def parts(self) -> Iterator[str]:
        yield from self.table.files
        for folder in self.split_folders:  # without metadata: all its images are rejects
            if not any(
                name.startswith(f"{folder}/") or "/" not in name for name in self.table.files
            ):
                yield f"{folder}/"

    def for_features(self, features: Sequence[Feature]) -> MetadataFolderFacts:
        return facts_of(self.root, self.table.for_features(features), self.split_folders)


def look(request: SourceRequest) -> MetadataFolderFacts | None:
    """Return the facts about a folder with metadata files; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and there are no metadata files, they are not one table,
            or an option does not fit.
        BuildError: A metadata file cannot be read.
        StorageError: The store cannot be listed.
    """
    is_folder = not has_wildcard(request.uri) and (
        not is_web(request.uri) if request.is_remote else os.path.isdir(request.uri)
    )
    files, splits = _metadata_files(request) if is_folder else ((), ())
    image, pictures = _picture_columns(request, files) if files else (None, ())
    if image is None:
        request.refuse_if_forced(
            "has no metadata.csv, .jsonl or .parquet "
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
    further = tuple(name for name in pictures if name not in roles)
    return facts_of(request.uri, dataclasses.replace(table, pictures=further), splits)


def facts_of(root: str, table: TableLayout, split_folders: tuple[str, ...]) -> MetadataFolderFacts:
    """Return the facts about a folder, given the table of its metadata files."""
    of_table = table.facts
    taken = _OWN_NAMES | set(table.columns.names)
    features = tuple(
        _picture_feature(feature.name, taken) if feature.name in table.pictures else feature
        for feature in of_table.features
    )
    return MetadataFolderFacts(
        f"{describe_folder(root, split_folders)} with {of_table.description}",
        of_table.schema,
        features,
        of_table.unstorable,
        states_splits=of_table.states_splits or bool(split_folders),
        labels_from=of_table.labels_from,
        has_integer_labels=of_table.has_integer_labels,
        root=root,
        table=table,
        split_folders=split_folders,
    )


def _metadata_files(request: SourceRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the metadata files below INPUT, and its split folders."""
    splits = find_splits(request)
    here = _metadata_in(request, "")
    if here:
        return (here,), splits
    below = (_metadata_in(request, f"{split}/") for split in splits)
    return tuple(name for name in below if name), splits


def _metadata_in(request: SourceRequest, prefix: str) -> str | None:
    """Return the metadata file in a folder, looked up by name if its images are not all listed."""
    length_of = files_of(request.uri, request.storage).num_bytes_of
    listed = request.listings.look_in(f"{request.uri}/{prefix}".rstrip("/"))
    found = [
        f"{prefix}{name}"
        for name in _METADATA
        if name in listed.files
        or (not listed.is_whole and length_of(join(request.uri, prefix + name)) is not None)
    ]
    if len(found) > 1:
        raise UsageError(f"{request.uri} has {' and '.join(found)}: keep one")
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
