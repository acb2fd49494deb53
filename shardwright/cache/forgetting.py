"""Remove a dataset from a cache, such as after records of it were erased."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from shardwright.cache.eviction import unlink
from shardwright.cache.files import USAGE
from shardwright.cache.locks import FileLock
from shardwright.cache.manifests import dataset_folder
from shardwright.cache.settings import CacheSettings
from shardwright.errors import NotADatasetError, StorageError
from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder


class Forgotten(NamedTuple):
    """The files that a cache had of a dataset: their number and their bytes."""

    num_files: int
    num_bytes: int


def forget_dataset(cache: str, root: Folder, fingerprints: Collection[str]) -> Forgotten:
    """Remove all files of a dataset from a cache, whatever address it was read by.

    Readers that have a shard open can read it to its end; another shard fails clearly, because the
    cache downloads it again and its dataset has changed.

    Args:
        cache: The cache's folder, which may be missing.
        root: The dataset's folder.
        fingerprints: The fingerprints of its versions. They tell the dataset if it was read by
            another address, such as that of a proxy.

    Raises:
        StorageError: A file cannot be removed.
    """
    folders = list(_folders_of(cache, root, fingerprints))
    if not folders:
        return Forgotten(0, 0)
    lock = FileLock(os.path.join(cache, "lock"))
    lock.acquire(shared=False)
    try:
        sizes = [size for folder in folders for size in _sizes_in(folder)]
        for folder in folders:
            shutil.rmtree(folder)
        unlink(os.path.join(cache, USAGE))  # it is counted again
    except OSError as error:
        raise StorageError(f"cannot remove {error.filename}: {error.strerror}") from error
    finally:
        lock.release()
    return Forgotten(len(sizes), sum(sizes))


def _folders_of(cache: str, root: Folder, fingerprints: Collection[str]) -> Iterator[str]:
    own = dataset_folder(CacheSettings(cache), root) if root.is_remote else None
    with suppress(FileNotFoundError), os.scandir(cache) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (
                entry.path == own or _fingerprint_in(entry.path) in fingerprints
            ):
                yield entry.path


def _fingerprint_in(folder: str) -> str:
    try:
        return read_manifest(Folder(folder)).fingerprint
    except (NotADatasetError, StorageError):
        return ""


def _sizes_in(folder: str) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.lstat(os.path.join(parent, name)).st_size
