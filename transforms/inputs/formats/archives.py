"""List archives of images: one part each, and folders inside mean the same as outside."""

from __future__ import annotations

import lzma
import posixpath
import struct
import tarfile
import zipfile
import zlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import IO, Any, ClassVar, NamedTuple, TypeVar

from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.detection import LIST_BYTES, may_be_list, refuse_unread
from shardwright.transforms.inputs.file_rules import (
    LITTER,
    NO_IMAGE_NAME,
    SPLIT_FOLDERS,
    Problem,
    find_companions,
    has_image_name,
    is_litter,
    place_of,
    size_problem,
)
from shardwright.transforms.inputs.input_files import (
    FilesSource,
    FileState,
    InputFile,
    base_of,
    describe_files,
    files_state_splits,
    find_files,
    rule_of_labels,
    split_folders_of,
    state_of,
)
from shardwright.transforms.inputs.source import (
    ImageRow,
    Rows,
    SourceRequest,
    image_references,
    in_batches,
)
from shardwright.transforms.inputs.spool import SpoolWriter, spooled_part
from shardwright.transforms.references import ImagePlace
from shardwright.transforms.rejects import Reject, RejectReason, incomplete, reason_of

# Detection stops here: it need not read a large archive to its end.
LOOK_MEMBERS, LOOK_BYTES, LEAST_LOOK = 20_000, 64 << 20, 20
_LOOK_TEXTS = 100  # small files read by it, which may name images
T = TypeVar("T")


class ArchiveFault(Exception):  # noqa: N818 - a fault of the data, as ImageFault
    """An archive, or the rest of it, that cannot be read.

    Attributes:
        reason: The reject reason.
    """

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        path: Its normalized path in the archive, without a leading slash.
        num_bytes: Its length, as the archive states it.
        offset: The position of its bytes in the archive; None if they are compressed.
        open: Opens its bytes, to be read forwards and before the next member is requested.
        problem: Why its header excludes it as a record, or None.
        stands_alone: True if a fault in its bytes does not affect the members after it.
    """

    path: str
    num_bytes: int
    offset: int | None
    open: Callable[[], IO[bytes]]
    problem: Problem | None = None
    stands_alone: bool = False


@contextmanager
def archive_faults() -> Iterator[None]:
    """Turn errors of archive libraries, and a store's errors about this object, into ArchiveFault.

    Raises:
        ArchiveFault: The archive cannot be read.
        StorageError: The store fails.
    """
    try:
        yield
    except ArchiveFault:
        raise
    except StorageError as error:
        if (reason := reason_of(error)) is None:
            raise
        raise ArchiveFault(reason, str(error)) from error
    except EOFError as error:
        raise ArchiveFault(RejectReason.TRUNCATED, f"it ends too early: {error}") from error
    except tarfile.ReadError as error:
        cut = "unexpected end" in str(error)
        raise ArchiveFault(
            RejectReason.TRUNCATED if cut else RejectReason.CORRUPT, str(error)
        ) from error
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        RuntimeError,
        ValueError,
    ) as error:
        raise ArchiveFault(RejectReason.CORRUPT, str(error)) from error
    except OSError as error:  # without an errno, it is bad data found by gzip or bz2
        raise ArchiveFault(
            RejectReason.UNREADABLE if error.errno else RejectReason.CORRUPT,
            error.strerror or str(error),
        ) from error


def normal_path(name: str) -> str:
    """Return a member's path without `./`, double or outer slashes; "" for the archive's root."""
    path = posixpath.normpath(name.replace("\0", "").lstrip("/")).lstrip("/")
    return "" if path == "." else path


def path_problem(path: str) -> Problem | None:
    """Return why a member with this path cannot be a record, or None."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return RejectReason.BAD_ID, "the member's name is not UTF-8: pack it with a name in UTF-8"
    if not path:
        return RejectReason.BAD_ID, "the member has no name: rename it"
    parts = path.split("/")
    if ".." in parts:
        return RejectReason.BAD_ID, "the member's path leads out of the archive: rename it"
    if any(map(is_litter, parts)):
        return LITTER
    return None


def member_problem(member: Member) -> Problem | None:
    """Return why a member cannot be an image, without reading its bytes, or None."""
    return path_problem(member.path) or member.problem or size_problem(member.num_bytes)


