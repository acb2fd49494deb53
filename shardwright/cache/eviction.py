"""What goes first when the cache is full: its files, and for how long each is probably not used."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from shardwright import naming
from shardwright.cache.locks import FileLock
from shardwright.errors import StorageError

LOCK, PART, PARTS = ".lock", ".part", ".parts"
CURRENT = "current"
_OLD_SECONDS = 3600.0  # a temporary file of that age belongs to nobody any more


class CachedFile(NamedTuple):
    """A file that counts: for how long nobody will use it, as far as can be told, and whether it is of a build that has been replaced."""

    path: str
    num_bytes: int
    idle_seconds: float
    stale: bool


def find_files(root: str) -> list[CachedFile]:
    """Every file of a cache that counts, or belongs to nobody."""
    found: list[CachedFile] = []
    for dataset in _folders(root):
        current = read_current(dataset)
        for build in _folders(dataset):
            stale = current not in (None, os.path.basename(build))
            for folder in (build, os.path.join(build, naming.INDEX_DIR)):
                found.extend(_files_in(folder, stale=stale))
    return found


def read_current(dataset: str) -> str | None:
    """Which build of a dataset's folder is the newest, or None where nobody has said so."""
    try:
        with open(os.path.join(dataset, CURRENT)) as file:
            return file.read()
    except FileNotFoundError:
        return None


def evict(files: list[CachedFile], num_bytes: int) -> int:
    """Remove that many bytes or more, stale ones first, then those that are not used for longest; how many have gone."""
    freed = 0
    for file in sorted(files, key=lambda file: (not file.stale, -file.idle_seconds)):
        if freed >= num_bytes:
            break
        if _remove_unused(file.path):
            freed += file.num_bytes
            if file.stale:
                with suppress(OSError):  # it is not empty yet
                    os.rmdir(os.path.dirname(file.path))
    return freed


def _remove_unused(path: str) -> bool:
    folder, filename = os.path.split(path)
    if os.path.basename(folder) == naming.INDEX_DIR or naming.is_temporary(filename):
        unlink(path)  # who has it open reads on
        return True
    shard = path.removesuffix(PART)
    lock = FileLock(shard + LOCK)
    if not lock.acquire(shared=False, wait=False):
        return False
    try:
        unlink(shard + PARTS)
        unlink(path)
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
                    # A file is stamped with its last use, or with its next one where that is known. Of what was not used for
                    # an hour, one hour more is the best guess; and so when a next use that was foretold did not come.
                    yield CachedFile(entry.path, status.st_size, abs(age), stale or left)


def note_next_use(path: str, seconds: float) -> None:
    """Stamp a file with when it will be used again, for other processes; the earliest of several counts."""
    now = time.time()
    with suppress(FileNotFoundError):  # all of the cache may be removed at any time
        noted = os.stat(path).st_mtime
        os.utime(path, (now, min(now + seconds, noted) if noted > now else now + seconds))


def unlink(path: str) -> int:
    """Remove a file, where there is one; how long it was."""
    try:
        num_bytes = os.stat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return num_bytes
