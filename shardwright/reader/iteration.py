"""Iterate over the batches of a pass, in order."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.reader.batches import Batch
from shardwright.reader.look_ahead import LookAhead
from shardwright.reader.state import Pass


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
