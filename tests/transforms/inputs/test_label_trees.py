"""Folders of images with a label file each: layouts, splits, stores, and files of no image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shardwright.errors import UsageError
from shardwright.transforms.inputs.formats.voc import MAX_LABEL_BYTES
from tests.support import detection_makers as det
from tests.support.buckets import Bucket

NAMES = {"classes.txt": "cat\ndog\nzebra\n"}
KINDS = ("xml", "txt")
pytestmark = pytest.mark.parametrize("kind", KINDS)


def labels(folder: str, kind: str, names: Sequence[str] = tuple(det.OBJECTS)) -> dict[str, str]:
    make = det.voc_xml if kind == "xml" else det.yolo_txt
    return {f"{folder}/{name}.{kind}": make(det.OBJECTS[name]) for name in names}


def tree(kind: str, images: str, folder: str, names: Sequence[str]) -> Mapping[str, bytes | str]:
    return {**NAMES, **det.pictures(images, names), **labels(folder, kind, names)}


def found_in(root: Path) -> dict[str | None, list[str]]:
    _, rows, rejects = det.listed(root)
    assert not rejects or {reject.id for reject in rejects} <= NAMES.keys()
    return {row["split"]: row["x/objects/label"] for row in rows}


@pytest.mark.parametrize(("images", "folder", "splits"), [
    ("{}", "{}", ("train", "validation")),
    ("{}/images", "{}/labels", ("train", "validation")),
    ("images/{}", "labels/{}", ("train", "validation")),
    ("JPEGImages/{}", "ANNOTATIONS/xmls/{}", ("train", "validation")),
    ("data/{}/images", "data/{}/annotations", ("train", "validation")),
])  # fmt: skip
def test_split_folders(
    tmp_path: Path, kind: str, images: str, folder: str, splits: tuple[str, str]
) -> None:
    for split, name in (("TRAIN", "a"), ("Valid", "ü c")):
        det.write(tmp_path, tree(kind, images.format(split), folder.format(split), [name]))
    assert found_in(tmp_path) == dict(zip(splits, (["zebra", "cat"], ["dog"]), strict=True))


@pytest.mark.parametrize(("images", "folder"), [
    (".", "."), ("images", "labels"), ("jpegimages", "ANNOTATIONS"), ("a/images", "a/labels/xmls"),
])  # fmt: skip
def test_layouts(tmp_path: Path, kind: str, images: str, folder: str) -> None:
    """Label files are beside their images, or in a folder of labels."""
    assert found_in(det.write(tmp_path, tree(kind, images, folder, "a"))) == {
        None: ["zebra", "cat"]
    }


@pytest.mark.parametrize("more", ["extra/images/c.png", "extra/c.png", "c.png"])
def test_images_beside_split_folders_are_in_no_split(tmp_path: Path, kind: str, more: str) -> None:
    for split, name in (("train", "a"), ("valid", "ü c")):
        det.write(tmp_path, tree(kind, f"{split}/images", f"{split}/labels", [name]))
    det.write(tmp_path, {"docs/x.md": "x"})
    assert [row["split"] for row in det.listed(tmp_path)[1]] == ["train", "validation"]
    det.write(tmp_path, {more: det.picture()})
    with pytest.raises(UsageError, match=r"has train, valid, whose names state splits, beside "):
        det.listed(tmp_path)


def test_in_stores(s3_bucket: Bucket, tmp_path: Path, kind: str) -> None:
    det.write(tmp_path, tree(kind, "images", "labels", ["a", "ü c"]))
    uri = det.upload(tmp_path, s3_bucket, "data/set")
    _, rows, rejects = det.listed(uri, s3_bucket.options())
    _, local, local_rejects = det.listed(tmp_path)
    det.assert_same_in_store(rows, local, uri)
    assert det.reasons(rejects) == det.reasons(local_rejects)


def test_rejects_of_a_folder(tmp_path: Path, kind: str) -> None:
    det.write(tmp_path, tree(kind, "images", "labels", ["a", "ü c"]))
    more = {"images/empty.png": b"", ".DS_Store": "x", "notes.md": "x", "images/big.png": b"x"}
    big = {f"labels/big.{kind}": b" " * (MAX_LABEL_BYTES + 1)}
    det.write(tmp_path, {**more, **big, **labels(".", kind, ["ü c"]), f"labels/left.{kind}": "x"})
    _, rows, rejects = det.listed(tmp_path)
    assert [row["id"] for row in rows] == ["images/a.png"]
    found = dict(det.reasons(rejects))
    assert found.pop("classes.txt", "other_file") == "other_file"  # YOLO reads it
    assert found == {
        "notes.md": "other_file", "images/empty.png": "empty_file", "images/big.png": "bad_value",
        "images/ü c.png": "bad_value", f"labels/left.{kind}": "missing_file",
    }  # fmt: skip
