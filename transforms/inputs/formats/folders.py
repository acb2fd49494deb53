"""List folders of images: plain, class folders or split folders, on disk and in stores."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from shardwright.errors import UsageError
from shardwright.storage.addresses import is_remote, key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.listing import ObjectRow, cut_prefix, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.detection import LIST_BYTES, refuse_unread
from shardwright.transforms.inputs.file_rules import (
    LITTER,
    NO_IMAGE_NAME,
    Problem,
    etag_of,
    extension_of,
    file_problem,
    has_image_name,
    is_litter,
    place_of,
    size_problem,
)
from shardwright.transforms.inputs.folder_contents import read_start
from shardwright.transforms.inputs.image_paths import outside_problem
from shardwright.transforms.inputs.input_files import rule_of_labels, shown, split_folders_of
from shardwright.transforms.inputs.source import (
    ImageRow,
    InputSource,
    Rows,
    SourceRequest,
    image_references,
    in_batches,
)
from shardwright.transforms.rejects import Reject, RejectReason

_RANGES = 16  # parts of a long prefix; a worker lists each by several threads
_LOG = logging.getLogger("shardwright.inputs")


Listed = tuple[ImageRow, Problem | None]  # a file, and why it cannot be an image, or None


def _files_below(root: str, folders: tuple[str, ...] = ()) -> Iterator[Listed]:
    """Yield every file below a local folder, by name in each folder.

    Links are followed, except one back to a folder above itself, or out of `folders` if there are
    any. It keeps its own stack, because folders may be nested deeper than Python's calls.
    """
    real_root = os.path.realpath(root)
    stack, above = [("", real_root, _entries(root))], {real_root}
    while stack:
        prefix, real_folder, entries = stack[-1]
        entry, problem = None, None
        try:
            entry = next(entries, None)
        except OSError as error:
            detail = f"cannot list the folder: {error.strerror}"
            yield _file_at(root, prefix.rstrip("/"), None, (RejectReason.INCOMPLETE, detail))
        if entry is None:
            stack.pop()
            # Only folders above count: two links to one folder beside each other are no cycle.
            above.remove(real_folder)
            continue
        if is_litter(entry.name):
            problem = LITTER
        elif folders and entry.is_symlink():
            problem = outside_problem(entry.path, folders)
        if problem is None and _is_folder(entry):
            # `realpath` looks at every folder above, so it is called for links only.
            real = (
                os.path.realpath(entry.path)
                if entry.is_symlink()
                else os.path.join(real_folder, entry.name)
            )
            if real not in above:
                stack.append((f"{prefix}{entry.name}/", real, _entries(entry.path)))
                above.add(real)
                continue
            problem = RejectReason.OTHER_FILE, "a link back to a folder above it"
        yield _file_at(root, prefix + entry.name, entry, problem)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        # Sorted, because the order of a disk differs from machine to machine.
        entries = sorted(found, key=attrgetter("name"))
    yield from entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself; reading its status later reports the error
        return False


def _file_at(
    root: str, relative: str, entry: os.DirEntry[str] | None, problem: Problem | None
) -> Listed:
    """Return the row of a file, with its status unless it has a problem."""
    if not relative.isascii():
        shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
        if shown != relative:
            detail = "the file's name is not UTF-8: rename it"
            return ImageRow("", f"{root}/{shown}"), (RejectReason.BAD_ID, detail)
    uri = os.path.join(root, relative) if entry is None else entry.path
    if problem or entry is None:
        return ImageRow(relative, uri), problem
    try:
        status = entry.stat()
    except FileNotFoundError:
        detail = "a broken link, or a file deleted since it was listed"
        return ImageRow(relative, uri), (RejectReason.MISSING_FILE, detail)
    except OSError as error:
        return ImageRow(relative, uri), (RejectReason.UNREADABLE, error.strerror or str(error))
    return ImageRow(relative, uri, status.st_size, etag_of(status)), file_problem(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource(InputSource):
    """A folder of images.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as spelled on disk, that stand for a split.
        storage: Options of its store.
    """

    summary = "a folder of images, of class folders, or of split folders"
    checks_links = True
    is_listed_fast = True
    has_top_folders = True
    rank = 100

    root: str
    split_folders: tuple[str, ...]
    storage: StorageOptions

    def worker_parts(self) -> Iterator[str]:
        if not is_remote(self.root):
            return self.parts()
        store, prefix = parse_address(self.root)
        ranges = cut_prefix(client_for(store, self.storage), prefix, _RANGES)
        return (keys.to_text() for keys in ranges)

    @classmethod
    def look(cls, request: SourceRequest) -> FolderSource | None:
        """Return a folder as a source; None if INPUT is a file.

        Raises:
            UsageError: The format is forced and INPUT is a file, the folder does not exist, an
                option gives a column, or as for `refuse_unread`.
            StorageError: The folder cannot be listed.
        """
        if not request.is_remote and not os.path.isdir(request.uri):
            request.refuse_if_forced("is not a folder")
            return None
        request.refuse_columns("a folder")
        splits = find_splits(request)
        folders = request.listings.look_in(request.uri).folders
        if not request.forced:
            companions = request.listings.companions_in(request.uri)
            refuse_unread(
                request,
                companions,
                "folder",
                {place_of(splits, path)[1] for path in companions.images},
                lambda path: read_start(f"{request.uri}/{path}", request.storage, LIST_BYTES),
            )
        named = f", with the folders {shown(folders)}" if folders and not splits else ""
        return FolderSource(
            describe_folder(request.uri, splits) + named,
            states_splits=bool(splits),
            labels_from=rule_of_labels(splits),
            labels_are_names=True,
            root=request.uri,
            split_folders=splits,
            storage=request.storage,
        )

    def references(self, part: str) -> Rows:
        """Yield the images of a folder; a part is "", or a range of a prefix's keys as text."""
        keys = KeyRange.of_text(part)
        files = list_files(self.root, self.split_folders, self.storage, self.folders, keys)
        yield from in_batches(_with_log(self.root, files), image_references)


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


