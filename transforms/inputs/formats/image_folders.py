"""Hugging Face ImageFolder as input: images, and a metadata file with a row for each.

So are Roboflow's exports: `_annotations.csv` has a row for each box, and an image without a row has
no boxes; `_classes.csv` has a column of 0 and 1 for each class.

The layout is that of `datasets/packaged_modules/folder_based_builder`: a `metadata.csv`, `.jsonl`
or `.parquet` in the folder itself, or one in each split folder. Its column `file_name` is relative
to it.
"""

from __future__ import annotations

import logging
import os
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import Feature
from shardwright.storage.addresses import join
from shardwright.storage.folder import files_of
from shardwright.transforms.inputs.columns import role_text
from shardwright.transforms.inputs.file_rules import place_of
from shardwright.transforms.inputs.folder_contents import has_wildcard, is_web
from shardwright.transforms.inputs.formats.box_tables import Objects
from shardwright.transforms.inputs.formats.folders import (
    describe_folder,
    find_splits,
    list_files,
)
from shardwright.transforms.inputs.formats.table_files import read_first_rows, table_format
from shardwright.transforms.inputs.formats.tables import (
    CLASSES_FILE,
    NoImagesError,
    TableLayout,
    TableSource,
    list_table,
    table_of,
)
from shardwright.transforms.inputs.input_files import shown
from shardwright.transforms.inputs.source import ImageRow, Rows, SourceRequest, image_references
from shardwright.transforms.references import BATCH_ROWS, picture_columns, set_column
from shardwright.transforms.rejects import Reject, RejectReason

_LOG = logging.getLogger("shardwright.inputs")
_METADATA = (
    "metadata.csv", "metadata.jsonl", "metadata.parquet", "_annotations.csv", CLASSES_FILE
)  # fmt: skip
_IMAGE_NAMES = ("file_name", "filename")  # Hugging Face's, and Roboflow's


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolderSource(TableSource):
    """A folder of images with metadata files, the table of its layout.

    Attributes:
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
    """

    summary = "a folder of images with metadata.csv, .jsonl or .parquet (Hugging Face ImageFolder)"
    rank = 60
    has_top_folders = True
    reads_records = False

    split_folders: tuple[str, ...]

    def parts(self) -> Iterator[str]:
        yield from self.layout.files
        if any("/" in name for name in self.layout.files):
            there = {name.partition("/")[0] for name in self.layout.files}
            # Without metadata: all its images are rejects.
            yield from (f"{folder}/" for folder in self.split_folders if folder not in there)

    def bring(self, features: Sequence[Feature]) -> ImageFolderSource:
        return _source_of(self.layout.for_features(features), self.split_folders)

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
        table = None
        if files:
            names = _IMAGE_NAMES if os.path.basename(files[0])[0] == "_" else _IMAGE_NAMES[:1]
            with suppress(NoImagesError):
                table = table_of(request, request.uri, files, finder=Objects(), images=names)
        if table is None:
            request.refuse_if_forced(
                "has no metadata.csv, .jsonl or .parquet "
                "with a column 'file_name' in the folder itself or in its split folders"
            )
            return None
        if request.image_root is not None:
            raise UsageError(
                f"--image-root needs a table, but {request.argument} {request.uri} is a folder "
                f"with metadata files: give the metadata file itself as {request.argument}"
            )
        if not any((table.label, table.boxes, table.structs, table.flags)):
            _warn_of_class_folders(table, splits)
        return _source_of(table, splits)

    def references(self, part: str) -> Rows:
        """Yield the images of a metadata file or of a folder without one, and files without a row.

        Of a table of boxes, these files are images without a box.
        """
        root, boxes = self.layout.path, self.layout.boxes
        named = {self.layout.path_of(name) for name in self.layout.files}
        has_rows = not part.endswith("/")
        for found in list_table(self.layout, part) if has_rows else ():
            if isinstance(found, Reject):
                named |= {found.uri, f"{root}/{found.id}"}
                yield found
                continue
            further = (
                pc.struct_field(found[name], "uri") for name in picture_columns(found.schema)
            )
            for uris in (found["uri"], *further):
                named.update(uris.to_pylist())
            yield self._with_splits(found)
        folder = posixpath.dirname(part)
        others: list[ImageRow] = []
        for row in list_files(posixpath.join(root, folder).rstrip("/"), (), self.layout.storage):
            row_id = posixpath.join(folder, row.id)
            if row.uri in named:
                continue
            if isinstance(row, Reject):
                yield replace(row, id=row_id)
            elif boxes is None:
                told = "the metadata has no row for it" if has_rows else "it has no metadata file"
                yield Reject(row_id, row.uri, RejectReason.MISSING_LABEL, told)
            else:
                others.append(row._replace(id=row_id, label=None))
        for start in range(0, len(others), BATCH_ROWS):
            images = image_references(others[start : start + BATCH_ROWS])
            for found in boxes.without_boxes(images, self.layout.storage):
                yield found if isinstance(found, Reject) else self._with_splits(found)

    def _with_splits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fill splits from the folders where the metadata states none."""
        start = f"{self.layout.path}/"
        below = (uri.removeprefix(start) for uri in batch["uri"].to_pylist())
        folders = [place_of(self.split_folders, relative)[0] for relative in below]
        return set_column(
            batch, "split", pc.coalesce(batch["split"], pa.array(folders, pa.string()))
        )


def _source_of(table: TableLayout, split_folders: tuple[str, ...]) -> ImageFolderSource:
    """Return a folder as a source, given the table of its metadata files."""
    source = table.as_source(
        ImageFolderSource,
        split_folders=split_folders,
        states_splits=table.split is not None or bool(split_folders),
        splits_can_be_redrawn=False,
    )
    folder = describe_folder(table.path, split_folders)
    return replace(source, description=f"{folder} with {source.description}")


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
    """Return the names of the metadata files below INPUT, and its split folders.

    Raises:
        UsageError: A folder has several, or they have several formats.
    """
    splits = find_splits(request)
    for folders in ([""], [f"{split}/" for split in splits]):
        files = tuple(name for folder in folders for name in _metadata_in(request, folder))
        kinds = {table_format(name) for name in files}
        if len(files) > len({posixpath.dirname(name) for name in files}) or len(kinds) > 1:
            raise UsageError(
                f"{request.argument} {request.uri} has several metadata files in one folder, or of "
                f"several formats, {', '.join(files)}: keep one, or convert them to one format"
            )
        if files:
            return files, splits
    return (), splits


def _metadata_in(request: SourceRequest, prefix: str) -> list[str]:
    """Return the metadata files in a folder, looked up by name if its images are not all listed."""
    length_of = files_of(request.uri, request.storage).num_bytes_of
    listed = request.listings.look_in(f"{request.uri}/{prefix}".rstrip("/"))
    return [
        f"{prefix}{name}"
        for name in _METADATA
        if name in listed.files
        or (not listed.is_whole and length_of(join(request.uri, prefix + name)) is not None)
    ]
