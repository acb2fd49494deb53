"""What archives of images have in common as INPUT: one part for each, and folders inside that mean what they mean outside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import pyarrow as pa

from shardwright.errors import MissingError, UsageError
from transforms.inputs.archives.archive_members import (
    ArchiveFault,
    Member,
    MemberRow,
    Place,
    member_batches,
    member_problem,
    member_reject,
    path_problem,
    place_member,
)
from transforms.inputs.file_rules import SPLIT_FOLDERS, has_image_name, place_of
from transforms.inputs.input_files import (
    FileState,
    InputFile,
    common_split_names,
    find_files,
    state_of,
)
from transforms.inputs.source import InputSource, SourceRequest
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.rejects import Reject, RejectReason

T = TypeVar("T")
Rows = Iterator[pa.RecordBatch | Reject]
# How far detection looks into an archive: it need not know all of a large one.
LOOK_MEMBERS, LOOK_BYTES, LEAST_LOOK = 20_000, 64 << 20, 20


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """What the folders in archives, and the archives' names, mean.

    Attributes:
        wrapper: The folder that everything was packed in, which means nothing; "" where there is none.
        split_folders: The first folder is a split's, as in a folder of split folders.
        split_names: Every archive's name states its split.
    """

    wrapper: str = ""
    split_folders: bool = False
    split_names: bool = False

    @property
    def states_splits(self) -> bool:
        return self.split_folders or self.split_names

    def place_of(self, archive: InputFile, path: str) -> tuple[str | None, str | None]:
        """The split and the label of a member."""
        inner = path.removeprefix(f"{self.wrapper}/") if self.wrapper else path
        has_split = self.split_folders and inner.partition("/")[0].lower() in SPLIT_FOLDERS
        split, label = place_of((self.wrapper,) if has_split else (), inner)
        return split or (archive.split if self.split_names else None), label

    def describe(self) -> str:
        """For the log: what is special."""
        told = [f"everything in them is in {self.wrapper}/"] if self.wrapper else []
        told += ["with split folders"] if self.split_folders else []
        told += ["splits by their names"] if self.split_names else []
        return "".join(f", {text}" for text in told)


class Look(NamedTuple):
    """The first files of an archive, by their paths, and whether these are all."""

    paths: list[str]
    whole: bool


def look_into(members: Iterable[Member]) -> Look:
    """The paths of the first members that may be records."""
    paths: list[str] = []
    num_bytes = 0
    try:
        for member in members:
            if path_problem(member.path) is None:
                paths.append(member.path)
            num_bytes += member.num_bytes
            if len(paths) >= LOOK_MEMBERS or (num_bytes > LOOK_BYTES and len(paths) >= LEAST_LOOK):
                return Look(paths, whole=False)
    except ArchiveFault:  # told when it is listed
        return Look(paths, whole=False)
    return Look(paths, whole=True)


def layout_of(looks: Sequence[Look], archives: Sequence[InputFile]) -> ArchiveLayout:
    """What the folders mean, going by some of the archives."""
    images = [
        path.split("/")
        for path in chain.from_iterable(look.paths for look in looks)
        if has_image_name(path)
    ]
    wrapper = _wrapper(images, sees_all=all(look.whole for look in looks))
    inner = [parts[1:] if wrapper else parts for parts in images]
    split_folders = bool(inner) and all(
        len(parts) > 1 and parts[0].lower() in SPLIT_FOLDERS for parts in inner
    )
    return ArchiveLayout(wrapper, split_folders, common_split_names(archives))


def _wrapper(images: Sequence[Sequence[str]], *, sees_all: bool) -> str:
    """The one folder that holds nothing but folders: what was packed. With one folder in it, only to who sees all is it that."""
    tops = {parts[0] for parts in images}
    if len(tops) != 1 or any(len(parts) < 3 for parts in images):
        return ""
    top = tops.pop()
    is_wrapper = top.lower() not in SPLIT_FOLDERS and (
        sees_all or len({parts[1] for parts in images}) > 1
    )
    return top if is_wrapper else ""


def find_archives(
    request: SourceRequest, is_one: Callable[[str], bool], *, forced: bool, what: str
) -> tuple[InputFile, ...]:
    """The archives that INPUT is, none where it is something else.

    Raises:
        UsageError: The user says that it is, and there are none.
    """
    found = find_files(request, is_one, alone=not forced)
    if not found and forced:
        if request.is_file:
            return (InputFile(request.uri, request.uri.rpartition("/")[2]),)
        raise UsageError(
            f"{request.argument} {request.uri} has no {what}: give one, a folder of them, or a wildcard"
        )
    for archive in found:
        try:
            archive.uri.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the name of {archive.uri!r} is not UTF-8: rename it") from error
    return found


@dataclass(frozen=True, slots=True)
class ArchiveSource(InputSource):
    """Archives to list.

    Attributes:
        request: What INPUT is.
        base: The folder that archives' names start from, with a slash.
        layout: What folders and names mean.
        count: How many archives there were.
    """

    request: SourceRequest
    base: str
    layout: ArchiveLayout
    count: int

    @property
    def states_splits(self) -> bool:
        return self.layout.states_splits

    def parts(self) -> Iterator[str]:
        found = find_files(self.request, self.is_archive)
        yield from (archive.uri for archive in found)
        if not found:  # a file of any name, by `--input-format`
            yield self.request.uri

    def list_part(self, part: str) -> Rows:
        archive = InputFile(part, part.removeprefix(self.base))
        try:
            yield from self.list_archive(archive, state_of(part, self.request.storage))
        except ArchiveFault as fault:
            yield Reject(archive.name, archive.uri, fault.reason, f"the archive: {fault.detail}")
        except MissingError as error:
            yield Reject(archive.name, archive.uri, RejectReason.MISSING_FILE, str(error))

    @staticmethod
    @abstractmethod
    def is_archive(name: str) -> bool:
        """Whether a file's name ends as that of such an archive."""

    @abstractmethod
    def list_archive(self, archive: InputFile, state: FileState) -> Rows:
        """What one archive holds. Raises `ArchiveFault` for what is left of it."""

    def references(
        self,
        archive: InputFile,
        state: FileState,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Rows:
        """Members as references and rejects, one more for what is left of an archive that cannot be read to its end."""
        rows = self._rows(archive, Place(archive.uri, 0, state.etag), members, writer)
        return member_batches(with_fault(archive, rows))

    def spooled(
        self, archive: InputFile, state: FileState, make: Callable[[SpoolWriter], Rows]
    ) -> Rows:
        """The same by way of the spool."""
        settings = rules_digest(type(self).__name__, self.layout, archive.name)
        return spooled(
            self.request.spool,
            archive.uri,
            f"{state.etag or ''}-{settings}",
            self.request.storage,
            make,
        )

    def _rows(
        self,
        archive: InputFile,
        place: Place,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Iterator[MemberRow | Reject]:
        for number, member in enumerate(members):
            found = member_problem(member) or place_member(member, place, writer)
            if isinstance(found, Place):
                split, label = self.layout.place_of(archive, member.path)
                yield MemberRow(
                    f"{archive.name}/{member.path}",
                    found.uri,
                    found.offset,
                    member.num_bytes,
                    found.etag,
                    number,
                    split,
                    label,
                )
            else:
                yield member_reject(archive.name, archive.uri, member.path, found)


def with_fault(archive: InputFile, rows: Iterable[T]) -> Iterator[T | Reject]:
    """Rows, and a reject in place of the fault that ends them."""
    try:
        yield from rows
    except ArchiveFault as fault:
        yield Reject(archive.name, archive.uri, fault.reason, f"the archive: {fault.detail}")
