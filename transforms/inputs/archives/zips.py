"""Zip archives as input: stored members are read in place, compressed ones through the spool."""

from __future__ import annotations

from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.archives.archive_look import (
    ArchiveFacts,
    ArchiveStart,
    look_at_archives,
    start_of,
)
from shardwright.transforms.inputs.archives.archive_source import Archive, list_archive, list_images
from shardwright.transforms.inputs.archives.zip_members import ZipReader, is_zip_name
from shardwright.transforms.inputs.source import Rows, SourceFormat, SourceRequest


def look(request: SourceRequest) -> ArchiveFacts | None:
    """Return the facts about zip archives. Raises as `look_at_archives`."""
    return look_at_archives(request, "zip archive", is_zip_name, _read_start)


def _read_start(uri: str, storage: StorageOptions) -> ArchiveStart:
    with ZipReader.open(uri, storage) as reader:
        return start_of(reader.members(places=False))


def list_part(facts: ArchiveFacts, part: str) -> Rows:
    """Yield the images of a zip archive."""
    return list_archive(facts, part, _list_zip)


def _list_zip(archive: Archive) -> Rows:
    with ZipReader.open(archive.file.uri, archive.facts.request.storage) as reader:
        if reader.is_stored:
            yield from list_images(archive, reader.members(), None)
        else:
            yield from archive.spooled(
                "ZipSource", lambda writer: list_images(archive, reader.members(), writer)
            )


FORMAT = SourceFormat(
    "a .zip of images, or several", look, list_part, rank=24, has_top_folders=True
)
