"""Local files. Writes are atomic: to a hidden temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple, TypeVar

import pyarrow as pa

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage.addresses import temporary_name
from shardwright.storage.links import check_folders, open_path, own_path, status

T = TypeVar("T")
_MAX_PIECES = 1024  # IOV_MAX on Linux and macOS, the most that one writev takes
# FAT, some network disks, mounted buckets.
_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
_COPY_BYTES = 4 << 20
_STREAM_BYTES = 1 << 20
_PutInPlace = Callable[[str, str], None]


class FileInfo(NamedTuple):
    """Metadata of a file, as a disk or store tells it without reading the file.

    Attributes:
        num_bytes: Its length.
        modified: When it was last modified, in seconds since 1970 (UTC); 0 if that was not asked.
            Stores state whole seconds for single objects, and some do in listings.
        etag: Its etag, without quotes; None if there is none.
        crc32c: The CRC32C of the whole file; None if it is not kept, or was not asked.
    """

    num_bytes: int
    modified: float = 0.0
    etag: str | None = None
    crc32c: int | None = None


class LocalFiles:
    """The operations of `Folder` on local paths. Paths are absolute.

    Args:
        top: The folder below which no link is followed (`shardwright.storage.links`), and which all
            paths are in; None follows every link, as in INPUT.
    """

    def __init__(self, top: str | None = None) -> None:
        self._top = top

    def own_path(self, path: str) -> str:
        """Return a path for code that opens it by itself, checked to have no link.

        Raises:
            LinkError: A part of it is a link.
            StorageError: It cannot be accessed.
        """
        with _read_faults(path):
            return own_path(path, self._top)

    def info(self, path: str) -> FileInfo | None:
        """Return what is known of a file, or None if it does not exist.

        Raises:
            StorageError: It cannot be accessed.
        """
        try:
            with _read_faults(path):
                return _info(status(path, self._top))
        except MissingError:
            return None

    def num_bytes_of(self, path: str) -> int | None:
        """Return the length in bytes of what `info` finds."""
        found = self.info(path)
        return found.num_bytes if found else None

    def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return a whole file.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, is not a regular file, or is longer than `max_bytes`.
        """
        with _read_faults(path), open_regular(path, top=self._top) as file:
            # Of the opened file: the path may be another file by now.
            check_length(path, os.fstat(file.fileno()).st_size, max_bytes)
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the file's end.

        Raises as `read_bytes`.
        """
        with _read_faults(path), open_regular(path, 0, self._top) as file:
            return os.pread(file.fileno(), length, offset)

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several ranges [start, stop) of one file. Raises as `read_bytes`."""
        with _read_faults(path), open_regular(path, 0, self._top) as file:
            return [os.pread(file.fileno(), stop - start, start) for start, stop in spans]

    @contextmanager
    def local_copy(self, path: str) -> Iterator[BinaryIO]:
        """Yield the file itself, open for reading. Raises as `read_bytes`."""
        with _read_faults(path):
            file = open_regular(path, top=self._top)
        with file:
            yield file

    def open_input(self, path: str) -> pa.NativeFile:
        """Return a seekable file for Arrow's readers. Raises as `read_bytes`."""
        with self.local_copy(path), _read_faults(path):  # checked: opening a pipe would wait
            return pa.OSFile(path)

    def open_stream(self, path: str, *, skips: bool = False, **_: object) -> BinaryIO:
        """Return a seekable file for Python's readers; `skips` as in `ObjectFiles`.

        Raises:
            OSError: As `open_regular`.
        """
        return open_regular(path, -1 if skips else _STREAM_BYTES, self._top)

    def names_in(self, path: str) -> list[str]:
        """Return the sorted names in a folder, [] if it does not exist. Raises `StorageError`."""
        return sorted(self._scan(path, lambda entry: entry.name))

    first_names_in = names_in

    def files_in(self, path: str, **_: object) -> dict[str, FileInfo]:
        """Return name -> info of each file in a folder, without links. Raises as `names_in`."""
        return dict(sorted(filter(None, self._scan(path, _info_in_list))))

    def _scan(self, path: str, take: Callable[[os.DirEntry[str]], T]) -> Sequence[T]:
        try:
            status(path, self._top)
            with os.scandir(path) as entries:
                return [take(entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"cannot list {path}: {error.strerror or error}") from error

    def is_file(self, path: str) -> bool:
        """Return whether the path exists and is not a folder."""
        return os.path.lexists(path) and not os.path.isdir(path)

    @contextmanager
    def open_sink(self, path: str, *, sync: bool = True) -> Iterator[FileSink]:
        """Open a sink whose file appears, synced, when the block ends; on an error nothing is left.

        Raises:
            StorageError: The folder or file cannot be written.
        """
        with _sink(path, self._top, os.replace, sync=sync) as sink:
            yield sink

    def create_bytes(self, path: str, data: bytes) -> None:
        """Write a small file that must not exist. Of two concurrent writers one succeeds.

        Raises:
            ExistsError: The file already exists.
            StorageError: As `open_sink`.
        """
        # A hard link fails if the name exists, where a rename would replace it: this is what makes
        # a commit of one writer.
        with _sink(path, self._top, _link) as sink:
            sink.write([data])

    def write_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a small file. Raises as `open_sink`."""
        with _sink(path, self._top, os.replace, sync=sync) as sink:
            sink.write([data])

    def copy(self, source: str, path: str, top: str) -> None:
        """Put a file at another path, too, replacing what is there: as a hard link if possible.

        Args:
            source: The file.
            path: The other path.
            top: The folder below which no link is followed to that.

        Raises:
            MissingError: It does not exist.
            StorageError: It cannot be read, or the path cannot be written.
        """
        try:
            status(source, self._top)
            _make_folder(path, top)
            _copy(source, path)
        except FileNotFoundError as error:
            raise MissingError(f"{source}: there is no such file") from error
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
            self._copy_bytes(source, path, top)

    def _copy_bytes(self, source: str, path: str, top: str) -> None:
        with (
            _read_faults(source),
            open_regular(source, top=self._top) as file,
            _sink(path, top, os.replace) as sink,
        ):
            while piece := file.read(_COPY_BYTES):
                sink.write([piece])

    def remove(self, path: str) -> None:
        """Remove a file, or a link, if it exists.

        Raises:
            StorageError: It cannot be removed.
        """
        try:
            check_folders(path, self._top)
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files. Raises as `remove`."""
        for path in paths:
            self.remove(path)


def open_regular(path: str, buffering: int = -1, top: str | None = None) -> BinaryIO:
    """Open a file for reading. A named pipe would wait for its writer, and a device never end.

    Args:
        path: Its path.
        buffering: As of `open`.
        top: As in `LocalFiles`.

    Raises:
        OSError: As `open`, or it is not a regular file.
        LinkError: A part of the path below `top` is a link.
    """
    descriptor = open_descriptor(path, top)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is a pipe, socket or device, not a regular file", path)
        return open(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def open_descriptor(path: str, top: str | None) -> int:
    """Return a descriptor for reading. Raises as `open_regular`, of any kind of file."""
    # Without blocking: a path may become a pipe between a check of it and this.
    return open_path(path, os.O_RDONLY | os.O_NONBLOCK, top)


def _info(status: os.stat_result) -> FileInfo:
    return FileInfo(status.st_size, status.st_mtime)


def _info_in_list(entry: os.DirEntry[str]) -> tuple[str, FileInfo] | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # it was removed meanwhile
        return None
    is_other = stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return None if is_other else (entry.name, _info(status))


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
def _sink(
    path: str, top: str | None, put_in_place: _PutInPlace, *, sync: bool = True
) -> Iterator[FileSink]:
    try:
        _make_folder(path, top)
        temporary = _temporary(path)
        try:
            with _new_file(temporary) as descriptor:
                sink = FileSink(descriptor)
                yield sink
                # Before the rename: a power failure must not leave the name of a file without its
                # bytes.
                if sync:
                    sink.sync()
            put_in_place(temporary, path)
        except BaseException:  # a signal may arrive between any two lines, or in `_new_file`
            _discard(temporary)
            raise
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _make_folder(path: str, top: str | None) -> None:
    """Make the folder of a file; raise `LinkError` if a part of it is a link."""
    check_folders(path, top)
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _temporary(path: str) -> str:
    folder, filename = os.path.split(path)
    return os.path.join(folder, temporary_name(filename, secrets.token_hex(4)))


@contextmanager
def _new_file(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _discard(temporary: str) -> None:
    with suppress(OSError):  # gone already; else the first error is raised
        os.unlink(temporary)


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


def _copy(source: str, path: str) -> None:
    """Give a file a second name, replacing what has it."""
    temporary = _temporary(path)
    try:
        os.link(source, temporary)
        # By a rename, because a link cannot replace what is at the path.
        os.replace(temporary, path)
    finally:
        _discard(temporary)  # still there if both paths were one file already


@contextmanager
def _read_faults(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"{path}: there is no such file") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
