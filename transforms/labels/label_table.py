"""Join references with a table of labels.

Rows and references meet in buckets by a hash of their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.transforms.features.lists import empty_as_null, null_rows
from shardwright.transforms.hashing import hash64, spread_rows
from shardwright.transforms.inputs.formats.tables import TableLayout
from shardwright.transforms.inputs.image_paths import resolve_paths, stems_of
from shardwright.transforms.references import (
    BATCH_ROWS,
    REFERENCE_SCHEMA,
    concat,
    extra_columns,
    keep_rows,
    reject_rows,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason

_ROLES = ("label", "split", "group")
_SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True)
class LabelRules:
    """The rules for joining a table of labels.

    Attributes:
        key: The key of its rows: "id", "path" or "stem".
        root: The folder that paths are relative to.
        columns: The table's columns among label, split and group; others keep their values.
    """

    key: str
    root: str
    columns: tuple[str, ...] = _ROLES

    @classmethod
    def of(cls, table: TableLayout) -> LabelRules:
        return cls(
            table.key,
            table.root,
            tuple(
                name
                for name in _ROLES
                if getattr(table, name) is not None or (name == "split" and table.names_split)
            ),
        )

    def keys_of(self, references: pa.RecordBatch) -> pa.Array:
        """Return each reference's key as text.

        An image inside another file has no path of its own, so its key is its id.
        """
        ids = references.column("id")
        if self.key == "id":
            return ids
        paths, _ = resolve_paths(references.column("uri"), self.root)
        paths = pc.if_else(references.column("offset").is_null(), paths, ids)
        return stems_of(paths) if self.key == "stem" else paths


def spread(
    batch: pa.RecordBatch, keys: pa.Array, num_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (bucket, rows) by a hash of each row's key; `num_buckets` is a power of two."""
    return spread_rows(batch, hash64(keys, "shardwright/labels"), num_buckets)


def join_bucket(
    references: Iterable[pa.RecordBatch], rows: Sequence[pa.RecordBatch], rules: LabelRules
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield a bucket's references joined with its rows of the table, and rejects for both sides.

    Args:
        references: All references of the bucket.
        rows: All rows of the table in the bucket, with the key as column `id`.
        rules: How the table is joined.

    Raises:
        BuildError: Two rows have the same key.
    """
    table = pa.Table.from_batches(rows, schema=None if rows else REFERENCE_SCHEMA)
    table = table.sort_by("id").combine_chunks()
    table_keys = table.column("id").combine_chunks()
    again = pc.unique(table_keys[1:].filter(pc.equal(table_keys[1:], table_keys[:-1]))).to_pylist()
    if again:
        more = ", ..." if len(again) > _SHOWN_KEYS else ""
        fix = "stems must be unique: use --labels-key path" if rules.key == "stem" else ""
        raise BuildError(
            f"the --labels table has more than one row for "
            f"{', '.join(map(repr, again[:_SHOWN_KEYS]))}{more}: {fix or 'keep one row per image'}"
        )
    shared = pa.array([], pa.string())
    if rules.key == "stem":
        references = list(references)
        shared = shared_keys(references, rules)
    unmatched = np.ones(table.num_rows, bool)
    for batch in _gathered(references):
        keys = rules.keys_of(batch)
        found = pc.index_in(keys, value_set=table_keys)
        unmatched[found.drop_null().to_numpy()] = False
        known = ~null_rows(found)
        detail = f"the --labels table has no row for this {rules.key}"
        yield from reject_rows(batch, ~known, RejectReason.MISSING_LABEL, detail)
        ambiguous = known & pc.is_in(keys, value_set=shared).to_numpy(zero_copy_only=False)
        detail = f"several images have this {rules.key}: use --labels-key path"
        yield from reject_rows(batch, ambiguous, RejectReason.AMBIGUOUS_LABEL, detail)
        keep = known & ~ambiguous
        if keep.any():
            names = (*rules.columns, "row", *extra_columns(table.schema))
            matched = table.select(names).take(found.filter(pa.array(keep)))
            yield _with_labels(keep_rows(batch, keep), matched)
    left = table.select(["id", "uri", "row"]).filter(pa.array(unmatched)).to_batches(BATCH_ROWS)
    for row in chain.from_iterable(part.to_pylist() for part in left):
        detail = f"row {row['row']} of the --labels table matches no image of INPUT"
        detail += ": write / in place of its backslashes" * ("\\" in row["id"])
        yield Reject(row["id"], row["uri"], RejectReason.UNMATCHED_LABEL, detail)


def _with_labels(batch: pa.RecordBatch, rows: pa.Table) -> pa.RecordBatch:
    """Return references with the columns of the table's rows; empty splits change none."""
    for name in rows.column_names:
        values = rows.column(name).combine_chunks()
        if name == "split":
            values = pc.coalesce(empty_as_null(values), batch.column(name))
        batch = set_column(batch, name, values)
    return batch


def shared_keys(batches: Sequence[pa.RecordBatch], rules: LabelRules) -> pa.Array:
    """Return the keys that images of several ids share; `batches` hold all images of any key."""
    keys = pa.chunked_array([rules.keys_of(batch) for batch in batches], pa.string())
    ids = pa.chunked_array([batch.column("id") for batch in batches], pa.string())
    table = pa.table({"key": keys, "id": ids})
    counted = table.group_by("key").aggregate([("id", "count_distinct")])
    return (
        counted.filter(pc.greater(counted.column("id_count_distinct"), 1))
        .column("key")
        .combine_chunks()
    )


def _gathered(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield small batches combined into batches of about `BATCH_ROWS` rows."""
    waiting: list[pa.RecordBatch] = []
    num_rows = 0
    for piece in pieces:
        waiting.append(piece)
        num_rows += piece.num_rows
        if num_rows >= BATCH_ROWS:
            yield concat(waiting)
            waiting, num_rows = [], 0
    if waiting:
        yield concat(waiting)
