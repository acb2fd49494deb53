"""Keep the memory of a tmpfs allocated between runs, so that every run finds it equally warm.

A virtual machine may return free memory to its host (free page reporting). The next use of such a
page waits for the host: writing then takes 1 to 3 s per GB, varying by chance, and every fast
system looks as slow as that. Deleting the output of one run before the next one causes exactly
this.

So deleted output is replaced immediately, piece by piece, by ballast files in the same memory.
While a run grows, ballast is deleted slightly ahead of it, so the run allocates pages that were
just in use. This costs the measuring process about 0.1 s of CPU per GB, the same for every system.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PIECE_BYTES = 64 * 2**20
_ZEROS = bytes(2**20)
# More than any system allocates between two samples; less than a host reclaims at once.
_AHEAD_BYTES = 512 * 2**20


def _bytes_used(folder: Path) -> int:
    """Return the memory used by the files of a folder, which may be changing."""
    used = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                used += os.stat(os.path.join(where, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return used


class Ballast:
    """Ballast files of 64 MiB in a folder beside the output; none with `size` 0, on a disk."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._pieces: list[Path] = []
        self._wanted = size // _PIECE_BYTES
        self._released = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def _add_piece(self) -> None:
        path = self.folder / f"piece-{len(self._pieces):05d}"
        with open(path, "wb", buffering=0) as file:
            for _ in range(_PIECE_BYTES // len(_ZEROS)):
                file.write(_ZEROS)
        self._pieces.append(path)

    def swap(self, out: Path) -> None:
        """Delete OUT, replacing each freed piece with ballast, and restore the full size.

        Files are truncated from their end, so that memory never stays free for long.
        """
        for path in sorted(path for path in out.rglob("*") if path.is_file()):
            while self._wanted and (size := path.stat().st_size) > 0:
                os.truncate(path, max(0, size - _PIECE_BYTES))
                if len(self._pieces) < self._wanted:
                    self._add_piece()
        shutil.rmtree(out, ignore_errors=True)
        while len(self._pieces) < self._wanted:
            self._add_piece()
        self._released = 0

    def follow(self, out: Path, rss_bytes: int) -> None:
        """Release the memory that a run has used so far, and some more; call it during the run."""
        while self._pieces and self._released < _bytes_used(out) + rss_bytes + _AHEAD_BYTES:
            self._pieces.pop().unlink()
            self._released += _PIECE_BYTES

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
