"""Tar archives as input: plain ones are read in place, compressed ones through the spool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardwright.errors import MissingError
from transforms.inputs.archives.archive_members import ArchiveFault
from transforms.inputs.archives.archive_source import (
    ArchiveSource,
    Look,
    Rows,
    find_archives,
    layout_of,
    look_into,
)
from transforms.inputs.archives.tar_members import TarReader, is_tar_name
from transforms.inputs.input_files import FileState, InputFile, state_of
from transforms.inputs.source import SourceFormat, SourceRequest


@dataclass(frozen=True, slots=True)
class TarSource(ArchiveSource):
    """A source of tar archives."""

    def describe(self) -> str:
        number = f"{self.count} tar archives" if self.count > 1 else "a tar archive"
        return f"{number} at {self.request.uri}{self.layout.describe()}"

    @staticmethod
    def is_archive(name: str) -> bool:
        return is_tar_name(name)

    def list_archive(self, archive: InputFile, state: FileState) -> Rows:
        reader = TarReader(archive.uri, self.request.storage, state.num_bytes)
        if reader.compression is None:
            return self.references(archive, state, reader.members(), None)
        return self.spooled(
            archive, state, lambda writer: self.references(archive, state, reader.members(), writer)
        )


class TarFormat(SourceFormat):
    """A tar archive, a folder of them, or a wildcard."""

    name: ClassVar[str] = "tar"
    summary: ClassVar[str] = "a .tar, .tar.gz, .tar.bz2, .tar.xz or .tar.zst of images, or several"
    rank: ClassVar[int] = 22

    def open(self, request: SourceRequest, *, forced: bool) -> TarSource | None:
        archives = find_archives(request, is_tar_name, forced=forced, what="tar archives")
        if not archives:
            return None
        request.refuse_columns("made of tar archives")
        looks = [
            look_into_tar(archive, request)
            for archive in dict.fromkeys((archives[0], archives[-1]))
        ]
        base = archives[0].uri.removesuffix(archives[0].name)
        return TarSource(request, base, layout_of(looks, archives), len(archives))


def look_into_tar(archive: InputFile, request: SourceRequest) -> Look:
    """Return the first members of a tar; none if it cannot be read."""
    try:
        reader = TarReader(
            archive.uri, request.storage, state_of(archive.uri, request.storage).num_bytes
        )
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return Look([], whole=False)
    return look_into(reader.members())
