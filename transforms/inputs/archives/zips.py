"""Zip archives as input: stored members are read in place, compressed ones through the spool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardwright.errors import MissingError
from shardwright.storage.options import StorageOptions
from transforms.inputs.archives.archive_look import ArchiveStart, look, start_of
from transforms.inputs.archives.archive_members import ArchiveFault
from transforms.inputs.archives.archive_source import ArchiveSource, Rows
from transforms.inputs.archives.zip_members import ZipReader, is_zip_name
from transforms.inputs.input_files import FileState, InputFile
from transforms.inputs.source import SourceFormat, SourceRequest


@dataclass(frozen=True, slots=True)
class ZipSource(ArchiveSource):
    """A source of zip archives."""

    @staticmethod
    def is_archive(name: str) -> bool:
        return is_zip_name(name)

    def list_archive(self, archive: InputFile, state: FileState) -> Rows:
        with ZipReader.open(archive.uri, self.facts.request.storage) as reader:
            if reader.is_stored:
                yield from self.references(archive, state, reader.members(), None)
            else:
                yield from self.spooled(
                    archive,
                    state,
                    lambda writer: self.references(archive, state, reader.members(), writer),
                )


class ZipFormat(SourceFormat):
    """A zip archive, a folder of them, or a wildcard."""

    name: ClassVar[str] = "zip"
    summary: ClassVar[str] = "a .zip of images, or several"
    rank: ClassVar[int] = 24

    def open(self, request: SourceRequest, *, forced: bool) -> ZipSource | None:
        facts = look(
            request,
            "zip archive",
            is_zip_name,
            lambda archive: _read_start(archive, request.storage),
            forced=forced,
        )
        return None if facts is None else ZipSource(facts)


def _read_start(archive: InputFile, storage: StorageOptions) -> ArchiveStart:
    try:
        with ZipReader.open(archive.uri, storage) as reader:
            return start_of(reader.members(places=False))
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return ArchiveStart([], whole=False)
