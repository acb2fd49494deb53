"""Locks between processes, and between threads, on files of the cache."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from typing import IO

from shardwright.errors import StorageError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_SAY_AFTER_SECONDS = 10.0
_LOG = logging.getLogger("shardwright.cache")


class FileLock:
    """A lock between processes, and between threads, that ends with its holder however that ends.

    Its file may be removed by who holds it alone; others then find a new one.

    Raises:
        StorageError: The file cannot be made, or its file system has no locks.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._process = 0

    def acquire(self, *, shared: bool, wait: bool = True) -> bool:
        """Get the lock, or turn a shared one into one held alone and back, which may let others in between.

        Args:
            shared: Together with others who hold it shared, else alone.
            wait: Wait for others to let go; without it False says that they hold it, and then nothing is held.
        """
        started, pause, said = time.monotonic(), _FIRST_PAUSE, False
        while not self._try(fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if not wait:
                self.release()
                return False
            if not said and time.monotonic() - started > _SAY_AFTER_SECONDS:
                said = True
                _LOG.warning("waiting for another process that holds %s", self._path)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def _try(self, how: int) -> bool:
        while True:
            try:
                if self._file is None:
                    self._file, self._process = _open_making_folders(self._path), os.getpid()
                fcntl.flock(self._file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                self.release()
                raise StorageError(
                    f"cannot lock {self._path}: {error.strerror or error}: set SHARDWRIGHT_CACHE to a folder on a local disk"
                ) from error
            if _is_at(self._file, self._path):
                return True
            self.release()

    def release(self) -> None:
        """Let go; nothing happens where nothing is held, or in a process forked from the one that holds it."""
        if self._file is not None:
            if self._process == os.getpid():
                with suppress(OSError):
                    fcntl.flock(
                        self._file, fcntl.LOCK_UN
                    )  # a forked child may have the file open still
            self._file.close()
            self._file = None


def _open_making_folders(path: str) -> IO[bytes]:
    try:
        return open(path, "ab", buffering=0)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "ab", buffering=0)


def _is_at(file: IO[bytes], path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
