"""Keep a tmpfs's memory in the machine's hands between runs, so that each run finds it equally warm.

A virtual machine may hand free memory back to its host (free page reporting). The next use of such a page
waits for the host: writing then costs 1 to 3 s per GB, more or less by chance, and every fast system looks
as slow as that. Deleting one run's output and letting the next allocate anew does just this.

So deleted output is replaced at once, piece by piece, by ballast files in the same memory, and while a run
grows, ballast is deleted a little ahead of it: what it allocates was in use a moment ago. This costs the
measuring process about 0.1 s of CPU per GB during a run, the same for every system.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PIECE_BYTES = 64 * 2**20
_ZEROS = bytes(2**20)
# Further ahead than any system allocates between two looks; less than a host takes back at once.
_AHEAD_BYTES = 512 * 2**20


def _bytes_used(folder: Path) -> int:
    """Memory taken by the files of a folder that may be changing."""
    used = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                used += os.stat(os.path.join(where, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return used


class Ballast:
    """Pieces of 64 MB in a folder beside the output. With `size` 0 (on a disk) it does nothing."""

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
        """Deletes OUT from the end of its files, each freed piece taken over at once, and fills up."""
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
        """Called all through a run: releases what it has used so far, and some more."""
        while self._pieces and self._released < _bytes_used(out) + rss_bytes + _AHEAD_BYTES:
            self._pieces.pop().unlink()
            self._released += _PIECE_BYTES

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
