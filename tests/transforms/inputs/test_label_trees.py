"""Folders of images with a label file each, and Pascal VOC: layouts, splits, and invalid xml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.transforms.inputs.file_rules import find_companions, probes
from shardwright.transforms.inputs.folder_contents import _first_names
from shardwright.transforms.inputs.formats.voc import MAX_LABEL_BYTES, parse_voc
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.helpers import TINY_PNG
from tests.support.listing_cases import Case, by_case, listing, write_files
from tests.support.listings import detect

by_kind = pytest.mark.parametrize("kind", ["xml", "txt"])
SPLITS = ("train", "validation")
CLASSES = {"classes.txt": "cat\ndog\nzebra\n"}


def labels(folder: str, kind: str, names: Sequence[str]) -> dict[str, str]:
    make = det.voc_xml if kind == "xml" else det.yolo_txt
    return {f"{folder}/{name}.{kind}": make(det.OBJECTS[name]) for name in names}


def tree(kind: str, images: str, folder: str, names: Sequence[str]) -> dict[str, Any]:
    files = {**det.pictures(images, names), **labels(folder, kind, names)}
    return files if kind == "xml" else {**CLASSES, **files}


@by_kind
@pytest.mark.parametrize(("images", "folder"), [
    ("{}", "{}"), ("{}/images", "{}/labels"), ("images/{}", "labels/{}"),
    ("JPEGImages/{}", "ANNOTATIONS/xmls/{}"), ("data/{}/images", "data/{}/annotations"),
    # Without splits: beside their images, or in a folder of labels.
    (".", "."), ("images", "labels"), ("a/images", "a/labels/xmls"),
])  # fmt: skip
def test_layouts(tmp_path: Path, kind: str, images: str, folder: str) -> None:
    files: dict[str, Any] = {}
    for split, name in (("TRAIN", "a"), ("Valid", "ü c")):
        files |= tree(kind, images.format(split), folder.format(split), [name])
    splits = ["train", "validation"] if "{" in images else [None] * 2
    rows = {"split": splits, "x/objects/label": [["zebra", "cat"], ["dog"]]}
    Case(files, rows=rows).check(tmp_path)


@by_kind
@pytest.mark.parametrize("more", ["extra/images/c.png", "extra/c.png", "c.png"])
def test_images_beside_split_folders_are_in_no_split(tmp_path: Path, kind: str, more: str) -> None:
    files = {"docs/x.md": "x", more: det.picture()}
    for split, name in (("train", "a"), ("valid", "ü c")):
        files |= tree(kind, f"{split}/images", f"{split}/labels", [name])
    error = UsageError(r"has train, valid, whose names state splits, beside ")
    Case(files, error=error).check(tmp_path)


@by_kind
def test_in_stores(s3_bucket: Bucket, tmp_path: Path, kind: str) -> None:
    write_files(tmp_path, tree(kind, "images", "labels", ["a", "ü c"]))
    local, uri = listing(tmp_path), det.upload(tmp_path, s3_bucket, "data/set")
    found = listing(uri, storage=s3_bucket.options())
    det.assert_same_in_store(found.rows, local.rows, uri)
    assert found.reasons == local.reasons


@by_kind
def test_rejects_of_a_folder(tmp_path: Path, kind: str) -> None:
    files = {
        **tree(kind, "images", "labels", ["a", "ü c"]), **labels(".", kind, ["ü c"]),
        "images/empty.png": b"", ".DS_Store": "x", "notes.md": "x", "images/big.png": b"x",
        f"labels/big.{kind}": b" " * (MAX_LABEL_BYTES + 1), f"labels/left.{kind}": "x",
    }  # fmt: skip
    Case(files, rows={"id": ["images/a.png"]}, rejects={
        "notes.md": "other_file", "images/empty.png": "empty_file", "images/big.png": "bad_value",
        "images/ü c.png": "bad_value", f"labels/left.{kind}": "missing_file",
    }).check(tmp_path)  # fmt: skip


LISTS = {
    "train": "a", "val": "ü c ", "trainval": "a\nü c", "test": "b", "cat_train": "a  1\nb -1",
}  # fmt: skip
VOC_IDS = [f"JPEGImages/{name}.png" for name in "ab"] + ["JPEGImages/ü c.png"]
VOC_SPLITS = ["train", "test", "validation"]


def kit(base: str = "", lists: Any = LISTS, **more: Any) -> dict[str, Any]:
    files = {
        **labels("Annotations", "xml", tuple(det.OBJECTS)), **det.pictures("JPEGImages"),
        **{f"ImageSets/Main/{split}.txt": f"{names}\n" for split, names in lists.items()},
        "ImageSets/Segmentation/train.txt": "a\n", **more,
    }  # fmt: skip
    return {f"{base}{name}": content for name, content in files.items()}


def test_the_official_layout_of_voc(tmp_path: Path) -> None:
    masks = {"SegmentationClass/a.png": det.mask(3)}
    found = Case(kit(**masks), rows={
        "id": VOC_IDS, "split": VOC_SPLITS,
        **{f"x/objects/is_{flag}": [[0] * len(one) for one in det.OBJECTS.values()]
           for flag in ("truncated", "difficult")},
        "stated_size": [[det.HEIGHT, det.WIDTH] if one else None for one in det.OBJECTS.values()],
    }, source={
        "states_splits": True, "class_names": None,
        "description": "Pascal VOC at FOLDER: images with an xml of boxes for each, splits from "
        "ImageSets/Main; masks left out, which --schema segmentation takes from a table",
    }).listed(tmp_path)  # fmt: skip
    det.assert_same_objects(found.rows, tmp_path / "in", tolerance=1e-7, pose="unspecified")
    assert [(feature.name, feature.sequence) for feature in found.source.features] == [
        (f"objects/{name}", "objects")
        for name in ("bbox", "label", "pose", "is_truncated", "is_difficult")
    ]


MORE = {"JPEGImages/more.png": det.picture()}
NOT_VOC = {"a.png": det.picture(), "a.xml": "<html/>", "Annotations/notes.txt": "x"}
CASES = {
    **{
        f"several years {above}": Case(
            {**kit(f"{above}VOC2007/"), **kit(f"{above}VOC2012/")},
            rows={"id": [f"{above}VOC{year}/{name}" for year in (2007, 2012) for name in VOC_IDS],
                  "split": VOC_SPLITS * 2},
        )
        for above in ("", "data/")
    },
    # Lists decide which images there are.
    "lists": Case(
        kit(lists={"train": "a\ngone\n", "val": "ü c.png\na", "test": "b"}, **MORE),
        rows={"id": VOC_IDS, "split": VOC_SPLITS},
        rejects={
            "JPEGImages/more.png": "other_file", "a": "duplicate_id", "gone": "missing_file",
        },
    ),
    "trainval": Case(
        kit(lists={"trainval": "a\nü c\nmore", "test": "b"}, **MORE),
        rows={"split": ["train", "test", "train"]},
        rejects={"JPEGImages/more.png": "missing_label: it has no .xml file"},
    ),
    "no voc": Case(NOT_VOC, source={
        "description": "a folder at FOLDER, with the folders Annotations"
    }),
    "no folder": Case(NOT_VOC, "a.xml", options={"input_format": "voc"}, error=UsageError(
        "has no xml annotations: give a folder with JPEGImages/"
    )),
    "forced": Case(
        NOT_VOC, options={"input_format": "voc"}, rows={"id": []}, rejects={
            "Annotations/notes.txt": "other_file",
            "a.png": "bad_value: a.xml: its root is <html>, not <annotation>",
        },
    ),
}  # fmt: skip


@by_case(CASES)
def test_voc(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


BOX = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))


def annotation(parts: str) -> str:
    return f"<annotation><object>{parts}</object></annotation>"


@pytest.mark.parametrize(("xml", "told"), [
    ("", "it is not XML: no element found"),
    (det.voc_xml([("cat", 1, 2, 3, 4)])[:-20], "it is not XML: "),
    (b"\xff\xfe\x00", "it is not XML: "),
    ('<?xml version="1.0" encoding="no-such"?><annotation/>', "it is not XML: "),
    (f"<!DOCTYPE x [<!ENTITY l0 'ha'>{LAUGHS}]><annotation>&l12;</annotation>",
     "it has a DOCTYPE, which no annotation needs: remove it"),
    ("<annotation>&nothing;</annotation>", "it is not XML: undefined entity"),
    ("<a>" * 100_000 + "</a>" * 100_000, "its root is <a>"),
    (annotation(BOX), "object 1 has no <name>"),
    (annotation(f"<name> </name>{BOX}"), "object 1 has no <name>"),
    (annotation("<name>x</name>"), "object 1 (x) has no <bndbox> with a number as ymin"),
    (annotation(f"<name>x</name>{BOX.replace('3', 'three')}"), "with a number as xmax"),
    (annotation(f"<name>x</name>{BOX.replace('4', '')}"), "with a number as ymax"),
])  # fmt: skip
def test_invalid_xml_rejects_its_image(tmp_path: Path, xml: str | bytes, told: str) -> None:
    images = {"a.png": det.picture(), "b.png": det.picture(), "b.xml": det.voc_xml([])}
    found = listing(write_files(tmp_path, {**images, "a.xml": xml}))
    assert found.of("id") == [("b.png",)]
    assert found.details["a.png"].startswith("bad_value: a.xml: ")
    assert told in found.details["a.png"]


@pytest.mark.parametrize(("stated", "size"), [
    (None, (det.HEIGHT, det.WIDTH)), ("", None), ("<size><width>x</width></size>", None),
    ("<size><width>0</width><height>0</height></size>", None),
])  # fmt: skip
def test_attributes_of_an_object(stated: str | None, size: Any) -> None:
    flags = "<truncated>1</truncated><difficult> 1 </difficult>"
    more = f"<pose>Left</pose>{flags}<part><name>head</name></part>"
    given = {} if stated is None else {"size": stated}
    text = det.voc_xml([("Größe", 1, 2, 3, 4)], more=more, **given)
    found = parse_voc(text.encode())
    assert found == ([(1, (2, 1, 6, 4), ("Größe", "left", 1, 1))], size, None)


@pytest.mark.parametrize(("paths", "named", "masks"), [
    (["a.jpg", "a.txt", "b.txt"], ["a.txt"], []),
    (["images/t/a.jpg", "labels/t/a.txt", "labels/v/a.txt"], ["labels/t/a.txt"], []),
    (["x/JPEGImages/a.b.jpg", "x/Annotations/a.b.xml"], ["x/Annotations/a.b.xml"], []),
    (["a.jpg", "a.jpg.json", "README.md"], ["a.jpg.json"], []),
    (["images/a.jpg", "masks/a.png"], [], ["masks/a.png"]),
    (["train/images/a.jpg", "train/masks/a_mask.png"], [], ["train/masks/a_mask.png"]),
    (["b/1.png", "b/1_mask.png", "m/2.png"], [], ["b/1_mask.png"]),
    # Class folders with the same names of files, and classes of masks.
    (["cat/1.png", "dog/1.png"], [], []),
    (["mask/1.png", "no_mask/1.png"], [], []),
    (["with_mask/1.png", "2_mask.png"], [], []),
])  # fmt: skip
def test_files_with_the_name_of_an_image(
    paths: Sequence[str], named: Sequence[str], masks: Sequence[str]
) -> None:
    found = find_companions(paths, is_whole=True)
    assert [path for each in found.named.values() for path in each] == named
    assert found.masks == masks
    assert sorted([*found.images, *named, *found.others]) == sorted(paths)


@given(st.lists(st.integers(0, 9999), max_size=5000, unique=True), st.randoms())
def test_the_first_names_do_not_depend_on_the_order(numbers: list[int], random: object) -> None:
    names = [f"{number:04d}.{('txt', 'png')[number % 2]}" for number in numbers]
    first = _first_names(names)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert _first_names(names) == first
    for ending in ("txt", "png"):
        all_of = sorted(name for name in names if name.endswith(ending))
        assert [name for name in first[0] if name.endswith(ending)] == all_of[:1000]


@given(st.integers(0, 10_000))
def test_few_files_are_read(number: int) -> None:
    read = probes([str(place) for place in range(number)])
    assert min(number, 32) <= len(read) <= 64


@pytest.mark.long
def test_labels_beyond_the_first_page_of_a_store(s3_bucket: Bucket) -> None:
    """A listing begins with the images, and background images have no boxes."""
    xml = det.voc_xml([]).encode()
    s3_bucket.fill([f"in/data/{number:04d}.png" for number in range(1100)], TINY_PNG)
    s3_bucket.fill([f"in/labels/{number:04d}.xml" for number in range(1100)], xml)
    assert detect(f"{s3_bucket.uri}/in", {}, storage=s3_bucket.options()).name == "voc"
