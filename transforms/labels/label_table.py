"""Join references with a table of labels.

Rows and references meet in buckets by a hash of their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.transforms.features.lists import empty_as_null
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
_NO_KEYS = pa.array([], pa.string())


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


class LabelTable:
    """A table of labels in memory: the label, split, group and extra features of each key.

    Args:
        batches: The table's rows in any order, with the key as column `id`.
        rules: How the table is joined.

    Raises:
        BuildError: Two rows have the same key.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], rules: LabelRules) -> None:
        self._rules = rules
        rows = pa.Table.from_batches(batches, schema=None if batches else REFERENCE_SCHEMA)
        self._rows = rows.sort_by("id").combine_chunks()
        self._keys = self._rows.column("id").combine_chunks()
        self._unmatched = np.ones(self._rows.num_rows, bool)
        again = (
            pc.unique(self._keys[1:].filter(pc.equal(self._keys[1:], self._keys[:-1]))).to_pylist()
            if len(self._keys)
            else []
        )
        if again:
            shown = ", ".join(map(repr, again[:_SHOWN_KEYS])) + (
                ", ..." if len(again) > _SHOWN_KEYS else ""
            )
            fix = "stems must be unique: use --labels-key path" if rules.key == "stem" else ""
            raise BuildError(
                f"the --labels table has more than one row for {shown}: "
                f"{fix or 'keep one row per image'}"
            )

    def unmatched(self) -> Iterator[Reject]:
        """Yield a reject for each row of the table that no reference had in `join`."""
        rows = self._rows.filter(pa.array(self._unmatched)).select(["id", "uri", "row"])
        for batch in rows.to_batches(BATCH_ROWS):
            for key, uri, row in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                yield Reject(
                    key,
                    uri,
                    RejectReason.UNMATCHED_LABEL,
                    f"row {row} of the --labels table matches no image of INPUT"
                    + ": write / in place of its backslashes" * ("\\" in key),
                )

    def join(
        self, references: pa.RecordBatch, shared: pa.Array = _NO_KEYS
    ) -> Iterator[pa.RecordBatch | Reject]:
        """Yield the references with the table's columns, and rejects for those without a row.

        An empty split keeps the split of the folder.

        Args:
            references: Some of the references.
            shared: Keys of several images, which are rejected as ambiguous.
        """
        key, keys = self._rules.key, self._rules.keys_of(references)
        found = pc.index_in(keys, value_set=self._keys)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        self._unmatched[found.drop_null().to_numpy()] = False
        yield from reject_rows(
            references,
            ~known,
            RejectReason.MISSING_LABEL,
            f"the --labels table has no row for this {key}",
        )
        ambiguous = known & pc.is_in(keys, value_set=shared).to_numpy(zero_copy_only=False)
        detail = f"several images have this {key}: use --labels-key path"
        yield from reject_rows(references, ambiguous, RejectReason.AMBIGUOUS_LABEL, detail)
        keep = known & ~ambiguous
        if keep.any():
            yield self._join_rows(keep_rows(references, keep), found.filter(pa.array(keep)))

    def _join_rows(self, batch: pa.RecordBatch, found: pa.Array) -> pa.RecordBatch:
        """Return references with the columns of the table's rows with these numbers."""
        for name in (*self._rules.columns, "row", *extra_columns(self._rows.schema)):
            values = self._rows.column(name).take(found).combine_chunks()
            batch = set_column(
                batch,
                name,
                pc.coalesce(empty_as_null(values), batch.column(name))
                if name == "split"
                else values,
            )
        return batch


def spread(
    batch: pa.RecordBatch, keys: pa.Array, num_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (bucket, rows) by a hash of each row's key; `num_buckets` is a power of two."""
    return spread_rows(batch, hash64(keys, "shardwright/labels"), num_buckets)


def join_bucket(
    references: Iterable[pa.RecordBatch], rows: Sequence[pa.RecordBatch], rules: LabelRules
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield a bucket's references joined with its rows of the table, and rejects for both sides.

    Raises:
        BuildError: Two rows have the same key.
    """
    table = LabelTable(rows, rules)
    shared = _NO_KEYS
    if rules.key == "stem":
        references = list(references)
        shared = shared_keys(references, rules)
    for batch in _gathered(references):
        yield from table.join(batch, shared)
    yield from table.unmatched()


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
