"""How the stores behave: requests, bytes, and tries that had to be repeated, counted for this process."""

from __future__ import annotations

import threading
from collections import Counter


class StorageCounters:
    """Counts by name: `requests`, `bytes_read`, `bytes_written`, `retries_<kind>`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._undrained: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number
            self._undrained[name] += number

    def snapshot(self) -> dict[str, int]:
        """All counts since the process began."""
        with self._lock:
            return dict(self._counts)

    def drain(self) -> dict[str, int]:
        """What was counted since the last drain: each number is given once, to whoever reports it."""
        with self._lock:
            drained, self._undrained = self._undrained, Counter()
            return dict(drained)


COUNTERS = StorageCounters()
