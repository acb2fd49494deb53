"""Pascal VOC as INPUT: its folders and those of others, splits, masks, and xml files that are none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.errors import UsageError
from tests.buckets import Bucket
from tests.build_helpers import build, reasons_of
from tests.detection_makers import (
    HEIGHT,
    OBJECTS,
    WIDTH,
    expected_boxes,
    listed,
    mask,
    picture,
    pictures,
    reasons,
    records_of,
    upload,
    voc_xml,
    write,
)
from transforms.inputs.annotations.label_trees import MAX_LABEL_BYTES
from transforms.inputs.annotations.voc_labels import BadLabel, parse_voc

BOX = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))


def xmls(folder: str, names: list[str] = list(OBJECTS)) -> dict[str, str]:  # noqa: B006 - read only
    return {f"{folder}/{name}.xml": voc_xml(OBJECTS[name]) for name in names}


def kit(root: Path, base: str = "") -> Path:
    """The layout of VOC's own archives."""
    lists = {
        "train": "a\n",
        "val": "ü c \n",
        "trainval": "a\nü c\n",
        "test": "b\n",
        "cat_train": "a  1\nb -1\n",
    }
    write(root, {f"{base}ImageSets/Main/{name}.txt": text for name, text in lists.items()})
    write(
        root,
        {
            f"{base}ImageSets/Segmentation/train.txt": "a\n",
            f"{base}SegmentationClass/a.png": mask(3),
            **xmls(f"{base}Annotations"),
        },
    )
    return write(root, pictures(f"{base}JPEGImages"))


def test_the_official_layout(tmp_path: Path) -> None:
    source, rows, rejects = listed(kit(tmp_path))
    assert (
        source.describe()
        == f"Pascal VOC at {tmp_path}: images with an xml of boxes for each, splits from ImageSets/Main, masks"
    )
    assert (source.states_splits, source.class_names, rejects) == (True, None, [])
    assert [(row["id"], row["split"]) for row in rows] == [
        ("JPEGImages/a.png", "train"), ("JPEGImages/b.png", "test"), ("JPEGImages/ü c.png", "validation")
    ]  # fmt: skip
    for row, name in zip(rows, OBJECTS, strict=True):
        assert row["x/objects/bbox"] == [
            pytest.approx(box, abs=1e-7) for box in expected_boxes(name)
        ]
        assert row["x/objects/label"] == [label for label, *_ in OBJECTS[name]]
        assert row["x/objects/pose"] == ["unspecified"] * len(OBJECTS[name])
        assert (
            row["x/objects/is_truncated"]
            == row["x/objects/is_difficult"]
            == [0] * len(OBJECTS[name])
        )
        assert (row["uri"], row["num_bytes"]) == (
            f"{tmp_path}/{row['id']}",
            (tmp_path / row["id"]).stat().st_size,
        )
    stored = tmp_path / "SegmentationClass" / "a.png"
    assert [row["x/segmentation"] and (row["x/segmentation"]["uri"], row["x/segmentation"]["num_bytes"]) for row in rows] == [
        (str(stored), stored.stat().st_size), None, None
    ]  # fmt: skip
    assert [row["x/segmentation_object"] for row in rows] == [None] * 3


def test_its_features_are_those_of_tfds(tmp_path: Path) -> None:
    source, _, _ = listed(kit(tmp_path))
    assert [feature.name for feature in source.features] == [
        f"objects/{name}" for name in ("bbox", "label", "pose", "is_truncated", "is_difficult")
    ]
    assert {feature.sequence for feature in source.features} == {"objects"}


def test_several_years_in_a_devkit(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        kit(tmp_path, f"{year}/")
    source, rows, rejects = listed(tmp_path)
    assert (source.states_splits, rejects) == (True, [])
    assert [(row["id"], row["split"]) for row in rows[2:4]] == [
        ("VOC2007/JPEGImages/ü c.png", "validation"),
        ("VOC2012/JPEGImages/a.png", "train"),
    ]


def test_lists_decide_which_images_there_are(tmp_path: Path) -> None:
    write(
        kit(tmp_path),
        {
            **pictures("JPEGImages", ["a"]),
            "JPEGImages/more.png": picture(),
            **xmls("Annotations", ["a"]),
        },
    )
    write(
        tmp_path,
        {
            "ImageSets/Main/train.txt": "a\ngone\n\n",
            "ImageSets/Main/val.txt": "ü c.png\na\n",
            "notes.md": "x",
        },
    )
    _, rows, rejects = listed(tmp_path)
    assert [(row["id"], row["split"]) for row in rows] == [
        ("JPEGImages/a.png", "train"), ("JPEGImages/b.png", "test"), ("JPEGImages/ü c.png", "validation")
    ]  # fmt: skip
    assert sorted(reasons(rejects)) == [
        ("JPEGImages/more.png", "other_file"), ("a", "duplicate_id"), ("gone", "missing_file"), ("notes.md", "other_file")
    ]  # fmt: skip


def test_the_list_of_all_training_images_alone(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **pictures("JPEGImages"),
            **xmls("Annotations"),
            "ImageSets/Main/trainval.txt": "a\nü c\n",
            "ImageSets/Main/test.txt": "b",
        },
    )
    _, rows, rejects = listed(tmp_path)
    assert ([row["split"] for row in rows], rejects) == (["train", "test", "train"], [])


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("", ""),
        ("images", "annotations"),
        ("images", "annotations/xmls"),
        ("JPEGImages", "Annotations"),
        ("jpegimages", "ANNOTATIONS"),
    ],
)
def test_other_layouts(tmp_path: Path, images: str, labels: str) -> None:
    files: dict[str, Any] = {**pictures(images or "."), **xmls(labels or ".")}
    source, rows, rejects = listed(write(tmp_path, files))
    assert (source.describe(), source.states_splits) == (
        f"Pascal VOC at {tmp_path}: images with an xml of boxes for each",
        False,
    )
    assert [
        (row["id"].rpartition("/")[2], row["split"], row["x/objects/label"]) for row in rows
    ] == [(f"{name}.png", None, [label for label, *_ in OBJECTS[name]]) for name in OBJECTS]
    assert rejects == []


