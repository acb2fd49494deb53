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
from typing import IO, Any, cast

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
_BUFFER_BYTES = 1 << 20
_OPENERS: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}


def is_tar_name(name: str) -> bool:
    """Return whether a file name has an extension of tar archives."""
    return name.lower().endswith(TAR_ENDINGS)


def tar_stem(name: str) -> str:
    """Return a tar's name without its extension."""
    ending = max(
        (ending for ending in TAR_ENDINGS if name.lower().endswith(ending)), key=len, default=""
    )
    return name[: len(name) - len(ending)]


class TarReader:
    """A reader of the members of one tar archive.

    Attributes:
        uri: Its path or address.
        compression: "gzip", "bz2", "xz" or "zstd", by its first bytes; None if plain.
    """

    def __init__(self, uri: str, storage: StorageOptions, num_bytes: int) -> None:
        """Detect the compression by the archive's first bytes.

        Raises:
            ArchiveFault: The archive cannot be read.
        """
        self.uri = uri
        self._storage = storage
        self._num_bytes = num_bytes
        with archive_faults():
            start = files_of(uri, storage).read_range(uri, 0, 6)
        self.compression = next(
            (name for magic, name in _MAGICS.items() if start.startswith(magic)), None
        )

    def members(self) -> Iterator[Member]:
        """Yield every file in order.

        Raises:
            ArchiveFault: The rest of the archive cannot be read.
            StorageError: The store fails.
        """
        for tar, info in self._headers():
            if not info.isdir():
                yield self._member(tar, info)

    def _member(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
        offset = info.offset_data if self.compression is None else None
        open_member = functools.partial(_open_member, tar, info)
        problem: Problem | None = None
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
        return Member(normal_path(info.name), info.size, offset, open_member, problem)

    def _headers(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        with archive_faults(), self._open() as file:
            tar = tarfile.TarFile(
                fileobj=file, tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
            )
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
                if self.compression is None and info.offset_data + info.size > self._num_bytes:
                    raise ArchiveFault(
                        RejectReason.TRUNCATED,
                        f"it ends inside {info.name!r}, at byte {self._num_bytes}",
                    )
                position = tar.offset
                yield tar, info

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with ExitStack() as stack:
            skips = self.compression is None  # only headers are read
            files = files_of(self.uri, self._storage)
            raw = stack.enter_context(
                files.open_stream(self.uri, num_bytes=self._num_bytes, skips=skips)
            )
            if self.compression == "zstd":
                yield cast(
                    "IO[bytes]",
                    _Forwards(
                        stack.enter_context(
                            pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
                        )
                    ),
                )
            elif self.compression:
                yield stack.enter_context(_OPENERS[self.compression](raw))
            else:
                yield raw


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


class _Forwards:
    """A stream as a file that can seek forwards."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._position = 0

    def read(self, num_bytes: int = -1) -> bytes:
        data: bytes = self._stream.read() if num_bytes < 0 else self._stream.read(num_bytes)
        self._position += len(data)
        return data

    def seek(self, offset: int) -> int:
        if offset < self._position:
            raise OSError(f"cannot go back from byte {self._position} to {offset}")
        # In pieces: a member may be larger than memory.
        while self._position < offset and self.read(min(_BUFFER_BYTES, offset - self._position)):
            pass
        return self._position

    def tell(self) -> int:
        return self._position


def _open_member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(info)
    assert file is not None  # it is a regular file
    return file


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSource(ArchiveSource):
    """Tar archives of images."""

    summary = "a .tar, .tar.gz, .tar.bz2, .tar.xz or .tar.zst of images, or several"
    rank = 22
    kind = "tar"

    @staticmethod
    def is_name(name: str) -> bool:
        return is_tar_name(name)

    @staticmethod
    @contextmanager
    def open(
        uri: str, storage: StorageOptions, num_bytes: int, places: bool
    ) -> Iterator[OpenArchive]:
        del places  # they cost nothing
        reader = TarReader(uri, storage, num_bytes)
        yield OpenArchive(reader.members, reader.compression is None)
