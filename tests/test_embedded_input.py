"""Parquet and Arrow files with images in a column as INPUT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.schema import FeatureKind
from tests.buckets import Bucket
from tests.build_helpers import (
    CLASSES,
    build,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    stamps_of,
)
from tests.helpers import make_files, rows_of
from tests.helpers import rejects_of as rejects_among
from tests.tfrecord_makers import NONE, examples_of, read_back, source_of
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.embedded.embedded_files import ROWS_AT_A_TIME
from transforms.inputs.embedded.embedded_source import EmbeddedSource
from transforms.inputs.tables.table_source import TableSource
from transforms.rejects import RejectReason

HUB_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def hub(number: int, start: int = 0, *, names: Sequence[str] = CLASSES, **more: Any) -> pa.Table:
    """A table as the hub has it: images as structs, labels as numbers whose names are in the schema's metadata."""
    indices = range(start, start + number)
    images = pa.array(
        [{"bytes": png_of(index), "path": f"{index}.png"} for index in indices], HUB_IMAGE
    )
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": list(names), "_type": "ClassLabel"},
    }
    table = pa.table(
        {
            "image": images,
            "label": pa.array([index % len(names) for index in indices], pa.int64()),
            **more,
        }
    )
    return table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )


def write(path: Path, table: pa.Table, *, rows: int = 100) -> Path:
    """A file of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, compression="lz4")
    else:  # a stream, as Hugging Face's library writes it
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather"])
def test_hub_layout(tmp_path: Path, name: str) -> None:
    number = ROWS_AT_A_TIME + 7
    source = source_of(write(tmp_path / name, hub(number), rows=30), tmp_path / "spool")
    assert isinstance(source, EmbeddedSource)
    assert (
        source.describe()
        == f"a file with images in a column at {tmp_path}/{name}, columns image='image', label='label'"
    )
    assert source.class_names == CLASSES
    assert not source.has_integer_labels
    rows = rows_of(list_source(source))
    assert read_back(rows) == [png_of(index) for index in range(number)]
    assert [row["id"] for row in rows] == [f"{name}#{index}" for index in range(number)]
    assert [row["label"] for row in rows] == [CLASSES[index % 3] for index in range(number)]
    assert {row["etag"].startswith("spool:") for row in rows} == {True}


def test_columns(tmp_path: Path) -> None:
    """A plain binary column, a second picture, other columns as they are, and numbers that stand for names."""
    features = {
        "sex": {"names": ["f", "m"], "_type": "ClassLabel"},
        "parts": {"feature": {"names": ["x", "y"], "_type": "ClassLabel"}},
    }
    features["parts"]["_type"] = "Sequence"
    table = pa.table(
        {
            "img": pa.array([png_of(0), png_of(1), png_of(2)], pa.large_binary()),
            "mask": pa.array(
                [{"bytes": png_of(50), "path": None}, None, {"bytes": png_of(52), "path": None}],
                HUB_IMAGE,
            ),
            "class": ["a", " b", None],
            "key": [7, 8, 9],
            "sex": pa.array([1, -1, 5], pa.int8()),
            "parts": [[0, 1], [], None],
            "text": ["BM not an image", "", "é"],
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    source = source_of(write(tmp_path / "x.parquet", table), tmp_path / "spool", id="key")
    kinds = {
        feature.name: (feature.kind, feature.shape, feature.names) for feature in source.features
    }
    assert kinds["mask"] == (FeatureKind.IMAGE, (), ())
    assert kinds["sex"] == (FeatureKind.CLASS_LABEL, (), ("f", "m"))
    assert kinds["parts"] == (FeatureKind.CLASS_LABEL, (None,), ("x", "y"))
    (batch,) = list_source(source)
    assert isinstance(batch, pa.RecordBatch)
    assert (batch.schema.names, batch.schema.types) == (source.schema.names, source.schema.types)
    rows = rows_of([batch])
    assert [
        (row["id"], row["label"], row["x/sex"], row["x/parts"], row["x/text"]) for row in rows
    ] == [
        ("7", "a", "m", ["x", "y"], "BM not an image"),
        ("8", "b", None, [], ""),
        ("9", None, "5", None, "é"),
    ]
    assert read_back([rows[0]["x/mask"], rows[2]["x/mask"]]) == [png_of(50), png_of(52)]
    assert rows[1]["x/mask"] is None


def test_rows_that_can_be_no_record(tmp_path: Path) -> None:
    make_files(tmp_path, "there.png", data=png_of(9))
    images = [
        {"bytes": png_of(0), "path": None}, {"bytes": None, "path": "there.png"}, {"bytes": None, "path": "gone.png"},
        {"bytes": b"", "path": "there.png"}, {"bytes": None, "path": None}, None, {"bytes": png_of(6), "path": "x"},
    ]  # fmt: skip
    table = pa.table(
        {"image": pa.array(images, HUB_IMAGE), "id": ["a", "b", "c", "d", "e", "f", " "]}
    )
    parts = list(list_source(source_of(write(tmp_path / "x.parquet", table), tmp_path / "spool")))
    rows = rows_of(parts)
    assert [row["id"] for row in rows] == ["a", "b"]
    assert rows[1]["uri"] == f"{tmp_path}/there.png"
    assert rows[1]["offset"] is None
    assert sorted((reject.id, reject.reason) for reject in rejects_among(parts)) == [
        ("c", RejectReason.MISSING_FILE),
        ("d", RejectReason.EMPTY_FILE),
        ("e", RejectReason.BAD_VALUE),
        ("f", RejectReason.BAD_VALUE),
        ("x.parquet#6", RejectReason.BAD_ID),
    ]


def test_splits_from_file_names(tmp_path: Path) -> None:
    """The hub's folder: the files are in `data`, beside a README."""
    make_files(tmp_path, "README.md", data=b"about these")
    write(tmp_path / "data" / "train-00000-of-00002-abc.parquet", hub(2))
    write(tmp_path / "data" / "train-00001-of-00002-def.parquet", hub(2, 2))
    write(tmp_path / "data" / "validation-00000-of-00001.parquet", hub(1, 4))
    source = source_of(tmp_path, tmp_path.with_name("spool"))
    assert source.states_splits
    assert source.splits_can_be_redrawn
    assert len(list(source.parts())) == 3
    rows = rows_of(list_source(source))
    assert [row["split"] for row in rows] == ["train"] * 4 + ["validation"]
    assert rows[0]["id"] == "data/train-00000-of-00002-abc.parquet#0"
    some = source_of(f"{tmp_path}/data/train-*.parquet", tmp_path.with_name("spool"))
    assert read_back(rows_of(list_source(some))) == [png_of(index) for index in range(4)]