@pytest.mark.parametrize("deeper", [("", ""), ("/images", "/annotations")])
def test_split_folders(tmp_path: Path, deeper: tuple[str, str]) -> None:
    for split, name in (("train", "a"), ("Valid", "b")):
        write(
            tmp_path,
            {**pictures(f"{split}{deeper[0]}", [name]), **xmls(f"{split}{deeper[1]}", [name])},
        )
    source, rows, rejects = listed(tmp_path)
    assert (source.states_splits, rejects) == (True, [])
    assert {row["split"]: row["x/objects/label"] for row in rows} == {
        "train": ["zebra", "cat"],
        "validation": [],
    }


@pytest.mark.parametrize("store", ["s3_bucket", "gcs_bucket"])
def test_in_stores(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> None:
    bucket: Bucket = request.getfixturevalue(store)
    uri = upload(kit(tmp_path), bucket, "data/voc")
    source, rows, rejects = listed(uri, bucket.options())
    assert (source.describe().startswith(f"Pascal VOC at {uri}: "), rejects) == (True, [])
    _, local, _ = listed(tmp_path)
    same = [key for key in local[0] if key not in ("uri", "etag", "x/segmentation")]
    assert [{key: row[key] for key in same} for row in rows] == [
        {key: row[key] for key in same} for row in local
    ]
    assert [row["uri"] for row in rows] == [f"{uri}/{row['id']}" for row in rows]
    assert rows[0]["x/segmentation"]["uri"] == f"{uri}/SegmentationClass/a.png"
    assert rows[0]["x/segmentation"]["etag"]


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        ("", "it is no XML: no element found"),
        ("hello", "it is no XML: "),
        (voc_xml([("cat", 1, 2, 3, 4)])[:-20], "it is no XML: "),
        ("<html/>", "its root is <html>, and not <annotation>"),
        (b"\xff\xfe\x00", "it is no XML: "),
        ('<?xml version="1.0" encoding="no-such"?><annotation/>', "it is no XML: "),
        (
            f"<!DOCTYPE x [<!ENTITY l0 'ha'>{LAUGHS}]><annotation>&l12;</annotation>",
            "it has a DOCTYPE, which no annotation needs: remove it",
        ),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><annotation/>', "it has a DOCTYPE"),
        ("<annotation>&nothing;</annotation>", "it is no XML: undefined entity"),
        (f"<annotation><object>{BOX}</object></annotation>", "object 1 has no <name>"),
        (
            f"<annotation><object><name> </name>{BOX}</object></annotation>",
            "object 1 has no <name>",
        ),
        (
            "<annotation><object><name>x</name></object></annotation>",
            "object 1 (x) has no <bndbox> with a number as ymin",
        ),
        (
            f"<annotation><object><name>x</name>{BOX.replace('3', 'three')}</object></annotation>",
            "with a number as xmax",
        ),
        (
            f"<annotation><object><name>x</name>{BOX.replace('4', '')}</object></annotation>",
            "with a number as ymax",
        ),
    ],
)
def test_an_xml_that_cannot_be_read_rejects_its_image(
    tmp_path: Path, xml: str | bytes, told: str
) -> None:
    _, rows, rejects = listed(
        write(tmp_path, {**pictures(".", ["a", "b"]), "a.xml": xml, **xmls(".", ["b"])})
    )
    assert ([row["id"] for row in rows], reasons(rejects)) == (["b.png"], [("a.png", "bad_value")])
    assert rejects[0].detail.startswith("a.xml: ")
    assert told in rejects[0].detail


