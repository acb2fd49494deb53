"""Whole builds with a policy: what is fixed is counted in the shards, the manifest and the report, what is rejected has its reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import shardwright as sw
from tests.build_helpers import build
from tests.image_makers import exif_block, picture, saved

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "a"
    folder.mkdir()
    for name, data in {
        "plain.jpg": saved(picture(), "JPEG"),
        "turned.jpg": saved(picture(), "JPEG", exif=exif_block(6)),
        "alpha.webp": saved(picture("RGBA"), "WEBP"),
        "gray.png": saved(picture("L"), "PNG"),
        "small.png": saved(picture(size=(9, 9)), "PNG"),
        "called.png": saved(picture(), "JPEG"),
    }.items():
        (folder / name).write_bytes(data)
    return folder.parent


def built(images: Path, out: Path, *options: str) -> dict[str, Any]:
    assert build(images, out, "--max-reject-fraction", "0.9", *options) == 0
    manifest: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return manifest


def records_of(out: Path) -> dict[str, Any]:
    """The parsed examples of a dataset, by id."""
    examples = [
        tf.train.Example.FromString(raw.numpy())
        for raw in tf.data.TFRecordDataset(sorted(map(str, out.glob("*.tfrecord*"))))
    ]
    return {
        example.features.feature["id"].bytes_list.value[0].decode(): example.features.feature
        for example in examples
    }


def test_fixes_and_rejects_are_counted(images: Path, tmp_path: Path) -> None:
    options = [
        "--on",
        "exif=fix",
        "--on",
        "alpha=fix",
        "--min-side",
        "20",
        "--on",
        "extension=reject",
        "--check",
        "decode",
    ]
    manifest = built(images, tmp_path / "out", *options)
    assert manifest["splits"]["train"]["stats"]["fixes"] == {"alpha": 1, "exif": 1}
    assert manifest["rejects"] == {"policy_extension": 1, "policy_small": 1}
    assert manifest["settings"]["encode"]["policy"] == {
        "on": {"alpha": "fix", "exif": "fix", "extension": "reject"},
        "min_side": 20,
    }
    rows = pq.read_table(sorted((tmp_path / "out" / "rejects").glob("*.parquet"))).to_pylist()
    assert {row["id"]: row["detail"] for row in rows} == {
        "a/called.png": "the name says png, the content is jpeg (--on extension=reject)",
        "a/small.png": "9 x 9 pixels, a side below 20 (--on small=reject)",
    }
    report = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Fixes</h2>" in report
    records = records_of(tmp_path / "out")
    assert (
        records["a/plain.jpg"]["image"].bytes_list.value[0]
        == (images / "a" / "plain.jpg").read_bytes()
    )
    shapes = {
        name: tuple(tf.io.decode_image(record["image"].bytes_list.value[0], 3).shape)
        for name, record in records.items()
    }
    assert shapes == dict.fromkeys(("a/plain.jpg", "a/alpha.webp", "a/gray.png"), (47, 61, 3)) | {
        "a/turned.jpg": (61, 47, 3)
    }


def test_without_faults_there_are_no_fixes(images: Path, tmp_path: Path) -> None:
    manifest = built(images, tmp_path / "out")
    assert "fixes" not in manifest["splits"]["train"]["stats"]
    assert manifest["rejects"] == {"unsupported_format": 1}
    assert "<h2>Fixes</h2>" not in (tmp_path / "out" / "report.html").read_text()


def test_stripped_of_metadata_the_orientation_is_a_feature(images: Path, tmp_path: Path) -> None:
    manifest = built(images, tmp_path / "out", "--strip-metadata")
    assert {"name": "orientation", "kind": "int64", "source": "orientation"} in manifest["schema"][
        "features"
    ]
    found = {
        name: record["orientation"].int64_list.value[0]
        for name, record in records_of(tmp_path / "out").items()
    }
    assert found.pop("a/turned.jpg") == 6
    assert set(found.values()) == {1}
    assert not any(b"Exif" in path.read_bytes() for path in (tmp_path / "out").glob("*.tfrecord*"))


def test_tensors(images: Path, tmp_path: Path) -> None:
    manifest = built(
        images, tmp_path / "out", "--encode", "tensor", "--tensor-dtype", "float32", "--grayscale"
    )
    image = next(
        feature for feature in manifest["schema"]["features"] if feature["name"] == "image"
    )
    assert image == {
        "name": "image",
        "kind": "image",
        "source": "image",
        "shape": [None, None, 1],
        "encoding": "tensor",
        "dtype": "float32",
    }
    record = records_of(tmp_path / "out")["a/turned.jpg"]
    tensor = tf.io.parse_tensor(record["image"].bytes_list.value[0], tf.float32)
    assert tuple(tensor.shape) == (61, 47, 1)
    assert 0 <= float(tf.reduce_min(tensor)) < float(tf.reduce_max(tensor)) <= 1
    assert sw.open(str(tmp_path / "out")).num_records == 6


def test_another_policy_writes_the_shards_anew(images: Path, tmp_path: Path) -> None:
    built(images, tmp_path / "out", "--on", "alpha=reject")
    assert build(images, tmp_path / "out", "--max-reject-fraction", "0.9", "--on", "alpha=fix") == 1
    manifest = built(images, tmp_path / "out", "--on", "alpha=fix", "--if-exists", "overwrite")
    assert manifest["rejects"] == {}
    assert manifest["splits"]["train"]["stats"]["fixes"] == {"alpha": 1}