def _objects_below(uri: str, options: StorageOptions, keys: KeyRange) -> Iterator[Listed]:
    """Yield the objects of a range below a prefix, in no order."""
    store, prefix = parse_address(uri)
    start = len(prefix) + 1 if prefix else 0
    for page in list_pages(client_for(store, options), prefix, keys):
        for row in page:
            file = ImageRow(row.key[start:], f"{store}/{row.key}", row.num_bytes, row.etag or None)
            yield file, _object_problem(file.id, row)


def _object_problem(relative: str, row: ObjectRow) -> Problem | None:
    """Return why an object cannot be an image, by its key and its length, or None."""
    # Consoles of stores write such an object for an empty folder.
    if not row.num_bytes and "." not in relative.rpartition("/")[2]:
        return RejectReason.OTHER_FILE, "stands for a folder"
    if any(is_litter(part) for part in relative.split("/") if part not in (".", "..")):
        return LITTER
    if problem := key_problem(row.key):
        return RejectReason.BAD_ID, f"the object {problem}"
    return size_problem(row.num_bytes)


def list_files(
    root: str,
    split_folders: Sequence[str],
    storage: StorageOptions,
    folders: tuple[str, ...] = (),
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below a folder.

    Local files are in name order, and links as for `_files_below`; objects are in no order.

    Args:
        root: The folder.
        split_folders: Folders that stand for a split.
        storage: Options of its store.
        folders: As for `_files_below`.
        keys: The range to list; a local folder is always listed whole.
    """
    place = functools.lru_cache(functools.partial(place_of, split_folders))
    for row, problem in listed_below(root, storage, folders, keys):
        if problem is None and not has_image_name(row.id):
            problem = NO_IMAGE_NAME
        if problem:
            yield row.reject(*problem)
        else:
            # All files of a folder have one place.
            split, label = place(row.id[: row.id.rfind("/") + 1])
            yield row._replace(split=split, label=label)


def _with_log(root: str, files: Iterable[ImageRow | Reject]) -> Iterator[ImageRow | Reject]:
    """Yield the files of a folder, and log those that are not images by their names."""
    others: Counter[str] = Counter()
    for file in files:
        if isinstance(file, Reject) and file.detail == NO_IMAGE_NAME[1]:
            others[extension_of(file.uri)] += 1
        yield file
    if others:
        named = [
            f"{number:,} {f'ending in .{extension}' if extension else 'without an extension'}"
            for extension, number in others.most_common()
        ]
        _LOG.warning("%s: not images by their names: %s", root, shown(named))


def listed_below(
    root: str,
    storage: StorageOptions,
    folders: tuple[str, ...] = (),
    keys: KeyRange = ALL_KEYS,
) -> Iterator[Listed]:
    """Yield every file below a folder; arguments and order as for `list_files`."""
    if is_remote(root):
        return _objects_below(root, storage, keys)
    return _files_below(root, folders)
