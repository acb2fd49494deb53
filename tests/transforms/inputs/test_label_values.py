"""Labels of any type: every container of the same values gives the same classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import shardwright as sw
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import class_texts
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import png_of
from tests.support.listing_cases import Listing, listing, write_files
from tests.support.tfrecord_makers import example, records_of

Labels = Sequence[Any]


def csv_of(labels: Labels) -> bytes:
    """Return a table as pandas writes it: a column with a gap is of floats."""
    sink = pa.BufferOutputStream()
    names = [f"{row}.png" for row in range(len(labels))]
    pa_csv.write_csv(pa.table({"file_name": names, "label": pa.array(labels)}), sink)
    return bytes(sink.getvalue())


def as_records(labels: Labels) -> list[bytes]:
    values = [label.encode() if isinstance(label, str) else label for label in labels]
    return [
        example(image=png_of(row), **({} if label is None else {"label": label}))
        for row, label in enumerate(values)
    ]


def inputs_of(labels: Labels) -> dict[str, Any]:
    """Return the same labels in each container, by the path of INPUT."""
    column, images = pa.array(labels), [png_of(row) for row in range(len(labels))]
    table = pa.table({"file_name": [f"{row}.png" for row in range(len(labels))], "label": column})
    samples = {f"{row}.json": {"label": label} for row, label in enumerate(column.to_pylist())}
    files = {f"{row}.png": data for row, data in enumerate(images)}
    return {
        "t.csv": {**files, "t.csv": csv_of(labels)},
        "t.jsonl": {**files, "t.jsonl": table.to_pylist()},
        "t.parquet": {**files, "t.parquet": table},
        "": {**files, "metadata.csv": csv_of(labels)},
        "hub.parquet": {"hub.parquet": pa.table({"image": images, "label": column})},
        "a.tar": {"a.tar": {
            name: content for row in range(len(labels)) for name, content in (
                (f"{row}.png", images[row]), (f"{row}.json", samples[f"{row}.json"]))
        }},
        "a.tfrecord": {"a.tfrecord": as_records(labels)},
    }  # fmt: skip


by_container = pytest.mark.parametrize("container", inputs_of([0]))
NUMBERS: list[Labels] = [[1, 2, 4], [0.0, 2.0, 10.0, None], ["0", "2", "10"]]


def listed(root: Path, container: str, labels: Labels) -> Listing:
    write_files(root / "in", inputs_of(labels)[container])
    return listing(root / "in" / container, spool=Folder(f"{root}/spool"))


@by_container
@pytest.mark.parametrize("labels", NUMBERS)
def test_class_numbers_stay(tmp_path: Path, container: str, labels: Labels) -> None:
    texts = [None if label is None else str(int(label)) for label in labels]
    assert listed(tmp_path, container, labels).of("label") == [(text,) for text in texts]


@by_container
def test_fractions_are_no_classes(tmp_path: Path, container: str) -> None:
    found = listed(tmp_path, container, [9.25, 10.5, 0.5])
    assert found.of("label", "x/label") == [(None, 9.25), (None, 10.5), (None, 0.5)]


@pytest.mark.parametrize(("labels", "found", "names"), [
    ([1, 2, 4], [1, 2, 4], "01234"), ([0.0, 2.0, math.nan], [0, 2], "012"),
    (["0", "2", "1"], [0, 2, 1], "012"), ([9.25, 10.5, 0.5], [9.25, 10.5, 0.5], ""),
])  # fmt: skip
def test_labels_of_python_records(
    tmp_path: Path, labels: Labels, found: list[float], names: str
) -> None:
    rows = [{"image": png_of(row), "label": label} for row, label in enumerate(labels)]
    sw.write(rows, tmp_path / "out", max_rejects=1)
    records = {one["image"][0]: one["label"] for one in records_of(tmp_path / "out").values()}
    assert [records[png_of(row)] for row in range(len(found))] == [[label] for label in found]
    assert sw.Reader(tmp_path / "out", batch_size=1).schema.class_names == tuple(names)


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


MULTI = ("--schema", "multi_label")


def build_cells(root: Path, cells: Labels, *options: str) -> int:
    rows = [{"file_name": f"{row}.png", "label": cell} for row, cell in enumerate(cells)]
    name, table = ("t.jsonl", rows) if isinstance(cells[0], list) else ("t.csv", csv_of(cells))
    images = {row["file_name"]: png_of(number) for number, row in enumerate(rows)}
    write_files(root, {**images, name: table})
    return build(root / name, root / "out", *options)


@pytest.mark.parametrize(("cells", "separator", "labels"), [
    (["['cat', 'dog']", "['cat']", "[]"], "", [[0, 1], [0], []]),
    (['["cat", "dog"]', "cat", ""], "", [[0, 1], [0], []]),
    (["cat|dog", "cat", ""], "", [[0, 1], [0], []]),
    (["cat, dog", "cat", ""], ",", [[0, 1], [0], []]),
    (["cat; dog", "cat", ""], ";", [[0, 1], [0], []]),
    (["2|10", "4"], "", [[2, 10], [4]]), ([[2, 10], [4]], "", [[2, 10], [4]]),
])  # fmt: skip
def test_several_labels_in_a_cell(
    tmp_path: Path, cells: Labels, separator: str, labels: list[list[int]]
) -> None:
    options = ("--label-separator", separator) if separator else ()
    assert build_cells(tmp_path, cells, *MULTI, *options) == 0
    records = records_of(tmp_path / "out")
    assert [list(records[f"{row}.png"]["labels"]) for row in range(len(cells))] == labels


@pytest.mark.parametrize("cell", ["cat,dog", "cat; dog", "tiger, or cat|dog"])
def test_a_cell_that_may_be_one_label(
    tmp_path: Path, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_cells(tmp_path, [cell, "cat"], *MULTI, "--max-rejects", "0") == 1
    assert f"{cell!r}: give --label-separator with the text between" in capsys.readouterr().err
    assert build_cells(tmp_path, [cell, "cat"], *MULTI, "--label-separator", "|") == 0


def test_a_separator_without_several_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_cells(tmp_path, ["cat"], "--label-separator", ";") == 2
    assert "--label-separator is for features of kind multi_label" in capsys.readouterr().err
