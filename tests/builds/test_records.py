"""Records without images, read by parsers of others: tf.io, tf.data and TFDS."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.inspect import cli
from shardwright.transforms.write import shard_chunks
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import hashes_of, rejects_of, shards_of, write_table
from tests.support.helpers import write_schema
from tests.support.tfrecord_makers import example, records_of, write_records

Capture = pytest.CaptureFixture[str]
ROWS: list[dict[str, Any]] = [
    {
        "id": f"row {number}",
        "split": "test" if number % 5 == 4 else "train",
        "label": "ab"[number % 2],
        "age": number,
        "score": number / 4,
        "city": ("Rom", "Köln", "")[number % 3],
        "vector": [float(number), 0.5, -1.0],
        "tags": [f"tag{index}" for index in range(number % 4)],
    }
    for number in range(23)
]
FLAT = (
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("age", FeatureKind.INT64),
    Feature("score", FeatureKind.FLOAT32),
    Feature("city", FeatureKind.TEXT),
)
LISTS = (
    Feature("vector", FeatureKind.FLOAT32, shape=(3,)),
    Feature("tags", FeatureKind.MULTI_LABEL),
)
TENSOR = Feature("tensor", FeatureKind.TENSOR, shape=(3,), dtype="float32", column="vector")
SHARDS = ("--records-per-shard", "6", "--name", "rows")


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "tabular.json"
    return write_schema(path, ExampleSchema((*FLAT, *LISTS)))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.fixture(scope="module")
def dataset(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dataset") / "out"
    own = write_schema(out.parent / "own.json", ExampleSchema((*FLAT, *LISTS, TENSOR)))
    assert build(table, out, "--schema", own, *SHARDS) == 0
    return out


def wanted(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row as records hold them."""
    return {
        "id": row["id"].encode(),
        "label": "ab".index(row["label"]),
        "age": row["age"],
        "score": row["score"],
        "city": row["city"].encode(),
        "vector": row["vector"],
        "tags": [int(tag[3:]) for tag in row["tags"]],
    }


WANTED = {row["id"].encode(): wanted(row) for row in ROWS}


def assert_wanted(found: dict[str, Any]) -> None:
    """Assert that the values of a record are those of its row; a tensor is its vector again."""
    row = WANTED[found["id"]]
    assert found.keys() - {"tensor"} == row.keys()
    for key, value in found.items():
        np.testing.assert_array_equal(value, row["vector" if key == "tensor" else key], key)


def test_tensorflow_parses_the_shards(dataset: Path) -> None:
    """By a spec written by hand, without any help of this project."""
    spec = {
        **{name: tf.io.FixedLenFeature([], tf.string) for name in ("id", "city", "tensor")},
        **{name: tf.io.FixedLenFeature([], tf.int64) for name in ("label", "age")},
        "score": tf.io.FixedLenFeature([], tf.float32),
        "vector": tf.io.FixedLenFeature([3], tf.float32),
        "tags": tf.io.RaggedFeature(tf.int64),
    }
    found = []
    for record in tf.data.TFRecordDataset([str(path) for path in shards_of(dataset)]):
        parsed = tf.io.parse_single_example(record, spec)
        parsed["tensor"] = tf.io.parse_tensor(parsed["tensor"], tf.float32)
        found.append({name: value.numpy() for name, value in parsed.items()})
        assert_wanted(found[-1])
        features = tf.train.Example.FromString(record.numpy()).features.feature
        assert set(features) == set(spec)
    assert {one["id"] for one in found} == WANTED.keys()


def test_tfds_reads_them(dataset: Path) -> None:
    builder = tfds.builder_from_directory(str(dataset))
    counts = {name: split.num_examples for name, split in builder.info.splits.items()}
    assert counts == {"train": 19, "test": 4}
    assert builder.info.supervised_keys is None
    for split in builder.as_dataset().values():
        for found in split.as_numpy_iterator():
            found["tensor"] = tf.io.parse_tensor(found["tensor"], tf.float32).numpy()
            assert_wanted(found)


def _as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.long
def test_our_readers_read_them(dataset: Path) -> None:
    opened = sw.open(str(dataset))
    assert (opened.num_records, opened.class_names) == (23, ("a", "b"))
    assert opened.splits["train"].stats.keys() == {"labels", "formats", "features"}

    options: dict[str, Any] = {"shuffle": True, "epochs": 1, "remainder": "keep"}
    with sw.Reader(str(dataset), "all", global_batch_size=5, **options) as reader:
        batches = list(reader)
        shape, dtype = reader.element_spec["vector"]
        assert (shape[1:], dtype) == ((3,), np.dtype(np.float32))
    rows = [
        {name: _as_bytes(column[row]) for name, column in batch.items()}
        for batch in batches
        for row in range(len(batch["id"]))
    ]
    loaded = [*sw.load(str(dataset), "all", shuffle=True, seed=1).as_numpy_iterator()]
    for found in (rows, loaded):
        assert sorted(one["id"] for one in found) == sorted(WANTED)
        for one in found:
            assert_wanted(one)
    arrays = opened.to_numpy("test", features=["age", "label"])
    assert sorted(arrays["age"].tolist()) == [4, 9, 14, 19]
    with sw.Reader(str(dataset), features=["label"], global_batch_size=19, epochs=1) as reader:
        (batch,) = reader  # from the index alone
        assert sorted(batch["label"].tolist()) == [0] * 10 + [1] * 9


