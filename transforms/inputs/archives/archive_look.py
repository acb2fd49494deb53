"""Recognize archives of images, and infer the meaning of their folders from their first files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from shardwright.errors import MissingError, UsageError
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.archives.archive_members import (
    ArchiveFault,
    Member,
    path_problem,
)
from shardwright.transforms.inputs.file_rules import SPLIT_FOLDERS, has_image_name, place_of
from shardwright.transforms.inputs.input_files import (
    FilesFacts,
    InputFile,
    base_of,
    common_split_names,
    describe_files,
    find_files,
)
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.inputs.top_folders import rule_of_labels, split_folders_of

# Detection stops here: it need not read a large archive to its end.
LOOK_MEMBERS, LOOK_BYTES, LEAST_LOOK = 20_000, 64 << 20, 20


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """The meaning of the folders in archives, and of the archives' names.

    Attributes:
        wrapper: The folder around everything, which has no meaning; "" without one.
        split_folders: The first folders, if they are splits.
        any_split: True if a first folder with another name is a split, too.
        split_names: True if every archive's name states its split.
    """

    wrapper: str = ""
    split_folders: tuple[str, ...] = ()
    any_split: bool = False
    split_names: bool = False

    @property
    def states_splits(self) -> bool:
        return bool(self.split_folders) or self.split_names

    @property
    def labels_from(self) -> str:
        return rule_of_labels(self.split_folders, "the archives")

    def place_of(self, archive: InputFile, path: str) -> tuple[str | None, str | None]:
        """Return the split and the label of a member."""
        inner = path.removeprefix(f"{self.wrapper}/") if self.wrapper else path
        is_split = self.any_split or inner.partition("/")[0].lower() in SPLIT_FOLDERS
        split, label = place_of(self.split_folders if is_split else (), inner)
        return split or (archive.split if self.split_names else None), label

    def describe(self) -> str:
        """Return the end of the source's log line, such as ", with split folders"."""
        told = [f"packed in {self.wrapper}/"] if self.wrapper else []
        told += (
            [f"with split folders ({', '.join(self.split_folders)})"] if self.split_folders else []
        )
        told += ["splits by their names"] if self.split_names else []
        return "".join(f", {text}" for text in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFacts(FilesFacts):
    """The facts about archives.

    Attributes:
        layout: The meaning of folders and names.
        is_archive: The test of a file's name.
    """

    layout: ArchiveLayout
    is_archive: Callable[[str], bool]

    def parts(self) -> Iterator[str]:
        found = find_files(self.request, self.is_archive)
        # Without any, INPUT is one file with another name, forced by `--input-format`.
        yield from (archive.uri for archive in found) if found else (self.request.uri,)


def look_at_archives(
    request: SourceRequest,
    what: str,
    is_archive: Callable[[str], bool],
    read_start: Callable[[str, StorageOptions], ArchiveStart],
) -> ArchiveFacts | None:
    """Return the facts about archives of images; None if INPUT is something else.

    Args:
        what: An archive in words, such as "tar archive".
        is_archive: A test of a file's name.
        read_start: Reads the paths of an archive's first files.

    Raises:
        UsageError: As for `find_archives`, or an option gives a column.
    """
    archives = find_archives(request, is_archive, f"{what}s")
    if not archives:
        return None
    request.refuse_columns(f"made of {what}s")
    starts = [
        _start_or_nothing(archive.uri, request.storage, read_start)
        for archive in first_and_last(archives)
    ]
    layout = layout_of(request, starts, archives)
    return ArchiveFacts(
        describe_files(request, archives, what) + layout.describe(),
        states_splits=layout.states_splits,
        labels_from=layout.labels_from,
        request=request,
        base=base_of(archives),
        layout=layout,
        is_archive=is_archive,
    )


class ArchiveStart(NamedTuple):
    """The paths of an archive's first files; `whole` is True if these are all."""

    paths: list[str]
    whole: bool


def _start_or_nothing(
    uri: str, storage: StorageOptions, read_start: Callable[[str, StorageOptions], ArchiveStart]
) -> ArchiveStart:
    try:
        return read_start(uri, storage)
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return ArchiveStart([], whole=False)


def start_of(members: Iterable[Member]) -> ArchiveStart:
    """Return the paths of the first members that may be records."""
    paths: list[str] = []
    num_bytes = 0
    try:
        for member in members:
            if path_problem(member.path) is None:
                paths.append(member.path)
            num_bytes += member.num_bytes
            if len(paths) >= LOOK_MEMBERS or (num_bytes > LOOK_BYTES and len(paths) >= LEAST_LOOK):
                return ArchiveStart(paths, whole=False)
    except ArchiveFault:  # reported when the archive is listed
        return ArchiveStart(paths, whole=False)
    return ArchiveStart(paths, whole=True)


def layout_of(
    request: SourceRequest, starts: Sequence[ArchiveStart], archives: Sequence[InputFile]
) -> ArchiveLayout:
    """Infer the layout from the first files of some archives.

    Raises:
        UsageError: As for `split_folders_of`.
    """
    images = [
        path.split("/")
        for path in chain.from_iterable(start.paths for start in starts)
        if has_image_name(path)
    ]
    wrapper = _wrapper(images, sees_all=all(start.whole for start in starts))
    inner = [parts[1:] if wrapper else parts for parts in images]
    nested = {parts[0] for parts in inner if len(parts) > 2}
    split_folders = split_folders_of(
        request,
        sorted({parts[0] for parts in inner if len(parts) > 1}),
        has_loose=any(len(parts) == 1 for parts in inner),
        is_nested=nested.__contains__,
    )
    any_split = request.top_folders is not None
    return ArchiveLayout(wrapper, split_folders, any_split, common_split_names(archives))


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
    request: SourceRequest, is_one: Callable[[str], bool], what: str
) -> tuple[InputFile, ...]:
    """Return the archives of INPUT; () if it is something else.

    Raises:
        UsageError: The format is forced and there are none, or a name is not UTF-8.
    """
    found = find_files(request, is_one, alone=not request.forced)
    if not found and request.forced and request.is_file:
        return (InputFile(request.uri, request.uri.rpartition("/")[2]),)
    if not found:
        request.refuse_if_forced(f"has no {what}: give one, a folder of them, or a wildcard")
    for archive in found:
        try:
            archive.uri.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the name of {archive.uri!r} is not UTF-8: rename it") from error
    return found


def first_and_last(archives: Sequence[InputFile]) -> Iterable[InputFile]:
    """Return the archives that detection reads."""
    return dict.fromkeys((archives[0], archives[-1]))
