"""Lock the cache's files between processes and threads."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from shardwright.errors import StorageError
from shardwright.storage.cancellation import pause
from shardwright.storage.links import no_follow

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02
_SAY_AFTER_SECONDS = 10.0
_LOG = logging.getLogger("shardwright.cache")


class FileLock:
    """A lock between processes and threads, released when its holder ends or is killed.

    Its file may be removed, by the exclusive holder or with a damaged shard; others then create a
    new one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._process = 0

    def acquire(
        self, *, shared: bool, wait: bool = True, unless: Callable[[], bool] = lambda: False
    ) -> bool:
        """Acquire the lock, or change a held one; others may get it in between.

        Args:
            shared: Acquire it shared, else exclusive.
            wait: Wait until it is free; otherwise return False, and hold nothing, if it is not.
            unless: Do not wait any longer once this returns True.

        Raises:
            CanceledError: Nobody waits for what it is needed for.
            StorageError: The file cannot be created, or its file system does not support locks.
        """
        started, seconds, said = time.monotonic(), _FIRST_PAUSE, False
        # Polled, because a blocking call could not warn of a long wait.
        # Two processes that hold it shared and want it exclusively do not wait for each other: a
        # conversion that fails gives up the shared lock (flock(2)).
        while not self._try(fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if not wait or unless():
                self.release()
                return False
            if not said and time.monotonic() - started > _SAY_AFTER_SECONDS:
                said = True
                _LOG.warning("waiting for another process that holds %s", self._path)
            pause(seconds)
            seconds = min(2 * seconds, _LONGEST_PAUSE)
        return True

    def _try(self, how: int) -> bool:
        while True:
            try:
                if self._file is None:
                    self._file, self._process = _open_making_folders(self._path), os.getpid()
                # Not `lockf`, whose locks belong to the process: its threads would share one, and
                # closing any descriptor of the file would release it.
                fcntl.flock(self._file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                # Somebody else holds the very file that is there.
                if self._file is not None and _is_at(self._file, self._path):
                    return False
                self.release()  # its file was removed: nobody has to wait for its holder
                continue
            except OSError as error:
                self.release()
                raise StorageError(
                    f"cannot lock {self._path}: {error.strerror or error}: "
                    "set SHARDWRIGHT_CACHE to a folder on a local disk"
                ) from error
            # A former holder may have removed the file meanwhile: then lock its successor.
            if _is_at(self._file, self._path):
                return True
            self.release()

    def release(self) -> None:
        """Release the lock if it is held; in a process forked from its holder it stays held."""
        if self._file is not None:
            # A child shares the lock with its parent: unlocking it here would take it from the
            # parent.
            if self._process == os.getpid():
                with suppress(OSError):  # closing is not enough: a forked child may have it open
                    fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()
            self._file = None


def _open_making_folders(path: str) -> IO[bytes]:
    try:
        # For writing: NFS refuses an exclusive lock on a file open for reading (flock(2)).
        return open(path, "ab", buffering=0, opener=no_follow)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "ab", buffering=0, opener=no_follow)


def _is_at(file: IO[bytes], path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
