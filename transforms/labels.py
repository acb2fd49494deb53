"""Class names, and the label (an index into them) of each reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from transforms.references import REFERENCE_SCHEMA, extra_columns, keep_rows, reject_rows, set_column
from transforms.rejects import Reject, RejectReason

LABEL_INDEX = "label_index"
MAX_CLASSES = 1_000_000


def label_names(batch: pa.RecordBatch) -> frozenset[str]:
    """The distinct label texts of a batch."""
    return frozenset(pc.unique(batch.column("label")).drop_null().to_pylist())


def order_class_names(names: Iterable[str], *, integers: bool) -> tuple[str, ...]:
    """Class names in label order: sorted as text, or by value where the source's labels are integers.

    Raises:
        BuildError: So many that they are no classes; or a name that a labels file, one name a line, cannot hold.
    """
    distinct = set(names)
    if len(distinct) > MAX_CLASSES:
        raise BuildError(
            f"there are {len(distinct)} different labels, more than {MAX_CLASSES}: is --label-column the right column? "
            "A column that is no class becomes a feature when it is not the label column"
        )
    for name in distinct:
        if "\n" in name or "\r" in name:
            raise BuildError(f"class name {name!r} has a line break in it, which labels.txt cannot hold: rename the class")
    return tuple(sorted(distinct, key=int) if integers else sorted(distinct))


def read_class_names(text: str, path: str) -> tuple[str, ...]:
    """The class names of a `--class-names` file: one a line, in label order.

    Raises:
        UsageError: A name stands twice, or there is none.
    """
    names = [line.strip() for line in text.removeprefix("\ufeff").split("\n") if line.strip()]  # not splitlines: TFDS splits so
    doubled = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if doubled or not names:
        raise UsageError(f"--class-names {path}: " + (f"{doubled!r} stands there twice" if doubled else "no names in it"))
    return tuple(names)


def index_labels(batch: pa.RecordBatch, class_names: Sequence[str]) -> Iterator[pa.RecordBatch | Reject]:
    """References with `LABEL_INDEX` (int64, an index into `class_names`); no classes at all means an unlabeled dataset."""
    if not class_names:
        yield set_column(batch, LABEL_INDEX, pa.nulls(batch.num_rows, pa.int64()))
        return
    labels = batch.column("label")
    missing = labels.is_null().to_numpy(zero_copy_only=False)
    yield from reject_rows(batch, missing, RejectReason.MISSING_LABEL, "other images have a label, this one has none")
    indices = pc.index_in(labels, value_set=pa.array(class_names, pa.string())).cast(pa.int64())
    known = indices.is_valid().to_numpy(zero_copy_only=False)
    yield from reject_rows(batch, ~known & ~missing, RejectReason.UNKNOWN_LABEL, "label {label!r} is not a known class name")
    kept = keep_rows(set_column(batch, LABEL_INDEX, indices), known)
    if kept.num_rows:
        yield kept


class LabelTable:
    """A `--labels` table held in memory: the label, split, group and extra features of each id.

    Attributes:
        broken_lines: Rejects for what has no id, so that no image can be told of it.

    Raises:
        BuildError: Two of its rows are for one id.
    """

    def __init__(self, parts: Sequence[pa.RecordBatch | Reject]) -> None:
        batches = [part for part in parts if isinstance(part, pa.RecordBatch)]
        rejects = [part for part in parts if isinstance(part, Reject)]
        self.broken_lines = [reject for reject in rejects if not reject.id]
        self._faults = {reject.id: reject for reject in rejects if reject.id}
        self._rows = pa.Table.from_batches(batches, schema=None if batches else REFERENCE_SCHEMA).combine_chunks()
        counts = pc.value_counts(self._rows.column("id"))
        doubled = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        if doubled:
            raise BuildError(
                f"the --labels table has more than one row for {min(doubled)!r} and {len(doubled)} ids in all: keep one row an image"
            )

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
        """References of `batch` with the table's columns; an image whose row is missing or faulty is a reject.

        A label, split or group column that the table does not have, and an empty split, leave what the folders say.
        """
        found = pc.index_in(batch.column("id"), value_set=self._rows.column("id").combine_chunks())
        known = found.is_valid().to_numpy(zero_copy_only=False)
        for reject in reject_rows(batch, ~known, RejectReason.MISSING_LABEL, "the --labels table has no row for this id"):
            fault = self._faults.get(reject.id)
            yield reject if fault is None else replace(reject, reason=fault.reason, detail=f"the --labels table: {fault.detail}")
        batch, found = keep_rows(batch, known), found.drop_null()
        if not batch.num_rows:
            return
        for name in ("label", "split", "group", *extra_columns(self._rows.schema)):
            column = self._rows.column(name)
            if name in REFERENCE_SCHEMA.names and column.null_count == len(column):
                continue
            values = column.take(found).combine_chunks()
            if name == "split":
                values = pc.coalesce(values, batch.column("split"))
            batch = set_column(batch, name, values)
        yield batch
