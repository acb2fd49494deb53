"""List folders of images: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

import functools
import logging
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from shardwright.errors import ChangedError, DeniedError, MissingError, UsageError
from shardwright.storage.addresses import is_remote, key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.listing import LONG_KEYS, ObjectRow, cut_prefix, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.boundary import outside_problem
from shardwright.transforms.inputs.file_rules import (
    MAGIC_BYTES,
    Problem,
    etag_of,
    extension_of,
    file_problem,
    has_image_name,
    is_litter,
    magic_problem,
    name_problem,
    place_of,
    size_problem,
)
from shardwright.transforms.inputs.image_rows import ImageRow, image_references, in_batches
from shardwright.transforms.inputs.source import Rows, SourceFacts, SourceFormat, SourceRequest
from shardwright.transforms.inputs.top_folders import rule_of_labels, shown, split_folders_of
from shardwright.transforms.rejects import Reject, RejectReason, incomplete

_RANGES = 16  # parts of a long prefix; a worker lists each by several threads
SAMPLE, EVERY = 1000, 100
_LOG = logging.getLogger("shardwright.inputs")
_SHOWN = 5  # extensions in a line of the log


Listed = tuple[ImageRow, Problem | None]  # a file, and why it cannot be an image, or None


def list_folder(
    root: str, split_folders: Sequence[str], folders: tuple[str, ...] = ()
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below the root, in name order; links as `walk`."""
    place = functools.cache(functools.partial(place_of, split_folders))
    for row, problem in files_below(root, folders):
        if problem is None and not has_image_name(row.uri):
            problem = _other_file(row.uri)
        if problem:
            named = row._replace(id="") if problem[0] == RejectReason.BAD_ID else row
            yield named.reject(*problem)
        else:
            # All files of a folder have one place.
            split, label = place(row.id[: row.id.rfind("/") + 1])
            yield row._replace(split=split, label=label)


def files_below(root: str, folders: tuple[str, ...] = ()) -> Iterator[Listed]:
    """Yield every file below a local folder, in name order; links as `walk`."""
    for relative, entry, problem in walk(root, folders):
        if not (relative.isascii() or _is_utf8(relative)):
            shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
            problem = RejectReason.BAD_ID, "the file's name is not UTF-8: rename it"
            yield ImageRow(shown, f"{root}/{shown}"), problem
        elif problem or entry is None:
            yield ImageRow(relative, os.path.join(root, relative)), problem
        else:
            try:
                status = entry.stat()
            except FileNotFoundError:
                detail = "a broken link, or a file deleted since it was listed"
                yield ImageRow(relative, entry.path), (RejectReason.MISSING_FILE, detail)
            except OSError as error:
                problem = RejectReason.UNREADABLE, error.strerror or str(error)
                yield ImageRow(relative, entry.path), problem
            else:
                row = ImageRow(relative, entry.path, status.st_size, etag_of(status))
                yield row, file_problem(status)


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _other_file(path: str) -> Problem | None:
    """Return why a file's first bytes are not those of an image, or None."""
    try:
        with open(path, "rb") as file:
            magic = file.read(MAGIC_BYTES)
    except OSError as error:
        return RejectReason.UNREADABLE, error.strerror or str(error)
    # Unlike in a store, these bytes are free, so that an image is found whatever its name.
    problem = magic_problem(magic)
    return problem and (name_problem(path) or problem)


def walk(
    root: str, folders: tuple[str, ...] = ()
) -> Iterator[tuple[str, os.DirEntry[str] | None, Problem | None]]:
    """Yield (relative path, entry, problem) of every file below `root`, by name in each folder.

    Links are followed, except one back to a folder above itself, or out of `folders` if there are
    any. It keeps its own stack, because folders may be nested deeper than Python's calls.
    """
    stack = [(_entries(root, ""), os.path.realpath(root))]
    above = {stack[0][1]}
    while stack:
        listing, real_folder = stack[-1]
        relative, entry, problem = next(listing, (None, None, None))
        if relative is None:
            stack.pop()
            # Only folders above count: two links to one folder beside each other are no cycle.
            above.remove(real_folder)
        elif entry is None or problem:
            yield relative, entry, problem
        elif folders and entry.is_symlink() and (out := outside_problem(entry.path, folders)):
            yield relative, entry, out
        elif not _is_folder(entry):
            yield relative, entry, None
        else:
            # `realpath` looks at every folder above, so it is called for links only.
            real = (
                os.path.realpath(entry.path)
                if entry.is_symlink()
                else os.path.join(real_folder, entry.name)
            )
            if real in above:
                yield relative, entry, (RejectReason.OTHER_FILE, "a link back to a folder above it")
            else:
                stack.append((_entries(entry.path, relative + "/"), real))
                above.add(real)


