"""Open files of one folder: of all that a process has, other tests may close some meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_files(folder: str | Path) -> list[str]:
    """Sort their paths, one for each descriptor; a removed file's ends with ` (deleted)`."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    below = os.path.realpath(folder)
    paths = []
    for link in links:
        with suppress(FileNotFoundError):  # another thread has just closed it
            paths.append(os.path.realpath(link))
    return sorted(path for path in paths if f"{path}/".startswith(f"{below}/"))
