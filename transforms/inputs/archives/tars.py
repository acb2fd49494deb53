"""Tar archives as input: plain ones are read in place, compressed ones through the spool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardwright.errors import MissingError
from shardwright.storage.options import StorageOptions
from transforms.inputs.archives.archive_look import ArchiveStart, look, start_of
from transforms.inputs.archives.archive_members import ArchiveFault
from transforms.inputs.archives.archive_source import ArchiveSource, Rows
from transforms.inputs.archives.tar_members import TarReader, is_tar_name
from transforms.inputs.input_files import FileState, InputFile, state_of
from transforms.inputs.source import SourceFormat, SourceRequest


@dataclass(frozen=True, slots=True)
class TarSource(ArchiveSource):
    """A source of tar archives."""

    @staticmethod
    def is_archive(name: str) -> bool:
        return is_tar_name(name)

    def list_archive(self, archive: InputFile, state: FileState) -> Rows:
        reader = TarReader(archive.uri, self.facts.request.storage, state.num_bytes)
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
        facts = look(
            request,
            "tar archive",
            is_tar_name,
            lambda archive: _read_start(archive, request.storage),
            forced=forced,
        )
        return None if facts is None else TarSource(facts)


def _read_start(archive: InputFile, storage: StorageOptions) -> ArchiveStart:
    try:
        reader = TarReader(archive.uri, storage, state_of(archive.uri, storage).num_bytes)
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return ArchiveStart([], whole=False)
    return start_of(reader.members())
