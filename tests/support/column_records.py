"""Records of every kind of feature, for the tests of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.format.example import varint
from shardwright.format.schema import Feature, FeatureKind
from shardwright.reader.columns import ColumnReader
from shardwright.schemas.ready import image_classification
from tests.support import damage

CLASSES = ("ape", "bee", "Löwe")
EXTRAS = (
    Feature("count", FeatureKind.INT64),
    Feature("ratio", FeatureKind.FLOAT32),
    Feature("caption", FeatureKind.BYTES),
    Feature("boxes", FeatureKind.INT64, shape=(None,)),
    Feature("scores", FeatureKind.FLOAT32, shape=(None,)),
    Feature("tags", FeatureKind.BYTES, shape=(None,)),
)
SCHEMA = image_classification(extras=EXTRAS).with_class_names(CLASSES)
GARDEN = image_classification(feature_names="model-garden").with_class_names(CLASSES)
RECORD: dict[str, Any] = {
    "image": [bytes(range(256))], "id": ["a/Löwe.png".encode()], "label": [2], "count": [2**40],
    "ratio": [0.5], "caption": ["schön".encode()], "boxes": [1, 2, 3], "scores": [0.25, 0.5],
    "tags": [b"a", b"b"],
}  # fmt: skip


def fill(
    columns: ColumnReader,
    records: Sequence[bytes],
    kept: Sequence[bool] | None = None,
    *,
    pad: bool = False,
) -> dict[str, Any]:
    """Return the batch of these records."""
    store = columns.allocate(len(records))
    for row, record in enumerate(records):
        columns.fill(store, row, record)
    return columns.finish(store, None if kept is None else np.array(kept), pad=pad)


def plain(batch: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return a batch as lists."""
    return {
        name: [row.tolist() if isinstance(row, np.ndarray) else row for row in column]
        for name, column in batch.items()
    }


def record(**changes: Any) -> bytes:
    """Encode `RECORD` with other features; None leaves one out."""
    features = {**RECORD, **changes}
    return damage.example({name: values for name, values in features.items() if values is not None})


def kindless_entry(name: str) -> bytes:
    """Return a map entry of a Feature of no kind, not even an empty list."""
    inner = b"\x0a" + varint(len(name)) + name.encode() + b"\x12\x00"
    return b"\x0a" + varint(len(inner)) + inner
