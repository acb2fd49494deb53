"""Table columns as features: the types of tf.Example, and a reject for each row without room."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import BuildError
from shardwright.schemas.image_classification import image_classification
from shardwright.transforms.features.lists import empty_as_null
from shardwright.transforms.features.rows import settle_references
from shardwright.transforms.inputs.columns import (
    canonical_splits,
    extra_feature,
    extra_type,
)
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES
from shardwright.transforms.inputs.formats.tables import settle_sizes
from shardwright.transforms.inputs.label_values import as_text
from shardwright.transforms.references import set_column
from shardwright.transforms.rejects import Reject
from tests.support.helpers import TINY_PNG, references, rejects_of, rows_of
from tests.support.listing_cases import write_files
from tests.support.listings import detect, list_source

INF, NAN = float("inf"), pytest.approx(float("nan"), nan_ok=True)
INTS, FLOATS, BYTES = pa.int64(), pa.float32(), pa.binary()


def settle(batch: pa.RecordBatch) -> list[pa.RecordBatch | Reject]:
    """Return references with the features of a table's columns where the user declares none."""
    extras = [field for field in batch.schema if field.name.startswith("x/")]
    features = tuple(extra_feature(field.name.removeprefix("x/"), field.type) for field in extras)
    return list(settle_references(batch, image_classification(extras=features)))


def settled(column: pa.Array) -> tuple[dict[str, Any], dict[str, str], pa.DataType | None]:
    """Return id -> value, id -> reject detail, and the column's type, of rows "0", "1", ..."""
    batch = set_column(references([str(row) for row in range(len(column))]), "x/n", column)
    parts = settle(batch)
    kinds = {part.schema.field("x/n").type for part in parts if isinstance(part, pa.RecordBatch)}
    values = {row["id"]: row["x/n"] for row in rows_of(parts)}
    details = {reject.id: reject.detail for reject in rejects_of(parts)}
    return values, details, kinds.pop() if kinds else None


