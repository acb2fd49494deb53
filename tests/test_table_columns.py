"""Table columns as features: the three types of tf.Example, and a reject for each row that has no room in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.image_classification import image_classification
from shardwright.errors import BuildError
from tests.helpers import references, rejects_of, rows_of
from transforms.features.rows import settle_references
from transforms.inputs.file_rules import MAX_IMAGE_BYTES
from transforms.inputs.tables.table_columns import (
    as_text,
    canonical_splits,
    empty_as_null,
    extra_feature,
    extra_type,
    settle_sizes,
)
from transforms.references import set_column
from transforms.rejects import Reject

NAN = pytest.approx(float("nan"), nan_ok=True)


def settle(batch: pa.RecordBatch) -> list[pa.RecordBatch | Reject]:
    """References with the features that a table's columns are where the user declares none."""
    extras = [field for field in batch.schema if field.name.startswith("x/")]
    features = tuple(extra_feature(field.name.removeprefix("x/"), field.type) for field in extras)
    return list(settle_references(batch, image_classification(extras=features)))


def settled(column: pa.Array) -> tuple[dict[str, Any], dict[str, str], pa.DataType | None]:
    """id -> value, id -> reject detail, and the column's type, of rows called "0", "1", ..."""
    batch = set_column(references([str(row) for row in range(len(column))]), "x/n", column)
    parts = settle(batch)
    kinds = {part.schema.field("x/n").type for part in parts if isinstance(part, pa.RecordBatch)}
    values = {row["id"]: row["x/n"] for row in rows_of(parts)}
    return (
        values,
        {reject.id: reject.detail for reject in rejects_of(parts)},
        kinds.pop() if kinds else None,
    )


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pa.array([1, -1]), pa.int64(), [1, -1]),
        (pa.array([1, 255], pa.uint8()), pa.int64(), [1, 255]),
        (pa.array([True, False]), pa.int64(), [1, 0]),
        (pa.array([0, 2**63 - 1], pa.uint64()), pa.int64(), [0, 2**63 - 1]),
        (pa.array([5, 7]).dictionary_encode(), pa.int64(), [5, 7]),
        (pa.array([0.5, None, float("inf")]), pa.float32(), [0.5, NAN, float("inf")]),
        (pa.array([1.5], pa.float32()), pa.float32(), [1.5]),
        (pa.array([1.5, None], pa.float16()), pa.float32(), [1.5, NAN]),
        (pa.array(["a", None, ""]), pa.binary(), [b"a", b"", b""]),
        (pa.array(["a", None]).dictionary_encode(), pa.binary(), [b"a", b""]),
        (pa.array(["é"], pa.large_string()), pa.binary(), ["é".encode()]),
        (pa.array(["é"], pa.string_view()), pa.binary(), ["é".encode()]),
        (pa.array([b"\xff", None], pa.large_binary()), pa.binary(), [b"\xff", b""]),
        (pa.array([b"\xff"], pa.binary_view()), pa.binary(), [b"\xff"]),
        (pa.array([b"abc"], pa.binary(3)), pa.binary(), [b"abc"]),
        (pa.nulls(2), pa.binary(), [b"", b""]),
        (pa.array([[1, 2], None, []]), pa.list_(pa.int64()), [[1, 2], [], []]),
        (pa.array([[1], [2]], pa.large_list(pa.int32())), pa.list_(pa.int64()), [[1], [2]]),
        (
            pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
            pa.list_(pa.int64()),
            [[1, 2], [3, 4]],
        ),
        (pa.array([["a", None], None]), pa.list_(pa.binary()), [[b"a", b""], []]),
        (pa.array([[0.5, None]]), pa.list_(pa.float32()), [[0.5, NAN]]),
        (pa.array([[]], pa.list_(pa.null())), pa.list_(pa.binary()), [[]]),
        (pa.array([[9], [1, 2], None, [3]]).slice(1), pa.list_(pa.int64()), [[1, 2], [], [3]]),
    ],
)
def test_values_become_features(column: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    assert extra_type(column.type, "n") == kind
    assert settled(column) == ({str(row): value for row, value in enumerate(values)}, {}, kind)


EMPTY = "'n' has no value, and an integer feature needs one"
TOO_BIG = "'n' is {}, which does not fit a signed 64-bit integer"
TOO_FAR = "'n' is {}, which does not fit a 32-bit float"


@pytest.mark.parametrize(
    ("column", "values", "details"),
    [
        (pa.array([1, None, 3]), [1, 3], {1: EMPTY}),
        (pa.array([True, None]), [1], {1: EMPTY}),
        (pa.array([None, None], pa.int64()), [], {0: EMPTY, 1: EMPTY}),
        (
            pa.array([1, 2**63, None, 2**64 - 1], pa.uint64()),
            [1],
            {1: TOO_BIG, 2: EMPTY, 3: TOO_BIG},
        ),
        (
            pa.array([[1], [1, None], None, [2**63]], pa.list_(pa.uint64())),
            [[1], []],
            {1: EMPTY, 3: TOO_BIG},
        ),
        (
            pa.array([1e300, 1.0, -1e39, float("inf")]),
            [1.0, float("inf")],
            {0: TOO_FAR, 2: TOO_FAR},
        ),
        (pa.array([[1.0], [1e300, 2.0]]), [[1.0]], {1: TOO_FAR}),
        (
            pa.array([[0, 0], [1, None], [2, 2]], pa.list_(pa.int32(), 2)),
            [[0, 0], [2, 2]],
            {1: EMPTY},
        ),
    ],
)
def test_rows_without_room_are_rejects(
    column: pa.Array, values: list[Any], details: dict[int, str]
) -> None:
    kept, rejected, _ = settled(column)
    assert list(kept.values()) == values
    assert rejected == {
        str(row): f"row {row}: {detail.format(column[row].as_py())}"
        for row, detail in details.items()
    }


def test_one_reject_a_row_and_a_name_with_braces() -> None:
    """A row that two columns refuse is counted once."""
    batch = set_column(references(["a", "b"]), "x/{n}", pa.array([None, 1], pa.int64()))
    parts = settle(set_column(batch, "x/m", pa.array([None, 1], pa.int64())))
    assert [reject.detail for reject in rejects_of(parts)] == [
        "row 0: '{n}' has no value, and an integer feature needs one"
    ]
    assert [row["id"] for row in rows_of(parts)] == ["b"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"), pa.date32(), pa.time64("us"), pa.duration("s"), pa.decimal128(5, 2), pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()), pa.list_(pa.list_(pa.int64())), pa.list_(pa.timestamp("s")),
    ],
)  # fmt: skip
def test_types_without_a_feature(kind: pa.DataType) -> None:
    with pytest.raises(
        BuildError,
        match=r"column 'when' is of type .*, which no tf.Example feature holds: cast it to text or a number",
    ):
        extra_type(kind, "when")


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["a", None]), ["a", None]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([7, None]).dictionary_encode(), ["7", None]),
        (pa.array([10, -2, None]), ["10", "-2", None]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True]), ["true"]),
        (pa.nulls(1), [None]),
        (pa.array(["a"], pa.string_view()), ["a"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
    ],
)
def test_text_of_a_role(column: pa.Array, texts: list[str | None]) -> None:
    assert as_text(column, "c").equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize(
    "column",
    [pa.array([0.5]), pa.array([b"a"]), pa.array([["a"]]), pa.array([1], pa.timestamp("s"))],
)
def test_no_text_of_a_role(column: pa.Array) -> None:
    with pytest.raises(
        BuildError,
        match=r"column 'c' is of type .*; ids, paths, labels and splits are text or whole numbers",
    ):
        as_text(column, "c")


