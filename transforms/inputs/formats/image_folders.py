"""Hugging Face ImageFolder as input: images, and a metadata file with a row for each.

So are Roboflow's exports: `_annotations.csv` has a row for each box, and an image without a row has
no boxes; `_classes.csv` has a column of 0 and 1 for each class.

The layout is that of `datasets/packaged_modules/folder_based_builder`: a `metadata.csv`, `.jsonl`
or `.parquet` in the folder itself, or one in each split folder. Its column `file_name` is relative
to it; columns `<name>_file_name` hold further images.
"""

from __future__ import annotations

import logging
import os
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.addresses import join
from shardwright.storage.folder import files_of
from shardwright.transforms.inputs.columns import folded, role_text
from shardwright.transforms.inputs.file_rules import place_of
from shardwright.transforms.inputs.folder_contents import has_wildcard, is_web
from shardwright.transforms.inputs.formats.box_tables import Objects
from shardwright.transforms.inputs.formats.folders import (
    describe_folder,
    find_splits,
    list_files,
)
from shardwright.transforms.inputs.formats.table_files import (
    read_first_rows,
    read_table_schema,
    table_format,
)
from shardwright.transforms.inputs.formats.tables import (
    CLASSES_FILE,
    TableLayout,
    list_table,
    table_of,
)
from shardwright.transforms.inputs.image_rows import ImageRow, image_references, in_batches
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.inputs.top_folders import shown
from shardwright.transforms.references import picture_columns, set_column
from shardwright.transforms.rejects import Reject, RejectReason

_LOG = logging.getLogger("shardwright.inputs")
_METADATA = (
    "metadata.csv", "metadata.jsonl", "metadata.parquet", "_annotations.csv", CLASSES_FILE
)  # fmt: skip
_FILE_NAME, _ROBOFLOW_NAME = "file_name", "filename"
_OWN_NAMES = frozenset({"image", "label", "id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolderSource(InputSource):
    """A folder of images with metadata files.

    Attributes:
        root: Its absolute path, or a store's address.
        table: The table of the metadata files.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
    """

    summary = "a folder of images with metadata.csv, .jsonl or .parquet (Hugging Face ImageFolder)"
    rank = 60
    is_listed_fast = True
    has_top_folders = True

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

    def bring(self, features: Sequence[Feature]) -> ImageFolderSource:
        return source_of(self.root, self.table.for_features(features), self.split_folders)

    @classmethod
    def look(cls, request: SourceRequest) -> ImageFolderSource | None:
        """Return a folder with metadata files as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there are no metadata files, they are not one
                table, or an option does not fit.
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
        given = replace(request, columns={**request.columns, "image": image})
        table = table_of(given, request.uri, files, finder=Objects())
        others = (table.boxes, table.structs, table.flags)  # which state classes, too
        if table.label is None and all(each is None for each in others):
            _warn_of_class_folders(table, splits)
        further = tuple(name for name in pictures if name not in table.roles.values())
        return source_of(request.uri, replace(table, pictures=further), splits)

    def references(self, part: str) -> Rows:
        """Yield the images of a metadata file or of a folder without one, and files without a row.

        Of a table of boxes, these files are images without a box.
        """
        named: set[str | None] = set()
        if not part.endswith("/"):
            for found in list_table(self.table, part):
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
                    yield _with_splits(self, found)
        others = _without_rows(self, part, named)
        boxes = self.table.boxes
        if boxes is None:
            for row in others:
                told = "the metadata has no row for it" if named else "it has no metadata file"
                if isinstance(row, ImageRow):
                    row = row.reject(RejectReason.MISSING_LABEL, told)
                yield row
        else:
            for found in in_batches(others, image_references):
                if isinstance(found, Reject):
                    yield found
                else:
                    for images in boxes.without_boxes(found, self.table.storage):
                        yield _with_splits(self, images)


def source_of(root: str, table: TableLayout, split_folders: tuple[str, ...]) -> ImageFolderSource:
    """Return a folder as a source, given the table of its metadata files."""
    taken = _OWN_NAMES | set(table.columns.names)
    known = {**table.known, **{name: _picture_feature(name, taken) for name in table.pictures}}
    found = {
        "columns": None,
        "states_splits": table.split is not None or bool(split_folders),
        "splits_can_be_redrawn": False,
        **({} if table.boxes is None else table.boxes.attributes()),
    }
    return replace(table, known=known).source_as(
        ImageFolderSource,
        f"{describe_folder(root, split_folders)} with {table.as_source().description}",
        root=root,
        table=table,
        split_folders=split_folders,
        **found,
    )


def _warn_of_class_folders(table: TableLayout, splits: tuple[str, ...]) -> None:
    """Warn of metadata without labels whose images lie in folders that may be their classes."""
    name = table.files[0]
    rows = read_first_rows(table.path_of(name), table.format, table.columns, table.storage)
    folder = posixpath.dirname(name)
    paths = [] if rows is None else role_text(rows, table.image).drop_null().to_pylist()
    places = (place_of(splits, posixpath.join(folder, path)) for path in paths)
    classes = {label for _, label in places if label is not None}
    if len(classes) > 1:
        _LOG.warning(
            "%s states no labels, so records have none, although the images lie in the folders %s. "
            "For labels by folders, and the other columns, give --input-format folder --labels %s "
            "--labels-key path",
            table.path_of(name), shown(sorted(classes)), shlex.quote(table.path_of(name)),
        )  # fmt: skip


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
    if image is None and os.path.basename(files[0]).startswith("_"):
        image = next((name for name in names if folded(name) == _ROBOFLOW_NAME), None)
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


def _with_splits(source: ImageFolderSource, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fill splits from the folders where the metadata states none."""
    if not source.split_folders:
        return batch
    below = (uri.removeprefix(f"{source.root}/") for uri in batch.column("uri").to_pylist())
    folders = pa.array(
        [place_of(source.split_folders, relative)[0] for relative in below], pa.string()
    )
    return set_column(batch, "split", pc.coalesce(batch.column("split"), folders))


def _without_rows(
    source: ImageFolderSource, part: str, named: set[str | None]
) -> Iterator[ImageRow | Reject]:
    """Yield each file without a metadata row, as an image or a reject."""
    folder = posixpath.dirname(part)
    root = f"{source.root}/{folder}" if folder else source.root
    known = named | set(map(source.table.path_of, source.table.files))
    for row in list_files(root, (), source.table.storage):
        if row.uri not in known:
            row_id = f"{folder}/{row.id}" if folder else row.id
            if isinstance(row, ImageRow):
                yield row._replace(id=row_id, label=None)
            else:
                yield replace(row, id=row_id)
