"""How good an estimate of record sizes was: kept with each split's statistics, told in the log and in `report.html`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardwright.manifest import Manifest
from shardwright.sizes import show_bytes

RECORD_BYTES = "record_bytes"  # of a split's statistics: {"estimated": mean bytes of a record, "written": the same}


class RecordBytes(NamedTuple):
    """Bytes of a record, on average over some."""

    num_records: int
    estimated: float
    written: float

    @property
    def error(self) -> float:
        """How far the estimate is off, as a fraction of what was written."""
        return abs(self.estimated - self.written) / self.written if self.written else 0.0

    def describe(self) -> str:
        return f"estimated {show_bytes(self.estimated)} a record, wrote {show_bytes(self.written)}: {self.error:.1%} off"


def record_bytes_of(manifest: Manifest) -> dict[str, RecordBytes]:
    """By split, those of a dataset whose shards were planned by an estimate; else none."""
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
    """Those of all splits together."""
    parts = list(parts)
    records = sum(part.num_records for part in parts)
    estimated, written = (
        sum(part[place] * part.num_records for part in parts) / max(records, 1) for place in (1, 2)
    )
    return RecordBytes(records, estimated, written)
