"""Layouts as tools and people leave them: their labels are read, or the build says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests.support import detection_makers as det
from tests.support.archive_files import features_of, pack_tar, pack_zip
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import png_of
from tests.support.listings import detect, listed

Files = Mapping[str, bytes | str]
NAMES = "cat\ndog\nzebra\n"
BOX = [("dog", 4, 2, 8, 10)]
TXT, XML = det.yolo_txt(BOX), det.voc_xml(BOX)
ORIENTED = "1 0.1 0.1 0.5 0.1 0.5 0.6 0.1 0.6\n"
COCO = json.dumps({
    "categories": [{"id": 1, "name": "dog"}], "images": [
        {"id": n, "file_name": f"{n}.png", "width": det.WIDTH, "height": det.HEIGHT}
        for n in range(4)
    ],
    "annotations": [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [4, 2, 8, 10], "area": 80, "iscrowd": 0}
        for n in range(4)
    ],
})  # fmt: skip
CVAT = '<annotations><image id="0" name="0.png"><box label="dog" xtl="1"/></image></annotations>'
CREATE_ML = json.dumps([{"image": "0.png", "annotations": [{"label": "dog"}]}])
OPEN_IMAGES = "ImageID,LabelName,XMin,XMax,YMin,YMax\n000a1b2c3d4e5f60,/m/0bt9lr,0.1,0.2,0.1,0.2\n"


def as_bytes(files: Files) -> dict[str, bytes]:
    return {
        name: data if isinstance(data, bytes) else data.encode() for name, data in files.items()
    }


def images(folder: str, *numbers: int, end: str = "") -> dict[str, bytes]:
    return {f"{folder}/{n}{end}.png": det.picture(color=20 * n) for n in numbers or range(4)}


def texts(folder: str, text: str, ending: str, *numbers: int) -> dict[str, str]:
    return {f"{folder}/{n}.{ending}": text for n in numbers or range(4)}


CVAT_YOLO = {
    "obj.names": NAMES, "obj.data": "classes = 3\ntrain = data/train.txt\n",
    **images("obj_train_data", 0, 1), **texts("obj_train_data", TXT, "txt", 0, 1),
    **images("obj_valid_data", 2, 3), **texts("obj_valid_data", TXT, "txt", 2, 3),
}  # fmt: skip
YOLO = {"classes.txt": NAMES, **images("images"), **texts("labels", TXT, "txt")}
VALID = [*["train/dog"] * 2, *["validation/dog"] * 2]


def built(root: Path, *options: str) -> tuple[int, list[str]]:
    """Return the exit code of a build, and "split/class" of each record, sorted."""
    output = root.parent / "dataset"
    code = build(root, output, *options)
    if code:
        return code, []
    schema = read_manifest(Folder(str(output))).schema
    found = []
    for split, features in features_of(output):
        labels = [
            schema.names_of(feature)[number]
            for feature in schema.features
            if feature.name in ("label", "objects/label")
            for number in features.get(feature.name, ())
        ]
        found.append("/".join([split, *labels]))
    return code, sorted(found)


@pytest.mark.parametrize(("files", "records"), [
    ({**YOLO, **{f"images/e{n}.png": png_of(n) for n in range(9)},
      **{f"labels/e{n}.txt": "" for n in range(9)}}, ["train"] * 9 + ["train/dog"] * 4),
    ({"classes.txt": NAMES, **images("siteA", 0, 1), **texts("siteA", TXT, "txt", 0, 1),
      **images("siteB", 2, 3), **texts("siteB", TXT, "txt", 2, 3)}, ["train/dog"] * 4),
    (CVAT_YOLO, VALID),
    ({**CVAT_YOLO, "train.txt": "data/obj_train_data/0.png\ndata/obj_train_data/1.png\n",
      "valid.txt": "data/obj_valid_data/2.png\ndata/obj_valid_data/3.png\n"}, VALID),
    ({"classes.txt": NAMES, **images("images"), **texts("labels", ORIENTED, "txt")},
     ["train/dog"] * 4),
    ({**images("data"), **texts("labels", XML, "xml")}, ["train/dog"] * 4),
    ({**images("images"), "result.json": COCO.replace('file_name": "', 'file_name": "images/')},
     ["train/dog"] * 4),
    ({**images("data"), "labels.json": COCO}, ["train/dog"] * 4),
    ({**images("train/train/cats", 0), **images("train/train/dogs", 1),
      **images("test/test/cats", 2), **images("test/test/dogs", 3)},
     ["test/cats", "test/dogs", "train/cats", "train/dogs"]),
    ({**images("training_set/training_set/cats", 0), **images("training_set/training_set/dogs", 1),
      **images("test_set/test_set/dogs", 3)}, ["test/dogs", "train/cats", "train/dogs"]),
])  # fmt: skip
def test_labels_are_read(tmp_path: Path, files: Files, records: list[str]) -> None:
    assert built(det.write(tmp_path / "in", files)) == (0, records)


@pytest.mark.parametrize(("files", "told"), [
    ({**images("images"), "annotations.xml": CVAT},
     ["annotations.xml, which names images and is not read: export it as COCO, Pascal VOC or YOLO",
      "the classes would be the folders images; to leave them out, give --input-format folder"]),
    ({**images("images"), "_annotations.createml.json": CREATE_ML}, ["_annotations.createml.json"]),
    ({"images/000a1b2c3d4e5f60.png": det.picture(), "boxes.csv": OPEN_IMAGES},
     ["boxes.csv, which names images and is not read: give it as INPUT, or with --labels"]),
    ({**images("images"), "train.txt": "images/0.png 3\nimages/1.png 4\n"},
     ["train.txt, which names images and is not read: export it as COCO, Pascal VOC or YOLO, or "
      "give a table with --labels"]),
    ({**images("images"), **texts("labelTxt", "9 9 20 9 20 18 9 18 ship 0\n", "txt")},
     ["4 .txt with names of images, which are not read: give --input-format yolo, export them as "
      "COCO"]),
    ({**images("images"), **texts("annotations", "<object/>", "xml")},
     ["4 .xml with names of images, which are not read: give --input-format voc, export them as "
      "COCO"]),
    ({**images("train/images"), **images("train/masks")},
     ["4 images that are masks of others by their names, such as train/masks/0.png: for "
      "segmentation, give a table with the columns image and mask, and --schema segmentation"]),
    ({**images("benign"), **images("benign", end="_mask")}, ["such as benign/0_mask.png"]),
])  # fmt: skip
def test_what_no_format_reads_is_refused_unless_chosen(
    tmp_path: Path, files: Files, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    root = det.write(tmp_path / "in", files)
    assert built(root) == (2, [])
    error = capsys.readouterr().err
    assert [text for text in told if text not in error] == []
    rows, _ = listed(detect(str(root), input_format="folder"))
    assert len(rows) == sum(name.endswith(".png") for name in files)


@pytest.mark.parametrize("pack", [pack_tar, pack_zip])
def test_labels_in_archives_are_refused(
    tmp_path: Path, pack: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = pack.__name__.removeprefix("pack_")
    path = pack(tmp_path / f"in.{kind}", as_bytes(YOLO))
    assert built(path) == (2, [])
    told = (
        "4 .txt with names of images, which are not read: unpack it, and give its folder as INPUT"
    )
    assert told in capsys.readouterr().err
    assert len(listed(detect(str(path), input_format=kind))[0]) == 4


@pytest.mark.parametrize(("members", "records"), [
    ({"im0.v1.png": png_of(0), "im0.v1.cls": "7", "im1.v1.png": png_of(1), "im1.v1.cls": "8"},
     ["train/7", "train/8"]),
    ({**images(".", 0, 1), "0.cls": "7", "0.seg.png": det.mask(1), "1.cls": "8",
      "1.seg.gif": det.mask(2)}, ["train/7", "train/8"]),
])  # fmt: skip
def test_tars_with_dots_in_names(tmp_path: Path, members: Files, records: list[str]) -> None:
    assert built(pack_tar(tmp_path / "a.tar", as_bytes(members))) == (0, records)


def test_captions_in_class_folders_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their classes are right, and files such as a README.md name no image."""
    files = {**images("cats", 0, 1), **images("dogs", 2, 3), "README.md": "see cats/0.png"}
    root = det.write(tmp_path / "in", {**files, "cats/0.txt": "a cat", "dogs/3.txt": "a dog"})
    assert built(root) == (0, ["train/cats"] * 2 + ["train/dogs"] * 2)
    assert "has 2 .txt with names of images, which are not read" in caplog.text
    assert "README" not in caplog.text


def test_a_table_that_an_option_reads_is_not_unread(tmp_path: Path) -> None:
    rows = "".join(f"images/{n}.png,dog\n" for n in range(4))
    root = det.write(tmp_path / "in", {**images("images"), "labels.csv": f"id,label\n{rows}"})
    assert built(root) == (2, [])
    assert built(root, "--labels", str(root / "labels.csv")) == (0, ["train/dog"] * 4)