def test_a_split_column_goes_first(tmp_path: Path) -> None:
    table = hub(2, split=pa.array(["Val", "test"]))
    source = source_of(write(tmp_path / "train.parquet", table), tmp_path / "spool")
    assert [row["split"] for row in rows_of(list_source(source))] == ["validation", "test"]
    assert not source.splits_can_be_redrawn


def test_tables_of_paths_are_left_to_the_table(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    pq.write_table(pa.table({"image": ["1.png"], "data": [b"bytes"]}), tmp_path / "x.parquet")
    assert isinstance(source_of(tmp_path / "x.parquet"), TableSource)
    with pytest.raises(
        UsageError,
        match=r"no column of .*x.parquet holds encoded images .*; it has the columns 'image', 'data'",
    ):
        detect_source(f"{tmp_path}/x.parquet", NONE, input_format="embedded")


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        (
            {"images": [[png_of(1), png_of(2)]]},
            {},
            r"column 'images' of .* holds lists of images, and a record has one main image",
        ),
        (
            {"image": [png_of(1)], "more": [[png_of(1)]]},
            {"image": "more"},
            "column 'more' of .* holds lists of images",
        ),
        (
            {"one": [png_of(1)], "two": [png_of(2)]},
            {},
            "several columns of images, 'one', 'two': name the main one by --image-column",
        ),
        (
            {"image": [png_of(1)]},
            {"image": "x"},
            "--image-column 'x' is not in .*, which has the columns 'image'",
        ),
        ({"image": [png_of(1)]}, {"label": "x"}, "--label-column 'x' is not in"),
        ({"image": [png_of(1)], "n": [1]}, {"size": "n"}, "--size-column is for a table of paths"),
        ({"text": ["a"]}, {}, "no column of .*x.feather holds encoded images"),
    ],
)
def test_refused(
    tmp_path: Path, columns: Mapping[str, Any], given: dict[str, str], message: str
) -> None:
    path = write(tmp_path / "x.feather", pa.table(columns))
    with pytest.raises(UsageError, match=message):
        source_of(path, **given)


def test_lists_of_hub_images_are_refused(tmp_path: Path) -> None:
    table = pa.table(
        {"images": pa.array([[{"bytes": png_of(1), "path": None}]], pa.list_(HUB_IMAGE))}
    )
    with pytest.raises(UsageError, match="holds lists of images"):
        source_of(write(tmp_path / "x.parquet", table))


