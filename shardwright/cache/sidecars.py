"""Read the indexes of a remote dataset's shards, and cache their sidecars."""

from __future__ import annotations

import os
from contextlib import suppress

import pyarrow as pa

from shardwright.cache.files import CacheFiles, NoRoomError, write_faults
from shardwright.errors import MissingError, StorageError
from shardwright.format.index import parse_index, read_index_of
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder


class CachedSidecars:
    """The sidecars of one build.

    Args:
        root: The remote dataset.
        build: The cache's folder of this build.
        files: The cache.
    """

    def __init__(self, root: Folder, build: str, files: CacheFiles) -> None:
        self._root = root
        self._local = Folder(build, top=files.root)
        self._files = files

    def read(self, name: ShardName, info: ShardInfo, columns: list[str] | None) -> pa.Table:
        """Return a shard's index rows; see `ShardCache.index`."""
        try:
            rows = read_index_of(self._local, name, info, columns)
            with suppress(FileNotFoundError):  # just evicted
                os.utime(self._local.path(name.sidecar))
            return rows
        except StorageError:  # not cached, or damaged on disk: read the store's copy
            pass
        uri = self._root.path(name.sidecar)
        try:
            data = self._root.read_bytes(name.sidecar)
        except MissingError as error:
            raise MissingError(f"{uri} is missing: the index of {name.shard}") from error
        # Parsed from memory: a cached file may be evicted before it is opened.
        rows = parse_index(data, uri, name, info, columns)
        self._keep(self._local.path(name.sidecar), data)
        return rows

    def _keep(self, path: str, data: bytes) -> None:
        try:
            with write_faults(path):
                self._files.unless_full(len(data), lambda: self._files.write(path, data))
        except NoRoomError:  # everything else is in use: the next caller downloads it again
            pass
