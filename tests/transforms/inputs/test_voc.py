"""Pascal VOC as INPUT: layouts, splits, masks, stores, whole builds, and invalid xml files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardwright.errors import UsageError
from shardwright.transforms.inputs.formats.label_trees import MAX_LABEL_BYTES, BadLabel
from shardwright.transforms.inputs.formats.voc import parse_voc
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import reasons_of
from tests.support.listings import columns_of

SPLITS = [
    (f"JPEGImages/{name}.png", split)
    for name, split in (("a", "train"), ("b", "test"), ("ü c", "validation"))
]


def xmls(folder: str, *names: str) -> dict[str, str]:
    return {f"{folder}/{name}.xml": det.voc_xml(det.OBJECTS[name]) for name in names or det.OBJECTS}


def kit(root: Path, base: str = "") -> Path:
    """Write the layout of VOC's own archives."""
    lists = {
        "train": "a\n", "val": "ü c \n", "trainval": "a\nü c\n", "test": "b\n",
        "cat_train": "a  1\nb -1\n",
    }  # fmt: skip
    files = {f"ImageSets/Main/{name}.txt": text for name, text in lists.items()}
    files |= {"ImageSets/Segmentation/train.txt": "a\n", **xmls("Annotations")}
    more = {"SegmentationClass/a.png": det.mask(3), **det.pictures("JPEGImages")}
    det.write(root / base, {**files, **more})
    return root


def test_the_official_layout(tmp_path: Path) -> None:
    source, rows, rejects = det.listed(kit(tmp_path))
    assert source.description == (
        f"Pascal VOC at {tmp_path}: images with an xml of boxes for each, "
        "splits from ImageSets/Main, masks"
    )
    assert (source.states_splits, source.class_names, rejects) == (True, None, [])
    assert columns_of(rows, "id", "split") == SPLITS
    det.assert_same_objects(rows, tmp_path, tolerance=1e-7, pose="unspecified")
    flags = columns_of(rows, "x/objects/is_truncated", "x/objects/is_difficult")
    assert flags == [([0] * len(objects),) * 2 for objects in det.OBJECTS.values()]
    stored = tmp_path / "SegmentationClass" / "a.png"
    masks = [row["x/segmentation"] for row in rows]
    assert masks[0].items() >= {"uri": str(stored), "num_bytes": stored.stat().st_size}.items()
    assert masks[1:] == [None, None]
    assert [row["x/segmentation_object"] for row in rows] == [None] * 3
    assert [feature.name for feature in source.features] == [
        f"objects/{name}" for name in ("bbox", "label", "pose", "is_truncated", "is_difficult")
    ]
    assert {feature.sequence for feature in source.features} == {"objects"}
    sizes = [[det.HEIGHT, det.WIDTH] if objects else None for objects in det.OBJECTS.values()]
    assert [row["stated_size"] for row in rows] == sizes


@pytest.mark.parametrize("above", ["", "VOCdevkit/", "data/"])
def test_several_years_in_a_devkit(tmp_path: Path, above: str) -> None:
    for year in ("VOC2007", "VOC2012"):
        kit(tmp_path, f"{above}{year}/")
    source, rows, rejects = det.listed(tmp_path)
    assert (source.states_splits, rejects) == (True, [])
    assert columns_of(rows, "id", "split")[2:4] == [
        (f"{above}VOC2007/JPEGImages/ü c.png", "validation"),
        (f"{above}VOC2012/JPEGImages/a.png", "train"),
    ]


def test_lists_decide_which_images_there_are(tmp_path: Path) -> None:
    det.write(kit(tmp_path), {"JPEGImages/more.png": det.picture(), "notes.md": "x"})
    main = tmp_path / "ImageSets" / "Main"
    det.write(main, {"train.txt": "a\ngone\n\n", "val.txt": "ü c.png\na\n"})
    _, rows, rejects = det.listed(tmp_path)
    assert columns_of(rows, "id", "split") == SPLITS
    assert sorted(det.reasons(rejects)) == [
        ("JPEGImages/more.png", "other_file"), ("a", "duplicate_id"), ("gone", "missing_file"),
        ("notes.md", "other_file"),
    ]  # fmt: skip
    for name in ("train.txt", "val.txt"):
        (main / name).unlink()
    det.write(main, {"trainval.txt": "a\nü c\nmore\n", "Annotations/more.xml": det.voc_xml([])})
    _, rows, _ = det.listed(tmp_path)
    assert [row["split"] for row in rows] == ["train", "test", "train"]


