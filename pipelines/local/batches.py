"""Hold batches of references, rejects, or an even sample of references, until they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.references import BATCH_ROWS, concat
from shardwright.transforms.reject_files import pack_rejects
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.rejects import Reject, rejects_to_table

MOST_SAMPLED = 256


class HeldBatches:
    """Batches in memory or in a temporary file.

    Args:
        plain_bytes: Bytes of batches that are held in memory; those after them are in the file.
        file: The file, which several may share; by default one of its own.

    Attributes:
        num_bytes: The bytes of all batches that were added.
    """

    def __init__(self, plain_bytes: int, file: BatchFile | None = None) -> None:
        self.num_bytes = 0
        self._plain_bytes = plain_bytes
        self._file = file or BatchFile()
        self._held: list[pa.RecordBatch | Place] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold a batch; raise BuildError if the disk is full."""
        self.num_bytes += batch.nbytes
        is_plain = self.num_bytes <= self._plain_bytes
        self._held.append(batch if is_plain else self._file.add(batch))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order."""
        yield from map(self._batch_of, self._held)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order, once; each is let go when the next one is taken."""
        # `pop` from the end takes constant time, and drops the only reference to the batch.
        self._held.reverse()
        while self._held:
            yield self._batch_of(self._held.pop())

    def _batch_of(self, held: pa.RecordBatch | Place) -> pa.RecordBatch:
        return self._file.read(held) if isinstance(held, Place) else held


class HeldRejects:
    """Rejects in memory, packed and counted.

    Args:
        partial: The incomplete files and folders of INPUT that the build accepts.

    Attributes:
        tally: The facts about them that decide on the build.
        packed: All of them, once `pack` was called.
    """

    def __init__(self, partial: PartialInputs) -> None:
        self.tally = RejectTally(partial)
        self._few: list[Reject] = []
        self.packed: list[bytes] = []

    def add(self, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self._few.append(reject)
            if len(self._few) == BATCH_ROWS:
                self.pack()

    def pack(self) -> None:
        """Count and pack the latest rejects; to be called after the last."""
        if self._few:
            rows = rejects_to_table(self._few)
            self.tally.add(rows)
            self.packed.append(pack_rejects(rows))
            self._few = []


class EvenSample:
    """Rows at equal distances in batches that pass, from 256 to 512 of them if there are as many.

    Costs about 50 us a batch.
    """

    def __init__(self) -> None:
        self._step, self._seen, self._held = 1, 0, 0
        self._pieces: list[pa.RecordBatch] = []

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches unchanged."""
        for batch in batches:
            # Multiples of the step, counted over all batches: where a batch ends does not change
            # the sample.
            rows = np.arange(-self._seen % self._step, batch.num_rows, self._step)
            self._seen += batch.num_rows
            self._keep(batch.take(pa.array(rows)) if self._step > 1 else batch)
            while self._held > 2 * MOST_SAMPLED:
                whole = concat(self._pieces)
                self._pieces, self._held = [], 0
                self._step *= 2
                # Every second one from the first: again the multiples of the new step.
                self._keep(whole.take(pa.array(np.arange(0, whole.num_rows, 2))))
            yield batch

    def _keep(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._pieces.append(rows)
            self._held += rows.num_rows

    def rows(self) -> pa.RecordBatch | None:
        """Return the sample, None if there are no rows."""
        return concat(self._pieces) if self._pieces else None
