"""Find and list the files of a folder, on disk or in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.storage.addresses import is_remote
from shardwright.storage.options import StorageOptions
from transforms.inputs.folders.local_folders import find_split_folders, list_folder
from transforms.inputs.folders.object_folders import find_split_prefixes, list_prefix
from transforms.inputs.image_rows import ImageRow
from transforms.rejects import Reject


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
