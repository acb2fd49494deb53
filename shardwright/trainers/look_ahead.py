"""Batches at positions that are asked for one after another, by somebody who keeps the position himself."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shardwright.errors import UsageError
from shardwright.reader.batches import Batch, PendingBatch
from shardwright.reader.reader import Reader
from shardwright.reader.steps import Step

_READINGS = 2  # at a time, for which there is room: one that goes on, and one that was left


class LookAhead:
    """A reader's batches by position, the following ones being made meanwhile.

    Nothing of it is needed to go on: after a jump, or of more readings at a time than there is room for, batches are begun when they
    are asked for. Any thread may ask. The reader itself stays where it is.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ahead = reader._batches_ahead()
        self._room = _READINGS * (self._ahead + 1)
        self._pending: OrderedDict[int, PendingBatch] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, position: int) -> tuple[int, Batch]:
        """The position of the next global batch, and this host's part of the one at `position`.

        Raises:
            UsageError: The position is at the end.
            StorageError, BadRecordError: As iterating over the reader.
        """
        step = self._reader.steps.step_at(position)
        if step is None:
            raise UsageError(f"position {position:,} is at or after the end")
        with self._lock:
            pending = self._pending.pop(step.position, None) or self._reader.engine.begin(step)
            self._begin_following(step, self._ahead)
        try:
            batch, bad = self._reader.engine.finish(pending)
            with self._lock:
                self._reader._note(bad)
                self._begin_following(step, self._ahead + 1)
        except BaseException:
            self.clear()  # after a store was away, all are to be tried again
            raise
        return step.next_position, batch

    def clear(self) -> None:
        """Stop making batches."""
        with self._lock:
            self._make_room(0)

    def _begin_following(self, step: Step, count: int) -> None:
        for _ in range(count):
            following = self._reader.steps.step_at(step.next_position)
            if following is None:
                return
            step = following
            if step.position not in self._pending:
                self._make_room(self._room - 1)
                self._pending[step.position] = self._reader.engine.begin(step)

    def _make_room(self, num_left: int) -> None:
        while len(self._pending) > num_left:
            self._pending.popitem(last=False)[1].cancel()
