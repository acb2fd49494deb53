"""Hold batches of references, or rejects, until they are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa

from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.reject_files import pack_rejects
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.rejects import Reject, rejects_to_table

# About a million references; more are in a temporary file.
PLAIN_BYTES = 256 << 20


class HeldBatches:
    """Batches in memory, and those after the first `PLAIN_BYTES` in a temporary file.

    Args:
        file: The file, which several may share; by default one of its own.
        share: The part of `PLAIN_BYTES` that these batches may take, as one of so many.

    Attributes:
        num_bytes: The bytes of all batches that were added.
    """

    def __init__(self, file: BatchFile | None = None, share: int = 1) -> None:
        self.num_bytes = 0
        self._plain_bytes = PLAIN_BYTES // share
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


class Buckets(defaultdict[int, HeldBatches]):
    """Batches by the number of their bucket, of which there may be `num_buckets`."""

    def __init__(self, num_buckets: int) -> None:
        # One file for all buckets, whatever their number: a process may open few.
        file = BatchFile()
        super().__init__(lambda: HeldBatches(file, num_buckets))

    def add(self, pieces: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Hold each batch in its bucket; raise BuildError if the disk is full."""
        for bucket, piece in pieces:
            self[bucket].add(piece)

    def take(self, bucket: int) -> list[pa.RecordBatch]:
        """Return the batches of a bucket, once, in order."""
        return [*self[bucket].take()]


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
