"""Zip archives as input: stored members are read in place, compressed ones through the spool."""

from __future__ import annotations

import functools
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.file_rules import Problem
from shardwright.transforms.inputs.formats.archives import (
    ArchiveFault,
    ArchiveSource,
    Member,
    OpenArchive,
    archive_faults,
    normal_path,
)
from shardwright.transforms.rejects import RejectReason

# Signature, lengths of name and extra field; these two follow, then the data.
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\3\4"
_ENCRYPTED, _UTF8 = 1, 0x800
_UNPACKED = frozenset(
    {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
)
_LOOKED_UP = 1024  # local headers read at a time


def is_zip_name(name: str) -> bool:
    """Return whether a file name has the extension of zip archives."""
    return name.lower().endswith(".zip")


class ZipReader:
    """A reader of the members of one zip archive, open within its `with` block."""

    def __init__(self, uri: str, storage: StorageOptions, archive: zipfile.ZipFile) -> None:
        self._uri = uri
        self._storage = storage
        self._archive = archive
        self._infos = sorted(
            (info for info in archive.infolist() if not info.filename.endswith("/")),
            key=lambda info: info.header_offset,
        )

    @classmethod
    @contextmanager
    def open(cls, uri: str, storage: StorageOptions) -> Iterator[ZipReader]:
        """Open an archive and read its central directory.

        Raises:
            ArchiveFault: The archive cannot be read.
            StorageError: The store fails.
        """
        with archive_faults():
            raw = files_of(uri, storage).open_stream(uri, skips=True)
        with raw:
            with archive_faults():
                try:
                    archive = zipfile.ZipFile(raw)
                except zipfile.BadZipFile as error:
                    raise ArchiveFault(
                        RejectReason.TRUNCATED,
                        f"{error}: its end, which lists its members, is missing",
                    ) from error
            with archive:
                yield cls(uri, storage, archive)

    @property
    def is_stored(self) -> bool:
        """True if no usable member is compressed."""
        return all(
            info.compress_type == zipfile.ZIP_STORED or _problem(info) for info in self._infos
        )

    def members(self, *, places: bool = True) -> Iterator[Member]:
        """Yield every file in the archive, in the order of their bytes.

        Args:
            places: True to find where stored members begin, at a small read each.
        """
        rest = iter(self._infos)
        while some := list(islice(rest, _LOOKED_UP)):
            offsets = self._offsets(some) if places else [0] * len(some)
            for info, offset in zip(some, offsets, strict=True):
                problem = _problem(info) or (offset if not isinstance(offset, int) else None)
                start = (
                    offset
                    if isinstance(offset, int) and info.compress_type == zipfile.ZIP_STORED
                    else None
                )
                open_member = functools.partial(self._archive.open, info)
                yield Member(
                    normal_path(_name_of(info)),
                    info.file_size,
                    start,
                    open_member,
                    problem,
                    stands_alone=True,
                )

    def _offsets(self, infos: Sequence[zipfile.ZipInfo]) -> list[int | Problem]:
        """Return where each stored member's data begins, or its problem; 0 for other members.

        The directory has the position of the local header, whose extra field may be of any length.
        """
        files = files_of(self._uri, self._storage)

        def look(info: zipfile.ZipInfo) -> int | Problem:
            if info.compress_type != zipfile.ZIP_STORED or _problem(info):
                return 0
            with archive_faults():
                header = files.read_range(self._uri, info.header_offset, _LOCAL_HEADER.size)
            if len(header) < _LOCAL_HEADER.size or not header.startswith(_SIGNATURE):
                return RejectReason.CORRUPT, "no member at the offset in the archive's directory"
            _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
            if name_bytes != len(
                info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
            ):
                return (
                    RejectReason.CORRUPT,
                    "the member's name differs from the one in the archive's directory",
                )
            return info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes

        return list(map_reads(look, infos) if is_remote(self._uri) else map(look, infos))


def _name_of(info: zipfile.ZipInfo) -> str:
    """Return a member's name as UTF-8, which `zipfile` reads as cp437 unless a flag is set."""
    if info.flag_bits & _UTF8 or info.orig_filename.isascii():
        return info.filename
    # As in a tar: bytes that are not UTF-8 make the member a reject.
    return info.orig_filename.encode("cp437").decode("utf-8", "surrogateescape")


def _problem(info: zipfile.ZipInfo) -> Problem | None:
    if info.flag_bits & _ENCRYPTED:
        return RejectReason.UNSUPPORTED_FORMAT, "encrypted: unpack it with its password first"
    if stat.S_ISLNK(info.external_attr >> 16):
        return RejectReason.OTHER_FILE, "a link"
    if info.compress_type not in _UNPACKED:
        return (
            RejectReason.UNSUPPORTED_FORMAT,
            f"unsupported compression method {info.compress_type}: "
            "pack the archive with deflate or uncompressed",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipSource(ArchiveSource):
    """Zip archives of images."""

    summary = "a .zip of images, or several"
    rank = 24
    kind = "zip"

    @staticmethod
    def is_name(name: str) -> bool:
        return is_zip_name(name)

    @staticmethod
    @contextmanager
    def open(
        uri: str, storage: StorageOptions, num_bytes: int, places: bool
    ) -> Iterator[OpenArchive]:
        del num_bytes
        with ZipReader.open(uri, storage) as reader:
            yield OpenArchive(functools.partial(reader.members, places=places), reader.is_stored)
