"""Whole builds with a policy: fixes and rejects are counted in manifest, shards and report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import rejects_of
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


@pytest.mark.long
def test_another_policy_needs_new_shards(images: Path, tmp_path: Path) -> None:
    built(images, tmp_path, "--on alpha=reject")
    assert try_build(images, tmp_path, "--on alpha=fix") == 1
    manifest = built(images, tmp_path, "--on alpha=fix --if-exists overwrite")
    assert manifest["rejects"] == {}
    assert manifest["splits"]["train"]["stats"]["fixes"] == {"alpha": 1, "exif_kept": 1}


def coco_of(root: Path, width: int = 61, height: int = 47) -> Path:
    """Write a COCO json of an upright and a turned image, with a box each; return it.

    Args:
        root: The folder.
        width: Width that it states of the turned one, whose stored pixels are 61 x 47.
        height: Height.
    """
    sizes = {"plain.jpg": (61, 47), "turned.jpg": (width, height)}
    images = [
        {"id": number, "file_name": name, "width": sides[0], "height": sides[1]}
        for number, (name, sides) in enumerate(sizes.items())
    ]
    box = {"category_id": 1, "bbox": [0, 0, 9, 9], "segmentation": [[0, 0, 9]]}
    boxes = [{"id": number, "image_id": number, **box} for number in range(2)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (root / "plain.jpg").write_bytes(drawn("JPEG"))
    (root / "turned.jpg").write_bytes(drawn("JPEG", exif=exif_block(6)))
    (root / "boxes.json").write_text(json.dumps(content))
    return root / "boxes.json"


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coco_of(tmp_path_factory.mktemp("boxed"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--encode jpeg --resize 40x40 --fit cover", "--fit cover crops or pads images, and the "
         "boxes of 'objects/bbox' would stay where they are"),
        ("--encode jpeg --resize 40x40 --fit contain", "--fit contain crops or pads images"),
        ("--max-aspect 2 --on aspect=fix", "--on aspect=fix crops or pads images"),
        ("--encode jpeg --resize 40x40", "--resize 40x40 scales images, and 'objects/segmentation' "
         "is in pixels of the file"),
        ("--encode png --max-side 20", "--max-side 20 scales images, and 'objects/segm"),
        ("--min-side 90 --on small=fix", "--on small=fix scales images, and 'objects/segm"),
    ],
)  # fmt: skip
def test_no_image_moves_under_its_boxes(
    boxed: Path, tmp_path: Path, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert try_build(boxed, tmp_path / "out", options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("encode", ["--encode jpeg --max-side 30", "--encode keep"])
def test_boxes_of_an_image_that_exif_turns_are_a_choice(
    boxed: Path, tmp_path: Path, encode: str
) -> None:
    options = f"--schema detection {encode}"
    manifest = built(boxed, tmp_path / "out", options)
    assert manifest["rejects"] == {"policy_exif": 1}
    [row] = rejects_of(tmp_path / "out")
    assert row["detail"] == (
        "EXIF orientation 6 (give --on exif=fix if the boxes are of the turned pixels, else "
        "exif=keep)"
    )
    long, short = (61, 47) if "keep" in encode else (30, 23)
    for action, shape in (("fix", (long, short, 3)), ("keep", (short, long, 3))):
        stated = coco_of(tmp_path, *((47, 61) if action == "fix" else (61, 47)))
        built(stated, tmp_path / action, f"{options} --on exif={action}")
        image = image_in(records_of(tmp_path / action)["turned.jpg"])
        assert tuple(tf.io.decode_image(image, 3).shape) == shape


@pytest.mark.long_but_first
@pytest.mark.parametrize(("stated", "options", "fix"), [
    ((61, 47), "--on exif=fix", "EXIF turns it, and they are of the other pixels: give --on "
     "exif=keep"),
    ((47, 61), "--on exif=keep", "and they are of the other pixels: give --on exif=fix"),
    ((47, 61), "--on exif=keep --encode jpeg --max-side 30", "give --on exif=fix"),
    ((61, 61), "--on exif=keep", "correct the size, or give the image that was annotated"),
    ((64, 47), "--on exif=fix", "correct the size, or give the image that was annotated"),
    ((122, 93), "--on exif=keep", ""),
    ((20, 15), "--on exif=keep --strip-metadata", ""),
    ((20, 15), "--on exif=keep --encode jpeg --resize 8x8", ""),
    ((20, 17), "--on exif=keep --transform tests.support.user_transforms:named_tiles", "annotated"),
    ((20, 17), "--on exif=keep --check none", "annotated"),
])  # fmt: skip
def test_boxes_of_another_size_than_their_image(
    tmp_path: Path, stated: tuple[int, int], options: str, fix: str
) -> None:
    """Boxes are fractions of the size that is stated, so an image of another shape is none."""
    manifest = built(coco_of(tmp_path, *stated), tmp_path / "out", f"--schema detection {options}")
    assert manifest["rejects"] == ({"bad_value": 1} if fix else {})
    for row in rejects_of(tmp_path / "out"):
        size = "47 x 61" if "exif=fix" in options else "61 x 47"
        told = f"its annotations state {stated[0]} x {stated[1]} pixels, but it has {size}, so its"
        assert row["id"] == "turned.jpg"
        assert row["detail"].startswith(told)
        assert row["detail"].endswith(fix)
