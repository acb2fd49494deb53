"""Folders of images as input: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions, is_remote
from transforms.inputs.file_rules import FileRow
from transforms.inputs.folders.local_folders import find_split_folders, list_folder
from transforms.inputs.folders.object_folders import find_split_prefixes, list_prefix
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.references import BATCH_ROWS, REFERENCE_SCHEMA
from transforms.rejects import Reject


@dataclass(frozen=True, slots=True)
class FolderSource(InputSource):
    """A folder of images to list.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
        storage: Options of its store.
    """

    root: str
    split_folders: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS

    @property
    def states_splits(self) -> bool:
        return bool(self.split_folders)

    def describe(self) -> str:
        kind = (
            f"split folders ({', '.join(self.split_folders)})" if self.split_folders else "a folder"
        )
        return f"{kind} at {self.root}"

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        del part  # there is only one
        pending: list[FileRow] = []
        for found in self._files():
            if isinstance(found, Reject):
                yield found
                continue
            pending.append(found)
            if len(pending) == BATCH_ROWS:
                yield file_references(pending)
                pending = []
        if pending:
            yield file_references(pending)

    def _files(self) -> Iterator[FileRow | Reject]:
        if is_remote(self.root):
            return list_prefix(self.root, self.split_folders, self.storage)
        return list_folder(self.root, self.split_folders)


class FolderFormat(SourceFormat):
    """Any local folder or store prefix."""

    name: ClassVar[str] = "folder"
    summary: ClassVar[str] = "a folder of images, of class folders, or of split folders"
    rank: ClassVar[int] = 100

    def open(self, request: SourceRequest, *, forced: bool) -> FolderSource | None:
        root = request.uri
        if not request.is_remote and not os.path.isdir(root):
            if forced:
                raise UsageError(f"{request.argument} {root} is not a folder")
            return None
        request.refuse_columns("a folder")
        splits = (
            find_split_prefixes(root, request.storage)
            if request.is_remote
            else find_split_folders(root)
        )
        return FolderSource(root, splits, request.storage)


def file_references(rows: Sequence[FileRow]) -> pa.RecordBatch:
    """Return listed files as a reference batch of whole files."""
    columns: dict[str, Sequence[object]] = dict(
        zip(FileRow._fields, zip(*rows, strict=True), strict=True)
    )
    nothing = [None] * len(rows)
    columns |= {"offset": nothing, "row": [0] * len(rows), "group": nothing}
    return pa.RecordBatch.from_pydict(
        {field.name: columns[field.name] for field in REFERENCE_SCHEMA}, schema=REFERENCE_SCHEMA
    )
