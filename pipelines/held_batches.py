"""Hold reference batches in memory until they are used."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from transforms.references import from_ipc, to_ipc


class HeldBatches:
    """Batches in memory, to be taken once. Packing shrinks them to a quarter, but takes time.

    Args:
        plain_bytes: Bytes of batches that are held as they are; those after them are packed.
    """

    def __init__(self, plain_bytes: int) -> None:
        self._plain_bytes = plain_bytes
        self._held: list[pa.RecordBatch | bytes] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._plain_bytes -= batch.nbytes
        self._held.append(batch if self._plain_bytes >= 0 else to_ipc(batch))

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order; each is let go when the next one is taken."""
        self._held.reverse()
        while self._held:
            held = self._held.pop()
            yield from_ipc(held) if isinstance(held, bytes) else held
