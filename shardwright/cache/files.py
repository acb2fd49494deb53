"""The reader's cache on disk: locks between processes, how many bytes there are, and what has to go.

    ROOT/lock, ROOT/usage              held while room is made; how many bytes the files below have
    ROOT/DATASET/manifest.json         as the store had it last, and in `current` which build that is
    ROOT/DATASET/BUILD/SHARD           a whole shard, checked
    ROOT/DATASET/BUILD/SHARD.lock      held shared by those who read it, alone by who downloads or evicts it
    ROOT/DATASET/BUILD/SHARD.part      a download under way, as long as the shard from the start; `.parts` says what of it is there
    ROOT/DATASET/BUILD/index/*.parquet sidecars

Shards, downloads and sidecars count; manifests and the small files beside them do not. All of it may be removed at any time.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shardwright import naming
from shardwright.cache.eviction import PART, CachedFile, evict, find_files, unlink
from shardwright.cache.locks import FileLock
from shardwright.errors import StorageError
from shardwright.sizes import show_bytes

USAGE = "usage"
ROOM_SECONDS = 30.0  # how long readers of other shards are waited for
_PAUSE_SECONDS = 0.1
T = TypeVar("T")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoRoomError(StorageError):
    """Everything that could make room is in use."""


class DiskFullError(StorageError):
    """The disk is full of other things than the cache, or of what is in use."""


def is_full(error: OSError) -> bool:
    """Whether an error says that a disk, or one's part of it, is full."""
    return error.errno in _FULL


class CacheFiles:
    """The cache's folder, kept under a number of bytes by every process for itself.

    Args:
        root: An absolute local path.
        max_bytes: The cap.

    Attributes:
        expected: For how many seconds a file will not be used, where this process knows it.
    """

    def __init__(self, root: str, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.expected: Callable[[str], float | None] = lambda _: None

    def reserve(self, path: str, num_bytes: int, *, wait: bool) -> None:
        """Make room for a file, and the file, empty and of its full length. Who calls it holds the file's lock alone.

        Raises:
            NoRoomError: The rest of the cache is in use, and remains so for a while where `wait` is given.
            OSError: The disk is full, see `is_full`.
            StorageError: The file cannot be made.
        """
        self._add(path, num_bytes, lambda: _make_empty(path, num_bytes), wait=wait)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file that counts, if there is room at once; nobody ever sees a part of it. Raises as `reserve`."""
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
                    f"no room for {os.path.basename(path).removesuffix(PART)} ({show_bytes(num_bytes)}): what the cache at {self.root} "
                    f"holds is in use, {show_bytes(missing)} too much for its {show_bytes(self.max_bytes)}: raise "
                    "SHARDWRIGHT_CACHE_BYTES (cache_bytes=), or let fewer readers share it"
                )
            time.sleep(_PAUSE_SECONDS)

    def unless_full(self, num_bytes: int, action: Callable[[], T]) -> T:
        """What `action` gives, tried again as long as the disk is full and there is something to evict.

        Raises:
            DiskFullError: There is nothing more to evict.
        """
        while True:
            try:
                return action()
            except OSError as error:
                if not is_full(error):
                    raise
                if not self.free_disk(num_bytes):
                    raise DiskFullError(
                        f"the disk of the cache at {self.root} is full, {show_bytes(num_bytes)} are needed, and nothing in the cache "
                        "can go: free some, or set SHARDWRIGHT_CACHE to a folder on another disk"
                    ) from error

    def free_disk(self, num_bytes: int) -> int:
        """Evict that many bytes, or all that can go, whatever the cap; how many have gone."""
        with self._locked():
            files = self.files()
            freed = evict(files, num_bytes)
            self._write_usage(sum(file.num_bytes for file in files) - freed)
        return freed

    def put_in_place(self, path: str) -> None:
        """Give a finished download its name; whoever counts meanwhile counts it once."""
        with self._locked(), write_faults(path):
            os.replace(path + PART, path)

    def remove(self, path: str) -> None:
        """Remove a file that counts."""
        with self._locked():
            used = self._used()
            self._write_usage(used - unlink(path))

    def num_bytes(self) -> int:
        """How many bytes there are."""
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
        """How many bytes are missing still, 0 or less where none are; then they count from now on."""
        used = self._used()
        if used + num_bytes > self.max_bytes:
            files = self.files()
            used = sum(file.num_bytes for file in files)
            used -= evict(files, used + num_bytes - self.max_bytes)
        missing = used + num_bytes - self.max_bytes
        # Counted before it is there: whoever is killed in between leaves a number that is too high, which counting mends.
        self._write_usage(used + (num_bytes if missing <= 0 else 0))
        return missing

    def _used(self) -> int:
        try:
            with open(os.path.join(self.root, USAGE)) as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return sum(file.num_bytes for file in self.files())

    def _write_usage(self, num_bytes: int) -> None:
        path = os.path.join(self.root, USAGE)
        try:
            with open(path, "w") as file:
                file.write(str(max(num_bytes, 0)))
        except (
            OSError
        ) as error:  # nothing fits on a full disk: without the file everything is counted anew
            if not is_full(error):
                raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
            unlink(path)

    def files(self) -> list[CachedFile]:
        """Every file that counts, or belongs to nobody."""
        return [self._as_expected(file) for file in find_files(self.root)]

    def _as_expected(self, file: CachedFile) -> CachedFile:
        seconds = self.expected(file.path)
        return file if seconds is None else file._replace(idle_seconds=seconds)


def _make_empty(path: str, num_bytes: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(num_bytes)


def _write_whole(path: str, data: bytes) -> None:
    folder, filename = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        unlink(temporary)
        raise


@contextmanager
def write_faults(path: str) -> Iterator[None]:
    """Errors of the operating system as this project's, that of a full disk excepted."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or is_full(error):
            raise
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
