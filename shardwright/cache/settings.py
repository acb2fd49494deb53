"""The folder and the cap of the reader's cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from shardwright.errors import StorageError
from shardwright.sizes import parse_size
from shardwright.storage.addresses import local_path

PLACE, CAP = "SHARDWRIGHT_CACHE", "SHARDWRIGHT_CACHE_BYTES"
DEFAULT_SHARE_OF_DISK = 0.5
# Backup tools skip folders with this tag: https://bford.info/cachedir/
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# The cache of shardwright; it may be removed at any time.\n"
)


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The folder and the cap of a cache.

    Attributes:
        folder: An absolute local path.
        max_bytes: The cap; None for half of the disk's free space, including what the cache holds.
    """

    folder: str
    max_bytes: int | None = None

    @classmethod
    def of(
        cls, folder: str | os.PathLike[str] | None = None, max_bytes: int | str | None = None
    ) -> CacheSettings:
        """Return the settings from arguments, or else from the environment.

        Args:
            folder: A local path. Defaults to `SHARDWRIGHT_CACHE`, then
                `$XDG_CACHE_HOME/shardwright`, then `~/.cache/shardwright`.
            max_bytes: Bytes, or a size such as "200GB". Defaults to `SHARDWRIGHT_CACHE_BYTES`.

        Raises:
            UsageError: The folder is not local, or the size is not above 0.
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
        return cls(place, parse_size(str(max_bytes), "cache_bytes"))

    def open(self) -> int:
        """Make the cache's folder if needed, accessible to its owner only; return the cap in bytes.

        Raises:
            StorageError: The folder cannot be made.
        """
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot create the cache at {self.folder}: {error.strerror or error}: "
                "set SHARDWRIGHT_CACHE to another folder"
            ) from error
        # There, or in the cache of another user.
        with suppress(OSError), open(os.path.join(self.folder, "CACHEDIR.TAG"), "x") as file:
            file.write(_TAG)
        if self.max_bytes is not None:
            return self.max_bytes
        # With what the cache holds, or the cap would shrink as the cache fills.
        free = shutil.disk_usage(self.folder).free + sum(sizes_in(self.folder))
        return int(free * DEFAULT_SHARE_OF_DISK)


def sizes_in(folder: str) -> Iterator[int]:
    """Yield the length in bytes of each file below a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.lstat(os.path.join(parent, name)).st_size
