"""Reach local files without following a link below a dataset's own folder.

A dataset of others, or one that was copied badly, may have a link in the place of any file or
folder. So each folder below the dataset's own one is opened without following links, and the next
part of the path relative to it: a link that is put there meanwhile leads nowhere, either.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import NamedTuple

from shardwright.errors import LinkError

# O_PATH, which Linux has, opens nothing: it needs no right to list the folder, and no request.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Of a link that is not followed: ENOTDIR where a folder is opened, and EMLINK on FreeBSD.
_MAYBE_LINK = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


class DiskPlace(NamedTuple):
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
            # The same numbers are used for other faults: `status` tells whether it is a link.
            if error.errno in _MAYBE_LINK and not self.follow:
                self.status()
            raise

    def status(self) -> os.stat_result:
        """Return its status. Raises `LinkError`, or `OSError` as `os.stat`."""
        # By name in the opened folder, so that the answer is of the same place as what was opened.
        found = os.stat(self.name, dir_fd=self.at, follow_symlinks=self.follow)
        if stat.S_ISLNK(found.st_mode):
            raise LinkError(
                f"{self.path} is a link, and no link in a dataset or a cache is followed: remove "
                "it, or put what it leads to in its place (`cp -rL` copies a folder so)"
            )
        return found

    def beside(self, filename: str) -> DiskPlace:
        """Return the place of another file in the same folder."""
        path = os.path.join(os.path.dirname(self.path), filename)
        return DiskPlace(path, path if self.at is None else filename, self.at, self.follow)


class reach:  # noqa: N801 - used as a function
    """A block that has the place of a file or folder, valid inside it: `with reach(...) as place`.

    Not a generator, whose overhead is as large as the rest: readers reach every shard and index.

    Args:
        path: Its absolute path.
        top: The folder that it is in, or is. This folder itself may be a link, and what is in it
            must not be one. None follows every link.
        make: Make the folders that are missing.

    Raises:
        LinkError: A folder between both is a link. The last part is left to `DiskPlace`.
        OSError: A folder is missing, or cannot be opened or made.
    """

    __slots__ = ("_make", "_opened", "_path", "_top")

    def __init__(self, path: str, top: str | None, *, make: bool = False) -> None:
        self._path, self._top, self._make = path, top, make
        self._opened: int | None = None

    def __enter__(self) -> DiskPlace:
        path, top = self._path, self._top
        if self._make:
            os.makedirs(os.path.dirname(path) if top is None else top, exist_ok=True)
        if top is None or path == top:
            return DiskPlace(path, path, None, follow=True)
        start = len(top) + (top[-1:] != "/")
        stop = path.find("/", start)
        if stop < 0:  # most often: O_NOFOLLOW is enough
            return DiskPlace(path, path, None, follow=False)
        try:
            self._open(path[:stop], path[:stop])
            # One folder at a time: O_NOFOLLOW guards the last part of a path only.
            while (end := path.find("/", stop + 1)) >= 0:
                self._open(path[stop + 1 : end], path[:end])
                stop = end
        except BaseException:
            self.__exit__()
            raise
        return DiskPlace(path, path[stop + 1 :], self._opened, follow=False)

    def __exit__(self, *error: object) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def _open(self, name: str, path: str) -> None:
        """Open a folder, below the one that is open, instead of it."""
        above = self._opened
        try:
            self._opened = os.open(name, _FOLDER, dir_fd=above)
        except OSError as error:  # its place tells a link, and a folder that is to be made
            self._opened = _enter(
                DiskPlace(path, name, above, follow=False), error, make=self._make
            )
        # After the next one is open, which was found relative to it.
        if above is not None:
            os.close(above)


def _enter(folder: DiskPlace, error: OSError, *, make: bool) -> int:
    if not (make and isinstance(error, FileNotFoundError)):
        folder.status()
        raise error
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
    return DiskPlace(path, path, None, follow=False).open(flags)
