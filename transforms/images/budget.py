"""Bound how many decoded pixels are in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class PixelBudget:
    """A bound on the decoded pixels that all threads of a process hold; large images wait.

    Args:
        num_pixels: The bound. A larger image is decoded alone.
    """

    def __init__(self, num_pixels: int) -> None:
        self._free = self._all = num_pixels
        self._changed = threading.Condition()
        self._waited = threading.local()

    def seconds_waited(self) -> float:
        """Return how long this thread has waited in total."""
        return getattr(self._waited, "seconds", 0.0)

    def set_bound(self, num_pixels: int) -> None:
        """Change the bound; what is held now stays."""
        with self._changed:
            self._free += num_pixels - self._all
            self._all = num_pixels
            self._changed.notify_all()

    @contextmanager
    def hold(self, num_pixels: int) -> Iterator[None]:
        """Wait until there is room for so many pixels, and free it at the end."""
        with self._changed:
            # A larger image takes all of the bound: it is decoded alone, instead of never.
            if self._free < min(num_pixels, self._all):
                start = time.monotonic()
                self._changed.wait_for(lambda: self._free >= min(num_pixels, self._all))
                self._waited.seconds = self.seconds_waited() + time.monotonic() - start
            taken = min(num_pixels, self._all)
            self._free -= taken
        try:
            yield
        finally:
            with self._changed:
                self._free += taken
                # All, because the one that waits for least may not be the first.
                self._changed.notify_all()


def pixels_for(cores: int) -> int:
    """Return the bound for a process that decodes on so many cores.

    Pillow takes 4 bytes for a pixel, and some steps hold two or three copies: 64 million pixels
    keep two cores below 1 GB. Machines with more cores have more memory, and there an ordinary
    photograph of 12 million pixels on each core should not wait.
    """
    return max(64, 12 * cores) * 1_000_000


PIXELS = PixelBudget(pixels_for(os.cpu_count() or 1))
