"""A folder of photographs that changes from day to day, for `growth.py`."""

from __future__ import annotations

import os
import random
from pathlib import Path

from photos import PhotoSet


class GrowingPhotos:
    """A folder CLASS/NAME.jpg of hard links to photographs, so that it takes no space.

    A link to another photograph has another length and time of modification, as a changed file has.

    Args:
        base: The photographs.
        folder: The folder to fill; it must be empty or missing, and on the photographs' disk.
        files: The number of files at first.
    """

    def __init__(self, base: PhotoSet, folder: Path, files: int) -> None:
        self.folder = folder
        self._photos = sorted(base.folder.rglob("*.jpg"))
        self._rng = random.Random(0)
        self._numbers: dict[Path, int] = {}  # of the photograph that a file links to
        self._made = 0
        for name in sorted({photo.parent.name for photo in self._photos}):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.add(files)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, count: int) -> list[Path]:
        """Add files under new names, and return their paths."""
        added = []
        for _ in range(count):
            number = self._made % len(self._photos)
            photo = self._photos[number]
            path = self.folder / photo.parent.name / f"n{self._made:07d}_{photo.name}"
            self._link(path, number)
            self._made += 1
            added.append(path)
        return added

    def change(self, count: int) -> None:
        """Replace the contents of files by another photograph's."""
        for path in self._rng.sample(list(self._numbers), count):
            path.unlink()
            self._link(path, (self._numbers[path] + 1) % len(self._photos))

    def remove(self, paths: list[Path]) -> None:
        """Remove these files."""
        for path in paths:
            path.unlink()
            del self._numbers[path]

    def remove_some(self, count: int) -> None:
        """Remove files drawn at random."""
        self.remove(self._rng.sample(list(self._numbers), count))

    def _link(self, path: Path, number: int) -> None:
        os.link(self._photos[number], path)
        self._numbers[path] = number
