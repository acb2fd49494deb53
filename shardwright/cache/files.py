"""The files of the reader's cache, shared by processes that each keep it under their cap.

    ROOT/lock, ROOT/usage              lock while room is made; total bytes of the files below
    ROOT/DATASET/manifest.json         the last one read from the store; `current` holds its build
    ROOT/DATASET/BUILD/SHARD           a complete, checked shard
    ROOT/DATASET/BUILD/SHARD.lock      shared by readers, exclusive for download and eviction
    ROOT/DATASET/BUILD/SHARD.part      an unfinished download at full length; journal in `.parts`
    ROOT/DATASET/BUILD/index/*.parquet sidecars
    ROOT/DATASET/BUILD/generations/*/  the same of later generations (`format.versions`)

Shards, downloads and sidecars count towards the cap; manifests and small files do not. All of it
may be deleted at any time.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shardwright.cache.eviction import PART, CachedFile, evict, find_files, unlink
from shardwright.cache.locks import FileLock
from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.contents import file_crc32c
from shardwright.sizes import show_bytes
from shardwright.storage.links import no_follow

USAGE = "usage"
ROOM_SECONDS = 30.0  # how long to wait for readers of other shards
_PAUSE_SECONDS = 0.1
T = TypeVar("T")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoRoomError(StorageError):
    """Every file that could be evicted is in use."""


class DiskFullError(StorageError):
    """The disk is full, and nothing in the cache can be evicted."""


def is_full(error: OSError) -> bool:
    """Return whether an error says that the disk or the user's quota is full."""
    return error.errno in _FULL


class CacheFiles:
    """The cache's folder, which each process keeps under its own cap.

    Args:
        root: An absolute local path.
        max_bytes: The cap.

    Attributes:
        expected: Returns the seconds until a file's next use, None if this process does not know.
    """

    def __init__(self, root: str, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.expected: Callable[[str], float | None] = lambda _: None

    def reserve(self, path: str, num_bytes: int, *, wait: bool) -> None:
        """Make room for a file and create it, sparse, at full length.

        The caller holds the file's exclusive lock.

        Raises:
            NoRoomError: The rest of the cache is in use, with `wait` for 30 seconds.
            OSError: The disk is full, see `is_full`.
            StorageError: The file cannot be created.
        """
        self._add(path, num_bytes, lambda: _make_empty(path, num_bytes), wait=wait)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file atomically if there is room now. Raises as `reserve`."""
        self._add(path, len(data), lambda: _write_whole(path, data), wait=False)

    def _add(self, path: str, num_bytes: int, make: Callable[[], None], *, wait: bool) -> None:
        deadline = time.monotonic() + (ROOM_SECONDS if wait else 0)
        while True:
            with self._locked():
                missing = self._make_room(num_bytes)
                if missing <= 0:
                    with write_faults(path):
                        make()
                    return
            if time.monotonic() > deadline:
                raise NoRoomError(
                    f"no room for {os.path.basename(path).removesuffix(PART)} "
                    f"({show_bytes(num_bytes)}) in the cache at {self.root}: all of it is in use, "
                    f"and its cap of {show_bytes(self.max_bytes)} would be exceeded by "
                    f"{show_bytes(missing)}: raise SHARDWRIGHT_CACHE_BYTES (cache_bytes=), "
                    "or let fewer readers share it"
                )
            time.sleep(_PAUSE_SECONDS)

    def unless_full(self, num_bytes: int, action: Callable[[], T]) -> T:
        """Run `action`, evicting and retrying while the disk is full.

        Raises:
            DiskFullError: Nothing more can be evicted.
        """
        while True:
            try:
                return action()
            except OSError as error:
                if not is_full(error):
                    raise
                if not self.free_disk(num_bytes):
                    raise DiskFullError(
                        f"the disk of the cache at {self.root} is full: {show_bytes(num_bytes)} "
                        "are needed, and nothing in the cache can be evicted: free disk space, "
                        "or set SHARDWRIGHT_CACHE to a folder on another disk"
                    ) from error

    def free_disk(self, num_bytes: int) -> int:
        """Evict that many bytes if possible, regardless of the cap, and return how many were."""
        with self._locked():
            files = self.files()
            freed = evict(files, num_bytes)
            self._write_usage(sum(file.num_bytes for file in files) - freed)
        return freed

    def put_in_place(self, path: str) -> None:
        """Rename a finished download to its final name."""
        with self._locked(), write_faults(path):  # locked, so that no count sees the file twice
            os.replace(path + PART, path)

    def remove(self, path: str) -> None:
        """Remove a file and its bytes from the usage."""
        with self._locked():
            used = self._used()
            self._write_usage(used - unlink(path))

    def num_bytes(self) -> int:
        """Return the total bytes of the files that count towards the cap."""
        with self._locked():
            return self._used()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(os.path.join(self.root, "lock"))
        lock.acquire(shared=False)
        try:
            yield
        finally:
            lock.release()

    def _make_room(self, num_bytes: int) -> int:
        """Evict until `num_bytes` fit, count them as used, and return 0 or less.

        If they cannot fit, return the missing bytes.
        """
        used = self._used()
        if used + num_bytes > self.max_bytes:
            files = self.files()
            used = sum(file.num_bytes for file in files)
            used -= evict(files, used + num_bytes - self.max_bytes)
        missing = used + num_bytes - self.max_bytes
        # Counted before the file exists: a process killed in between leaves a usage that is too
        # high, which the next full count corrects.
        self._write_usage(used + (num_bytes if missing <= 0 else 0))
        return missing

    def _used(self) -> int:
        try:
            with open(os.path.join(self.root, USAGE), opener=no_follow) as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return sum(file.num_bytes for file in self.files())

    def _write_usage(self, num_bytes: int) -> None:
        path = os.path.join(self.root, USAGE)
        try:
            with open(path, "w", opener=no_follow) as file:
                file.write(str(max(num_bytes, 0)))
        except OSError as error:  # on a full disk remove the file; usage is then counted again
            if not is_full(error):
                raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
            unlink(path)

    def files(self) -> list[CachedFile]:
        """Return every file that counts towards the cap or was left by a killed process."""
        return [self._as_expected(file) for file in find_files(self.root)]

    def _as_expected(self, file: CachedFile) -> CachedFile:
        seconds = self.expected(file.path)
        return file if seconds is None else file._replace(idle_seconds=seconds)


def _make_empty(path: str, num_bytes: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", opener=no_follow) as file:
        file.truncate(num_bytes)


def _write_whole(path: str, data: bytes) -> None:
    folder, filename = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))
    try:
        # Not synced: a sidecar that a power failure damaged does not parse, and the reader then
        # takes the store's copy.
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        unlink(temporary)
        raise


def crc32c_of(path: str) -> int:
    """Return the unmasked CRC32C of a cached file."""
    with open(path, "rb", buffering=0, opener=no_follow) as file:
        return file_crc32c(file)


@contextmanager
def write_faults(path: str) -> Iterator[None]:
    """Convert `OSError` to `StorageError`, except for a full disk."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or is_full(error):
            raise
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
