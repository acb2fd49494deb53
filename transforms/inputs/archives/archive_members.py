"""Members of archives of any format, their faults, and their references."""

from __future__ import annotations

import lzma
import posixpath
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from shardwright.errors import StorageError
from shardwright.transforms.inputs.file_rules import (
    MAGIC_BYTES,
    Problem,
    has_image_name,
    is_litter,
    magic_problem,
    size_problem,
)
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.rejects import Reject, RejectReason, reason_of


class ArchiveFault(Exception):  # noqa: N818 - a fault of the data, as RejectedImage
    """An archive, or the rest of it, that cannot be read.

    Attributes:
        reason: The reject reason.
        detail: One line for a person.
    """

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        path: Its normalized path in the archive, without a leading slash.
        num_bytes: Its length, as the archive states it.
        offset: The position of its bytes in the archive; None if they are compressed.
        open: Opens its bytes, to be read forwards and before the next member is requested.
        problem: Why its header excludes it as a record, or None.
        stands_alone: True if a fault in its bytes does not affect the members after it.
    """

    path: str
    num_bytes: int
    offset: int | None
    open: Callable[[], IO[bytes]]
    problem: Problem | None = None
    stands_alone: bool = False


@contextmanager
def archive_faults() -> Iterator[None]:
    """Turn errors of archive libraries, and a store's errors about this object, into ArchiveFault.

    Raises:
        ArchiveFault: The archive cannot be read.
        StorageError: The store fails.
    """
    try:
        yield
    except ArchiveFault:
        raise
    except StorageError as error:
        if (reason := reason_of(error)) is None:
            raise
        raise ArchiveFault(reason, str(error)) from error
    except EOFError as error:
        raise ArchiveFault(RejectReason.TRUNCATED, f"it ends too early: {error}") from error
    except tarfile.ReadError as error:
        cut = "unexpected end" in str(error)
        raise ArchiveFault(
            RejectReason.TRUNCATED if cut else RejectReason.CORRUPT, str(error)
        ) from error
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        RuntimeError,
        ValueError,
    ) as error:
        raise ArchiveFault(RejectReason.CORRUPT, str(error)) from error
    except OSError as error:  # without an errno, it is bad data found by gzip or bz2
        raise ArchiveFault(
            RejectReason.UNREADABLE if error.errno else RejectReason.CORRUPT,
            error.strerror or str(error),
        ) from error


def normal_path(name: str) -> str:
    """Return a member's path without `./`, double or outer slashes; "" for the archive's root."""
    path = posixpath.normpath(name.replace("\0", "").lstrip("/")).lstrip("/")
    return "" if path == "." else path


def path_problem(path: str) -> Problem | None:
    """Return why a member with this path cannot be a record, or None."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return RejectReason.BAD_ID, "the member's name is not UTF-8: rename it"
    if not path:
        return RejectReason.BAD_ID, "the member has no name: rename it"
    parts = path.split("/")
    if ".." in parts:
        return RejectReason.BAD_ID, "the member's path leads out of the archive: rename it"
    if any(map(is_litter, parts)):
        return RejectReason.OTHER_FILE, "hidden, or left by an operating system"
    return None


def member_problem(member: Member) -> Problem | None:
    """Return why a member cannot be an image, without reading its bytes, or None."""
    return path_problem(member.path) or member.problem or size_problem(member.num_bytes)


def member_reject(archive_name: str, uri: str, path: str, problem: Problem) -> Reject:
    """Return the reject of a member."""
    shown = f"{archive_name}/{path}".encode("utf-8", "surrogateescape").decode(
        "utf-8", "backslashreplace"
    )
    return Reject("" if problem[0] == RejectReason.BAD_ID else shown, f"{uri}#{shown}", *problem)


class MemberPlace(NamedTuple):
    """The position of a member's bytes, in the archive or in the spool."""

    uri: str
    offset: int
    etag: str | None


def place_member(
    member: Member, archive: MemberPlace, writer: SpoolWriter | None
) -> MemberPlace | Problem:
    """Return where an image's bytes are, or why the member is not an image.

    Bytes that cannot be read in the archive are copied into the spool.

    Args:
        member: A member without a `member_problem`.
        archive: The archive; its offset is ignored.
        writer: The writer of the spool; None if all members are read in place.

    Raises:
        ArchiveFault: The member cannot be read, nor the members after it.
    """
    named = has_image_name(member.path)
    if member.offset is not None and named:
        return MemberPlace(archive.uri, member.offset, archive.etag)
    try:
        with archive_faults(), member.open() as file:
            start = b"" if named else file.read(MAGIC_BYTES)
            if not named and (problem := magic_problem(start)):
                return problem
            if member.offset is not None:
                return MemberPlace(archive.uri, member.offset, archive.etag)
            data = start + file.read(member.num_bytes - len(start))
    except ArchiveFault as fault:
        if member.stands_alone:
            return fault.reason, fault.detail
        raise
    if len(data) != member.num_bytes:
        return RejectReason.TRUNCATED, f"only {len(data)} of {member.num_bytes} bytes are there"
    if writer is None:
        raise AssertionError("a compressed member needs a spool")
    return MemberPlace(writer.uri, writer.add(data), writer.etag)
