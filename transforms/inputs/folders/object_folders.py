"""List a prefix of an object store, by the rules for local folders (`local_folders`).

A look at an object's first bytes costs a request, and a bucket may hold a text file for each image.
So objects with a known other extension are never read. Of any other extension, or of none, the
first `SAMPLE` of a listing are read. If none of them is an image, then only one in `EVERY`.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from shardwright.errors import ChangedError, DeniedError, MissingError
from shardwright.storage.addresses import key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange
from shardwright.storage.listing import ObjectRow, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.file_rules import (
    MAGIC_BYTES,
    Problem,
    extension_of,
    has_image_name,
    is_litter,
    magic_problem,
    name_problem,
    place_of,
    size_problem,
)
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.rejects import Reject, RejectReason, incomplete

SAMPLE, EVERY = 1000, 100
_LOG = logging.getLogger("shardwright.inputs")
_SHOWN = 5  # extensions in a line of the log


def list_prefix(
    uri: str,
    split_folders: Sequence[str],
    options: StorageOptions,
    keys: KeyRange = ALL_KEYS,
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every object of a range below the prefix, in no order.

    Objects that stand for folders (no bytes, no dot in the name) are rejected as other files.
    """
    store, prefix = parse_address(uri)
    start = len(prefix) + 1 if prefix else 0
    others = OtherObjects(store, options)
    for page in list_pages(client_for(store, options), prefix, keys):
        problems = [_problem(row.key[start:], row) for row in page]
        others.look(page, problems)
        for row, problem in zip(page, problems, strict=True):
            relative, address = row.key[start:], f"{store}/{row.key}"
            if problem:
                yield Reject(relative, address, *problem)
            else:
                yield ImageRow(
                    relative,
                    address,
                    row.num_bytes,
                    row.etag or None,
                    *place_of(split_folders, relative),
                )
    yield from others.unread_images(uri)
    others.log_unread(uri)


def _problem(relative: str, row: ObjectRow) -> Problem | None:
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

    def look(self, page: Sequence[ObjectRow], problems: list[Problem | None]) -> None:
        """Fill in the problems of a page's objects."""
        places = []
        for place, row in enumerate(page):
            if problems[place] is None and not has_image_name(row.key):
                problems[place] = self._problem_unread(row.key)
                if problems[place] is None:
                    places.append(place)
        found = map_reads(self._problem_of, [page[place].key for place in places])
        for place, problem in zip(places, found, strict=True):
            problems[place] = problem
            self._images[extension_of(page[place].key)] += problem is None

    def _problem_unread(self, key: str) -> Problem | None:
        """Return why an object is no image without reading it; None if it must be read."""
        extension = extension_of(key)
        problem = name_problem(key)
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
