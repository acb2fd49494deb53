"""Folders of images as input: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from transforms.inputs.folders.folder_files import describe_folder, find_splits, list_files
from transforms.inputs.image_rows import image_references, in_batches
from transforms.inputs.source import InputSource, SourceFacts, SourceFormat, SourceRequest
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

    @classmethod
    def at(
        cls, root: str, split_folders: tuple[str, ...] = (), storage: StorageOptions = NO_OPTIONS
    ) -> FolderSource:
        """Return the source of a folder."""
        facts = SourceFacts(describe_folder(root, split_folders), states_splits=bool(split_folders))
        return cls(facts, root, split_folders, storage)

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        del part  # there is only one
        files = list_files(self.root, self.split_folders, self.storage)
        yield from in_batches(files, image_references)


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
        return FolderSource.at(root, find_splits(root, request.storage), request.storage)
