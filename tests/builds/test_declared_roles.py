"""A schema's own features from columns whose names are those of roles: label, split and id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardwright as sw
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, png_of, write_table
from tests.support.helpers import write_schema
from tests.support.tfrecord_makers import example, records_of, write_records

ROWS: list[dict[str, Any]] = [
    {"id": f"r{row}", "label": row / 2, "split": ("train", "test")[row % 2]} for row in range(4)
]
LABEL = Feature("label", FeatureKind.FLOAT32)
SCHEMA = ExampleSchema(
    (
        Feature("image", FeatureKind.IMAGE, Source.IMAGE),
        Feature("key", FeatureKind.TEXT, Source.ID),
        Feature("id", FeatureKind.TEXT),
        LABEL,
        Feature("split", FeatureKind.TEXT),
    )
)


def as_table(root: Path) -> Path:
    for row in range(4):
        (root / f"{row}.png").write_bytes(png_of(row))
    rows = [{**one, "image": f"{row}.png"} for row, one in enumerate(ROWS)]
    return write_table(root / "rows.jsonl", rows)


def as_parquet(root: Path) -> Path:
    rows = [{**one, "image": png_of(row)} for row, one in enumerate(ROWS)]
    pq.write_table(pa.Table.from_pylist(rows), root / "rows.parquet")
    return root / "rows.parquet"


def as_webdataset(root: Path) -> Path:
    files = {}
    for row, one in enumerate(ROWS):
        files |= {f"{row}.png": png_of(row), f"{row}.json": json.dumps(one).encode()}
    return pack_tar(root / "rows.tar", files)


@pytest.mark.long_but_first
@pytest.mark.parametrize("make", [as_table, as_parquet, as_webdataset])
def test_a_column_fills_its_feature_and_keeps_its_role(tmp_path: Path, make: Any) -> None:
    own = write_schema(tmp_path / "own.json", SCHEMA)
    (tmp_path / "in").mkdir()

    assert build(make(tmp_path / "in"), tmp_path / "out", "--schema", own) == 0

    check(tmp_path / "out", has_ids=make is not as_webdataset)


def test_python_records(tmp_path: Path) -> None:
    rows = [{**one, "image": png_of(row)} for row, one in enumerate(ROWS)]

    sw.write(rows, str(tmp_path / "out"), schema=SCHEMA)

    check(tmp_path / "out")


def test_a_table_of_labels(tmp_path: Path) -> None:
    """A `label` of floats is a feature, and no class, in a table that is joined, too."""
    images = make_images(tmp_path / "in", 2, names=("",))
    rows = [{"id": f"{row:04d}.png", "label": row / 2} for row in range(2)]
    table = write_table(tmp_path / "labels.jsonl", rows)
    features = (SCHEMA.features[0], Feature("id", FeatureKind.TEXT, Source.ID), LABEL)
    own = write_schema(tmp_path / "own.json", ExampleSchema(features))

    assert build(images, tmp_path / "out", "--labels", table, "--schema", own) == 0

    found = records_of(tmp_path / "out")
    assert {name: one["label"] for name, one in found.items()} == {
        "0000.png": [0], "0001.png": [0.5],
    }  # fmt: skip


def check(out: Path, *, has_ids: bool = True) -> None:
    """Assert that records have the values of their rows, and are in the splits of these."""
    found = {one["id"][0].decode(): one for one in records_of(out).values()}
    assert found.keys() == {one["id"] for one in ROWS}
    for one in ROWS:
        record = found[one["id"]]
        assert record["label"] == [one["label"]]
        assert record["split"] == [one["split"].encode()]
        assert (record["key"] == record["id"]) is has_ids
    splits = sw.open(str(out)).splits
    assert {name: split.num_records for name, split in splits.items()} == {"train": 2, "test": 2}


def test_numbers_of_classes_stay_numbers_where_the_schema_says_so(tmp_path: Path) -> None:
    """The file states the classes of its labels, as those of the hub do."""
    table = pa.table({"image": [png_of(row) for row in range(4)], "label": [0, 1, 1, 0]})
    names = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    stated = json.dumps({"info": {"features": names}})
    pq.write_table(table.replace_schema_metadata({"huggingface": stated}), tmp_path / "x.parquet")
    features = (
        Feature("image", FeatureKind.IMAGE, Source.IMAGE),
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("label", FeatureKind.INT64),
        Feature("class", FeatureKind.CLASS_LABEL, Source.LABEL),
    )
    own = write_schema(tmp_path / "own.json", ExampleSchema(features))

    assert build(tmp_path / "x.parquet", tmp_path / "out", "--schema", own) == 0

    found = records_of(tmp_path / "out").values()
    assert sorted((*one["label"], *one["class"]) for one in found) == [
        (0, 0),
        (0, 0),
        (1, 1),
        (1, 1),
    ]
    assert sw.open(str(tmp_path / "out")).class_names == ("cat", "dog")


def test_numbers_called_label_of_examples_are_a_feature(tmp_path: Path) -> None:
    records = [example(label=row / 2) for row in range(3)]
    given = write_records(tmp_path / "x.tfrecord", records)

    assert build(given, tmp_path / "out", "--schema", "records") == 0

    found = sw.open(str(tmp_path / "out")).to_numpy()
    assert sorted(found["label"].tolist()) == [0, 0.5, 1]
    assert found["label"].dtype == np.float32
