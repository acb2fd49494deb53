"""List a local folder of images, class folders or split folders."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from operator import attrgetter

from shardwright.transforms.inputs.boundary import outside_problem
from shardwright.transforms.inputs.file_rules import (
    MAGIC_BYTES,
    Problem,
    etag_of,
    file_problem,
    has_image_name,
    is_litter,
    magic_problem,
    name_problem,
    place_of,
)
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.rejects import Reject, RejectReason


def list_folder(
    root: str, split_folders: Sequence[str], folders: tuple[str, ...] = ()
) -> Iterator[ImageRow | Reject]:
    """Yield a row or a reject for every file below the root, in name order; links as `walk`."""
    place = functools.cache(functools.partial(place_of, split_folders))
    for relative, entry, problem in walk(root, folders):
        if not (relative.isascii() or _is_utf8(relative)):
            shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
            yield Reject(
                "",
                f"{root}/{shown}",
                RejectReason.BAD_ID,
                "the file's name is not UTF-8: rename it",
            )
            continue
        if problem:
            yield Reject(relative, os.path.join(root, relative), *problem)
        elif entry is not None:
            found = _image_of(relative, entry)
            if isinstance(found, Reject):
                yield found
            else:
                # All files of a folder have one place.
                split, label = place(relative[: -len(entry.name)])
                etag = etag_of(found)
                yield ImageRow(relative, entry.path, found.st_size, etag, split, label)


def _image_of(relative: str, entry: os.DirEntry[str]) -> os.stat_result | Reject:
    """Return the status of an image file, or why it is none."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return Reject(
            relative,
            entry.path,
            RejectReason.MISSING_FILE,
            "a broken link, or a file deleted since it was listed",
        )
    except OSError as error:
        return Reject(relative, entry.path, RejectReason.UNREADABLE, error.strerror or str(error))
    problem = file_problem(status)
    if problem is None and not has_image_name(entry.name):
        problem = _other_file(entry)
    return Reject(relative, entry.path, *problem) if problem else status


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _other_file(entry: os.DirEntry[str]) -> Problem | None:
    """Return why a file's first bytes are not those of an image, or None."""
    try:
        with open(entry.path, "rb") as file:
            magic = file.read(MAGIC_BYTES)
    except OSError as error:
        return RejectReason.UNREADABLE, error.strerror or str(error)
    # Unlike in a store, these bytes are free, so that an image is found whatever its name.
    problem = magic_problem(magic)
    return problem and (name_problem(entry.name) or problem)


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
