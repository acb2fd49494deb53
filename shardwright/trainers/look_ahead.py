"""Prefetch batches for callers that keep the position themselves, such as tf.data and Keras."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shardwright.reader.batches import Batch, PendingBatch
from shardwright.reader.reader import Reader
from shardwright.reader.steps import Step

_READINGS = 2  # passes over the reader to keep batches for: the current one and an abandoned one


class LookAhead:
    """A prefetching view of a reader's batches, by position. Thread-safe; the reader does not move.

    It is only a cache: after a jump, or with more passes at once than it has room for, batches are
    made on request.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ahead = reader.batches_ahead
        self._room = _READINGS * (self._ahead + 1)
        self._pending: OrderedDict[int, PendingBatch] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, position: int) -> tuple[int, Batch]:
        """Return the position of the next global batch, and this host's rows of this one.

        Raises:
            StorageError, BadRecordError: As when iterating over the reader.
        """
        step = self._reader.steps.step_at(position)
        with self._lock:
            # Before the following ones, so that it is first in the queue of the threads.
            pending = self._pending.pop(step.position, None) or self._reader.engine.begin(step)
            self._begin_following(step, self._ahead)
        try:
            # Not under the lock: another thread may take another batch meanwhile.
            batch, bad = self._reader.engine.finish(pending)
            with self._lock:
                self._reader._note(bad)
                self._begin_following(step, self._ahead + 1)
        except BaseException:
            self.clear()  # batches begun during an outage have failed too: make them again
            raise
        return step.next_position, batch

    def clear(self) -> None:
        """Cancel all pending batches."""
        with self._lock:
            self._make_room(0)

    def _begin_following(self, step: Step, count: int) -> None:
        steps = self._reader.steps
        stop = steps.pass_end(step.position)
        for _ in range(count):
            if stop is not None and step.next_position >= stop:
                return
            step = steps.step_at(step.next_position)
            if step.position not in self._pending:
                self._make_room(self._room - 1)
                self._pending[step.position] = self._reader.engine.begin(step)

    def _make_room(self, num_left: int) -> None:
        while len(self._pending) > num_left:  # the oldest first: of an abandoned pass, if any
            self._pending.popitem(last=False)[1].cancel()
