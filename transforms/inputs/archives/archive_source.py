"""List archives of images: one part each, and folders inside mean the same as outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from shardwright.errors import MissingError
from shardwright.transforms.inputs.archives.archive_look import ArchiveFacts
from shardwright.transforms.inputs.archives.archive_members import (
    ArchiveFault,
    Member,
    MemberPlace,
    member_problem,
    member_reject,
    place_member,
)
from shardwright.transforms.inputs.image_rows import ImageRow, image_references, in_batches
from shardwright.transforms.inputs.input_files import FileState, InputFile, state_of
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from shardwright.transforms.rejects import Reject, incomplete

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive to list.

    Attributes:
        facts: The facts about INPUT.
        file: The archive's file.
        state: Its length and etag.
    """

    facts: ArchiveFacts
    file: InputFile
    state: FileState

    def spooled(self, kind: str, make: Callable[[SpoolWriter], Rows]) -> Rows:
        """Yield what `make` yields, by way of the spool.

        Args:
            kind: The kind of listing, which is hashed into the spool's names: on disk, these names
                are those of earlier releases' classes.
            make: As for `spool.spooled`.
        """
        request = self.facts.request
        settings = rules_digest(kind, self.facts.layout, self.file.name)
        etag = f"{self.state.etag or ''}-{settings}"
        return spooled(request.spool, self.file.uri, etag, request.storage, make)


def list_archive(facts: ArchiveFacts, part: str, list_members: Callable[[Archive], Rows]) -> Rows:
    """Yield the references of an archive, and an `incomplete` reject if it cannot be opened."""
    file = facts.file_of(part)
    try:
        archive = Archive(facts, file, state_of(part, facts.request.storage))
        yield from list_members(archive)
    except (ArchiveFault, MissingError) as error:
        yield incomplete(file.name, file.uri, error, 0)


def list_images(archive: Archive, members: Iterable[Member], writer: SpoolWriter | None) -> Rows:
    """Yield members as references and rejects, as `until_fault`."""
    rows = _image_rows(archive, members, writer)
    return in_batches(until_fault(archive, rows), image_references)


def _image_rows(
    archive: Archive, members: Iterable[Member], writer: SpoolWriter | None
) -> Iterator[ImageRow | Reject]:
    file, place = archive.file, MemberPlace(archive.file.uri, 0, archive.state.etag)
    for number, member in enumerate(members):
        found = member_problem(member) or place_member(member, place, writer)
        if isinstance(found, MemberPlace):
            split, label = archive.facts.layout.place_of(file, member.path)
            yield ImageRow(
                f"{file.name}/{member.path}",
                found.uri,
                member.num_bytes,
                found.etag,
                split,
                label,
                found.offset,
                number,
            )
        else:
            yield member_reject(file.name, file.uri, member.path, found)


def until_fault(archive: Archive, rows: Iterable[T | Reject]) -> Iterator[T | Reject]:
    """Yield rows and rejects, and an `incomplete` reject for a fault that ends them."""
    num_rows = 0
    try:
        for row in rows:
            num_rows += not isinstance(row, Reject)
            yield row
    except ArchiveFault as fault:
        yield incomplete(archive.file.name, archive.file.uri, fault, num_rows)
