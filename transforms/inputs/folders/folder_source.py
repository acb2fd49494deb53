"""Folders of images as input: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions, is_remote
from transforms.inputs.folders.local_folders import find_split_folders, list_folder
from transforms.inputs.folders.object_folders import find_split_prefixes, list_prefix
from transforms.inputs.image_rows import ImageRow, image_references, in_batches
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


def find_splits(root: str, storage: StorageOptions) -> tuple[str, ...]:
    """Return the first-level folders if all have split names and no image is beside them, else ().

    Raises:
        UsageError: The folder cannot be listed, or does not exist.
        StorageError: The store cannot be listed.
    """
    return find_split_prefixes(root, storage) if is_remote(root) else find_split_folders(root)


def list_files(
    root: str, split_folders: Sequence[str], storage: StorageOptions
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below a folder; in a store, in no order."""
    if is_remote(root):
        return list_prefix(root, split_folders, storage)
    return list_folder(root, split_folders)


def describe_folder(root: str, split_folders: Sequence[str]) -> str:
    """Return a folder in words, for the log."""
    kind = f"split folders ({', '.join(split_folders)})" if split_folders else "a folder"
    return f"{kind} at {root}"
