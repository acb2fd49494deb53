"""Zip archives as input: stored members are read in place, compressed ones through the spool."""

from __future__ import annotations

import functools
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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


def _members(
    uri: str,
    storage: StorageOptions,
    archive: zipfile.ZipFile,
    infos: Sequence[zipfile.ZipInfo],
    places: bool,
) -> Iterator[Member]:
    """Yield files, in the order of their bytes; with `places`, at a small read for each stored one.

    The directory has the position of the local header, whose extra field may be of any length.
    """
    files = files_of(uri, storage)

    def offset_of(info: zipfile.ZipInfo) -> int | Problem | None:
        """Return where a stored member's data begins, None if it is compressed, or its problem."""
        if (problem := _problem(info)) or not places or info.compress_type != zipfile.ZIP_STORED:
            return problem
        with archive_faults():
            header = files.read_range(uri, info.header_offset, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(_SIGNATURE):
            return RejectReason.CORRUPT, "no member at the offset in the archive's directory"
        _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        codec = "utf-8" if info.flag_bits & _UTF8 else "cp437"
        if name_bytes != len(info.orig_filename.encode(codec)):
            detail = "the member's name differs from the one in the archive's directory"
            return RejectReason.CORRUPT, detail
        return info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes

    rest = iter(infos)
    while some := list(islice(rest, _LOOKED_UP)):
        offsets = map_reads(offset_of, some) if places and is_remote(uri) else map(offset_of, some)
        for info, found in zip(some, offsets, strict=True):
            yield Member(
                normal_path(_name_of(info)),
                info.file_size,
                found if isinstance(found, int) else None,
                functools.partial(archive.open, info),
                found if isinstance(found, tuple) else None,
                stands_alone=True,
            )


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
    endings = (".zip",)

    @staticmethod
    @contextmanager
    def open(
        uri: str, storage: StorageOptions, num_bytes: int, places: bool
    ) -> Iterator[OpenArchive]:
        del num_bytes
        with ExitStack() as stack:
            with archive_faults():
                raw = stack.enter_context(files_of(uri, storage).open_stream(uri, skips=True))
                try:
                    archive = stack.enter_context(zipfile.ZipFile(raw))
                except zipfile.BadZipFile as error:
                    raise ArchiveFault(
                        RejectReason.TRUNCATED,
                        f"{error}: its end, which lists its members, is missing",
                    ) from error
            infos = sorted(
                (info for info in archive.infolist() if not info.filename.endswith("/")),
                key=lambda info: info.header_offset,
            )
            # The problem of a compressed member needs no spool.
            in_place = all(
                info.compress_type == zipfile.ZIP_STORED or _problem(info) for info in infos
            )
            yield OpenArchive(_members(uri, storage, archive, infos, places), in_place)
