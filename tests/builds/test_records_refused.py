"""Schemas without an image with inputs and options that need one, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardwright as sw
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import write_table
from tests.support.helpers import write_schema
from tests.support.tfrecord_makers import example, write_records

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    features = (Feature("id", FeatureKind.TEXT, Source.ID), Feature("age", FeatureKind.INT64))
    return write_schema(tmp_path_factory.mktemp("schema") / "own.json", ExampleSchema(features))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": "a", "age": 1, "city": "Rom"}]
    return write_table(tmp_path_factory.mktemp("table") / "rows.jsonl", rows)


REFUSED = (
    (("--encode", "png"), "--encode is for images, and --schema has none"),
    (("--on", "exif=fix"), "--on is for images"),
    (("--check", "decode"), "--check is for images"),
    (("--duplicates", "drop"), "--duplicates is for images"),
    (("--image-column", "city"), "--image-column 'city' is for images, and --schema has none"),
    (("--size-column", "age"), "--size-column 'age' is for images"),
    (("--image-root", "."), "--image-root '.' is for images"),
)


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_about_images_are_refused(
    table: Path, schema: Path, tmp_path: Path, capsys: Capture, options: tuple[str], message: str
) -> None:
    assert build(table, tmp_path / "out", "--schema", schema, *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_images_is_refused(schema: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(b"png")
    assert build(tmp_path / "photos", tmp_path / "out", "--schema", schema) == 2
    assert "--schema has no image, and INPUT is a folder at" in capsys.readouterr().err


def test_the_error_of_a_table_without_images_tells_what_to_give(
    tmp_path: Path, capsys: Capture
) -> None:
    """The schema in the message builds the table; a number to predict is no class."""
    path = tmp_path / "rows.csv"
    path.write_text("age,city,target,more\n1,Rom,0.5,x\n2,Bern,1.5,y\n")
    assert build(path, tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert "set --image-column to the one with the image paths; for records without" in message
    assert "give --schema records" in message
    assert build(path, tmp_path / "out", "--schema", "records") == 0
    with sw.Reader(str(tmp_path / "out"), global_batch_size=2, epochs=1) as reader:
        (batch,) = reader
    rows = sorted(zip(*(batch[name].tolist() for name in ("age", "city", "target")), strict=True))
    assert rows == [(1, b"Rom", 0.5), (2, b"Bern", 1.5)]
    assert set(batch["id"].tolist()) == {"rows.csv#0", "rows.csv#1"}


def test_the_stock_writer_needs_ids(table: Path, tmp_path: Path, capsys: Capture) -> None:
    own = write_schema(tmp_path / "own.json", ExampleSchema((Feature("age", FeatureKind.INT64),)))
    assert build(table, tmp_path / "out", "--schema", own, "--writer", "beam") == 2
    assert "--writer beam finds its records by their id" in capsys.readouterr().err


@pytest.mark.parametrize(("record", "message"), [
    (example(age=1), "or for records without images give --schema records"),
    (b"text", "no tf.Example with features in the first 1 record"),
])  # fmt: skip
def test_records_that_need_a_schema(
    tmp_path: Path, capsys: Capture, record: bytes, message: str
) -> None:
    given = write_records(tmp_path / "rows.tfrecord", [record])
    assert build(given, tmp_path / "out") == 2
    assert message in capsys.readouterr().err
