"""End this process if one image takes too long, so that the retry finds the image."""

from __future__ import annotations

import faulthandler
import functools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from shardwright.terminal import say

EXIT_STUCK = 75  # EX_TEMPFAIL: run it again
_PERIOD = 1.0  # seconds between two looks
_GRACE = 3.0  # seconds for this thread to report first


class Watched:
    """Rows of a shard that a thread is working on, one after the other."""

    def __init__(self, references: pa.RecordBatch, seconds: float) -> None:
        self._references = references
        self.seconds = seconds
        self.begin(0)

    def begin(self, row: int) -> None:
        """Note that work on a row begins."""
        self._row, self._waited = row, 0.0

    def add(self, seconds: float) -> None:
        """Count the seconds of the current row; end the process if they are too many."""
        # Counted instead of compared with a clock: a suspended process is not stuck.
        self._waited += seconds
        if self._waited <= self.seconds:
            return
        image_id, uri = (self._references.column(name)[self._row].as_py() for name in ("id", "uri"))
        say(
            f"error: {image_id} ({uri}) has taken more than {self.seconds:g} seconds "
            "to read, decode and transform: this process ends, so that a retry can reject it"
        )
        os._exit(EXIT_STUCK)  # no other way ends a thread


@contextmanager
def watching(references: pa.RecordBatch, seconds: float) -> Iterator[Watched]:
    """Watch the work on some rows in this thread, each of which may take this many seconds."""
    watched, dog = Watched(references, seconds), _watchdog(os.getpid())
    dog.add(watched)
    try:
        yield watched
    finally:
        dog.remove(watched)


class _Watchdog:
    """A thread that looks at all work under way once a second."""

    def __init__(self) -> None:
        self._under_way: dict[int, Watched] = {}
        self._lock = threading.Lock()  # of the timer
        self._armed = False
        threading.Thread(target=self._run, name="shardwright-watchdog", daemon=True).start()

    def add(self, watched: Watched) -> None:
        self._under_way[id(watched)] = watched
        with self._lock:
            if not self._armed:
                self._arm(watched.seconds)

    def remove(self, watched: Watched) -> None:
        # Without the lock: a dict's operations are atomic, and the watchdog goes over a copy.
        del self._under_way[id(watched)]

    def _arm(self, seconds: float) -> None:
        """Set a timer in native code: the thread never runs while a loop holds the GIL."""
        # Renewed every second while the interpreter runs: it goes off only if no Python code runs
        # for that long.
        faulthandler.dump_traceback_later(seconds + _GRACE, exit=True, file=2)
        self._armed = True

    def _run(self) -> None:
        while True:
            time.sleep(_PERIOD)
            for watched in list(self._under_way.values()):
                watched.add(_PERIOD)
            with self._lock:
                if found := list(self._under_way.values()):
                    self._arm(max(watched.seconds for watched in found))
                else:
                    faulthandler.cancel_dump_traceback_later()
                    self._armed = False


@functools.cache
def _watchdog(process: int) -> _Watchdog:  # noqa: ARG001 - a fork has no threads
    return _Watchdog()