def test_split_names_are_spelled_one_way() -> None:
    names = ["Train", " VAL", "valid", "dev", "testing", "holdout", "My Split", "", None]
    spelled = [
        "train",
        "validation",
        "validation",
        "validation",
        "test",
        "holdout",
        "My Split",
        "",
        None,
    ]
    assert canonical_splits(pa.array(names)).to_pylist() == spelled


def test_white_space_is_no_label() -> None:
    assert empty_as_null(pa.array([" cat ", "", "  ", "\t", None, "two words"])).to_pylist() == [
        "cat",
        None,
        None,
        None,
        None,
        "two words",
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int32()])
def test_sizes(kind: pa.DataType) -> None:
    sizes = [5, 0, None, MAX_IMAGE_BYTES, MAX_IMAGE_BYTES + 1] + (
        [2**64 - 1] if kind == pa.uint64() else [-3]
    )
    batch = set_column(references(list("abcdef")), "num_bytes", pa.array(sizes, kind))
    parts = list(settle_sizes(batch))
    assert {row["id"]: row["num_bytes"] for row in rows_of(parts)} == {"a": 5, "d": MAX_IMAGE_BYTES}
    last = "too_large" if kind == pa.uint64() else "bad_value"
    assert {reject.id: str(reject.reason) for reject in rejects_of(parts)} == {
        "b": "empty_file",
        "c": "bad_value",
        "e": "too_large",
        "f": last,
    }
    assert rejects_of(parts)[0].detail == "row 2: the size is None, which is no number of bytes"


def test_every_row_goes_one_way() -> None:
    """Rejects and rows add up, whatever mix of faults a batch has."""
    rng = np.random.default_rng(0)
    numbers = pa.array(
        [None if n % 7 == 0 else int(n) for n in rng.integers(0, 2**64, 1000, np.uint64)],
        pa.uint64(),
    )
    batch = set_column(references([str(n) for n in range(1000)]), "x/a", numbers)
    batch = set_column(
        batch, "x/b", pa.array([None if n < 0.1 else n * 1e39 for n in rng.random(1000)])
    )
    parts = settle(batch)
    ids = [row["id"] for row in rows_of(parts)] + [reject.id for reject in rejects_of(parts)]
    assert sorted(ids) == sorted(str(n) for n in range(1000))