def test_files_of_other_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", hub(1, text=pa.array(["a"])))
    write(tmp_path / "b.parquet", hub(1))
    write(tmp_path / "c.parquet", hub(1, more=pa.array(["a"])))
    source = source_of(tmp_path, tmp_path / "spool")
    assert [row["x/text"] for row in rows_of(source.list_part(f"{tmp_path}/b.parquet"))] == [None]
    with pytest.raises(
        BuildError,
        match=r"c.parquet has the columns .*, and the first file .*: build from files with the same columns",
    ):
        list(source.list_part(f"{tmp_path}/c.parquet"))


def test_broken_files(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"no Arrow file")
    with pytest.raises(BuildError, match=r"x.arrow cannot be read as a Parquet or Arrow file"):
        source_of(tmp_path / "x.arrow")
    (tmp_path / "x.parquet").write_bytes(b"no Parquet file")
    with pytest.raises(BuildError, match=r"cannot read the table .*x.parquet"):
        source_of(tmp_path / "x.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"")
    write(tmp_path / "in" / "b.parquet", hub(1))
    parts = list(list_source(source_of(tmp_path / "in", tmp_path / "spool")))
    assert [(reject.id, reject.reason) for reject in rejects_among(parts)] == [
        ("a.parquet", RejectReason.EMPTY_FILE)
    ]
    assert len(rows_of(parts)) == 1


def test_the_same_pictures_as_class_folders(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", 12)
    names = sorted(CLASSES)
    labels = pa.array([names.index(CLASSES[index % 3]) for index in range(12)])
    write(
        tmp_path / "hub" / "train-00000-of-00001.parquet",
        hub(12, names=names).set_column(1, "label", labels),
    )
    assert build(images, tmp_path / "a") == 0
    assert build(tmp_path / "hub", tmp_path / "b") == 0
    found = [
        sorted((f["image"][0], f["label"][0]) for _, f in examples_of(root).values())
        for root in (tmp_path / "a", tmp_path / "b")
    ]
    assert found[0] == found[1]
    assert {tuple(manifest_of(tmp_path / name)["schema"]["class_names"]) for name in "ab"} == {
        tuple(names)
    }


def test_a_build_that_draws_splits_and_has_a_reject(tmp_path: Path) -> None:
    depths = pa.array(
        [{"bytes": png_of(n + 50), "path": None} if n % 2 else None for n in range(10)], HUB_IMAGE
    )
    table = hub(10, caption=pa.array([f"a {n}" for n in range(10)]), depth=depths)
    bad = pa.table(
        {
            **{name: table[name] for name in table.schema.names},
            "image": [*table["image"].to_pylist()[:9], None],
        },
        table.schema,
    )
    write(tmp_path / "train.parquet", bad)
    options = ("--split", "a=0.5,b=0.5", "--max-reject-fraction", "0.2")
    assert build(tmp_path / "train.parquet", tmp_path / "out", *options) == 0
    found = examples_of(tmp_path / "out")
    assert {split for split, _ in found.values()} == {"a", "b"}
    assert (found[b"train.parquet#3"][1]["caption"], found[b"train.parquet#3"][1]["depth"]) == (
        [b"a 3"],
        [png_of(53)],
    )
    assert found[b"train.parquet#4"][1]["depth"] == [b""]
    assert reasons_of(tmp_path / "out") == {"train.parquet#9": "bad_value"}
    assert not list((tmp_path / "out" / "spool").glob("*.bin"))
    before = stamps_of(tmp_path / "out")
    assert build(tmp_path / "train.parquet", tmp_path / "out", *options) == 0
    assert stamps_of(tmp_path / "out") == before


def remote_build(bucket: Bucket, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, hub(5))
    for split in ("train", "test"):
        bucket.put(f"in/data/{split}-00000-of-00001{path.suffix}", path.read_bytes())
    bucket.put("in/README.md", b"text")
    options = [
        part
        for key, value in bucket.server.options.items()
        for part in ("--storage-option", f"{key}={value}")
    ]
    assert build(f"{bucket.uri}/in", f"{bucket.uri}/out", *options) == 0
    assert build(f"{bucket.uri}/in", tmp_path / "out", *options) == 0
    found = examples_of(tmp_path / "out")
    assert len(found) == 10
    assert all(features["image"] == [png_of(int(key[-1:]))] for key, (_, features) in found.items())
    assert {split for split, _ in found.values()} == {"train", "test"}
    assert bucket.get("out/label.labels.txt").decode().split() == list(CLASSES)


def test_s3(s3_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(s3_bucket, tmp_path, "x.parquet")


def test_gcs(gcs_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(gcs_bucket, tmp_path, "x.arrow")
