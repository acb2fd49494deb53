"""Listed images, and the reference batches made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa

from shardwright.transforms.references import BATCH_ROWS, REFERENCE_SCHEMA
from shardwright.transforms.rejects import Reject, RejectReason

T = TypeVar("T")
B = TypeVar("B")


class ImageRow(NamedTuple):
    """A listed file: the columns of a reference batch that a folder or an archive fills."""

    id: str
    uri: str
    num_bytes: int = 0
    etag: str | None = None
    split: str | None = None
    label: str | None = None
    offset: int | None = None
    row: int = 0

    def reject(self, reason: RejectReason, detail: str) -> Reject:
        """Return the reject of the file."""
        return Reject(self.id, self.uri, reason, detail)


def image_references(rows: Sequence[ImageRow]) -> pa.RecordBatch:
    """Return listed images as one reference batch."""
    columns = dict(zip(ImageRow._fields, zip(*rows, strict=True), strict=True))
    return pa.RecordBatch.from_arrays(
        [
            _column(columns.get(field.name, (None,)), field.type, len(rows))
            for field in REFERENCE_SCHEMA
        ],
        schema=REFERENCE_SCHEMA,
    )


def _column(values: Sequence[object], kind: pa.DataType, num_rows: int) -> pa.Array:
    """Return a column; most hold one value only, such as null, 0 or a folder's label."""
    if values[0] is values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), num_rows)
    return pa.array(values, kind)


def in_batches(
    rows: Iterable[T | Reject], make: Callable[[Sequence[T]], B]
) -> Iterator[B | Reject]:
    """Yield the batches that `make` returns for up to `BATCH_ROWS` rows, and rejects unchanged."""
    pending: list[T] = []
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            yield make(pending)
            pending = []
    if pending:
        yield make(pending)