@pytest.mark.parametrize(("column", "kind", "values"), [
    (pa.array([1, -1]), INTS, [1, -1]),
    (pa.array([True, False]), INTS, [1, 0]),
    (pa.array([0, 2**63 - 1], pa.uint64()), INTS, [0, 2**63 - 1]),
    (pa.array([5, 7]).dictionary_encode(), INTS, [5, 7]),
    (pa.array([0.5, None, INF]), FLOATS, [0.5, NAN, INF]),
    (pa.array([1.5, None], pa.float16()), FLOATS, [1.5, NAN]),
    (pa.array(["a", None]).dictionary_encode(), BYTES, [b"a", b""]),
    (pa.array([b"\xff", None], pa.large_binary()), BYTES, [b"\xff", b""]),
    *((pa.array([b"\xff"], kind), BYTES, [b"\xff"]) for kind in (pa.binary_view(), pa.binary(1))),
    *((pa.array(["é", None], kind), BYTES, ["é".encode(), b""])
      for kind in (pa.string(), pa.large_string(), pa.string_view())),
    (pa.nulls(2), BYTES, [b"", b""]),
    (pa.array([[1], [2]], pa.large_list(pa.int32())), pa.list_(INTS), [[1], [2]]),
    (pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)), pa.list_(INTS), [[1, 2], [3, 4]]),
    (pa.array([["a", None], None]), pa.list_(BYTES), [[b"a", b""], []]),
    (pa.array([[0.5, None]]), pa.list_(FLOATS), [[0.5, NAN]]),
    (pa.array([[]], pa.list_(pa.null())), pa.list_(BYTES), [[]]),
    (pa.array([[9], [1, 2], None, [3]]).slice(1), pa.list_(INTS), [[1, 2], [], [3]]),
])  # fmt: skip
def test_values_become_features(column: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    assert extra_type(column.type, "n") == kind
    assert settled(column) == ({str(row): value for row, value in enumerate(values)}, {}, kind)


EMPTY = "'n' has no value, and an integer feature needs one"
TOO_BIG = "'n' is {}, which does not fit a signed 64-bit integer"
TOO_FAR = "'n' is {}, which does not fit a 32-bit float"


@pytest.mark.parametrize(("column", "values", "details"), [
    (pa.nulls(2, pa.bool_()), [], {0: EMPTY, 1: EMPTY}),
    (pa.array([1, 2**63, None, 2**64 - 1], pa.uint64()), [1], {1: TOO_BIG, 2: EMPTY, 3: TOO_BIG}),
    (pa.array([[1], [1, None], None, [2**63]], pa.list_(pa.uint64())), [[1], []],
     {1: EMPTY, 3: TOO_BIG}),
    (pa.array([1e300, 1.0, -1e39, INF]), [1.0, INF], {0: TOO_FAR, 2: TOO_FAR}),
    (pa.array([[1.0], [1e300, 2.0]]), [[1.0]], {1: TOO_FAR}),
    (pa.array([[0, 0], [1, None], [2, 2]], pa.list_(pa.int32(), 2)), [[0, 0], [2, 2]], {1: EMPTY}),
])  # fmt: skip
def test_rows_without_room(column: pa.Array, values: list[Any], details: dict[int, str]) -> None:
    kept, rejected, _ = settled(column)
    assert list(kept.values()) == values
    assert rejected == {
        str(row): f"row {row}: {detail.format(column[row].as_py())}"
        for row, detail in details.items()
    }


def test_a_row_that_two_columns_reject_is_counted_once() -> None:
    first, second = pa.array([None, 1, 1, None], INTS), pa.array([None, 1, None, 1], INTS)
    batch = set_column(references(list("abcd")), "x/{n}", first)
    parts = settle(set_column(batch, "x/m", second))
    assert [row["id"] for row in rows_of(parts)] == ["b"]
    told = "row {}: {!r} has no value, and an integer feature needs one"
    assert sorted(reject.detail for reject in rejects_of(parts)) == [
        told.format(0, "{n}"), told.format(2, "m"), told.format(3, "{n}")
    ]  # fmt: skip


WHEN = ("when", "column 'when' is of type .*, which tf.Example cannot hold: cast it to text or")


@pytest.mark.parametrize(("name", "told", "kind"), [
    *((*WHEN, kind) for kind in (
        pa.timestamp("s"), pa.date32(), pa.duration("s"), pa.decimal128(5, 2),
        pa.struct([("a", INTS)]), pa.map_(pa.string(), INTS), pa.list_(pa.timestamp("s")),
    )),
    *(("boxes", 'for boxes, give schema="detection"', kind) for kind in (
        pa.list_(pa.list_(INTS)), pa.struct([("bbox", pa.list_(INTS))]),
    )),
])  # fmt: skip
def test_types_without_a_feature(name: str, told: str, kind: pa.DataType) -> None:
    with pytest.raises(BuildError, match=told):
        extra_type(kind, name)


@pytest.mark.parametrize(("column", "texts"), [
    (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    (pa.array([7, None]).dictionary_encode(), ["7", None]),
    (pa.array([10, -2, None]), ["10", "-2", None]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (pa.array([True]), ["true"]), (pa.nulls(1), [None]),
    *((pa.array(["a", None], kind), ["a", None])
      for kind in (pa.string(), pa.string_view(), pa.large_string())),
])  # fmt: skip
def test_text_of_a_role(column: pa.Array, texts: list[str | None]) -> None:
    assert as_text(column, "c").equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("column", [pa.array([0.5]), pa.array([b"a"]), pa.array([["a"]])])
def test_no_text_of_a_role(column: pa.Array) -> None:
    told = "column 'c' is of type .*; ids, paths, labels and splits must be text or whole numbers"
    with pytest.raises(BuildError, match=told):
        as_text(column, "c")


def test_split_names_are_spelled_one_way() -> None:
    names = ["Train", " VAL", "valid", "dev", "testing", "holdout", "My Split", "", None]
    spelled = ["train", *["validation"] * 3, "test", "holdout", "My Split", "", None]
    assert canonical_splits(pa.array(names)).to_pylist() == spelled


def test_white_space_is_no_label() -> None:
    labels = pa.array([" cat ", "", "  ", "\t", None, "two words"])
    assert empty_as_null(labels).to_pylist() == ["cat", None, None, None, None, "two words"]


@pytest.mark.parametrize(("kind", "last", "reason"), [
    (pa.int64(), -3, "bad_value"), (pa.int32(), -3, "bad_value"),
    (pa.uint64(), 2**64 - 1, "too_large"),
])  # fmt: skip
def test_sizes(kind: pa.DataType, last: int, reason: str) -> None:
    sizes = pa.array([5, 0, None, MAX_IMAGE_BYTES, MAX_IMAGE_BYTES + 1, last], kind)
    parts = list(settle_sizes(set_column(references(list("abcdef")), "num_bytes", sizes)))
    assert {row["id"]: row["num_bytes"] for row in rows_of(parts)} == {"a": 5, "d": MAX_IMAGE_BYTES}
    reasons = {"b": "empty_file", "c": "bad_value", "e": "too_large", "f": reason}
    assert {reject.id: str(reject.reason) for reject in rejects_of(parts)} == reasons
    assert rejects_of(parts)[0].detail == "row 2: the size must be a number of bytes, got None"


@pytest.mark.long
def test_thousands_of_columns(tmp_path: Path) -> None:
    seconds_for(tmp_path, 10)  # imports
    few, many = (seconds_for(tmp_path, number) for number in (1000, 8000))
    # Up to 11 times as long, where steps for the pairs of columns take 40 times as long.
    assert many < 25 * few


def seconds_for(folder: Path, number: int) -> float:
    """Return the seconds of the processor for a table with so many columns."""
    names = [f"c{index}" for index in range(number)]
    row = {"image": "a.png"} | {name: index for index, name in enumerate(names)}
    text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
    path = write_files(folder / str(number), {"t.csv": text, "a.png": TINY_PNG}) / "t.csv"
    start = time.process_time()
    features = tuple(extra_feature(name, pa.int64()) for name in names)
    schema = image_classification(extras=features)
    batches: list[Any] = list(list_source(detect(str(path))))
    [found] = [row for batch in batches for row in rows_of(settle_references(batch, schema))]
    assert [found[f"x/{name}"] for name in names] == list(range(number))
    return time.process_time() - start
