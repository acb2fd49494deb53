"""Labels of any type: every container of the same values gives the same classes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import shardwright as sw
from shardwright.transforms.inputs.columns import class_texts
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import png_of, write_table
from tests.support.tfrecord_makers import example, records_of, write_records

Labels = Sequence[Any]
Make = Callable[[Path, Labels], int]


def _table(root: Path, labels: Labels) -> pa.Table:
    """Return paths and labels as pandas holds them: a column with a gap is of floats."""
    names = [f"{row}.png" for row in range(len(labels))]
    for row, name in enumerate(names):
        (root / name).write_bytes(png_of(row))
    return pa.table({"file_name": names, "label": pa.array(labels)})


def _build(root: Path, given: str) -> int:
    return build(root / given, root / "out", "--max-rejects", "1")


def as_csv(root: Path, labels: Labels) -> int:
    pa_csv.write_csv(_table(root, labels), root / "table.csv")
    return _build(root, "table.csv")


def as_json_lines(root: Path, labels: Labels) -> int:
    write_table(root / "table.jsonl", _table(root, labels).to_pylist())
    return _build(root, "table.jsonl")


def as_parquet(root: Path, labels: Labels) -> int:
    pq.write_table(_table(root, labels), root / "table.parquet")
    return _build(root, "table.parquet")


def as_metadata(root: Path, labels: Labels) -> int:
    (root / "in").mkdir()
    pa_csv.write_csv(_table(root / "in", labels), root / "in/metadata.csv")
    return _build(root, "in")


def as_hub_parquet(root: Path, labels: Labels) -> int:
    images = pa.array([png_of(row) for row in range(len(labels))])
    pq.write_table(pa.table({"image": images, "label": pa.array(labels)}), root / "hub.parquet")
    return _build(root, "hub.parquet")


def as_webdataset(root: Path, labels: Labels) -> int:
    files = {}
    for row, label in enumerate(labels):
        files[f"{row}.png"] = png_of(row)
        files[f"{row}.json"] = json.dumps({"label": label}).encode()
    pack_tar(root / "a.tar", files)
    return _build(root, "a.tar")


def as_tfrecord(root: Path, labels: Labels) -> int:
    values = [label.encode() if isinstance(label, str) else label for label in labels]
    records = [
        example(image=png_of(row), **({} if label is None else {"label": label}))
        for row, label in enumerate(values)
    ]
    write_records(root / "a.tfrecord", records)
    return _build(root, "a.tfrecord")


def as_records(root: Path, labels: Labels) -> int:
    nan = math.nan if any(isinstance(label, float) for label in labels) else None
    rows = [
        {"image": png_of(row), "label": nan if label is None else label}
        for row, label in enumerate(labels)
    ]
    sw.write(rows, root / "out", max_rejects=1)
    return 0


CONTAINERS: list[Make] = [
    as_csv, as_json_lines, as_parquet, as_metadata, as_hub_parquet, as_webdataset, as_tfrecord,
    as_records,
]  # fmt: skip


def _labels_of(root: Path) -> list[Any]:
    """Return the labels of all records, in the order of the rows."""
    records = records_of(root / "out").values()
    order = {png_of(row): row for row in range(12)}
    found = sorted((order[one["image"][0]], one["label"][0]) for one in records)
    return [label for _, label in found]


@pytest.mark.parametrize("make", CONTAINERS)
@pytest.mark.parametrize("labels", [[1, 2, 4], [0.0, 2.0, 10.0, None], ["0", "2", "10"]])
def test_class_numbers_stay(tmp_path: Path, make: Make, labels: Labels) -> None:
    assert make(tmp_path, labels) == 0
    numbers = [int(label) for label in labels if label is not None]
    assert _labels_of(tmp_path) == numbers
    names = sw.Reader(tmp_path / "out", batch_size=1).schema.class_names
    assert names == tuple(map(str, range(max(numbers) + 1)))


@pytest.mark.parametrize("make", CONTAINERS)
def test_fractions_are_no_classes(tmp_path: Path, make: Make) -> None:
    assert make(tmp_path, [9.25, 10.5, 0.5]) == 0
    assert _labels_of(tmp_path) == [9.25, 10.5, 0.5]
    assert not sw.Reader(tmp_path / "out", batch_size=1).schema.class_names


def test_a_fraction_behind_the_first_rows_is_a_reject(tmp_path: Path) -> None:
    images = pa.array([png_of(0)] * 65)
    labels = pa.array([1.0] * 64 + [1.5])
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "hub.parquet")
    assert _build(tmp_path, "hub.parquet") == 0
    (reject,) = pq.read_table(next((tmp_path / "out/rejects").glob("*.parquet"))).to_pylist()
    assert reject["reason"] == "bad_value"
    assert (
        "row 64 of hub.parquet: the label 1.5 is not a class, where the first" in reject["detail"]
    )


@pytest.mark.parametrize(("labels", "texts", "bad"), [
    ([0, 7, None], ["0", "7", None], []),
    ([0.0, 11.0, math.nan, None], ["0", "11", None, None], []),
    ([1.0, 9.2, math.inf, 2.0**53], ["1", "9.2", "inf", "9.007199254740992e+15"], [1, 2, 3]),
    ([" cat", "", "  ", None], ["cat", None, None, None], []),
    ([True, False], ["true", "false"], []),
])  # fmt: skip
def test_labels_of_each_type(labels: list[Any], texts: list[str | None], bad: list[int]) -> None:
    found, no_class = class_texts(pa.array(labels), "label")
    assert (found.to_pylist(), np.flatnonzero(no_class).tolist()) == (texts, bad)


CELLS = [
    (["['cat', 'dog']", "['cat']", "[]"], ()),
    (['["cat", "dog"]', "cat", ""], ()),
    (["cat|dog", "cat", ""], ()),
    (["cat, dog", "cat", ""], ("--label-separator", ",")),
    (["cat; dog", "cat", ""], ("--label-separator", ";")),
]


@pytest.mark.parametrize(("cells", "options"), CELLS)
def test_several_labels_in_a_cell(tmp_path: Path, cells: Labels, options: Sequence[str]) -> None:
    pa_csv.write_csv(_table(tmp_path, cells), tmp_path / "t.csv")
    schema = ("--schema", "multi_label", *options)
    assert build(tmp_path / "t.csv", tmp_path / "out", *schema) == 0
    records = records_of(tmp_path / "out")
    assert [list(records[f"{row}.png"]["labels"]) for row in range(3)] == [[0, 1], [0], []]


def test_several_class_numbers_in_a_cell(tmp_path: Path) -> None:
    pa_csv.write_csv(_table(tmp_path, ["2|10", "4"]), tmp_path / "t.csv")
    write_table(tmp_path / "t.jsonl", _table(tmp_path, [[2, 10], [4]]).to_pylist())
    for name in ("t.csv", "t.jsonl"):
        assert build(tmp_path / name, tmp_path / f"{name}.out", "--schema", "multi_label") == 0
        records = records_of(tmp_path / f"{name}.out")
        assert [list(records[f"{row}.png"]["labels"]) for row in range(2)] == [[2, 10], [4]]


@pytest.mark.parametrize("cell", ["cat,dog", "cat; dog", "tiger, or cat|dog"])
def test_a_cell_that_may_be_one_label(
    tmp_path: Path, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pa_csv.write_csv(_table(tmp_path, [cell, "cat"]), tmp_path / "t.csv")
    options = ("--schema", "multi_label", "--max-rejects", "0")
    assert build(tmp_path / "t.csv", tmp_path / "out", *options) == 1
    assert f"{cell!r}: give --label-separator with the text between" in capsys.readouterr().err
    options = ("--schema", "multi_label", "--label-separator", "|")
    assert build(tmp_path / "t.csv", tmp_path / "out", *options) == 0


def test_a_separator_without_several_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pa_csv.write_csv(_table(tmp_path, ["cat"]), tmp_path / "t.csv")
    assert build(tmp_path / "t.csv", tmp_path / "out", "--label-separator", ";") == 2
    assert "--label-separator is for features of kind multi_label" in capsys.readouterr().err
