"""Iterate over batches in order, making the next ones ahead."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator

from shardwright.reader.batches import Batch, PendingBatch
from shardwright.reader.engine import Engine
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.state import Pass
from shardwright.reader.steps import Step, Steps

_READINGS = 2  # passes over the reader to keep batches for: the current one and an abandoned one


class LookAhead:
    """A prefetching view of a reader's batches, by position. Thread-safe.

    It is only a cache: after a jump, or with more passes at once than it has room for, batches are
    made on request. The caller keeps the position.

    Args:
        engine: Makes the batches.
        steps: Their positions and sizes.
        ahead: Number of batches made ahead of the current one.
        note: Called before each batch with its bad records; may raise.
    """

    def __init__(
        self, engine: Engine, steps: Steps, ahead: int, note: Callable[[list[BadRecord]], None]
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._ahead = ahead
        self._note = note
        self._room = _READINGS * (self._ahead + 1)
        self._pending: OrderedDict[int, PendingBatch] = OrderedDict()
        self._lock = threading.Lock()
        weakref.finalize(self, _abandon, self._pending)

    def take(self, position: int) -> tuple[int, Batch]:
        """Return the position of the next global batch, and this host's rows of this one.

        After an error the same batch can be taken again, such as after an unreachable store.

        Raises:
            StorageError, BadRecordError: As when iterating over the reader.
        """
        step = self._steps.step_at(position)
        with self._lock:
            # Before the following ones, so that it is first in the queue of the threads.
            pending = self._pending.pop(step.position, None) or self._engine.begin(step)
            self._begin_following(step, self._ahead)
        try:
            # Not under the lock: another thread may take another batch meanwhile.
            batch, bad = self._engine.finish(pending)
            with self._lock:
                self._note(bad)
                # So that the threads have work while the caller has the batch.
                self._begin_following(step, self._ahead + 1)
        except BaseException:
            pending.abandon()  # an interrupt comes while others make it, perhaps for minutes
            self.clear()  # batches begun during an outage have failed too: make them again
            pending.cancel()
            raise
        return step.next_position, batch

    def clear(self) -> None:
        """Cancel all pending batches, and wait for what they are doing."""
        with self._lock:
            waiting = list(self._pending.values())
            _abandon(self._pending)  # none of them begins while another is waited for
            for batch in waiting:
                batch.cancel()

    def _begin_following(self, step: Step, count: int) -> None:
        stop = self._steps.pass_end(step.position)
        for _ in range(count):
            if stop is not None and step.next_position >= stop:
                return
            step = self._steps.step_at(step.next_position)
            if step.position not in self._pending:
                while len(self._pending) >= self._room:  # the oldest first: of an abandoned pass
                    self._pending.popitem(last=False)[1].cancel()
                self._pending[step.position] = self._engine.begin(step)


def _abandon(pending: OrderedDict[int, PendingBatch]) -> None:
    """Cancel without waiting: garbage collection may run this in a thread that makes batches."""
    while pending:
        pending.popitem(last=False)[1].abandon()


class BatchIterator(Iterator[Batch]):
    """The batches of a pass, which moves with them.

    Args:
        batches: Those of the reader, by position.
        of: The pass.
    """

    def __init__(self, batches: LookAhead, of: Pass) -> None:
        self._batches = batches
        self._pass = of

    def __next__(self) -> Batch:
        if self._pass.stop is not None and self._pass.position >= self._pass.stop:
            raise StopIteration
        # If this raises, such as `BadRecordError`, the position stays.
        self._pass.position, batch = self._batches.take(self._pass.position)
        return batch

    def close(self) -> None:
        """Stop making batches."""
        self._batches.clear()
