"""Reach local files without following a link below a dataset's own folder.

A dataset of others, or one that was copied badly, may have a link in the place of any file or
folder. So each folder below the dataset's own one is opened without following links, and the next
part of the path relative to it: a link that is put there meanwhile leads nowhere, either.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from shardwright.errors import LinkError

# O_PATH, which Linux has, opens nothing: it needs no right to list the folder, and no request.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
# Of a link that is not followed: ENOTDIR where a folder is opened, and EMLINK on FreeBSD.
_MAYBE_LINK = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


class Place(NamedTuple):
    """A file or folder, as the functions of `os` take it.

    Attributes:
        path: Its path, for messages.
        name: Its name in the folder `at`, or its path.
        at: The descriptor of its folder, for `dir_fd`; None if `name` is a path.
        follow: Whether it may be a link.
    """

    path: str
    name: str
    at: int | None
    follow: bool

    def open(self, flags: int) -> int:
        """Return a descriptor. Raises `LinkError`, or `OSError` as `os.open`."""
        flags |= os.O_CLOEXEC if self.follow else os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.name, flags, 0o666, dir_fd=self.at)
        except OSError as error:
            if error.errno in _MAYBE_LINK and not self.follow:
                self.status()
            raise

    def status(self) -> os.stat_result:
        """Return its status. Raises `LinkError`, or `OSError` as `os.stat`."""
        found = os.stat(self.name, dir_fd=self.at, follow_symlinks=self.follow)
        if stat.S_ISLNK(found.st_mode):
            raise LinkError(
                f"{self.path} is a link, and no link in a dataset or a cache is followed: remove "
                "it, or put what it leads to in its place (`cp -rL` copies a folder so)"
            )
        return found

    def beside(self, filename: str) -> Place:
        """Return the place of another file in the same folder."""
        path = os.path.join(os.path.dirname(self.path), filename)
        return Place(path, path if self.at is None else filename, self.at, self.follow)


@contextmanager
def reach(path: str, top: str | None, *, make: bool = False) -> Iterator[Place]:
    """Yield the place of a file or folder, valid inside the block.

    Args:
        path: Its absolute path.
        top: The folder that it is in, or is. This folder itself may be a link, and what is in it
            must not be one. None follows every link.
        make: Make the folders that are missing.

    Raises:
        LinkError: A folder between both is a link. The last part is left to `Place`.
        OSError: A folder is missing, or cannot be opened or made.
    """
    if make:
        os.makedirs(os.path.dirname(path) if top is None else top, exist_ok=True)
    if top is None or path == top:
        yield Place(path, path, None, follow=True)
        return
    place = Place(path, path, None, follow=False)
    opened: list[int] = []
    start = len(top.rstrip("/")) + 1
    try:
        while (stop := path.find("/", start)) >= 0:
            folder = place._replace(path=path[:stop])
            folder = folder._replace(name=path[start:stop] if opened else folder.path)
            opened.append(_enter(folder, make=make))
            place = Place(path, path[stop + 1 :], opened[-1], follow=False)
            start = stop + 1
        yield place
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _enter(folder: Place, *, make: bool) -> int:
    try:
        return folder.open(_FOLDER)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process has just made it
        os.mkdir(folder.name, dir_fd=folder.at)
    return folder.open(_FOLDER)


def own_path(path: str, top: str | None) -> str:
    """Return a path for code that opens it by itself, if no part of it below `top` is a link.

    A link that is put there before the path is opened is followed: so files are read, whose bytes
    are compared with checksums, and none is written or removed by such a path.

    Raises:
        LinkError: A part of it is a link.
        OSError: It cannot be accessed; a missing one can be.
    """
    with suppress(FileNotFoundError, NotADirectoryError), reach(path, top) as place:
        place.status()
    return path


def no_follow(path: str, flags: int) -> int:
    """Open a file that must not be a link itself, as an `opener` of `open`. Raises `LinkError`."""
    return Place(path, path, None, follow=False).open(flags)