@pytest.mark.parametrize(("images", "labels"), [
    (".", "."), ("images", "annotations"), ("images", "annotations/xmls"),
    ("JPEGImages", "Annotations"), ("jpegimages", "ANNOTATIONS"),
])  # fmt: skip
def test_other_layouts(tmp_path: Path, images: str, labels: str) -> None:
    source, rows, rejects = det.listed(
        det.write(tmp_path, {**det.pictures(images), **xmls(labels)})
    )
    told = f"Pascal VOC at {tmp_path}: images with an xml of boxes for each"
    assert (source.description, source.states_splits, rejects) == (told, False, [])
    assert [
        (row["id"].rpartition("/")[2], row["split"], row["x/objects/label"]) for row in rows
    ] == [(f"{name}.png", None, labels) for name, labels in det.LABELS.items()]


@pytest.mark.parametrize(("above", "images", "labels"), [
    ("", "", ""), ("", "/images", "/annotations"), ("data/", "/images", "/annotations"),
])  # fmt: skip
def test_split_folders(tmp_path: Path, above: str, images: str, labels: str) -> None:
    for split, name in ((f"{above}train", "a"), (f"{above}Valid", "b")):
        det.write(tmp_path, {**det.pictures(split + images, [name]), **xmls(split + labels, name)})
    source, rows, rejects = det.listed(tmp_path)
    assert (source.states_splits, rejects) == (True, [])
    found = {row["split"]: row["x/objects/label"] for row in rows}
    assert found == {"train": ["zebra", "cat"], "validation": []}


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_in_stores(bucket: Bucket, tmp_path: Path) -> None:
    uri = det.upload(kit(tmp_path), bucket, "data/voc")
    source, rows, rejects = det.listed(uri, bucket.options())
    assert (source.description.startswith(f"Pascal VOC at {uri}: "), rejects) == (True, [])
    det.assert_same_in_store(rows, det.listed(tmp_path)[1], uri, "x/segmentation")
    assert rows[0]["x/segmentation"]["uri"] == f"{uri}/SegmentationClass/a.png"
    assert rows[0]["x/segmentation"]["etag"]


def test_rejects_of_a_folder(tmp_path: Path) -> None:
    labels = {**xmls("Annotations", "a", "ü c"), **xmls(".", "ü c")}
    more = {"Annotations/left.xml": det.voc_xml([]), "JPEGImages/empty.png": b"", ".DS_Store": "x"}
    big = {"JPEGImages/big.png": det.picture(), "Annotations/big.xml": b" " * (MAX_LABEL_BYTES + 1)}
    det.write(tmp_path, {**det.pictures("JPEGImages"), **labels, **more, **big})
    _, rows, rejects = det.listed(tmp_path)
    assert [row["id"] for row in rows] == ["JPEGImages/a.png"]
    assert sorted(det.reasons(rejects)) == [
        ("Annotations/left.xml", "missing_file"), ("JPEGImages/b.png", "missing_label"),
        ("JPEGImages/big.png", "bad_value"), ("JPEGImages/empty.png", "empty_file"),
        ("JPEGImages/ü c.png", "bad_value"),
    ]  # fmt: skip


def test_folders_and_files_that_are_not_voc(tmp_path: Path) -> None:
    det.write(tmp_path, {"a.png": det.picture(), "a.xml": "<html/>", "Annotations/notes.txt": "x"})
    description = f"a folder at {tmp_path}, with the folders Annotations"
    assert det.listed(tmp_path)[0].description == description
    message = "has no xml annotations: give a folder with JPEGImages/"
    with pytest.raises(UsageError, match=message):
        det.listed(tmp_path / "a.xml", input_format="voc")
    _, _, [_, reject] = det.listed(tmp_path, input_format="voc")
    assert reject.detail == "a.xml: its root is <html>, not <annotation>"


def test_a_whole_build_of_masks(tmp_path: Path) -> None:
    """Images without a mask are rejects; class names come from the xml files."""
    options = ("--max-reject-fraction", "0.7", "--schema")
    assert build(kit(tmp_path / "in"), tmp_path / "out", *options, "segmentation") == 0
    [(key, record)] = det.records_of(tmp_path / "out").items()
    pixels = np.asarray(Image.open(io.BytesIO(record["segmentation_mask"][0])))
    assert (key, set(pixels.flat)) == ("JPEGImages/a.png", {3})
    assert pixels.shape == (det.HEIGHT, det.WIDTH)
    others = dict.fromkeys(["JPEGImages/b.png", "JPEGImages/ü c.png"], "bad_value")
    assert reasons_of(tmp_path / "out") == others
    assert build(tmp_path / "in", tmp_path / "boxes") == 0
    labels = {key: one["objects/label"] for key, one in det.records_of(tmp_path / "boxes").items()}
    assert labels == {
        f"JPEGImages/{name}.png": [det.CLASSES.index(label) for label in found]
        for name, found in det.LABELS.items()
    }


