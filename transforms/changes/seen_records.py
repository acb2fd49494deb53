"""The known records that INPUT still has, as sets of row numbers with one bit a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.transforms.changes.known_records import KnownRecords, live_rows
from shardwright.transforms.output_state import SeenRecords
from shardwright.transforms.references import keep_rows, reject_rows
from shardwright.transforms.rejects import Reject, RejectReason


def mark_rows(bits: np.ndarray, rows: np.ndarray) -> None:
    """Add row numbers to a set; bit 0 of byte 0 is row 0."""
    places = (rows >> 3).astype(np.int64)
    # `at`, because several rows may be in one byte, of which a plain assignment would keep the
    # last.
    np.bitwise_or.at(bits, places, np.left_shift(1, rows & 7).astype(np.uint8))


def has_rows(bits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which rows are in a set, bool [rows]."""
    places = (rows >> 3).astype(np.int64)
    return (bits[places] >> (rows & 7).astype(np.uint8)) & 1 == 1


def no_rows(num_rows: int) -> np.ndarray:
    """Return an empty set of the rows below `num_rows`, uint8 [ceil(num_rows / 8)]."""
    return np.zeros(-(-num_rows // 8), np.uint8)


def union_of(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the union of at least one set."""
    first, *others = parts
    total = first.copy()
    for each in others:
        total |= each
    return total


def take_changed(
    batch: pa.RecordBatch, known: KnownRecords, unchanged: np.ndarray
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield changed references, and a reject for each whose record is also listed unchanged.

    INPUT then has the id twice. If the other one became the record's replacement, the two would
    take turns in every version. Neither may a reference replace a record that is another image
    (`KnownRecords.are_elsewhere`).

    Args:
        batch: References that `KnownRecords.compare` found changed.
        known: The records.
        unchanged: The set of all unchanged records.
    """
    again = has_rows(unchanged, known.rows[known.find(batch.column("id"))])
    yield from reject_rows(
        batch,
        again,
        RejectReason.DUPLICATE_ID,
        "row {row}: another input has the id {id!r}, and the dataset has that one",
    )
    kept = keep_rows(batch, ~again)
    elsewhere = known.are_elsewhere(kept)
    yield from reject_rows(
        kept,
        elsewhere,
        RejectReason.DUPLICATE_ID,
        "row {row}: another image has the id {id!r} in the dataset, and --keep-missing keeps it: "
        "list both in one INPUT, or state ids in a table",
    )
    replacing = keep_rows(kept, ~elsewhere)
    if replacing.num_rows:
        yield replacing


def outdated_rows(
    manifest: Manifest, seen: SeenRecords, *, keep_missing: bool = False
) -> dict[ShardName, np.ndarray]:
    """Return the rows of each shard that a new version no longer has, uint32 [rows], ascending.

    These are the records that changed and, unless `keep_missing`, those that INPUT does not have
    any more. Shards that keep all of their records are left out.

    Args:
        manifest: The dataset whose records were compared.
        seen: The outcome.
        keep_missing: Keep records that INPUT does not have.
    """
    outdated, first = {}, 0
    for name, info in manifest.named_shards():
        rows = live_rows(info)
        numbers = (first + rows).astype(np.uint32)
        gone = (
            # Without `keep_missing`, what is neither unchanged nor changed is gone, and both kinds
            # leave.
            has_rows(seen.changed, numbers) if keep_missing else ~has_rows(seen.unchanged, numbers)
        )
        if gone.any():
            outdated[name] = rows[gone].astype(np.uint32)
        first += info.num_records
    return outdated
