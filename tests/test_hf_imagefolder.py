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
from shardwright.schema import FeatureKind
from tests.buckets import Bucket
from tests.build_helpers import CLASSES, build, make_images, png_of, reasons_of
from tests.helpers import make_files, rows_of
from tests.helpers import rejects_of as rejects_among
from tests.tfrecord_makers import NONE, examples_of, source_of
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.folders.image_folder_metadata import MetadataFolderSource
from transforms.rejects import RejectReason


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
    write_metadata(
        tmp_path,
        [
            {"file_name": "images/2.png", "label": "b", "n": 2},
            {"file_name": "images/1.png", "label": "a", "n": 1},
        ],
        ending,
    )
    source = source_of(tmp_path)
    assert isinstance(source, MetadataFolderSource)
    assert source.describe().startswith(f"a folder at {tmp_path} with a {ending} table of")
    assert not source.states_splits
    parts = list(list_source(source))
    assert [(row["id"], row["label"], row["x/n"]) for row in rows_of(parts)] == [
        ("images/2.png", "b", 2),
        ("images/1.png", "a", 1),
    ]
    assert [(reject.id, reject.reason) for reject in rejects_among(parts)] == [
        ("README.md", RejectReason.OTHER_FILE),
        ("loose.png", RejectReason.MISSING_LABEL),
    ]


def test_metadata_in_split_folders(tmp_path: Path) -> None:
    make_files(
        tmp_path, "train/1.png", "train/sub/2.png", "Val/1.png", "Val/more.png", "test/3.png"
    )
    write_metadata(
        tmp_path / "train",
        [{"file_name": "1.png", "label": 0}, {"file_name": "sub/2.png", "label": 1}],
    )
    write_metadata(
        tmp_path / "Val",
        [{"file_name": "./1.png", "label": 1}, {"file_name": "gone.png", "label": 1}],
    )
    source = source_of(tmp_path)
    assert source.states_splits
    assert source.has_integer_labels
    parts = list(list_source(source))
    assert sorted((row["id"], row["split"], row["label"]) for row in rows_of(parts)) == [
        ("Val/1.png", "validation", "1"),
        ("train/1.png", "train", "0"),
        ("train/sub/2.png", "train", "1"),
    ]
    assert sorted((reject.id, reject.reason, reject.detail) for reject in rejects_among(parts)) == [
        (
            "Val/gone.png",
            RejectReason.MISSING_FILE,
            "named in the table, but there is no such file",
        ),
        ("Val/more.png", RejectReason.MISSING_LABEL, "no row of the metadata names it"),
        ("test/3.png", RejectReason.MISSING_LABEL, "there is no metadata file with a row for it"),
    ]


def test_one_metadata_file_for_all_split_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "train/1.png", "test/1.png")
    write_metadata(tmp_path, [{"file_name": "train/1.png"}, {"file_name": "test/1.png"}])
    parts = list(list_source(source_of(tmp_path)))
    assert sorted((row["id"], row["split"]) for row in rows_of(parts)) == [
        ("test/1.png", "test"),
        ("train/1.png", "train"),
    ]
    assert not rejects_among(parts)


def test_further_pictures(tmp_path: Path) -> None:
    make_files(tmp_path, "a.png", "a_depth.png", "b.png", "c.png")
    rows = [
        {"file_name": "a.png", "depth_file_name": "a_depth.png"},
        {"file_name": "b.png", "depth_file_name": "gone.png"},
        {"file_name": "c.png", "depth_file_name": None},
    ]
    write_metadata(tmp_path, rows, "jsonl")
    source = source_of(tmp_path)
    (feature,) = source.features
    assert (feature.name, feature.kind, feature.column_name) == (
        "depth",
        FeatureKind.IMAGE,
        "depth_file_name",
    )
    parts = list(list_source(source))
    found = {row["id"]: row["x/depth_file_name"] for row in rows_of(parts)}
    assert found["a.png"]["uri"] == f"{tmp_path}/a_depth.png"
    assert found["c.png"] is None
    assert sorted((reject.id, reject.reason) for reject in rejects_among(parts)) == [
        ("b.png", RejectReason.MISSING_FILE)
    ]


