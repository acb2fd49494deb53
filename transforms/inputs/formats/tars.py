"""Tar archives as input: plain ones are read in place, compressed ones through the spool."""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shardwright.sizes import counted
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import Problem, has_image_name
from shardwright.transforms.inputs.formats.archives import (
    ArchiveFault,
    ArchiveSource,
    Member,
    OpenArchive,
    archive_faults,
    normal_path,
)
from shardwright.transforms.rejects import RejectReason

TAR_ENDINGS = (
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.bz2",
    ".tbz2",
    ".tbz",
    ".tar.xz",
    ".txz",
    ".tar.zst",
    ".tzst",
)
_MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_LONG_HEADERS = frozenset(
    (
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
    )
)
_MAX_HEADER_BYTES = 1 << 20  # names and pax records are held in memory, and a tar bomb claims more
_OPENERS: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}


def tar_stem(name: str) -> str:
    """Return a tar's name without its extension."""
    ending = max(
        (ending for ending in TAR_ENDINGS if name.lower().endswith(ending)), key=len, default=""
    )
    return name[: len(name) - len(ending)]


def read_headers(
    uri: str, storage: StorageOptions, num_bytes: int, compression: str | None
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the header of everything in a tar, in order, with the open tar.

    Raises:
        ArchiveFault: The rest of the archive cannot be read.
        StorageError: The store fails.
    """
    with archive_faults(), _open(uri, storage, num_bytes, compression) as tar:
        position = -1
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps them all
            # A damaged size may lead back to an earlier header: the walk must only go forwards.
            if info.size < 0 or tar.offset <= position:
                raise ArchiveFault(
                    RejectReason.CORRUPT,
                    f"the header of {info.name!r} states {counted(info.size, 'byte')}",
                )
            # `tarfile` seeks over the data, so it does not notice by itself that the data ends.
            if compression is None and info.offset_data + info.size > num_bytes:
                raise ArchiveFault(
                    RejectReason.TRUNCATED,
                    f"it ends inside {info.name!r}, at byte {num_bytes}",
                )
            position = tar.offset
            yield tar, info


@contextmanager
def _open(
    uri: str, storage: StorageOptions, num_bytes: int, compression: str | None
) -> Iterator[tarfile.TarFile]:
    with ExitStack() as stack:
        skips = compression is None  # only headers are read
        file: Any = stack.enter_context(
            files_of(uri, storage).open_stream(uri, num_bytes=num_bytes, skips=skips)
        )
        mode: Any = "r:"
        if compression == "zstd":
            file = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
            mode = "r|"  # it cannot seek
        elif compression:
            file = stack.enter_context(_OPENERS[compression](file))
        tar = tarfile.open(  # noqa: SIM115 - it has nothing of its own to close
            mode=mode, fileobj=file, tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
        )
        yield tar


def _members(
    uri: str, storage: StorageOptions, num_bytes: int, compression: str | None
) -> Iterator[Member]:
    """Yield every file in a tar, and raise as `read_headers`."""
    for tar, info in read_headers(uri, storage, num_bytes, compression):
        problem: Problem | None = None
        if info.isdir():
            continue
        if info.issparse():
            detail = "a sparse member: pack the archive without --sparse"
            problem = RejectReason.UNSUPPORTED_FORMAT, detail
        elif info.islnk() or info.issym():
            is_image = has_image_name(info.name)
            reason = RejectReason.UNSUPPORTED_FORMAT if is_image else RejectReason.OTHER_FILE
            detail = f"a link to {info.linkname!r:.80}: pack the archive with tar --dereference "
            problem = reason, f"{detail}--hard-dereference"
        elif not info.isreg():
            problem = RejectReason.UNREADABLE, "not a regular file"
        offset = info.offset_data if compression is None else None
        open_member: Any = functools.partial(tar.extractfile, info)
        yield Member(normal_path(info.name), info.size, offset, open_member, problem)


class _Header(tarfile.TarInfo):
    """A header that fails if invalid: `tarfile` takes a bad one after the first for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            found = super().frombuf(buf, encoding, errors)
        # Zeros, which end a tar.
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # typeshed leaves it out
            raise
        except tarfile.HeaderError as error:
            if len(buf) < tarfile.BLOCKSIZE:
                raise ArchiveFault(
                    RejectReason.TRUNCATED, "it has no end mark: its end is missing"
                ) from error
            raise ArchiveFault(
                RejectReason.CORRUPT, f"{error} where a member should begin"
            ) from error
        if found.type in _LONG_HEADERS and found.size > _MAX_HEADER_BYTES:
            raise ArchiveFault(RejectReason.CORRUPT, f"a header of {found.size} bytes is too long")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSource(ArchiveSource):
    """Tar archives of images."""

    summary = "a .tar, .tar.gz, .tar.bz2, .tar.xz or .tar.zst of images, or several"
    rank = 22
    kind = "tar"
    endings = TAR_ENDINGS

    @staticmethod
    @contextmanager
    def open(
        uri: str, storage: StorageOptions, num_bytes: int, places: bool
    ) -> Iterator[OpenArchive]:
        del places  # they cost nothing
        with archive_faults():
            start = files_of(uri, storage).read_range(uri, 0, 6)
        found = (name for magic, name in _MAGICS.items() if start.startswith(magic))
        compression = next(found, None)
        yield OpenArchive(_members(uri, storage, num_bytes, compression), compression is None)
