"""Iterate over batches in order, making the next ones ahead."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator

from shardwright.reader.batches import Batch, PendingBatch
from shardwright.reader.engine import Engine
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.state import Pass
from shardwright.reader.steps import Steps


class BatchIterator(Iterator[Batch]):
    """The batches of a pass, which moves with them.

    Args:
        engine: Makes the batches.
        steps: Their positions and sizes.
        of: The pass.
        ahead: Number of batches made ahead of the current one.
        note: Called before each batch with its bad records; may raise.
    """

    def __init__(
        self,
        engine: Engine,
        steps: Steps,
        of: Pass,
        ahead: int,
        note: Callable[[list[BadRecord]], None],
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._ahead = ahead
        self._note = note
        self._pass = of
        self._next_to_begin = of.position
        self._pending: deque[PendingBatch] = deque()
        self._cleanup = weakref.finalize(self, _abandon, self._pending)

    def __next__(self) -> Batch:
        self._begin_more()
        if not self._pending:
            raise StopIteration
        pending = self._pending[0]
        try:
            batch, bad = self._engine.finish(pending)
            # May raise `BadRecordError`: the position moves only with a batch that is handed out.
            self._note(bad)
        except BaseException:
            # So that the batch can be retried, such as after an unreachable store.
            _cancel(self._pending)
            self._next_to_begin = pending.step.position
            raise
        self._pass.position = pending.step.next_position
        self._pending.popleft()
        self._begin_more()  # so that the threads have work while the caller has the batch
        return batch

    def close(self) -> None:
        """Stop making batches."""
        _cancel(self._pending)

    def _begin_more(self) -> None:
        while len(self._pending) <= self._ahead and (
            self._pass.stop is None or self._next_to_begin < self._pass.stop
        ):
            step = self._steps.step_at(self._next_to_begin)
            self._pending.append(self._engine.begin(step))
            self._next_to_begin = step.next_position


def _abandon(pending: deque[PendingBatch]) -> None:
    """Cancel without waiting: garbage collection may run this in a thread that makes batches."""
    while pending:
        pending.popleft().abandon()


def _cancel(pending: deque[PendingBatch]) -> None:
    waiting = list(pending)
    _abandon(pending)  # none of them begins while another is waited for
    for batch in waiting:
        batch.cancel()
