"""Local files. Writes are atomic: to a hidden temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.format import naming

_MAX_PIECES = 1024  # IOV_MAX on Linux and macOS, the most that one writev takes
# FAT, some network disks, mounted buckets.
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
_COPY_BYTES = 4 << 20
_PutInPlace = Callable[[str, str], None]


class StatedFile(NamedTuple):
    """A file's length in bytes, etag and CRC32C, known without reading it; None if not kept."""

    num_bytes: int
    etag: str | None = None
    crc32c: int | None = None


class LocalFiles:
    """The operations of `Folder` on local paths. Paths are absolute."""

    def num_bytes_of(self, path: str) -> int | None:
        """Return a file's length in bytes, or None if it does not exist.

        Raises:
            StorageError: It cannot be accessed.
        """
        try:
            with _read_faults(path):
                return os.stat(path).st_size
        except MissingError:
            return None

    def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return a whole file.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, is not a regular file, or is longer than `max_bytes`.
        """
        with _read_faults(path), open_regular(path) as file:
            check_length(path, os.fstat(file.fileno()).st_size, max_bytes)
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the file's end.

        Raises as `read_bytes`.
        """
        with _read_faults(path), open_regular(path, buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges [start, stop) of one file. Raises as `read_bytes`."""
        with _read_faults(path), open_regular(path, buffering=0) as file:
            return [os.pread(file.fileno(), stop - start, start) for start, stop in spans]

    @contextmanager
    def local_copy(self, path: str) -> Iterator[str]:
        """Yield the path itself: the file is local. Raises as `read_bytes`."""
        with _read_faults(path):
            _check_regular(path, os.stat(path))
        yield path

    def open_input(self, path: str) -> pa.NativeFile:
        """Return a seekable file for Arrow's readers. Raises as `read_bytes`."""
        with _read_faults(path):
            _check_regular(path, os.stat(path))  # before it is opened: that of a pipe would wait
            return pa.OSFile(path)

    def names_in(self, path: str) -> list[str]:
        """Return the sorted names in a folder, [] if it does not exist. Raises `StorageError`."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"cannot list {path}: {error.strerror or error}") from error

    def stated_in(self, path: str) -> dict[str, StatedFile]:
        """Return name -> length of each file in a folder. Raises as `names_in`."""
        found = {name: self.num_bytes_of(os.path.join(path, name)) for name in self.names_in(path)}
        return {
            name: StatedFile(num_bytes)
            for name, num_bytes in found.items()
            if num_bytes is not None
        }

    def is_file(self, path: str) -> bool:
        """Return whether the path exists and is not a folder."""
        return os.path.lexists(path) and not os.path.isdir(path)

    @contextmanager
    def open_sink(self, path: str, *, sync: bool = True) -> Iterator[FileSink]:
        """Open a sink whose file appears, synced, when the block ends; on an error nothing is left.

        Raises:
            StorageError: The folder or file cannot be written.
        """
        with _sink(path, os.replace, sync=sync) as sink:
            yield sink

    def create_bytes(self, path: str, data: bytes) -> None:
        """Write a small file that must not exist. Of two concurrent writers one succeeds.

        Raises:
            ExistsError: The file already exists.
            StorageError: As `open_sink`.
        """
        with _sink(path, _link) as sink:
            sink.write([data])

    def write_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a small file. Raises as `open_sink`."""
        with _sink(path, os.replace, sync=sync) as sink:
            sink.write([data])

    def copy(self, source: str, path: str) -> None:
        """Put a file at another path, too, replacing what is there: as a hard link if possible.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, or the path cannot be written.
        """
        temporary = _temporary(path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.link(source, temporary)
            os.replace(temporary, path)
        except FileNotFoundError as error:
            raise MissingError(f"{source}: there is no such file") from error
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
            self._copy_bytes(source, path)
        finally:
            _remove(temporary)  # still there if both paths were one file already

    def _copy_bytes(self, source: str, path: str) -> None:
        with _read_faults(source), open_regular(source) as file, self.open_sink(path) as sink:
            while piece := file.read(_COPY_BYTES):
                sink.write([piece])

    def remove(self, path: str) -> None:
        """Remove a file if it exists.

        Raises:
            StorageError: It cannot be removed.
        """
        _remove(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files. Raises as `remove`."""
        for path in paths:
            _remove(path)


def open_regular(path: str, buffering: int = -1) -> BinaryIO:
    """Open a file for reading. A named pipe would wait for its writer, and a device never end.

    Raises:
        OSError: As `open`, or it is not a regular file.
    """
    # Without blocking: a path may become a pipe between a check of it and this.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(path, os.fstat(descriptor))
        return open(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe, socket or device, not a regular file", path)


def check_length(path: str, num_bytes: int, max_bytes: int | None) -> None:
    """Raise `StorageError` if a file is too long to be read into memory."""
    if max_bytes is not None and num_bytes > max_bytes:
        raise StorageError(f"{path} has {num_bytes:,} bytes, more than the {max_bytes:,} allowed")


class FileSink:
    """An open temporary file that is written by gathered writes and counts its bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.num_bytes = 0
        self.etag: str | None = None  # local files have none

    def write(self, pieces: Sequence[bytes]) -> None:
        """Append the pieces to the file. Only the operating system copies them."""
        for start in range(0, len(pieces), _MAX_PIECES):
            self._write_some(pieces[start : start + _MAX_PIECES])

    def _write_some(self, pieces: Sequence[bytes]) -> None:
        wanted = sum(map(len, pieces))
        written = os.writev(self._descriptor, pieces)
        self.num_bytes += wanted
        if written < wanted:  # after a signal this goes on; on a full disk `os.write` raises
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        os.fsync(self._descriptor)


@contextmanager
def _sink(path: str, put_in_place: _PutInPlace, *, sync: bool = True) -> Iterator[FileSink]:
    temporary = _temporary(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with _new_file(temporary) as descriptor:
            sink = FileSink(descriptor)
            yield sink
            if sync:
                sink.sync()
        put_in_place(temporary, path)
    except OSError as error:
        with suppress(StorageError):  # report the first error
            _remove(temporary)
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:  # a signal may arrive between any two lines, or in `_new_file`
        _remove(temporary)
        raise


def _temporary(path: str) -> str:
    folder, filename = os.path.split(path)
    return os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))


@contextmanager
def _new_file(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _link(temporary: str, path: str) -> None:
    """Move a file to a path that must not exist; a rename would replace what is there."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise ExistsError(f"{path} already exists") from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # Without hard links this check is the best possible: two concurrent writers may both pass.
        if os.path.lexists(path):
            raise ExistsError(f"{path} already exists") from error
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
