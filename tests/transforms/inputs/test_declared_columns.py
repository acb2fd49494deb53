"""Columns that a schema or an option names: their values are what that says, however they begin."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardwright as sw
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import png_of, reasons_of, record_ids
from tests.support.tfrecord_makers import example, write_records

MAGIC = [b"GIF89a", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"]
NUMBERS = range(len(MAGIC))
SCHEMA = ExampleSchema(
    (
        Feature("image", FeatureKind.IMAGE, Source.IMAGE),
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("data", FeatureKind.BYTES),
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images, and a schema with a feature of bytes."""
    for number in NUMBERS:
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    return tmp_path


@pytest.mark.long
def test_bytes_that_begin_like_images_stay_bytes(folder: Path) -> None:
    paths = [f"{number}.png" for number in NUMBERS]
    images = [png_of(number) for number in NUMBERS]
    pq.write_table(pa.table({"path": paths, "data": MAGIC}), folder / "paths.parquet")
    pq.write_table(pa.table({"id": paths, "image": images, "data": MAGIC}), folder / "in.parquet")
    write_records(
        folder / "in.tfrecord",
        [
            example(id=path.encode(), photo=image, data=data)
            for path, image, data in zip(paths, images, MAGIC, strict=True)
        ],
    )
    for source in ("paths.parquet", "in.parquet", "in.tfrecord"):
        output = folder / source.partition(".")[0] / source
        assert build(folder / source, output, "--schema", folder / "schema.json") == 0
        found = sw.open(str(output)).to_numpy("train")
        records = dict(zip(found["id"], found["data"], strict=True))
        assert records == dict(zip(paths, MAGIC, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("source", ["in.parquet", "in.tfrecord"])
def test_a_named_image_column_may_begin_with_damaged_images(source: str, folder: Path) -> None:
    images = [b"damaged", b"damaged too", png_of(2)]
    table = pa.table({"id": ["0", "1", "2"], "photo": images, "thumbnail": [png_of(0)] * 3})
    pq.write_table(table, folder / "in.parquet", row_group_size=1)
    records = [example(**{**row, "id": row["id"].encode()}) for row in table.to_pylist()]
    write_records(folder / "in.tfrecord", records)
    options = ("--image-column", "photo", "--max-reject-fraction", "1")
    assert build(folder / source, folder / "out", *options) == 0
    assert record_ids(folder / "out") == ["2"]
    assert reasons_of(folder / "out") == {"0": "not_an_image", "1": "not_an_image"}
