"""Report the error of estimated record sizes, in split statistics, the log and `report.html`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardwright.format.manifest import Manifest
from shardwright.format.stats_keys import RECORD_BYTES
from shardwright.sizes import show_bytes


class RecordBytes(NamedTuple):
    """The mean bytes per record, estimated and written."""

    num_records: int
    estimated: float
    written: float

    @property
    def error(self) -> float:
        """The error of the estimate, as a fraction of the written bytes."""
        return abs(self.estimated - self.written) / self.written if self.written else 0.0

    def describe(self) -> str:
        return (
            f"estimated {show_bytes(self.estimated)} per record, wrote {show_bytes(self.written)}: "
            f"{self.error:.1%} off"
        )


def record_bytes_of(manifest: Manifest) -> dict[str, RecordBytes]:
    """Return the record sizes by split; empty if shards were planned without an estimate."""
    return {
        name: RecordBytes(
            split.num_records,
            split.stats[RECORD_BYTES]["estimated"],
            split.stats[RECORD_BYTES]["written"],
        )
        for name, split in manifest.splits.items()
        if RECORD_BYTES in split.stats
    }


def average(parts: Iterable[RecordBytes]) -> RecordBytes:
    """Return the record sizes over all splits."""
    parts = list(parts)
    records = sum(part.num_records for part in parts)
    estimated, written = (
        sum(part[place] * part.num_records for part in parts) / max(records, 1) for place in (1, 2)
    )
    return RecordBytes(records, estimated, written)
