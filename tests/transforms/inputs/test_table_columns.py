"""Table columns: their features, texts of roles, and sizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import BuildError
from shardwright.schemas.ready import image_classification
from shardwright.transforms.features.lists import empty_as_null
from shardwright.transforms.features.rows import settle_references
from shardwright.transforms.inputs.columns import (
    as_text,
    canonical_splits,
    extra_feature,
    extra_type,
)
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES
from shardwright.transforms.inputs.formats.tables import settle_sizes
from shardwright.transforms.references import set_column
from tests.support.helpers import TINY_PNG, references, rejects_of, rows_of
from tests.support.listing_cases import write_files
from tests.support.listings import detect, list_source

INTS, FLOATS, BYTES = pa.int64(), pa.float32(), pa.binary()
TEXTS = (pa.string(), pa.large_string(), pa.string_view())


@pytest.mark.parametrize(("kind", "types"), [
    (INTS, (pa.int8(), pa.uint64(), pa.bool_(), pa.dictionary(pa.int32(), INTS))),
    (FLOATS, (pa.float16(), pa.float32(), pa.float64())),
    (BYTES, (*TEXTS, pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.null(),
             pa.dictionary(pa.int32(), pa.string()))),
    (pa.list_(INTS), (pa.list_(pa.int32()), pa.large_list(INTS), pa.list_(pa.int16(), 2))),
    (pa.list_(FLOATS), (pa.list_(pa.float64()),)),
    (pa.list_(BYTES), (pa.list_(pa.string()), pa.list_(pa.null()))),
])  # fmt: skip
def test_types_become_features(kind: pa.DataType, types: Sequence[pa.DataType]) -> None:
    """Their values are settled by `transforms/features`."""
    assert [extra_type(each, "n") for each in types] == [kind] * len(types)


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
      for kind in TEXTS),
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
