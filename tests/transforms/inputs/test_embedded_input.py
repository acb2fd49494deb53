"""Parquet files with images in a column as INPUT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind
from shardwright.transforms.inputs.formats.embedded import ROWS_AT_A_TIME
from tests.support.build_helpers import CLASSES, png_of
from tests.support.helpers import make_files, rejects_of, rows_of
from tests.support.listings import columns_of, detect, list_source, listed
from tests.support.tfrecord_makers import NONE, read_back, source_of

HUB_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def hub_images(*images: bytes | None) -> pa.Array:
    return pa.array([image and {"bytes": image, "path": None} for image in images], HUB_IMAGE)


def with_features(table: pa.Table, **features: Any) -> pa.Table:
    """Add the metadata in which the hub states the types of columns."""
    return table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )


def hub(number: int, start: int = 0, **more: Any) -> pa.Table:
    """Return a table as on the hub: images as structs, labels as numbers with names in metadata."""
    indices = range(start, start + number)
    structs = [{"bytes": png_of(index), "path": f"{index}.png"} for index in indices]
    labels = pa.array([index % len(CLASSES) for index in indices], pa.int64())
    table = pa.table({"image": pa.array(structs, HUB_IMAGE), "label": labels, **more})
    names = {"names": list(CLASSES), "_type": "ClassLabel"}
    return with_features(table, image={"_type": "Image"}, label=names)


def write(path: Path, table: pa.Table, *, rows: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)
    return path


def mixed_table() -> pa.Table:
    """Return a table with two pictures a row, and numbers that stand for names."""
    columns = {
        "img": pa.array([png_of(0), png_of(1), png_of(2)], pa.large_binary()),
        "mask": hub_images(png_of(50), None, png_of(52)), "class": ["a", " b", None],
        "key": [7, 8, 9], "sex": pa.array([1, -1, 5], pa.int8()), "parts": [[0, 1], [], None],
        "text": ["BM not an image", "", "é"],
    }  # fmt: skip
    sex, part = ({"names": names, "_type": "ClassLabel"} for names in (["f", "m"], ["x", "y"]))
    parts = {"feature": part, "_type": "Sequence"}
    return with_features(pa.table(columns), sex=sex, parts=parts)


def test_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", mixed_table())
    source = source_of(path, tmp_path / "spool", id="key")
    assert {f.name: (f.kind, f.shape, f.names) for f in source.features} == {
        "mask": (FeatureKind.IMAGE, (), ()),
        "sex": (FeatureKind.CLASS_LABEL, (), ("f", "m")),
        "parts": (FeatureKind.CLASS_LABEL, (None,), ("x", "y")),
        "text": (FeatureKind.BYTES, (), ()),
    }
    (batch,) = list_source(source)
    assert isinstance(batch, pa.RecordBatch)
    assert (batch.schema.names, batch.schema.types) == (
        source.schema.names,
        source.schema.types,
    )
    rows = rows_of([batch])
    assert columns_of(rows, "id", "label", "x/sex", "x/parts", "x/text") == [
        ("7", "a", "m", ["x", "y"], "BM not an image"),
        ("8", "b", None, [], ""),
        ("9", None, "5", None, "é"),
    ]
    assert read_back([rows[0]["x/mask"], rows[2]["x/mask"]]) == [png_of(50), png_of(52)]
    assert rows[1]["x/mask"] is None


def test_rows_that_can_be_no_record(tmp_path: Path) -> None:
    make_files(tmp_path, "there.png", data=png_of(9))
    images = [
        {"bytes": png_of(0), "path": None}, {"bytes": None, "path": "there.png"},
        {"bytes": None, "path": "gone.png"}, {"bytes": b"", "path": "there.png"},
        {"bytes": None, "path": None}, None, {"bytes": png_of(6), "path": "x"},
    ]  # fmt: skip
    table = pa.table({"image": pa.array(images, HUB_IMAGE), "id": [*"abcdef", " "]})
    path = write(tmp_path / "x.parquet", table)
    source = source_of(path, tmp_path / "spool")
    rows, rejects = listed(source)
    assert {reject.uri for reject in rejects_of(list_source(source))} == {str(path)}
    assert [row["id"] for row in rows] == ["a", "b"]
    assert (rows[1]["uri"], rows[1]["offset"]) == (f"{tmp_path}/there.png", None)
    assert rejects == {
        "c": "missing_file", "d": "empty_file", "e": "bad_value", "f": "bad_value",
        "x.parquet#6": "bad_id",
    }  # fmt: skip


def test_a_split_column_goes_first(tmp_path: Path) -> None:
    table = hub(2, split=pa.array(["Val", "test"]))
    source = source_of(write(tmp_path / "train.parquet", table), tmp_path / "spool")
    assert [row["split"] for row in rows_of(list_source(source))] == ["validation", "test"]
    assert not source.splits_can_be_redrawn


def test_tables_of_paths_are_left_to_the_table(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    write(tmp_path / "x.parquet", pa.table({"image": ["1.png"], "data": [b"bytes"]}))
    assert source_of(tmp_path / "x.parquet").name == "table"
    told = "no column of .*x.parquet holds encoded images .*; it has the columns 'image', 'data'"
    with pytest.raises(UsageError, match=told):
        detect(f"{tmp_path}/x.parquet", NONE, input_format="embedded")


IMAGES = [png_of(1)]


@pytest.mark.parametrize(("columns", "given", "message"), [
    ({"images": [[png_of(1), png_of(2)]]}, {},
     "column 'images' of .* holds lists of images, but a record has one main image"),
    ({"images": pa.array([hub_images(png_of(1)).to_pylist()], pa.list_(HUB_IMAGE))}, {},
     "holds lists of images"),
    ({"image": IMAGES, "more": [IMAGES]}, {"image": "more"},
     "column 'more' of .* holds lists of images"),
    ({"one": IMAGES, "two": [png_of(2)]}, {},
     "several columns of images, 'one', 'two': choose the main one with --image-column"),
    ({"image": IMAGES}, {"image": "x"},
     "--image-column 'x' is not in .*, which has the columns 'image'"),
    ({"image": IMAGES}, {"label": "x"}, "--label-column 'x' is not in"),
    ({"image": IMAGES, "n": [1]}, {"size": "n"}, "--size-column needs a table"),
])  # fmt: skip
def test_invalid_columns(
    tmp_path: Path, columns: Mapping[str, Any], given: dict[str, str], message: str
) -> None:
    path = write(tmp_path / "x.parquet", pa.table(columns))
    with pytest.raises(UsageError, match=message):
        source_of(path, **given)


def test_files_of_other_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", hub(1, text=pa.array(["a"])))
    write(tmp_path / "b.parquet", hub(1))
    write(tmp_path / "c.parquet", hub(1, more=pa.array(["a"])))
    source = source_of(tmp_path, tmp_path / "spool")
    assert [row["x/text"] for row in rows_of(source.list_part(f"{tmp_path}/b.parquet"))] == [None]
    first = "c.parquet has the columns .*, but the first file .*"
    with pytest.raises(BuildError, match=f"{first}: build from files with the same columns"):
        list(source.list_part(f"{tmp_path}/c.parquet"))


def test_broken_files(tmp_path: Path) -> None:
    make_files(tmp_path, "x.parquet", data=b"no such file")
    with pytest.raises(BuildError, match=r"x.parquet cannot be read as a Parquet file"):
        detect(f"{tmp_path}/x.parquet", NONE, input_format="embedded")
    with pytest.raises(BuildError, match=r"cannot read the table .*x.parquet"):
        source_of(tmp_path / "x.parquet")
    make_files(tmp_path / "in", "a.parquet", data=b"")
    write(tmp_path / "in" / "b.parquet", hub(1))
    rows, rejects = listed(source_of(tmp_path / "in", tmp_path / "spool"))
    assert (len(rows), rejects) == (1, {"a.parquet": "incomplete"})


@pytest.mark.parametrize(("labels", "found", "rejected"), [
    (pa.array([0, -1, None]), [CLASSES[0], None, None], {}),
    (pa.array([0.0, 2.0, None]), [CLASSES[0], CLASSES[2], None], {}),
    (pa.array([0, 2, 0]).dictionary_encode(), [CLASSES[0], CLASSES[2], CLASSES[0]], {}),
    (pa.array([*[1.0] * ROWS_AT_A_TIME, 1.5]), [CLASSES[1]] * ROWS_AT_A_TIME,
     {f"x.parquet#{ROWS_AT_A_TIME}": "bad_value"}),
])  # fmt: skip
def test_names_of_class_numbers_of_any_type(
    tmp_path: Path, labels: pa.Array, found: list[str | None], rejected: dict[str, str]
) -> None:
    """As pandas writes a column with a gap, which keeps the names in the metadata."""
    table = hub(len(labels))
    table = table.set_column(1, "label", labels).replace_schema_metadata(table.schema.metadata)
    rows, rejects = listed(source_of(write(tmp_path / "x.parquet", table), tmp_path / "spool"))
    assert ([row["label"] for row in rows], rejects) == (found, rejected)