BOX = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))


def annotation(parts: str) -> str:
    return f"<annotation><object>{parts}</object></annotation>"


@pytest.mark.parametrize(("xml", "told"), [
    ("", "it is not XML: no element found"),
    ("hello", "it is not XML: "),
    (det.voc_xml([("cat", 1, 2, 3, 4)])[:-20], "it is not XML: "),
    ("<html/>", "its root is <html>, not <annotation>"),
    (b"\xff\xfe\x00", "it is not XML: "),
    ('<?xml version="1.0" encoding="no-such"?><annotation/>', "it is not XML: "),
    (f"<!DOCTYPE x [<!ENTITY l0 'ha'>{LAUGHS}]><annotation>&l12;</annotation>",
     "it has a DOCTYPE, which no annotation needs: remove it"),
    ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><annotation/>', "it has a DOCTYPE"),
    ("<annotation>&nothing;</annotation>", "it is not XML: undefined entity"),
    (annotation(BOX), "object 1 has no <name>"),
    (annotation(f"<name> </name>{BOX}"), "object 1 has no <name>"),
    (annotation("<name>x</name>"), "object 1 (x) has no <bndbox> with a number as ymin"),
    (annotation(f"<name>x</name>{BOX.replace('3', 'three')}"), "with a number as xmax"),
    (annotation(f"<name>x</name>{BOX.replace('4', '')}"), "with a number as ymax"),
])  # fmt: skip
def test_invalid_xml_rejects_its_image(tmp_path: Path, xml: str | bytes, told: str) -> None:
    images = {"a.png": det.picture(), "b.png": det.picture(), "b.xml": det.voc_xml([])}
    _, rows, [reject] = det.listed(det.write(tmp_path, {**images, "a.xml": xml}))
    assert [row["id"] for row in rows] == ["b.png"]
    assert (reject.id, reject.reason) == ("a.png", "bad_value")
    assert reject.detail.startswith("a.xml: ")
    assert told in reject.detail


@pytest.mark.parametrize(
    "size", ["", "<size><width>0</width><height>0</height></size>", "<size><width>x</width></size>"]
)
def test_a_size_that_is_not_stated_is_the_headers(tmp_path: Path, size: str) -> None:
    xml = det.voc_xml([("cat", 4.0, 2.0, 8.0, 10.0)], size)
    det.write(tmp_path, {"a.png": det.picture(80, 40), "b.png": b"no image", "c.png": b"no image"})
    det.write(tmp_path, {"a.xml": xml, "b.xml": xml, "c.xml": det.voc_xml([], size)})
    _, rows, rejects = det.listed(tmp_path)
    assert {row["id"]: row["x/objects/bbox"] for row in rows} == {
        "a.png": [pytest.approx([0.05, 0.05, 0.3, 0.15])],
        "c.png": [],
    }
    assert det.reasons(rejects) == [("b.png", "bad_value")]


def test_attributes_of_an_object() -> None:
    flags = "<truncated>1</truncated><difficult> 1 </difficult>"
    more = f"<pose>Left</pose>{flags}<part><name>head</name></part>"
    [found], size = parse_voc(det.voc_xml([("Größe", 1, 2, 3, 4)], more=more).encode("utf-8"))
    assert found == (1, (2, 1, 6, 4), ("Größe", "left", 1, 1))
    assert size == (det.HEIGHT, det.WIDTH)


def test_deeply_nested_xml() -> None:
    with pytest.raises(BadLabel, match="its root is <a>"):
        parse_voc(b"<a>" * 100_000 + b"</a>" * 100_000)


def test_a_folder_without_a_split_beside_split_folders_is_refused(tmp_path: Path) -> None:
    for folder in ("train", "test"):
        xml = det.voc_xml(det.OBJECTS["a"])
        det.write(tmp_path, {**det.pictures(folder, "a"), f"{folder}/a.xml": xml, "docs/x.md": "x"})
    assert det.listed(tmp_path)[0].states_splits
    det.write(tmp_path, det.pictures("extra", "a"))
    told = r"has test, train, whose names state splits, beside extra, without a split"
    with pytest.raises(UsageError, match=told):
        det.listed(tmp_path)
