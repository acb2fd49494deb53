"""The files of the reader's cache, shared by processes that each keep it under their cap.

    ROOT/lock, ROOT/usage              lock while room is made; total bytes of the files below
    ROOT/DATASET/manifest.json         the last one read from the store; `current` holds its build
    ROOT/DATASET/BUILD/SHARD           a complete, checked shard
    ROOT/DATASET/BUILD/SHARD.lock      shared by readers, exclusive for download and eviction
    ROOT/DATASET/BUILD/SHARD.part      an unfinished download at full length; journal in `.parts`
    ROOT/DATASET/BUILD/index/*.parquet sidecars
    ROOT/DATASET/BUILD/generations/*/  the same of later generations (`format.versions`)

Shards, downloads and sidecars count towards the cap; manifests and small files do not. From a full
cache, those of stale builds are evicted first, then those with the furthest expected use. All of it
may be deleted at any time.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from shardwright.cache.locks import FileLock
from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.contents import file_crc32c
from shardwright.sizes import show_bytes
from shardwright.storage.addresses import is_temporary, temporary_name
from shardwright.storage.cancellation import pause
from shardwright.storage.links import no_follow

LOCK, PART, PARTS = ".lock", ".part", ".parts"
CURRENT = "current"
_OLD_SECONDS = 3600.0  # a temporary file of this age was left by a killed process


class CachedFile(NamedTuple):
    """A file that counts towards the cap.

    Attributes:
        path: The local path.
        num_bytes: Its length.
        idle_seconds: The expected time until its next use, in seconds.
        declared: Whether some process has declared that use; else it is a guess.
        stale: Whether it belongs to a replaced build or a killed process.
    """

    path: str
    num_bytes: int
    idle_seconds: float
    declared: bool
    stale: bool


def find_files(root: str) -> list[CachedFile]:
    """Return every file of a cache that counts towards the cap or was left by a killed process."""
    found: list[CachedFile] = []
    now = time.time()  # one for all files, whose next uses are compared
    for dataset in _folders(root):
        current = read_current(dataset)
        for build in _folders(dataset):
            # Without `current`, as in a cache of an earlier release, no build is known to be
            # replaced.
            stale = current not in (None, os.path.basename(build))
            for folder in _parts_of(build):
                found.extend(_files_in(folder, now, stale=stale))
    return found


def _parts_of(build: str) -> list[str]:
    """Return the folders of a build that have files. The names of two could be those of links."""
    generations = os.path.join(build, naming.GENERATIONS_DIR)
    folders = [build, *([] if os.path.islink(generations) else _folders(generations))]
    indexes = (os.path.join(folder, naming.INDEX_DIR) for folder in folders)
    return folders + [index for index in indexes if not os.path.islink(index)]


def read_current(dataset: str) -> str | None:
    """Return the newest build of a dataset's folder, or None if unknown."""
    try:
        with open(os.path.join(dataset, CURRENT), errors="replace", opener=no_follow) as file:
            return file.read()
    except FileNotFoundError:
        return None


def evict(files: list[CachedFile], num_bytes: int) -> int:
    """Evict at least that many bytes if possible, and return how many were.

    Stale files go first, then those with the furthest expected use. Files in use stay.
    """
    freed = 0
    for file in sorted(files, key=lambda file: (not file.stale, -file.idle_seconds)):
        if freed >= num_bytes:
            break
        if _remove_unused(file.path):
            freed += file.num_bytes
            # The folder of a replaced build goes with its last file.
            if file.stale:
                with suppress(OSError):  # not empty yet
                    os.rmdir(os.path.dirname(file.path))
    return freed


def _remove_unused(path: str) -> bool:
    folder, filename = os.path.split(path)
    if os.path.basename(folder) == naming.INDEX_DIR or is_temporary(filename):
        unlink(path)  # without a lock: a process that has it open can still read it
        return True
    shard = path.removesuffix(PART)
    # Readers hold it shared and downloads exclusively: a shard in use cannot be locked here.
    # The lock of a `.part` file is that of its shard: whoever downloads it holds it exclusively.
    lock = FileLock(shard + LOCK)
    if not lock.acquire(shared=False, wait=False):
        return False
    try:
        # First: a journal must never claim parts of a file that is gone.
        unlink(shard + PARTS)
        unlink(path)
        # Waiting processes notice that the file is gone, and lock its successor (`FileLock._try`).
        unlink(shard + LOCK)
    finally:
        lock.release()
    return True


def _folders(path: str) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _files_in(folder: str, now: float, *, stale: bool) -> Iterator[CachedFile]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            # Locks are empty, and journals are small; neither is worth its share of the cap.
            if entry.name.endswith((LOCK, PARTS)) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                left, age = is_temporary(entry.name), now - status.st_mtime
                if not left or age > _OLD_SECONDS:
                    # The mtime is the last use or, if known, the next one. A file that was idle
                    # for an hour is best guessed to stay idle for another, also after a declared
                    # use that did not come, so the distance from now serves for both.
                    yield CachedFile(entry.path, status.st_size, abs(age), age < 0, stale or left)


