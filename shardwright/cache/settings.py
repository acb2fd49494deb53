"""Where the reader's cache is, and how much it may hold."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass

from shardwright.cache.files import CacheFiles
from shardwright.errors import StorageError, UsageError
from shardwright.sizes import parse_size
from shardwright.storage import local_path

PLACE, CAP = "SHARDWRIGHT_CACHE", "SHARDWRIGHT_CACHE_BYTES"
DEFAULT_SHARE_OF_DISK = 0.5
# https://bford.info/cachedir/: backups leave such folders out
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of shardwright; it may be removed at any time.\n"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where a cache is and how much it may hold.

    Attributes:
        folder: An absolute local path.
        max_bytes: The cap, or None for half of what its disk has free, what the cache holds counted as free.
    """

    folder: str
    max_bytes: int | None = None

    @classmethod
    def of(
        cls, folder: str | os.PathLike[str] | None = None, max_bytes: int | str | None = None
    ) -> CacheSettings:
        """From arguments, and where they are None, from `SHARDWRIGHT_CACHE` and `SHARDWRIGHT_CACHE_BYTES`.

        The folder is then `$XDG_CACHE_HOME/shardwright`, or `~/.cache/shardwright`.

        Args:
            folder: A local path.
            max_bytes: A number of bytes, or a size such as "200GB".

        Raises:
            UsageError: No local path, or no size above 0.
        """
        env = os.environ
        home = env.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        place = local_path(
            os.fspath(folder)
            if folder is not None
            else env.get(PLACE) or os.path.join(home, "shardwright")
        )
        if max_bytes is None:
            return cls(place, parse_size(env[CAP], CAP) if env.get(CAP) else None)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, str)):
            raise UsageError(
                f"cache_bytes={max_bytes!r} must be a number of bytes, or a size such as '200GB'"
            )
        return cls(place, parse_size(str(max_bytes), "cache_bytes"))

    def open(self) -> CacheFiles:
        """The cache's files; the folder is made where there is none.

        Raises:
            StorageError: It cannot be made.
        """
        make_root(self.folder)
        if self.max_bytes is not None:
            return CacheFiles(self.folder, self.max_bytes)
        free = shutil.disk_usage(self.folder).free + CacheFiles(self.folder, 0).num_bytes()
        return CacheFiles(self.folder, int(free * DEFAULT_SHARE_OF_DISK))


def make_root(root: str) -> None:
    """Make the cache's folder, for its owner alone.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        with suppress(FileExistsError), open(os.path.join(root, "CACHEDIR.TAG"), "x") as file:
            file.write(_TAG)
    except OSError as error:
        raise StorageError(
            f"the cache cannot be at {root}: {error.strerror or error}: set SHARDWRIGHT_CACHE to another folder"
        ) from error
