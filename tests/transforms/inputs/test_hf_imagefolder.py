"""Hugging Face's ImageFolder as INPUT: images beside metadata files that name them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import ids_below, make_images, write_table
from tests.support.helpers import make_files, rows_of
from tests.support.listings import columns_of, details_of, detect, list_source, listed
from tests.support.tfrecord_makers import NONE, records_of, source_of


def write_metadata(folder: Path, rows: Sequence[Mapping[str, Any]], ending: str = "csv") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"metadata.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_metadata_in_the_folder_itself(tmp_path: Path, ending: str) -> None:
    make_files(tmp_path, "images/1.png", "images/2.png", "loose.png")
    make_files(tmp_path, "README.md", data=b"about these")
    table = [
        {"file_name": "images/2.png", "label": "b", "n": 2},
        {"file_name": "images/1.png", "label": "a", "n": 1},
    ]
    write_metadata(tmp_path, table, ending)
    source = source_of(tmp_path)
    assert source.name == "image-folder"
    assert source.description.startswith(f"a folder at {tmp_path} with a {ending} table of")
    assert not source.states_splits
    assert [(f.name, f.kind) for f in source.features] == [("n", FeatureKind.INT64)]
    rows, rejects = listed(source)
    assert columns_of(rows, "id", "label", "x/n") == [
        ("images/2.png", "b", 2),
        ("images/1.png", "a", 1),
    ]
    assert rejects == {"README.md": "other_file", "loose.png": "missing_label"}


def test_metadata_in_split_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "train/1.png", "train/sub/2.png", "Val/1.png", "Val/more.png")
    make_files(tmp_path, "test/3.png")
    for folder, table in {
        "train": [{"file_name": "1.png", "label": 0}, {"file_name": "sub/2.png", "label": 1}],
        "Val": [{"file_name": "./1.png", "label": 1}, {"file_name": "gone.png", "label": 1}],
    }.items():
        write_metadata(tmp_path / folder, table)
    source = source_of(tmp_path)
    assert source.states_splits
    assert sorted(columns_of(rows_of(list_source(source)), "id", "split", "label")) == [
        ("Val/1.png", "validation", "1"),
        ("train/1.png", "train", "0"),
        ("train/sub/2.png", "train", "1"),
    ]
    assert details_of(source) == {
        "Val/gone.png": (
            "missing_file",
            "listed in the table, but there is no such file below "
            f"{tmp_path}/Val/: give --image-root, the folder that relative paths "
            "start from",
        ),
        "Val/more.png": ("missing_label", "the metadata has no row for it"),
        "test/3.png": ("missing_label", "it has no metadata file"),
    }


def test_one_metadata_file_for_all_split_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "train/1.png", "test/1.png")
    write_metadata(tmp_path, [{"file_name": "train/1.png"}, {"file_name": "test/1.png"}])
    rows, rejects = listed(source_of(tmp_path))
    found = sorted(columns_of(rows, "id", "split"))
    assert (found, rejects) == ([("test/1.png", "test"), ("train/1.png", "train")], {})


def test_folders_without_such_metadata(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/1.png")
    write_metadata(tmp_path, [{"path": "cat/1.png", "label": "x"}])
    assert source_of(tmp_path).name == "folder"
    told = "has no metadata.csv, .jsonl or .parquet with a column 'file_name'"
    with pytest.raises(UsageError, match=told):
        detect(str(tmp_path), NONE, input_format="image-folder")
    assert detect(str(tmp_path), {**NONE, "image": "path"}).name == "image-folder"


def test_invalid_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "train/1.png", "test/1.png")
    rows = [{"file_name": "1.png"}]
    write_metadata(tmp_path / "train", rows)
    told = "--image-root needs a table, but INPUT .* is a folder with metadata files: give"
    with pytest.raises(UsageError, match=told):
        detect(str(tmp_path), NONE, image_root=str(tmp_path))
    write_metadata(tmp_path / "test", rows, "jsonl")
    names = "test/metadata.jsonl, train/metadata.csv"
    told = f"of several formats, {names}: keep one, or convert them"
    with pytest.raises(UsageError, match=told):
        source_of(tmp_path)
    write_metadata(tmp_path / "train", rows, "jsonl")
    with pytest.raises(
        UsageError, match=r"in one folder, .*train/metadata.csv, train/metadata.jsonl: keep one"
    ):
        source_of(tmp_path)


def test_metadata_beside_class_folders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folders are not classes then, which the log says, with the way to have both."""
    make_images(tmp_path / "in", 6)
    names = sorted(ids_below(tmp_path / "in"))
    rows = [{"file_name": name, "age": age} for age, name in enumerate(names)]
    table = write_table(tmp_path / "in/metadata.jsonl", rows)
    assert build(tmp_path / "in", tmp_path / "a") == 0
    (told,) = (text for text in caplog.messages if "states no labels" in text)
    assert "the images lie in the folders Löwe, bird, cat. For labels by folders" in told
    assert not any("label" in record for record in records_of(tmp_path / "a").values())
    options = ("--input-format", "folder", "--labels", table, "--labels-key", "path")
    assert " ".join(map(str, options)) in told
    assert build(tmp_path / "in", tmp_path / "b", *options) == 0
    found = records_of(tmp_path / "b")
    assert [(found[name]["label"][0], found[name]["age"][0]) for name in names] == [
        (("Löwe", "bird", "cat").index(name.split("/")[0]), age) for age, name in enumerate(names)
    ]


