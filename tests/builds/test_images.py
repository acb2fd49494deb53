"""Whole builds with a policy: fixes and rejects are counted in manifest, shards and report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from tests.support.build_helpers import build, rejects_of
from tests.support.image_makers import drawn, exif_block, picture

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "a"
    folder.mkdir()
    (folder / "plain.jpg").write_bytes(drawn("JPEG"))
    (folder / "called.png").write_bytes(drawn("JPEG"))
    (folder / "turned.jpg").write_bytes(drawn("JPEG", exif=exif_block(6)))
    (folder / "alpha.webp").write_bytes(drawn("WEBP", "RGBA"))
    (folder / "gray.png").write_bytes(drawn("PNG", "L"))
    picture(size=(9, 9)).save(folder / "small.png")
    return folder.parent


def try_build(images: Path, out: Path, options: str) -> int:
    return build(images, out, "--max-reject-fraction", "0.9", *options.split())


def built(images: Path, out: Path, options: str = "") -> dict[str, Any]:
    assert try_build(images, out, options) == 0
    manifest: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return manifest


def records_of(out: Path) -> dict[str, Any]:
    """Parse the examples of a dataset, by id."""
    records = tf.data.TFRecordDataset(sorted(map(str, out.glob("*.tfrecord*"))))
    examples = [tf.train.Example.FromString(raw.numpy()).features.feature for raw in records]
    return {example["id"].bytes_list.value[0].decode(): example for example in examples}


def image_in(record: Any) -> bytes:
    data: bytes = record["image"].bytes_list.value[0]
    return data


def test_fixes_and_rejects_are_counted(images: Path, tmp_path: Path) -> None:
    options = "--on exif=fix --on alpha=fix --min-side 20 --on extension=reject --check decode"
    manifest = built(images, tmp_path, options)
    assert manifest["splits"]["train"]["stats"]["fixes"] == {"alpha": 1, "exif": 1}
    assert manifest["rejects"] == {"policy_extension": 1, "policy_small": 1}
    assert manifest["settings"]["encode"]["policy"] == {
        "on": {"alpha": "fix", "exif": "fix", "extension": "reject"},
        "min_side": 20,
    }
    assert {row["id"]: row["detail"] for row in rejects_of(tmp_path)} == {
        "a/called.png": "the name says png, the content is jpeg (--on extension=reject)",
        "a/small.png": "9 x 9 pixels, a side below 20 (--on small=reject)",
    }
    assert '<h2 id="fixes">Fixes</h2>' in (tmp_path / "report.html").read_text()
    stored = {name: image_in(record) for name, record in records_of(tmp_path).items()}
    assert stored["a/plain.jpg"] == (images / "a" / "plain.jpg").read_bytes()
    shapes = {name: tuple(tf.io.decode_image(data, 3).shape) for name, data in stored.items()}
    upright = dict.fromkeys(("a/plain.jpg", "a/alpha.webp", "a/gray.png"), (47, 61, 3))
    assert shapes == {**upright, "a/turned.jpg": (61, 47, 3)}


def test_without_faults_there_are_no_fixes(images: Path, tmp_path: Path) -> None:
    """With metadata stripped, the orientation is a feature."""
    manifest = built(images, tmp_path, "--strip-metadata")
    assert "fixes" not in manifest["splits"]["train"]["stats"]
    assert manifest["rejects"] == {"unsupported_format": 1}
    assert "Fixes</h2>" not in (tmp_path / "report.html").read_text()
    feature = {"name": "orientation", "kind": "int64", "source": "orientation"}
    assert feature in manifest["schema"]["features"]
    records = records_of(tmp_path).items()
    found = {name: record["orientation"].int64_list.value[0] for name, record in records}
    assert found.pop("a/turned.jpg") == 6
    assert set(found.values()) == {1}
    assert not any(b"Exif" in path.read_bytes() for path in tmp_path.glob("*.tfrecord*"))


def test_tensors(images: Path, tmp_path: Path) -> None:
    manifest = built(images, tmp_path, "--encode tensor --tensor-dtype float32 --grayscale")
    features = {feature["name"]: feature for feature in manifest["schema"]["features"]}
    assert features["image"] == {
        "name": "image", "kind": "image", "source": "image",
        "shape": [None, None, 1], "encoding": "tensor", "dtype": "float32",
    }  # fmt: skip
    tensor = tf.io.parse_tensor(image_in(records_of(tmp_path)["a/turned.jpg"]), tf.float32)
    assert tuple(tensor.shape) == (61, 47, 1)
    assert 0 <= float(tf.reduce_min(tensor)) < float(tf.reduce_max(tensor)) <= 1
    assert sw.open(str(tmp_path)).num_records == 6


def test_another_policy_needs_new_shards(images: Path, tmp_path: Path) -> None:
    built(images, tmp_path, "--on alpha=reject")
    assert try_build(images, tmp_path, "--on alpha=fix") == 1
    manifest = built(images, tmp_path, "--on alpha=fix --if-exists overwrite")
    assert manifest["rejects"] == {}
    assert manifest["splits"]["train"]["stats"]["fixes"] == {"alpha": 1}
