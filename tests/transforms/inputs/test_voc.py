"""Pascal VOC as INPUT: its own layout, lists of splits, and invalid xml files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.transforms.inputs.formats.voc import parse_voc
from tests.support import detection_makers as det
from tests.support.listings import columns_of

SPLITS = [
    (f"JPEGImages/{name}.png", split)
    for name, split in (("a", "train"), ("b", "test"), ("ü c", "validation"))
]


def kit(root: Path, base: str = "") -> Path:
    """Write the layout of VOC's own archives."""
    lists = {
        "train": "a\n", "val": "ü c \n", "trainval": "a\nü c\n", "test": "b\n",
        "cat_train": "a  1\nb -1\n",
    }  # fmt: skip
    files = {f"ImageSets/Main/{name}.txt": text for name, text in lists.items()}
    files |= {f"Annotations/{name}.xml": det.voc_xml(found) for name, found in det.OBJECTS.items()}
    files["ImageSets/Segmentation/train.txt"] = "a\n"
    more = {"SegmentationClass/a.png": det.mask(3), **det.pictures("JPEGImages")}
    det.write(root / base, {**files, **more})
    return root


def test_the_official_layout(tmp_path: Path) -> None:
    source, rows, rejects = det.listed(kit(tmp_path))
    assert source.description == (
        f"Pascal VOC at {tmp_path}: images with an xml of boxes for each, "
        "splits from ImageSets/Main; masks left out, which --schema segmentation takes from a table"
    )
    assert (source.states_splits, source.class_names, rejects) == (True, None, [])
    assert columns_of(rows, "id", "split") == SPLITS
    det.assert_same_objects(rows, tmp_path, tolerance=1e-7, pose="unspecified")
    flags = columns_of(rows, "x/objects/is_truncated", "x/objects/is_difficult")
    assert flags == [([0] * len(objects),) * 2 for objects in det.OBJECTS.values()]
    assert [feature.name for feature in source.features] == [
        f"objects/{name}" for name in ("bbox", "label", "pose", "is_truncated", "is_difficult")
    ]
    assert {feature.sequence for feature in source.features} == {"objects"}
    sizes = [[det.HEIGHT, det.WIDTH] if objects else None for objects in det.OBJECTS.values()]
    assert [row["stated_size"] for row in rows] == sizes


@pytest.mark.parametrize("above", ["", "data/"])
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


def test_folders_and_files_that_are_not_voc(tmp_path: Path) -> None:
    det.write(tmp_path, {"a.png": det.picture(), "a.xml": "<html/>", "Annotations/notes.txt": "x"})
    description = f"a folder at {tmp_path}, with the folders Annotations"
    assert det.listed(tmp_path)[0].description == description
    message = "has no xml annotations: give a folder with JPEGImages/"
    with pytest.raises(UsageError, match=message):
        det.listed(tmp_path / "a.xml", input_format="voc")
    _, _, [_, reject] = det.listed(tmp_path, input_format="voc")
    assert reject.detail == "a.xml: its root is <html>, not <annotation>"


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
    ("<a>" * 100_000 + "</a>" * 100_000, "its root is <a>"),
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