def _entries(
    folder: str, prefix: str
) -> Iterator[tuple[str, os.DirEntry[str] | None, Problem | None]]:
    try:
        with os.scandir(folder) as found:
            # Sorted, because the order of a disk differs from machine to machine.
            entries = sorted(found, key=attrgetter("name"))
    except OSError as error:
        yield (
            prefix.rstrip("/"),
            None,
            (RejectReason.INCOMPLETE, f"cannot list the folder: {error.strerror}"),
        )
        return
    for entry in entries:
        litter = is_litter(entry.name)
        yield (
            prefix + entry.name,
            entry,
            (RejectReason.OTHER_FILE, "hidden, or left by an operating system") if litter else None,
        )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself; reading its status later reports the error
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts(SourceFacts):
    """The facts about a folder of images.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
        storage: Options of its store.
        is_long: True for a prefix with more than a page of objects.
    """

    root: str
    split_folders: tuple[str, ...]
    storage: StorageOptions
    is_long: bool = False

    def worker_parts(self) -> Iterator[str]:
        if not self.is_long:
            return self.parts()
        store, prefix = parse_address(self.root)
        ranges = cut_prefix(client_for(store, self.storage), prefix, _RANGES)
        return (keys.to_text() for keys in ranges)


def look(request: SourceRequest) -> FolderFacts | None:
    """Return the facts about a folder; None if INPUT is a file.

    Raises:
        UsageError: The format is forced and INPUT is a file, the folder does not exist, or an
            option gives a column.
        StorageError: The folder cannot be listed.
    """
    if not request.is_remote and not os.path.isdir(request.uri):
        request.refuse_if_forced("is not a folder")
        return None
    request.refuse_columns("a folder")
    splits = find_splits(request)
    folders = request.listings.look_in(request.uri).folders
    named = f", with the folders {shown(folders)}" if folders and not splits else ""
    return FolderFacts(
        describe_folder(request.uri, splits) + named,
        states_splits=bool(splits),
        labels_from=rule_of_labels(splits),
        labels_are_names=True,
        root=request.uri,
        split_folders=splits,
        storage=request.storage,
        is_long=request.is_remote and len(request.listings.first_names(request.uri)) >= LONG_KEYS,
    )


def find_splits(request: SourceRequest) -> tuple[str, ...]:
    """Return the first-level folders if they are splits, else ().

    Raises:
        UsageError: INPUT does not exist, or as for `split_folders_of`.
        StorageError: INPUT cannot be listed.
    """
    if request.is_remote and not request.listings.first_names(request.uri):
        raise UsageError(
            f"{request.argument} {request.uri} does not exist: there are no objects below it"
        )
    found = request.listings.look_in(request.uri)
    return split_folders_of(
        request,
        found.folders,
        has_loose=found.has_images or any(map(has_image_name, found.others)),
        is_nested=lambda name: bool(request.listings.look_in(f"{request.uri}/{name}").folders),
    )


def describe_folder(root: str, split_folders: Sequence[str]) -> str:
    """Return a folder in words, for the log."""
    kind = f"split folders ({', '.join(split_folders)})" if split_folders else "a folder"
    return f"{kind} at {root}"


