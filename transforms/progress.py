"""How far the shards written by this process are: what a progress bar on the same machine shows.

Beam's metrics are final only when a bundle is done, and one bundle may be a whole local build; so the writer counts here too.
Where workers are other processes of this machine these counters stay at zero and the bar says nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Progress:
    """Counters of this process; `total_*` are known once the plan is made.

    `images` and `shards` are all that is done, `reused_*` the part of them that an earlier build had done.
    """

    total_images: int = 0
    total_shards: int = 0
    images: int = 0
    num_bytes: int = 0
    shards: int = 0
    reused_images: int = 0
    reused_shards: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def start(self, *, total_images: int, total_shards: int) -> None:
        with self._lock:
            self.total_images, self.total_shards = total_images, total_shards
            self.images = self.num_bytes = self.shards = self.reused_images = self.reused_shards = 0

    def add(self, *, images: int = 0, num_bytes: int = 0, shards: int = 0) -> None:
        with self._lock:
            self.images += images
            self.num_bytes += num_bytes
            self.shards += shards

    def add_reused(self, *, images: int, shards: int) -> None:
        """Count work that an earlier build had done."""
        with self._lock:
            self.images += images
            self.shards += shards
            self.reused_images += images
            self.reused_shards += shards

    def show(self, found: Progress) -> None:
        """Take over what was found in OUTPUT of a build whose workers are elsewhere; what is found first was there before."""
        with self._lock:
            if not self.total_shards:
                self.reused_images, self.reused_shards = found.images, found.shards
            self.total_images, self.total_shards = found.total_images, found.total_shards
            self.images, self.shards, self.num_bytes = found.images, found.shards, found.num_bytes

    def snapshot(self) -> Progress:
        with self._lock:
            return replace(self)


PROGRESS = Progress()
