"""Archives of images as input: one part each, and folders inside mean the same as outside."""

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
# Detection stops here: it need not read a large archive to its end.
LOOK_MEMBERS, LOOK_BYTES, LEAST_LOOK = 20_000, 64 << 20, 20


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """The meaning of the folders in archives, and of the archives' names.

    Attributes:
        wrapper: The folder around everything, which has no meaning; "" without one.
        split_folders: True if the first folder is a split.
        split_names: True if every archive's name states its split.
    """

    wrapper: str = ""
    split_folders: bool = False
    split_names: bool = False

    @property
    def states_splits(self) -> bool:
        return self.split_folders or self.split_names

    def place_of(self, archive: InputFile, path: str) -> tuple[str | None, str | None]:
        """Return the split and the label of a member."""
        inner = path.removeprefix(f"{self.wrapper}/") if self.wrapper else path
        has_split = self.split_folders and inner.partition("/")[0].lower() in SPLIT_FOLDERS
        split, label = place_of((self.wrapper,) if has_split else (), inner)
        return split or (archive.split if self.split_names else None), label

    def describe(self) -> str:
        """Return the end of the source's log line, such as ", with split folders"."""
        told = [f"packed in {self.wrapper}/"] if self.wrapper else []
        told += ["with split folders"] if self.split_folders else []
        told += ["splits by their names"] if self.split_names else []
        return "".join(f", {text}" for text in told)


class Look(NamedTuple):
    """The paths of an archive's first files; `whole` is True if these are all."""

    paths: list[str]
    whole: bool


def look_into(members: Iterable[Member]) -> Look:
    """Return the paths of the first members that may be records."""
    paths: list[str] = []
    num_bytes = 0
    try:
        for member in members:
            if path_problem(member.path) is None:
                paths.append(member.path)
            num_bytes += member.num_bytes
            if len(paths) >= LOOK_MEMBERS or (num_bytes > LOOK_BYTES and len(paths) >= LEAST_LOOK):
                return Look(paths, whole=False)
    except ArchiveFault:  # reported when the archive is listed
        return Look(paths, whole=False)
    return Look(paths, whole=True)


def layout_of(looks: Sequence[Look], archives: Sequence[InputFile]) -> ArchiveLayout:
    """Infer the layout from the first files of some archives."""
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
    """Return the one top folder if it was packed as a wrapper around folders, else "".

    If only one folder is seen in it, all files must be known: others may follow.
    """
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
    """Return the archives of INPUT; () if it is something else.

    Raises:
        UsageError: The format is forced and there are none, or a name is not UTF-8.
    """
    found = find_files(request, is_one, alone=not forced)
    if not found and forced:
        if request.is_file:
            return (InputFile(request.uri, request.uri.rpartition("/")[2]),)
        raise UsageError(
            f"{request.argument} {request.uri} has no {what}: "
            "give one, a folder of them, or a wildcard"
        )
    for archive in found:
        try:
            archive.uri.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the name of {archive.uri!r} is not UTF-8: rename it") from error
    return found


@dataclass(frozen=True, slots=True)
class ArchiveSource(InputSource):
    """A source of archives.

    Attributes:
        request: The request for INPUT.
        base: The folder that archives' names are relative to, with a trailing slash.
        layout: The meaning of folders and names.
        count: The number of archives at detection.
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
        if not found:  # a file with any name, forced by `--input-format`
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
        rows = self._rows(archive, Place(archive.uri, 0, state.etag), members, writer)
        return member_batches(with_fault(archive, rows))

    def spooled(
        self, archive: InputFile, state: FileState, make: Callable[[SpoolWriter], Rows]
    ) -> Rows:
        """Yield what `make` yields, by way of the spool."""
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
    """Yield rows, and a reject for a fault that ends them."""
    try:
        yield from rows
    except ArchiveFault as fault:
        yield Reject(archive.name, archive.uri, fault.reason, f"the archive: {fault.detail}")
