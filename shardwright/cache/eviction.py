"""Evict files from a full cache: stale builds first, then the furthest expected use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from shardwright.cache.locks import FileLock
from shardwright.errors import StorageError
from shardwright.format import naming
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
        stale: Whether it belongs to a replaced build or a killed process.
    """

    path: str
    num_bytes: int
    idle_seconds: float
    stale: bool


def find_files(root: str) -> list[CachedFile]:
    """Return every file of a cache that counts towards the cap or was left by a killed process."""
    found: list[CachedFile] = []
    for dataset in _folders(root):
        current = read_current(dataset)
        for build in _folders(dataset):
            stale = current not in (None, os.path.basename(build))
            for folder in _parts_of(build):
                found.extend(_files_in(folder, stale=stale))
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
    if os.path.basename(folder) == naming.INDEX_DIR or naming.is_temporary(filename):
        unlink(path)  # without a lock: a process that has it open can still read it
        return True
    shard = path.removesuffix(PART)
    # Readers hold it shared and downloads exclusively: a shard in use cannot be locked here.
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


def _files_in(folder: str, *, stale: bool) -> Iterator[CachedFile]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((LOCK, PARTS)) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                left, age = naming.is_temporary(entry.name), time.time() - status.st_mtime
                if not left or age > _OLD_SECONDS:
                    # The mtime is the last use or, if known, the next one. A file that was idle
                    # for an hour is best guessed to stay idle for another, also after a declared
                    # use that did not come, so the distance from now serves for both.
                    yield CachedFile(entry.path, status.st_size, abs(age), stale or left)


def note_next_use(path: str, seconds: float) -> None:
    """Set a file's mtime to its next use, for other processes; the earliest of several counts."""
    now = time.time()
    with suppress(FileNotFoundError):  # the cache may be deleted at any time
        noted = os.lstat(path).st_mtime
        times = (now, min(now + seconds, noted) if noted > now else now + seconds)
        os.utime(path, times, follow_symlinks=False)


def unlink(path: str) -> int:
    """Remove a file if it exists, and return its length in bytes."""
    try:
        num_bytes = os.lstat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return num_bytes
