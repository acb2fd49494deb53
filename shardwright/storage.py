"""Where bytes come from and go to: the one seam between this project and a file system or object store.

A file under its final name is always whole: it is written under a hidden temporary name, synced and renamed.
Only local paths are served so far; anything with a scheme is refused by name.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from shardwright import naming
from shardwright.errors import StorageError, UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_PIECES = 1024  # IOV_MAX on Linux and macOS: what one writev takes


def local_path(uri: str) -> str:
    """An absolute local path for a path or `file://` address.

    Raises:
        UsageError: The address names a store that is not served.
    """
    if uri.startswith("file://"):
        uri = uri.removeprefix("file://")
    elif match := _SCHEME.match(uri):
        raise UsageError(f"{uri!r}: {match[0]} addresses are not read or written yet; give a local path")
    return os.path.abspath(os.path.expanduser(uri))


def join(root: str, relative: str) -> str:
    """`relative` below `root`; a dataset's files are always named with `/`."""
    return os.path.join(root, *relative.split("/"))


def num_bytes_of(path: str) -> int | None:
    """A file's length, or None where there is no such file."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_bytes(path: str) -> bytes:
    """A whole file.

    Raises:
        FileNotFoundError: There is none.
    """
    with open(path, "rb") as file:
        return file.read()


def list_outputs(root: str) -> list[str]:
    """Every file below `root` that a build makes, relative to it, in order."""
    found = []
    for folder in ("", naming.INDEX_DIR, naming.REJECTS_DIR):
        path = os.path.join(root, folder)
        if os.path.isdir(path):
            names = (f"{folder}/{name}" if folder else name for name in os.listdir(path))
            found += [name for name in names if naming.is_build_output(name)]
    return sorted(found)


def remove(path: str) -> None:
    """Remove a file; where there is none, nothing happens.

    Raises:
        StorageError: It is there and cannot be removed.
    """
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error


class FileSink:
    """An open temporary file that takes pieces of bytes by gathered writes and counts them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.num_bytes = 0

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write the pieces one after another; they are copied by the operating system only."""
        for start in range(0, len(pieces), _MAX_PIECES):
            self._write_some(pieces[start : start + _MAX_PIECES])

    def _write_some(self, pieces: Sequence[bytes]) -> None:
        wanted = sum(map(len, pieces))
        written = os.writev(self._descriptor, pieces)
        self.num_bytes += wanted
        if written < wanted:  # a signal or a nearly full disk: the slow way says which
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        os.fsync(self._descriptor)


@contextmanager
def open_sink(path: str) -> Iterator[FileSink]:
    """A sink whose file appears under `path` only when the block ends without an error, synced and whole.

    Raises:
        StorageError: The folder or file cannot be written; the message names the path and the cause.
    """
    folder, filename = os.path.split(path)
    temporary = os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        try:
            sink = FileSink(descriptor)
            yield sink
            sink.sync()
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(StorageError):  # the first failure is the one to tell
            remove(temporary)
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        remove(temporary)
        raise


def write_bytes(path: str, data: bytes) -> None:
    """Write a whole small file, atomically.

    Raises:
        StorageError: As `open_sink`.
    """
    with open_sink(path) as sink:
        sink.write([data])


def write_if_new(path: str, data: bytes) -> None:
    """Write a file, or leave it as it is where it says the same: a finished dataset that is built again stays untouched."""
    try:
        same = read_bytes(path) == data
    except OSError:  # none there, or none that can be read: writing tells if there is more to it
        same = False
    if not same:
        write_bytes(path, data)