def test_boxes_of_roboflow(tmp_path: Path) -> None:
    """Images without a row are those without boxes, as Roboflow leaves them out of its table."""
    make_files(tmp_path, "train/1.png", "train/none.png", "valid/1.png")
    make_files(tmp_path, "valid/README.txt", data=b"about these")
    header = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    (tmp_path / "train/_annotations.csv").write_text(f"{header}1.png,40,20,cat,4,2,12,12\n")
    (tmp_path / "valid/_annotations.csv").write_text(f"{header}1.png,40,20,dog,0,0,40,20\n")
    source = source_of(tmp_path)
    rows, rejects = listed(source)
    assert columns_of(rows, "id", "split", "x/objects/label", "label") == [
        ("train/1.png", "train", ["cat"], None),
        ("train/none.png", "train", [], None),
        ("valid/1.png", "validation", ["dog"], None),
    ]
    assert rows[2]["x/objects/bbox"] == [[0, 0, 1, 1]]
    assert source.schema.names == list(rows[1])
    assert (rejects, source.states_splits) == ({"valid/README.txt": "other_file"}, True)


def test_classes_of_roboflow(tmp_path: Path) -> None:
    """The table has spaces after its commas."""
    make_files(tmp_path, "train/1.png", "train/2.png", "train/3.png", "train/4.png")
    text = "filename, fish, 10 cents\n1.png, 1, 1\n2.png, 0, 0\n3.png, 0, 2\n"
    (tmp_path / "train/_classes.csv").write_text(text)
    for uri in (tmp_path, tmp_path / "train" / "_classes.csv"):
        source = source_of(uri)
        rows, rejects = listed(source)
        assert columns_of(rows, "x/labels") == [(["fish", "10 cents"],), ([],)]
        [feature] = source.features
        assert (feature.kind, feature.names) == (FeatureKind.MULTI_LABEL, ("fish", "10 cents"))
        folder = "train/" if uri == tmp_path else ""
        missing = {"train/4.png": "missing_label"} if uri == tmp_path else {}
        assert rejects == {f"{folder}3.png": "bad_value", **missing}
        with pytest.raises(UsageError, match="--image-column 'x' is not in"):
            source_of(uri, image="x")


def test_classes_of_roboflow_in_another_order(tmp_path: Path) -> None:
    """Two exports may have other orders of the same columns."""
    make_files(tmp_path, "train/1.png", "valid/2.png", "test/3.png")
    for split, text in {
        "train": "filename,fish,cat\n1.png,1,0\n", "valid": "filename,cat,fish\n2.png,1,0\n",
        "test": "cat,filename,fish\n0,3.png,1\n",
    }.items():  # fmt: skip
        (tmp_path / split / "_classes.csv").write_text(text)
    rows, rejects = listed(source_of(tmp_path))
    found = {row["id"][-5:]: row["x/labels"] for row in rows}
    assert (found, rejects) == ({"1.png": ["fish"], "2.png": ["cat"], "3.png": ["fish"]}, {})