def member_reject(archive_name: str, uri: str, path: str, problem: Problem) -> Reject:
    """Return the reject of a member."""
    shown = f"{archive_name}/{path}".encode("utf-8", "surrogateescape").decode(
        "utf-8", "backslashreplace"
    )
    return Reject("" if problem[0] == RejectReason.BAD_ID else shown, f"{uri}#{shown}", *problem)


def place_member(
    member: Member, archive: Archive, writer: SpoolWriter | None
) -> ImagePlace | Problem:
    """Return where an image's bytes are, or why the member is not an image.

    Bytes that cannot be read in the archive are copied into the spool.

    Args:
        member: A member without a `member_problem`.
        archive: The archive.
        writer: The writer of the spool; None if all members are read in place.

    Raises:
        ArchiveFault: The member cannot be read, nor the members after it.
    """
    if not has_image_name(member.path):
        return NO_IMAGE_NAME
    if member.offset is not None:
        return ImagePlace(archive.file.uri, member.offset, member.num_bytes, archive.state.etag)
    try:
        with archive_faults(), member.open() as file:
            data = file.read(member.num_bytes)
    except ArchiveFault as fault:
        # Otherwise the stream is broken from here on, and so are all members after it.
        if member.stands_alone:
            return fault.reason, str(fault)
        raise
    if len(data) != member.num_bytes:
        return RejectReason.TRUNCATED, f"only {len(data)} of {member.num_bytes} bytes are there"
    if writer is None:
        raise AssertionError("a compressed member needs a spool")
    return writer.place(data)


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
        folders = ", ".join(self.split_folders)
        return (
            f", packed in {self.wrapper}/" * bool(self.wrapper)
            + f", with split folders ({folders})" * bool(folders)
            + ", splits by their names" * self.split_names
        )


