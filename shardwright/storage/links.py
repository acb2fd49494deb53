"""Open local files without following a link below a dataset's own folder.

A dataset of others, or one that was copied badly, may have a link in the place of any file or
folder. So each folder below the dataset's own one is looked at before it is used, and the last part
of a path is opened without following it. A folder that becomes a link between the two is followed.
"""

from __future__ import annotations

import errno
import os
import stat

from shardwright.errors import LinkError

# Of a link that is not followed: ENOTDIR where a folder is opened, and EMLINK on FreeBSD.
_MAYBE_LINK = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


def check_folders(path: str, top: str | None) -> None:
    """Check that no folder between `top` and a path is a link.

    Args:
        path: An absolute path.
        top: The folder that it is in, or is. This folder itself may be a link. None follows every
            link.

    Raises:
        LinkError: A folder is a link.
    """
    if top is None:
        return
    end = path.find("/", len(top) + (top[-1:] != "/"))
    while end >= 0:
        if os.path.islink(path[:end]):
            raise _link_error(path[:end])
        end = path.find("/", end + 1)


def open_path(path: str, flags: int, top: str | None) -> int:
    """Return a descriptor of a file or folder. Raises as `status`."""
    check_folders(path, top)
    follow = top in (None, path)
    try:
        return os.open(path, flags | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), 0o666)
    except OSError as error:
        # The same numbers are used for other faults.
        if error.errno in _MAYBE_LINK and not follow and os.path.islink(path):
            raise _link_error(path) from None
        raise


def status(path: str, top: str | None) -> os.stat_result:
    """Return the status of a file or folder.

    Raises:
        LinkError: It is a link, or a folder between `top` and it is one.
        OSError: It is missing, or cannot be accessed.
    """
    check_folders(path, top)
    found = os.stat(path, follow_symlinks=top in (None, path))
    if stat.S_ISLNK(found.st_mode):
        raise _link_error(path)
    return found


def no_follow(path: str, flags: int) -> int:
    """Open a file that must not be a link itself, as an `opener` of `open`. Raises `LinkError`."""
    return open_path(path, flags, os.path.dirname(path))


def _link_error(path: str) -> LinkError:
    return LinkError(
        f"{path} is a link, and no link in a dataset or a cache is followed: remove it, or put "
        "what it leads to in its place (`cp -rL` copies a folder so)"
    )