def test_what_else_rejects(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **pictures("JPEGImages"),
            **xmls("Annotations", ["a"]),
            **xmls(".", ["ü c"]),
            **xmls("Annotations", ["ü c"]),
        },
    )
    write(
        tmp_path,
        {
            "JPEGImages/big.png": picture(),
            "JPEGImages/empty.png": b"",
            "Annotations/left.xml": voc_xml([]),
            ".DS_Store": "x",
        },
    )
    (tmp_path / "Annotations" / "big.xml").write_bytes(b" " * (MAX_LABEL_BYTES + 1))
    _, rows, rejects = listed(tmp_path)
    assert [row["id"] for row in rows] == ["JPEGImages/a.png"]
    assert sorted(reasons(rejects)) == [
        ("Annotations/left.xml", "missing_file"),
        ("JPEGImages/b.png", "missing_label"),
        ("JPEGImages/big.png", "bad_value"),
        ("JPEGImages/empty.png", "empty_file"),
        ("JPEGImages/ü c.png", "bad_value"),
    ]


def test_boxes_without_area_and_beyond_the_edge(tmp_path: Path) -> None:
    objects = [
        ("flat", 4, 2, 0, 10),
        ("cat", -5, 10, 100, 100),
        ("nan", float("nan"), 2, 5, 5),
        ("out", 50, 2, 5, 5),
    ]
    _, [row], rejects = listed(write(tmp_path, {"a.png": picture(), "a.xml": voc_xml(objects)}))
    assert (row["x/objects/bbox"], row["x/objects/label"]) == ([[0.5, 0, 1, 1]], ["cat"])
    assert reasons(rejects) == [
        ("a.png#1", "empty_box"),
        ("a.png#3", "empty_box"),
        ("a.png#4", "empty_box"),
    ]


@pytest.mark.parametrize(
    "size", ["", "<size><width>0</width><height>0</height></size>", "<size><width>x</width></size>"]
)
def test_a_size_that_is_not_stated_is_the_headers(tmp_path: Path, size: str) -> None:
    objects = [("cat", 4.0, 2.0, 8.0, 10.0)]
    write(tmp_path, {"a.png": picture(80, 40), "b.png": b"no image", "c.png": b"no image"})
    write(
        tmp_path,
        {
            "a.xml": voc_xml(objects, size),
            "b.xml": voc_xml(objects, size),
            "c.xml": voc_xml([], size),
        },
    )
    _, rows, rejects = listed(tmp_path)
    assert [(row["id"], row["x/objects/bbox"]) for row in rows] == [
        ("a.png", [pytest.approx([0.05, 0.05, 0.3, 0.15])]),
        ("c.png", []),
    ]
    assert reasons(rejects) == [("b.png", "bad_value")]


def test_what_is_said_of_an_object() -> None:
    more = "<pose>Left</pose><truncated>1</truncated><difficult> 1 </difficult><part><name>head</name></part>"
    label = parse_voc(voc_xml([("Größe", 1, 2, 3, 4)], more=more).encode("utf-8"))
    assert label.size == (HEIGHT, WIDTH)
    assert label.objects == (("Größe", (2, 1, 6, 4), "left", True, True),)


def test_deeply_nested_xml() -> None:
    with pytest.raises(BadLabel, match="its root is <a>"):
        parse_voc(b"<a>" * 100_000 + b"</a>" * 100_000)


def test_what_is_not_taken_for_voc(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": picture(), "a.xml": "<html/>", "Annotations/notes.txt": "x"})
    assert listed(tmp_path)[0].describe() == f"a folder at {tmp_path}"
    for place in (tmp_path, tmp_path / "a.xml"):
        with pytest.raises(
            UsageError, match="has no xml annotations: give a folder with JPEGImages/"
        ):
            listed(place, input_format="voc")


def test_a_whole_build(tmp_path: Path) -> None:
    assert build(kit(tmp_path / "in"), tmp_path / "out") == 0
    records = records_of(tmp_path / "out")
    assert sorted(records) == [f"JPEGImages/{name}.png" for name in OBJECTS]
    for name, objects in OBJECTS.items():
        record = records[f"JPEGImages/{name}.png"]
        assert record["objects/bbox"] == pytest.approx(
            [edge for box in expected_boxes(name) for edge in box], abs=1e-7
        )
        assert record["objects/label"] == [
            ("cat", "dog", "zebra").index(label) for label, *_ in objects
        ]
        assert record["objects/pose"] == record["objects/is_difficult"] == [0] * len(objects)
    assert (tmp_path / "out" / "objects-label.labels.txt").read_text().split() == [
        "cat",
        "dog",
        "zebra",
    ]


def test_a_whole_build_of_masks(tmp_path: Path) -> None:
    assert (
        build(
            kit(tmp_path / "in"),
            tmp_path / "out",
            "--schema",
            "segmentation",
            "--max-reject-fraction",
            "0.7",
        )
        == 0
    )
    [(key, record)] = records_of(tmp_path / "out").items()
    pixels = np.asarray(Image.open(io.BytesIO(record["segmentation_mask"][0])))
    assert (key, pixels.shape, set(pixels.flat)) == ("JPEGImages/a.png", (HEIGHT, WIDTH), {3})
    assert reasons_of(tmp_path / "out") == {
        "JPEGImages/b.png": "bad_value",
        "JPEGImages/ü c.png": "bad_value",
    }
