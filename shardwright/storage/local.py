"""Local files: whole under their final names or not there, because they are written under hidden ones, synced and renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa

from shardwright import naming
from shardwright.errors import ExistsError, MissingError, StorageError

_MAX_PIECES = 1024  # IOV_MAX on Linux and macOS: what one writev takes
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
)  # FAT, some network disks, mounted buckets
_PutInPlace = Callable[[str, str], None]


class StatedFile(NamedTuple):
    """What is known of a file without reading it: its length in bytes, its etag and its CRC32C, None where nobody keeps them."""

    num_bytes: int
    etag: str | None = None
    crc32c: int | None = None


class LocalFiles:
    """The operations of `Folder` on local paths. Paths are absolute."""

    def num_bytes_of(self, path: str) -> int | None:
        """A file's length, or None where there is no such file.

        Raises:
            StorageError: Nobody may look.
        """
        try:
            with _read_faults(path):
                return os.stat(path).st_size
        except MissingError:
            return None

    def read_bytes(self, path: str) -> bytes:
        """A whole file.

        Raises:
            MissingError: There is none.
            StorageError: It cannot be read.
        """
        with _read_faults(path), open(path, "rb") as file:
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer where the file ends. Raises as `read_bytes`."""
        with _read_faults(path), open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several [start, stop) of one file. Raises as `read_bytes`."""
        with _read_faults(path), open(path, "rb", buffering=0) as file:
            return [os.pread(file.fileno(), stop - start, start) for start, stop in spans]

    @contextmanager
    def local_copy(self, path: str) -> Iterator[str]:
        """A local path under which the file can be read as long as the block lasts. Raises as `read_bytes`."""
        with _read_faults(path):
            os.stat(path)
        yield path

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable file for Arrow's readers. Raises as `read_bytes`."""
        with _read_faults(path):
            return pa.OSFile(path)

    def names_in(self, path: str) -> list[str]:
        """The names in a folder, in order; none where there is no such folder. Raises as `read_bytes`."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"cannot list {path}: {error.strerror or error}") from error

    def stated_in(self, path: str) -> dict[str, StatedFile]:
        """Name -> what the disk says of each file in a folder. Raises as `names_in`."""
        found = {name: self.num_bytes_of(os.path.join(path, name)) for name in self.names_in(path)}
        return {
            name: StatedFile(num_bytes)
            for name, num_bytes in found.items()
            if num_bytes is not None
        }

    def is_file(self, path: str) -> bool:
        """Whether there is something of that name that is no folder."""
        return os.path.lexists(path) and not os.path.isdir(path)

    @contextmanager
    def open_sink(self, path: str) -> Iterator[FileSink]:
        """A sink whose file appears under `path` only when the block ends without an error, synced and whole.

        Raises:
            StorageError: The folder or file cannot be written; the message names the path and the cause.
        """
        with _sink(path, os.replace) as sink:
            yield sink

    def create_bytes(self, path: str, data: bytes) -> None:
        """Write a whole small file where there is none. Two writers at once: one of them is told.

        Raises:
            ExistsError: There is one already.
            StorageError: As `open_sink`.
        """
        with _sink(path, _link) as sink:
            sink.write([data])

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a whole small file, replacing what is there. Raises as `open_sink`."""
        with _sink(path, os.replace) as sink:
            sink.write([data])

    def remove(self, path: str) -> None:
        """Remove a file; where there is none, nothing happens.

        Raises:
            StorageError: It is there and cannot be removed.
        """
        _remove(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files, in no order. Raises as `remove`."""
        for path in paths:
            _remove(path)


class FileSink:
    """An open temporary file that takes pieces of bytes by gathered writes and counts them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.num_bytes = 0
        self.etag: str | None = None  # a disk keeps none

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
def _sink(path: str, put_in_place: _PutInPlace) -> Iterator[FileSink]:
    folder, filename = os.path.split(path)
    temporary = os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))
    try:
        os.makedirs(folder, exist_ok=True)
        with _new_file(temporary) as descriptor:
            sink = FileSink(descriptor)
            yield sink
            sink.sync()
        put_in_place(temporary, path)
    except OSError as error:
        with suppress(StorageError):  # the first failure is the one to tell
            _remove(temporary)
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    except (
        BaseException
    ):  # a signal may come between any two lines, the making of the file included
        _remove(temporary)
        raise


@contextmanager
def _new_file(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _link(temporary: str, path: str) -> None:
    """Put a file in place where there is none: a rename would replace one."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise ExistsError(f"{path} is there already") from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(
            path
        ):  # looking first is the best such disks allow: of two writers at once, both may find none
            raise ExistsError(f"{path} is there already") from error
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error


@contextmanager
def _read_faults(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"{path}: there is no such file") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