def test_folders_without_such_metadata(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/1.png")
    write_metadata(tmp_path, [{"path": "cat/1.png", "label": "x"}])
    assert isinstance(source_of(tmp_path), FolderSource)
    with pytest.raises(
        UsageError, match=r"has no metadata.csv, .jsonl or .parquet with a column 'file_name'"
    ):
        detect_source(str(tmp_path), NONE, input_format="image-folder")
    assert isinstance(detect_source(str(tmp_path), {**NONE, "image": "path"}), MetadataFolderSource)


def test_refused(tmp_path: Path) -> None:
    make_files(tmp_path, "train/1.png", "test/1.png")
    write_metadata(tmp_path / "train", [{"file_name": "1.png"}])
    with pytest.raises(
        UsageError,
        match=r"--image-root is for a table, and INPUT .* is a folder whose metadata files say",
    ):
        detect_source(str(tmp_path), NONE, image_root=str(tmp_path))
    write_metadata(tmp_path / "test", [{"file_name": "1.png"}], "jsonl")
    with pytest.raises(
        UsageError,
        match=r"metadata files of several formats, test/metadata.jsonl, train/metadata.csv: write all as one",
    ):
        source_of(tmp_path)
    write_metadata(tmp_path / "train", [{"file_name": "1.png"}], "jsonl")
    with pytest.raises(UsageError, match=r"train/metadata.csv and train/metadata.jsonl: keep one"):
        source_of(tmp_path)


def labelled(root: Path, split: str, start: int, stop: int) -> None:
    """Images and their metadata in a split folder, with the labels that `make_images` puts them in folders for."""
    rows = []
    for index in range(start, stop):
        make_files(root / split, f"{index:04d}.png", data=png_of(index))
        rows.append(
            {"file_name": f"{index:04d}.png", "label": CLASSES[index % 3], "caption": f"no {index}"}
        )
    write_metadata(root / split, rows)


def test_the_same_pictures_as_class_folders(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in" / "train", 12)
    for index in range(12, 15):
        make_files(
            images.parent / "test", f"{CLASSES[index % 3]}/{index:04d}.png", data=png_of(index)
        )
    labelled(tmp_path / "hf", "train", 0, 12)
    labelled(tmp_path / "hf", "test", 12, 15)
    make_files(tmp_path / "hf", "test/none.png")
    assert build(tmp_path / "in", tmp_path / "a") == 0
    assert build(tmp_path / "hf", tmp_path / "b", "--max-reject-fraction", "0.1") == 0
    found = [examples_of(tmp_path / name).values() for name in "ab"]
    contents = [
        sorted((split, f["image"][0], f["label"][0]) for split, f in values) for values in found
    ]
    assert contents[0] == contents[1]
    assert {f["caption"][0] for _, f in found[1]} == {f"no {index}".encode() for index in range(15)}
    assert reasons_of(tmp_path / "b") == {"test/none.png": "missing_label"}


def remote_build(bucket: Bucket, tmp_path: Path) -> None:
    labelled(tmp_path / "hf", "train", 0, 4)
    labelled(tmp_path / "hf", "test", 4, 6)
    for path in (tmp_path / "hf").rglob("*.*"):
        bucket.put(f"in/{path.relative_to(tmp_path / 'hf')}", path.read_bytes())
    options = [
        part
        for key, value in bucket.server.options.items()
        for part in ("--storage-option", f"{key}={value}")
    ]
    assert build(f"{bucket.uri}/in", tmp_path / "out", *options) == 0
    found = examples_of(tmp_path / "out")
    assert sorted(found) == [
        b"test/0004.png",
        b"test/0005.png",
        *(b"train/%04d.png" % index for index in range(4)),
    ]
    assert all(
        features["image"] == [png_of(int(key[-8:-4]))] for key, (_, features) in found.items()
    )


def test_s3(s3_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(s3_bucket, tmp_path)


def test_gcs(gcs_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(gcs_bucket, tmp_path)
