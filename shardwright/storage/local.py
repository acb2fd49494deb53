"""Local files. Writes are atomic: to a hidden temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage.addresses import temporary_name
from shardwright.storage.links import check_folders, open_path

_MAX_PIECES = 1024  # IOV_MAX on Linux and macOS, the most that one writev takes
# FAT, some network disks, mounted buckets.
NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)


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


def open_regular(path: str, buffering: int = -1, top: str | None = None) -> BinaryIO:
    """Open a file for reading. A named pipe would wait for its writer, and a device never end.

    Args:
        path: Its path.
        buffering: As of `open`.
        top: The folder below which no link is followed (`shardwright.storage.links`); None follows
            every link.

    Raises:
        OSError: As `open`, or it is not a regular file.
        LinkError: A part of the path below `top` is a link.
    """
    # Without blocking: a path may become a pipe between a check of it and this.
    descriptor = open_path(path, os.O_RDONLY | os.O_NONBLOCK, top)
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


def file_info(status: os.stat_result) -> FileInfo:
    return FileInfo(status.st_size, status.st_mtime)


def listed_info(entry: os.DirEntry[str]) -> tuple[str, FileInfo] | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # it was removed meanwhile
        return None
    is_other = stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return None if is_other else (entry.name, file_info(status))


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


@contextmanager
def open_sink(
    path: str,
    top: str | None,
    put_in_place: Callable[[str, str], None] = os.replace,
    *,
    sync: bool = True,
) -> Iterator[FileSink]:
    try:
        _make_folder(path, top)
        temporary = _temporary(path)
        try:
            with open(temporary, "xb", buffering=0) as file:
                yield FileSink(file.fileno())
                # Before the rename: a power failure must not leave the name of a file without its
                # bytes.
                if sync:
                    os.fsync(file.fileno())
            put_in_place(temporary, path)
        except BaseException:  # a signal may arrive between any two lines, or in `open`
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


def _discard(temporary: str) -> None:
    with suppress(OSError):  # gone already; else the first error is raised
        os.unlink(temporary)


def link_to_new(temporary: str, path: str) -> None:
    """Move a file to a path that must not exist; a rename would replace what is there."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise ExistsError(f"{path} already exists") from error
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # Without hard links this check is the best possible: two concurrent writers may both pass.
        if os.path.lexists(path):
            raise ExistsError(f"{path} already exists") from error
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def link_over(source: str, path: str, top: str | None) -> None:
    """Give a file a second name, replacing what has it; raise `LinkError` as `open_regular`."""
    _make_folder(path, top)
    temporary = _temporary(path)
    try:
        os.link(source, temporary)
        # By a rename, because a link cannot replace what is at the path.
        os.replace(temporary, path)
    finally:
        _discard(temporary)  # still there if both paths were one file already


@contextmanager
def read_faults(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"{path}: there is no such file") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
