"""Tar archives as input: plain ones are read in place, compressed ones through the spool."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.archives.archive_look import (
    ArchiveFacts,
    ArchiveStart,
    look_at_archives,
    start_of,
)
from shardwright.transforms.inputs.archives.archive_members import Member
from shardwright.transforms.inputs.archives.archive_source import Archive, list_archive, list_images
from shardwright.transforms.inputs.archives.tar_members import TarReader, is_tar_name
from shardwright.transforms.inputs.input_files import state_of
from shardwright.transforms.inputs.source import Rows, SourceFormat, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter


def look(request: SourceRequest) -> ArchiveFacts | None:
    """Return the facts about tar archives. Raises as `look_at_archives`."""
    return look_at_archives(request, "tar archive", is_tar_name, _read_start)


def _read_start(uri: str, storage: StorageOptions) -> ArchiveStart:
    return start_of(TarReader(uri, storage, state_of(uri, storage).num_bytes).members())


def list_part(facts: ArchiveFacts, part: str) -> Rows:
    """Yield the images of a tar archive."""
    return list_archive(facts, part, lambda archive: list_tar(archive, "TarSource", list_images))


def list_tar(
    archive: Archive,
    kind: str,
    list_members: Callable[[Archive, Iterable[Member], SpoolWriter | None], Rows],
) -> Rows:
    """Yield what `list_members` yields for a tar's members, by way of the spool if compressed."""
    reader = TarReader(archive.file.uri, archive.facts.request.storage, archive.state.num_bytes)
    if reader.compression is None:
        yield from list_members(archive, reader.members(), None)
    else:
        yield from archive.spooled(
            kind, lambda writer: list_members(archive, reader.members(), writer)
        )


FORMAT = SourceFormat(
    "a .tar, .tar.gz, .tar.bz2, .tar.xz or .tar.zst of images, or several",
    look,
    list_part,
    rank=22,
    has_top_folders=True,
)
