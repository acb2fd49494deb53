"""Class names, and the label (an index into them) of each reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from transforms.references import extra_columns, keep_rows, reject_rows, set_column
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
    names = [line.strip() for line in text.splitlines() if line.strip()]
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
    """A `--labels` table held in memory: the label, split, group and extra features of each id."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches).combine_chunks()
        self._rows = table.to_batches()[0] if table.num_rows else batches[0].slice(0, 0)
        self._ids = self._rows.column("id")

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
        """References of `batch` with the table's columns; an image with no row there is a reject."""
        found = pc.index_in(batch.column("id"), value_set=self._ids)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        yield from reject_rows(batch, ~known, RejectReason.MISSING_LABEL, "the --labels table has no row for this id")
        batch, found = keep_rows(batch, known), found.drop_null()
        for name in ("label", "split", "group", *extra_columns(self._rows.schema)):
            values = self._rows.column(name).take(found)
            if name == "split":  # a table without splits leaves those of the folders
                values = pc.coalesce(values, batch.column("split"))
            batch = set_column(batch, name, values)
        if batch.num_rows:
            yield batch