class OpenArchive(NamedTuple):
    """An archive that is open.

    Attributes:
        members: All its files.
        in_place: True if their bytes can be read where they are; else they go to the spool.
    """

    members: Iterator[Member]
    in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(FilesSource):
    """Archives of images.

    A subclass is a format of archives, `kind` in words, whose names have one of its `endings`.

    Attributes:
        layout: The meaning of folders and names.
    """

    has_top_folders = True
    kind: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    layout: ArchiveLayout

    @classmethod
    def is_name(cls, name: str) -> bool:
        """Return whether an archive's file may have this name."""
        return name.lower().endswith(cls.endings)

    @staticmethod
    def open(
        uri: str, storage: StorageOptions, num_bytes: int, places: bool
    ) -> AbstractContextManager[OpenArchive]:
        """Open an archive of a length in bytes; `places` is False if its members are not located.

        Raises:
            ArchiveFault: It cannot be read.
        """
        raise NotImplementedError

    def rules(self) -> dict[str, Any]:
        """Return what decides a listing, for the names of a spool."""
        return {"layout": asdict(self.layout)}

    @classmethod
    def look(cls, request: SourceRequest) -> ArchiveSource | None:
        """Return archives of images as a source; None if INPUT is something else.

        Raises:
            UsageError: As for `find` and `refuse_unread`, or an option gives a column.
        """
        archives = cls.find(request)
        if not archives:
            return None
        request.refuse_columns(f"made of {cls.kind} archives")
        starts = [
            cls._start_of(archive.uri, request.storage) for archive in first_and_last(archives)
        ]
        layout = layout_of(request, starts, archives)
        if not request.forced:
            found = find_companions(
                chain.from_iterable(start.paths for start in starts),
                is_whole=all(start.whole for start in starts),
            )
            texts = ChainMap(*(start.texts for start in starts))
            refuse_unread(
                request,
                found,
                cls.kind,
                {layout.place_of(archives[0], path)[1] for path in found.images},
                lambda path: texts.get(path, b""),
                fix="unpack it, and give its folder as INPUT",
            )
        return cls(
            describe_files(request, archives, f"{cls.kind} archive") + layout.describe(),
            states_splits=layout.states_splits,
            labels_from=layout.labels_from,
            labels_are_names=True,
            request=request,
            base=base_of(archives),
            is_part=cls.is_name,
            layout=layout,
        )

    def references(self, part: str) -> Rows:
        """Yield the references of an archive, and an `incomplete` reject if it cannot be opened."""
        file, request = self.file_of(part), self.request
        try:
            archive = Archive(self, file, state_of(part, request.storage))
            with self.open(part, request.storage, archive.state.num_bytes, True) as found:
                if found.in_place:
                    yield from self.list_members(archive, found.members, None)
                    return
                # A compressed stream cannot be entered at an offset, so its images are copied once,
                # in order.
                yield from spooled_part(
                    request,
                    file,
                    archive.state,
                    lambda writer: self.list_members(archive, found.members, writer),
                    format=self.name,
                    **self.rules(),
                )
        except (ArchiveFault, MissingError) as error:
            yield incomplete(file.name, file.uri, error, 0)

    def list_members(
        self, archive: Archive, members: Iterable[Member], writer: SpoolWriter | None
    ) -> Rows:
        """Yield the references and rejects of an open archive's members, as `until_fault`.

        Args:
            archive: The archive.
            members: All its files.
            writer: The writer of the spool; None if members are read in place.
        """
        rows = _image_rows(archive, members, writer)
        return in_batches(until_fault(archive, rows), image_references)

    @classmethod
    def find(cls, request: SourceRequest) -> tuple[InputFile, ...]:
        """Return the archives of INPUT; () if it is something else.

        Raises:
            UsageError: The format is forced and there are none, or a name is not UTF-8.
        """
        found = find_files(request, cls.is_name, alone=not request.forced)
        if not found and request.forced and request.is_file:
            return (InputFile(request.uri, request.uri.rpartition("/")[2]),)
        if not found:
            request.refuse_if_forced(
                f"has no {cls.kind} archives: give one, a folder of them, or a wildcard"
            )
        for archive in found:
            try:
                archive.uri.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"the name of {archive.uri!r} is not UTF-8: rename it") from error
        return found

    @classmethod
    def _start_of(cls, uri: str, storage: StorageOptions) -> ArchiveStart:
        """Return the paths of the first members that may be records."""
        paths: list[str] = []
        texts: dict[str, bytes] = {}
        num_bytes, whole = 0, False
        # A fault is reported when the archive is listed.
        with suppress(ArchiveFault, MissingError):
            size = state_of(uri, storage).num_bytes
            with cls.open(uri, storage, size, False) as archive:
                for member in archive.members:
                    if path_problem(member.path) is None:
                        paths.append(member.path)
                        is_list = may_be_list(member.path) and not member.problem
                        if is_list and len(texts) < _LOOK_TEXTS:
                            with archive_faults(), member.open() as file:
                                texts[member.path] = file.read(LIST_BYTES)
                    num_bytes += member.num_bytes
                    # Many small files, or enough bytes with some files: whichever comes first.
                    if len(paths) >= LOOK_MEMBERS or (
                        num_bytes > LOOK_BYTES and len(paths) >= LEAST_LOOK
                    ):
                        break
                else:
                    whole = True
        return ArchiveStart(paths, whole, texts)


class ArchiveStart(NamedTuple):
    """The first files of an archive.

    Attributes:
        paths: Their paths.
        whole: True if these are all.
        texts: Path -> first bytes, of the first files that may name images.
    """

    paths: list[str]
    whole: bool
    texts: dict[str, bytes]


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
    return ArchiveLayout(wrapper, split_folders, any_split, files_state_splits(request, archives))


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


def first_and_last(archives: Sequence[InputFile]) -> Iterable[InputFile]:
    """Return the archives that detection reads."""
    return dict.fromkeys((archives[0], archives[-1]))


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive to list.

    Attributes:
        source: INPUT.
        file: The archive's file.
        state: Its length and etag.
    """

    source: ArchiveSource
    file: InputFile
    state: FileState


def _image_rows(
    archive: Archive, members: Iterable[Member], writer: SpoolWriter | None
) -> Iterator[ImageRow | Reject]:
    file = archive.file
    for number, member in enumerate(members):
        found = member_problem(member) or place_member(member, archive, writer)
        if isinstance(found, ImagePlace):
            split, label = archive.source.layout.place_of(file, member.path)
            yield ImageRow(
                f"{file.name}/{member.path}",
                found.uri,
                found.num_bytes,
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
