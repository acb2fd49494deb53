"""Records without an image, written from Python and read back by TensorFlow's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from tests.support.build_helpers import png_of

ROWS = 12
X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
Y = np.arange(ROWS) * 2
OWN = ExampleSchema(
    (Feature("X", FeatureKind.FLOAT32, shape=(3,)), Feature("y", FeatureKind.INT64))
)
RECORDS = [{"X": row, "y": int(number)} for row, number in zip(X, Y, strict=True)]


@pytest.mark.parametrize(
    ("records", "schema"),
    [
        (RECORDS, None),
        (RECORDS, "records"),
        (RECORDS, OWN),
        ({"X": X, "y": Y}, None),
        (pa.table({"X": list(X), "y": Y}), None),
        (pd.DataFrame({"X": list(X), "y": Y}), None),
    ],
    ids=["inferred", "ready", "own", "arrays", "arrow", "pandas"],
)
def test_records_without_an_image(tmp_path: Path, records: Any, schema: Any) -> None:
    dataset = sw.write(records, str(tmp_path / "out"), schema=schema, name="plain")

    assert str(dataset).startswith("Dataset('plain', records {train: 12}, features {")
    assert not list((tmp_path / "out" / "spool").glob("*"))
    shards = [str(path) for path in (tmp_path / "out").glob("*.tfrecord-*")]
    spec = {"X": tf.io.FixedLenFeature([3], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    parsed = [tf.io.parse_single_example(data, spec) for data in tf.data.TFRecordDataset(shards)]
    found = sorted((int(one["y"]), one["X"].numpy().tolist()) for one in parsed)
    assert found == [(int(number), row.tolist()) for row, number in zip(X, Y, strict=True)]


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of records with every type of value, and no image."""
    out = str(tmp_path_factory.mktemp("every") / "out")
    sw.write(map(typed_record, range(ROWS)), out, split={"test": 4, "train": "rest"})
    return out


def typed_record(row: int) -> dict[str, Any]:
    return {
        "id": f"r{row}",
        "count": row,
        "ratio": row / 4,
        "text": "Köln" * (row % 2),
        "words": ["a", "ü"][: row % 3],
        "sizes": list(range(row % 4)),
        "matrix": np.full((2, 3), row, np.int16),
    }


def by_reader(out: str) -> Iterator[dict[str, Any]]:
    for batch in sw.Reader(out, "all", global_batch_size=1, epochs=1):
        yield {name: column[0] for name, column in batch.items()}


def by_load(out: str) -> Iterator[dict[str, Any]]:
    yield from sw.load(out, "all").as_numpy_iterator()


def by_tfds(out: str) -> Iterator[dict[str, Any]]:
    for split in tfds.builder_from_directory(out).as_dataset().values():
        for one in split.as_numpy_iterator():
            yield {**one, "matrix": tf.io.parse_tensor(one["matrix"], tf.int16).numpy()}


@pytest.mark.parametrize("read", [by_reader, by_load, by_tfds])
def test_every_reader_gives_every_type(every_type: str, read: Any) -> None:
    found = {plain(one["id"]): one for one in read(every_type)}

    assert len(found) == ROWS
    for row in range(ROWS):
        record = typed_record(row)
        assert found[f"r{row}"].keys() == record.keys()
        assert {name: plain(value) for name, value in found[f"r{row}"].items()} == {
            name: plain(value) for name, value in record.items()
        }
        assert found[f"r{row}"]["matrix"].dtype == np.int16


def plain(value: Any) -> Any:
    """Return a value as Python's own types, with texts in place of bytes."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("y", [Y % 3, Y / 4], ids=["classes", "floats"])
def test_vectors_and_labels(tmp_path: Path, y: np.ndarray[Any, Any]) -> None:
    sw.write((X, y), str(tmp_path / "out"))

    found = sw.open(str(tmp_path / "out")).to_numpy()
    order = np.argsort(found["id"].astype(int))
    np.testing.assert_array_equal(np.stack(found["features"])[order], X)
    np.testing.assert_array_equal(found["label"][order], y)


def test_floats_called_label_beside_images_are_a_feature(tmp_path: Path) -> None:
    records = [{"image": png_of(number), "label": number / 2} for number in range(3)]
    found = sw.write(records, str(tmp_path / "out")).to_numpy(features=["label"])
    assert sorted(found["label"].tolist()) == [0.0, 0.5, 1.0]


def test_floats_under_a_key_of_images_are_a_tensor_with_the_ready_schema(tmp_path: Path) -> None:
    records = [{"image": row.reshape(3, 1)} for row in X]

    dataset = sw.write(records, str(tmp_path / "out"), schema="records")

    (image,) = (feature for feature in dataset.schema.features if feature.name == "image")
    assert (image.kind, image.shape, image.dtype) == (FeatureKind.TENSOR, (3, 1), "float32")


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ((X[:, None], Y), {}, r"key 'image': .* got float32 \(1, 3\)\. Scale floats to uint8"),
        (
            [{"image": X, "y": 1}],
            {"image_column": "image"},
            r"key 'image': .* got float32 \(12, 3\)",
        ),
        ({"image": "a.png"}, {}, "a dict of arrays, got one dict of single values"),
        ([{1: 2}], {}, "the keys of records must be texts, got 1: rename it"),
        ({"X": 1}, {}, "a dict of arrays, got one dict of single values: put it in a list"),
        (RECORDS, {"schema": "records", "image_column": "X"}, "image_column="),
        (RECORDS, {"schema": "records", "encode": "jpeg"}, "is for images, and schema= has none"),
    ],
)
def test_what_records_without_an_image_cannot_have(
    tmp_path: Path, records: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sw.write(records, str(tmp_path / "out"), **options)