def test_commands_show_them(dataset: Path, capsys: Capture) -> None:
    assert cli.main(["verify", str(dataset)]) == 0
    assert ": sound (" in capsys.readouterr().out
    assert cli.main(["inspect", str(dataset)]) == 0
    assert "images" not in capsys.readouterr().out
    assert cli.main(["show", str(dataset), "row 7"]) == 0
    shown = capsys.readouterr().out
    assert "image     none\n" in shown
    assert "rows.parquet\n" in shown
    assert cli.main(["show", str(dataset), "row 7", "--save", "x.png"]) == 2
    assert "--save x.png: record 'row 7' has no image" in capsys.readouterr().err
    assert cli.main(["doctor", str(dataset)]) == 2
    assert (
        "needs an image, which the records of this dataset do not have" in capsys.readouterr().err
    )


def test_readers_refuse_to_decode_them(dataset: Path) -> None:
    with pytest.raises(UsageError, match="needs an image, which the records"):
        sw.Reader(str(dataset), global_batch_size=2, image=sw.TrainImage(8))
    with pytest.raises(UsageError, match="this dataset has no images, so take batches as dicts"):
        sw.load(str(dataset), as_supervised=True)


def as_jsonl(root: Path) -> Path:
    return write_table(root / "rows.jsonl", ROWS)


def as_two_files(root: Path) -> Path:
    (root / "rows").mkdir()
    write_table(root / "rows/a.jsonl", ROWS[:9])
    write_table(root / "rows/b.jsonl", ROWS[9:])
    return root / "rows"


def as_examples(root: Path) -> Path:
    return write_records(root / "rows.tfrecord", [example(**row) for row in _rows_of_bytes()])


def as_packed_examples(root: Path) -> Path:
    return write_records(
        root / "rows.tfrecord.gz", [example(**row) for row in _rows_of_bytes()], "GZIP"
    )


def _rows_of_bytes() -> list[dict[str, Any]]:
    """Return the rows with texts as bytes, as tf.Examples hold them."""
    texts = ("id", "split", "label", "city")
    return [
        {
            **row,
            **{name: row[name].encode() for name in texts},
            "tags": [*map(str.encode, row["tags"])],
        }
        for row in ROWS
    ]


@pytest.mark.long_but_first
@pytest.mark.parametrize("make", [as_jsonl, as_two_files, as_examples, as_packed_examples])
def test_every_form_gives_the_same_records(
    schema: Path, dataset: Path, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    options = ("--split-column", "split", "--schema", schema, *SHARDS)
    assert build(make(tmp_path), tmp_path / "out", *options) == 0
    ours = {name: dict(one) for name, one in records_of(dataset).items()}
    for one in ours.values():
        del one["tensor"]
    assert records_of(tmp_path / "out") == ours
    assert not (tmp_path / "out" / "spool").exists()


def test_a_csv_whose_rows_have_no_id(tmp_path: Path) -> None:
    """Values that do not fit are rejects that name the table and the row."""
    own = write_schema(tmp_path / "own.json", ExampleSchema(FLAT))
    with open(tmp_path / "rows.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["label", "age", "score", "city"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows([*ROWS, {"label": "a", "age": "old"}])
    out = tmp_path / "out"
    options = ("--schema", own, "--max-reject-fraction", "0.1", *SHARDS)
    assert build(tmp_path / "rows.csv", out, *options) == 0
    found = records_of(out)
    assert {name: record["age"] for name, record in found.items()} == {
        f"rows.csv#{number}": [number] for number in range(23)
    }
    (reject,) = rejects_of(out)
    assert (reject["id"], reject["uri"]) == ("rows.csv#23", str(tmp_path / "rows.csv"))
    assert reject["detail"].startswith("row 23: 'age' is 'old'")


@pytest.mark.long
def test_again_and_by_the_stock_writer(
    table: Path,
    schema: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A build that is up to date writes nothing; one that lost a shard writes it again, equally."""
    out, stock = tmp_path / "out", tmp_path / "stock"
    assert build(table, out, "--schema", schema, *SHARDS) == 0
    before = hashes_of(out)
    shards_of(out)[1].unlink()  # of 6 records
    monkeypatch.setattr(shard_chunks, "_ENCODED_ROWS", 4)
    assert build(table, out, "--schema", schema, *SHARDS) == 0
    assert hashes_of(out) == before
    assert build(table, out, "--schema", schema, *SHARDS) == 0
    assert "up to date" in capsys.readouterr().err
    assert build(table, stock, "--schema", schema, "--writer", "beam", *SHARDS) == 0
    assert records_of(stock) == records_of(out)
    assert cli.main(["verify", str(stock)]) == 0


def test_a_copy_of_the_dataset(dataset: Path, tmp_path: Path) -> None:
    assert build(dataset, tmp_path / "copy", *SHARDS) == 0
    assert hashes_of(tmp_path / "copy") == hashes_of(dataset)
    assert build(dataset, tmp_path / "other", "--duplicates", "drop") == 2


def test_a_transform_changes_them(table: Path, schema: Path, tmp_path: Path) -> None:
    options = ("--schema", schema, "--transform", "tests.support.user_transforms:add_one", *SHARDS)
    assert build(table, tmp_path / "out", *options) == 0
    found = {record["id"][0]: record["age"] for record in records_of(tmp_path / "out").values()}
    assert found == {name: [row["age"] + 1] for name, row in WANTED.items()}


def test_a_column_of_numbers_called_label(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,label,kind\na,0.5,u\nb,1.5,v\n")

    assert build(table, tmp_path / "out", "--schema", "records") == 0
    found = sw.open(str(tmp_path / "out")).to_numpy()
    assert dict(zip(found["id"], found["label"], strict=True)) == {"a": 0.5, "b": 1.5}
    columns = ("--schema", "records", "--label-column", "kind")
    assert build(table, tmp_path / "other", *columns) == 2