def list_prefix(
    uri: str,
    split_folders: Sequence[str],
    options: StorageOptions,
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every object of a range below the prefix, in no order.

    Objects that stand for folders (no bytes, no dot in the name) are rejected as other files.
    """
    others = OtherObjects(parse_address(uri)[0], options)
    for page in objects_below(uri, options, keys):
        for row, problem in others.look(page):
            if problem:
                yield row.reject(*problem)
            else:
                split, label = place_of(split_folders, row.id)
                yield row._replace(split=split, label=label)
    yield from others.unread_images(uri)
    others.log_unread(uri)


def objects_below(
    uri: str, options: StorageOptions, keys: KeyRange = ALL_KEYS
) -> Iterator[list[Listed]]:
    """Yield pages of the objects of a range below a prefix, in no order."""
    store, prefix = parse_address(uri)
    start = len(prefix) + 1 if prefix else 0
    for page in list_pages(client_for(store, options), prefix, keys):
        yield [
            (
                ImageRow(row.key[start:], f"{store}/{row.key}", row.num_bytes, row.etag or None),
                _object_problem(row.key[start:], row),
            )
            for row in page
        ]


def _object_problem(relative: str, row: ObjectRow) -> Problem | None:
    """Return why an object cannot be an image, by its key and its length, or None."""
    # Consoles of stores write such an object for an empty folder.
    if not row.num_bytes and "." not in relative.rpartition("/")[2]:
        return RejectReason.OTHER_FILE, "stands for a folder"
    if any(is_litter(part) for part in relative.split("/") if part not in (".", "..")):
        return RejectReason.OTHER_FILE, "hidden, or left by an operating system"
    if problem := key_problem(row.key):
        return RejectReason.BAD_ID, f"the object {problem}"
    return size_problem(row.num_bytes)


class OtherObjects:
    """The objects of one listing whose names are not those of images."""

    def __init__(self, store: str, options: StorageOptions) -> None:
        self._store, self._options = store, options
        self._read: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._images: Counter[str] = Counter()

    def look(self, page: Sequence[Listed]) -> list[Listed]:
        """Return a page with the problems of objects that are no images."""
        problems = [problem for _, problem in page]
        keys: dict[int, str] = {}  # of the objects to read, by their place in the page
        for place, (row, problem) in enumerate(page):
            if problem is None and not has_image_name(row.uri):
                key = row.uri.removeprefix(f"{self._store}/")
                problems[place] = self._problem_unread(key)
                if problems[place] is None:
                    keys[place] = key
        found = map_reads(self._problem_of, keys.values())
        for (place, key), problem in zip(keys.items(), found, strict=True):
            problems[place] = problem
            self._images[extension_of(key)] += problem is None
        return [(row, problem) for (row, _), problem in zip(page, problems, strict=True)]

    def _problem_unread(self, key: str) -> Problem | None:
        """Return why an object is no image without reading it; None if it must be read."""
        extension = extension_of(key)
        problem = name_problem(key)
        # A request for each of a million .json files would take longer than the build.
        sampled = self._read[extension] >= SAMPLE and not self._images[extension]
        # By the key, so that the choice is the same in every try.
        if problem is None and sampled and zlib.crc32(key.encode()) % EVERY:
            detail = f"not read: none of {SAMPLE:,} objects {_ending(extension)} is an image"
            problem = RejectReason.OTHER_FILE, detail
        (self._read if problem is None else self._unread)[extension] += 1
        return problem

    def _problem_of(self, key: str) -> Problem | None:
        uri = f"{self._store}/{key}"
        try:
            return magic_problem(files_of(uri, self._options).read_range(uri, 0, MAGIC_BYTES))
        except (MissingError, ChangedError, DeniedError) as error:
            return RejectReason.UNREADABLE, str(error)

    def unread_images(self, uri: str) -> Iterator[Reject]:
        """Yield a reject for each extension with images after unread objects.

        It fails the build, unless the user accepts the loss with `--accept-partial`.
        """
        for extension, number in sorted(self._unread.items()):
            if images := self._images[extension]:
                fault = (
                    f"{number:,} objects {_ending(extension)} were not read, because none of "
                    f"{SAMPLE:,} before them is an image, but later ones are: give images the "
                    "extension of their format"
                )
                yield incomplete("", uri, fault, images)

    def log_unread(self, uri: str) -> None:
        """Log the number of unread objects by extension."""
        if self._unread:
            shown = ", ".join(
                f"{number:,} {_ending(extension)}"
                for extension, number in self._unread.most_common(_SHOWN)
            )
            rest = len(self._unread) - _SHOWN
            more = f", and others of {rest} more extensions" if rest > 0 else ""
            told = f"{self._unread.total():,} objects are no images by their names: {shown}{more}"
            _LOG.warning("%s: %s", uri, told)


def _ending(extension: str) -> str:
    return f"ending in .{extension}" if extension else "without an extension"


def list_part(facts: FolderFacts, part: str) -> Rows:
    """Yield the images of a folder; a part is "", or a range of a prefix's keys as text."""
    keys = KeyRange.of_text(part)
    files = list_files(facts.root, facts.split_folders, facts.storage, facts.folders, keys)
    yield from in_batches(files, image_references)


def list_files(
    root: str,
    split_folders: Sequence[str],
    storage: StorageOptions,
    folders: tuple[str, ...] = (),
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below a folder; in a store, in no order.

    Args:
        root: The folder.
        split_folders: Folders that stand for a split.
        storage: Options of its store.
        folders: As for `walk`.
        keys: The range to list; a local folder is always listed whole.
    """
    if is_remote(root):
        return list_prefix(root, split_folders, storage, keys)
    return list_folder(root, split_folders, folders)


FORMAT = SourceFormat(
    "a folder of images, of class folders, or of split folders",
    look,
    list_part,
    100,
    checks_links=True,
    lists_all=True,
    has_top_folders=True,
)