def note_next_use(path: str, seconds: float) -> None:
    """Set a file's mtime to its next use, for other processes; the earliest of several counts."""
    now = time.time()
    with suppress(FileNotFoundError):  # the cache may be deleted at any time
        noted = os.lstat(path).st_mtime
        # A time in the past is a last use and says nothing about other readers; one in the future
        # was declared by one of them.
        times = (now, min(now + seconds, noted) if noted > now else now + seconds)
        os.utime(path, times, follow_symlinks=False)


def unlink(path: str) -> int:
    """Remove a file if it exists, and return its length in bytes."""
    try:
        # Before the removal, for the usage; another process may remove the file in between.
        num_bytes = os.lstat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return num_bytes


USAGE = "usage"
ROOM_SECONDS = 30.0  # how long to wait for readers of other shards
_PAUSE_SECONDS = 0.1
_SHARE_EVICTED = 64  # of the cap, at once
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

        Args:
            path: The file.
            num_bytes: Its length.
            wait: Wait up to 30 seconds, and evict whatever is not in use. Otherwise the file is
                needed later, and takes no room of one that is declared to be used before it.

        Raises:
            NoRoomError: There is no room.
            OSError: The disk is full, see `is_full`.
            StorageError: The file cannot be created.
        """
        sooner = 0.0 if wait else self.expected(path) or 0.0
        self._add(path, num_bytes, lambda: _make_empty(path, num_bytes), sooner=sooner, wait=wait)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file atomically if there is room now. Raises as `reserve`."""
        self._add(path, len(data), lambda: _write_whole(path, data))

    def _add(
        self,
        path: str,
        num_bytes: int,
        make: Callable[[], None],
        *,
        sooner: float = 0.0,
        wait: bool = False,
    ) -> None:
        deadline = time.monotonic() + (ROOM_SECONDS if wait else 0)
        while True:
            with self._locked():
                # Room is made and the file created under one lock: two processes must not both get
                # the last room.
                missing = self._make_room(num_bytes, sooner)
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
            # Outside of the lock, so that those who would release room can.
            pause(_PAUSE_SECONDS)

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
                # The disk may be full of other things than the cache, so the cap says nothing here.
                # Each round evicts something or ends.
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
            # Read before the removal: if the usage is missing, the count would otherwise not have
            # the file that is then subtracted.
            self._write_usage(used - unlink(path))

    def num_bytes(self) -> int:
        """Return the total bytes of the files that count towards the cap."""
        with self._locked():
            return self._used()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(os.path.join(self.root, "lock"))
        try:
            lock.acquire(shared=False)
            yield
        finally:
            lock.release()

    def _make_room(self, num_bytes: int, sooner: float) -> int:
        """Evict until `num_bytes` fit, count them as used, and return 0 or less.

        Files that somebody has declared to use before `sooner` seconds stay. If it cannot fit,
        return the missing bytes.
        """
        used = self._used()
        if used + num_bytes > self.max_bytes:
            # A full count, where the kept number says that something must go: it corrects what
            # killed processes have left in it.
            files = self.files()
            used = sum(file.num_bytes for file in files)
            later = [
                file
                for file in files
                if file.stale or not file.declared or file.idle_seconds >= sooner
            ]
            excess = used + num_bytes - self.max_bytes
            # If they do not suffice, nothing is evicted for nothing. If they do, a little more goes
            # than must, so that many readers of a large cache seldom list all of it.
            if 0 < excess <= sum(file.num_bytes for file in later):
                used -= evict(later, max(excess, self.max_bytes // _SHARE_EVICTED))
        missing = used + num_bytes - self.max_bytes
        # Counted before the file exists: a process killed in between leaves a usage that is too
        # high, which the next full count corrects.
        self._write_usage(used + (num_bytes if missing <= 0 else 0))
        return missing

    def _used(self) -> int:
        try:
            with open(os.path.join(self.root, USAGE), opener=no_follow) as file:
                return int(file.read())
        # An empty or cut number, after a crash of the machine: count.
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
        found = find_files(self.root)
        for place, file in enumerate(found):
            if (seconds := self.expected(file.path)) is not None:
                # What others have declared counts, too: the earliest use.
                seconds = min(seconds, file.idle_seconds) if file.declared else seconds
                found[place] = file._replace(idle_seconds=seconds, declared=True)
        return found


def _make_empty(path: str, num_bytes: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", opener=no_follow) as file:
        file.truncate(num_bytes)


def _write_whole(path: str, data: bytes) -> None:
    folder, filename = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, temporary_name(filename, secrets.token_hex(4)))
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
