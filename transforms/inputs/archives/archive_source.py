"""List archives of images: one part each, and folders inside mean the same as outside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from shardwright.errors import MissingError
from transforms.inputs.archives.archive_look import ArchiveFacts
from transforms.inputs.archives.archive_members import (
    ArchiveFault,
    Member,
    MemberPlace,
    member_problem,
    member_reject,
    place_member,
)
from transforms.inputs.image_rows import ImageRow, image_references, in_batches
from transforms.inputs.input_files import FileState, InputFile, find_files, state_of
from transforms.inputs.source import InputSource
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.rejects import Reject, RejectReason

T = TypeVar("T")
Rows = Iterator[pa.RecordBatch | Reject]


@dataclass(frozen=True, slots=True)
class ArchiveSource(InputSource):
    """A source of archives."""

    facts: ArchiveFacts

    def parts(self) -> Iterator[str]:
        found = find_files(self.facts.request, self.is_archive)
        yield from (archive.uri for archive in found)
        if not found:  # a file with any name, forced by `--input-format`
            yield self.facts.request.uri

    def list_part(self, part: str) -> Rows:
        archive = InputFile(part, part.removeprefix(self.facts.base))
        try:
            yield from self.list_archive(archive, state_of(part, self.facts.request.storage))
        except ArchiveFault as fault:
            yield Reject(archive.name, archive.uri, fault.reason, f"the archive: {fault.detail}")
        except MissingError as error:
            yield Reject(archive.name, archive.uri, RejectReason.MISSING_FILE, str(error))

    @staticmethod
    @abstractmethod
    def is_archive(name: str) -> bool:
        """Return whether a file name has an extension of such archives."""

    @abstractmethod
    def list_archive(self, archive: InputFile, state: FileState) -> Rows:
        """Yield the content of an archive.

        Raises:
            ArchiveFault: The rest of the archive cannot be read.
        """

    def references(
        self,
        archive: InputFile,
        state: FileState,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Rows:
        """Yield members as references and rejects, and a reject if the archive is cut short."""
        rows = self._rows(archive, MemberPlace(archive.uri, 0, state.etag), members, writer)
        return in_batches(with_fault(archive, rows), image_references)

    def spooled(
        self, archive: InputFile, state: FileState, make: Callable[[SpoolWriter], Rows]
    ) -> Rows:
        """Yield what `make` yields, by way of the spool."""
        settings = rules_digest(type(self).__name__, self.facts.layout, archive.name)
        return spooled(
            self.facts.request.spool,
            archive.uri,
            f"{state.etag or ''}-{settings}",
            self.facts.request.storage,
            make,
        )

    def _rows(
        self,
        archive: InputFile,
        place: MemberPlace,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Iterator[ImageRow | Reject]:
        for number, member in enumerate(members):
            found = member_problem(member) or place_member(member, place, writer)
            if isinstance(found, MemberPlace):
                split, label = self.facts.layout.place_of(archive, member.path)
                yield ImageRow(
                    f"{archive.name}/{member.path}",
                    found.uri,
                    member.num_bytes,
                    found.etag,
                    split,
                    label,
                    found.offset,
                    number,
                )
            else:
                yield member_reject(archive.name, archive.uri, member.path, found)


def with_fault(archive: InputFile, rows: Iterable[T]) -> Iterator[T | Reject]:
    """Yield rows, and a reject for a fault that ends them."""
    try:
        yield from rows
    except ArchiveFault as fault:
        yield Reject(archive.name, archive.uri, fault.reason, f"the archive: {fault.detail}")
