"""Progress of shard writing in this process, for a progress bar on the same machine.

Beam's metrics are final only at the end of a bundle, and one bundle may be a whole local build, so
the writer counts here too. If workers are other processes, these counters stay at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")


@dataclass(slots=True)
class Progress:
    """Counters of this process; `total_*` are known once the plan is made.

    `images` and `shards` include the work of earlier builds, which `reused_*` count apart;
    before the plan, `listed` counts references, and `read_records` records of Python.
    """

    total_images: int = 0
    total_shards: int = 0
    images: int = 0
    shards: int = 0
    reused_images: int = 0
    reused_shards: int = 0
    read_records: int = 0
    listed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def start(self, *, total_images: int = 0, total_shards: int = 0) -> None:
        # Under the lock, or `snapshot` could see new totals with old counts.
        with self._lock:
            self.total_images, self.total_shards = total_images, total_shards
            self.images = self.shards = self.reused_images = self.reused_shards = 0
            self.read_records = self.listed = 0

    def add_read(self, records: int) -> None:
        """Count records that are in the spool."""
        with self._lock:
            self.read_records += records

    def count_listed(self, rows: Iterable[T]) -> Iterator[T]:
        """Yield the rows, and count the references of those that are batches."""
        for row in rows:
            if isinstance(row, pa.RecordBatch):
                with self._lock:
                    self.listed += row.num_rows
            yield row

    def add(self, *, images: int = 0, shards: int = 0) -> None:
        with self._lock:
            self.images += images
            self.shards += shards

    def add_reused(self, *, images: int, shards: int) -> None:
        """Count work that an earlier build did."""
        with self._lock:
            self.images += images
            self.shards += shards
            self.reused_images += images
            self.reused_shards += shards

    def show(self, found: Progress) -> None:
        """Show the progress found in OUTPUT, for a build whose workers run elsewhere.

        Work found by the first call counts as reused.
        """
        with self._lock:
            if not self.total_shards:
                self.reused_images, self.reused_shards = found.images, found.shards
            self.total_images, self.total_shards = found.total_images, found.total_shards
            self.images, self.shards = found.images, found.shards

    def snapshot(self) -> Progress:
        with self._lock:
            return replace(self)


PROGRESS = Progress()
