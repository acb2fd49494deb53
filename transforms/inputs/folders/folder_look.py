"""Recognize folders of images, and split folders in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.storage import StorageOptions, is_remote
from transforms.inputs.folders.local_folders import find_split_folders
from transforms.inputs.folders.object_folders import find_split_prefixes
from transforms.inputs.source import SourceFacts, SourceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts(SourceFacts):
    """The facts about a folder of images.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
        storage: Options of its store.
    """

    root: str
    split_folders: tuple[str, ...]
    storage: StorageOptions


def look(request: SourceRequest) -> FolderFacts | None:
    """Return the facts about a folder; None if INPUT is a file.

    Raises:
        UsageError: The format is forced and INPUT is a file, the folder does not exist or cannot
            be listed, or an option gives a column.
        StorageError: The store cannot be listed.
    """
    if not request.is_remote and not os.path.isdir(request.uri):
        request.refuse_if_forced("is not a folder")
        return None
    request.refuse_columns("a folder")
    splits = find_splits(request.uri, request.storage)
    return FolderFacts(
        describe_folder(request.uri, splits),
        states_splits=bool(splits),
        root=request.uri,
        split_folders=splits,
        storage=request.storage,
    )


def find_splits(root: str, storage: StorageOptions) -> tuple[str, ...]:
    """Return the first-level folders if all have split names and no image is beside them, else ().

    Raises:
        UsageError: The folder cannot be listed, or does not exist.
        StorageError: The store cannot be listed.
    """
    return find_split_prefixes(root, storage) if is_remote(root) else find_split_folders(root)


def describe_folder(root: str, split_folders: Sequence[str]) -> str:
    """Return a folder in words, for the log."""
    kind = f"split folders ({', '.join(split_folders)})" if split_folders else "a folder"
    return f"{kind} at {root}"
