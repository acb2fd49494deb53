"""Count this process's storage requests, bytes and retries."""

from __future__ import annotations

import threading
from collections import Counter


class StorageCounters:
    """Counters by name: `requests`, `bytes_read`, `bytes_written`, `retries_<kind>`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._drained: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def snapshot(self) -> dict[str, int]:
        """Return all counts since the process started."""
        with self._lock:
            return dict(self._counts)

    def drain(self) -> dict[str, int]:
        """Return the counts since the last drain, so that each is reported once."""
        with self._lock:
            new, self._drained = self._counts - self._drained, self._counts.copy()
            return dict(new)


COUNTERS = StorageCounters()
