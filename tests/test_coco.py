"""COCO json as INPUT: which files are read together, where their images are, and what hostile ones come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.schema import FeatureKind
from shardwright.storage import NO_OPTIONS
from tests.buckets import Bucket
from tests.build_helpers import build, manifest_of, reasons_of
from tests.detection_makers import (
    CLASSES,
    OBJECTS,
    coco,
    expected_boxes,
    listed,
    picture,
    pictures,
    reasons,
    records_of,
    upload,
    write,
)
from transforms.inputs.annotations.coco_files import look_at_coco
from transforms.inputs.annotations.json_sections import read_sections

IMAGE = {"id": 1, "file_name": "a.png", "width": 40, "height": 20}
CATEGORY = {"id": 3, "name": "cat"}
GOOD = {"id": 7, "image_id": 1, "category_id": 3, "bbox": [4, 2, 8, 10]}


def one(*annotations: Any, images: Any = (IMAGE,), categories: Any = (CATEGORY,)) -> str:
    return json.dumps(
        {"images": list(images), "annotations": list(annotations), "categories": list(categories)}
    )


def official(root: Path) -> Path:
    """The layout of COCO's own archives."""
    captions = [
        {"id": 5, "image_id": 0, "caption": "second"},
        {"id": 2, "image_id": 0, "caption": "först"},
    ]
    return write(
        root,
        {
            **pictures("train2017", ["a", "b"]),
            **pictures("val2017", ["ü c"]),
            "annotations/instances_train2017.json": json.dumps(coco(["a", "b"])),
            "annotations/captions_train2017.json": json.dumps(
                coco(["a", "b"], annotations=captions, categories=[])
            ),
            "annotations/person_keypoints_train2017.json": json.dumps(coco(["a", "b"])),
            "annotations/instances_val2017.json": json.dumps(coco(["ü c"]), ensure_ascii=False),
        },
    )


def test_the_official_layout(tmp_path: Path) -> None:
    source, rows, rejects = listed(official(tmp_path))
    assert source.describe() == (
        f"COCO json at {tmp_path} (instances_train2017.json, captions_train2017.json, instances_val2017.json) "
        "with boxes of 3 classes and captions; person_keypoints_train2017.json left out"
    )
    assert (source.states_splits, source.class_names, rejects) == (True, None, [])
    assert [(row["id"], row["split"], row["row"], row["x/image_id"]) for row in rows] == [
        ("train2017/a.png", "train", 0, 0), ("train2017/b.png", "train", 1, 1), ("val2017/ü c.png", "validation", 0, 0)
    ]  # fmt: skip
    for row, name in zip(rows, OBJECTS, strict=True):
        assert row["x/objects/bbox"] == [
            pytest.approx(box, abs=1e-7) for box in expected_boxes(name)
        ]
        assert row["x/objects/label"] == [label for label, *_ in OBJECTS[name]]
        assert row["x/objects/area"] == [7.5] * len(OBJECTS[name])
        assert row["x/objects/segmentation"] == ["[[1,2.5,3,4]]"] * len(OBJECTS[name])
        assert row["uri"] == f"{tmp_path}/{row['id']}"
        assert row["num_bytes"] == (tmp_path / row["id"]).stat().st_size
    assert [row["x/captions"] for row in rows] == [
        ["först", "second"],
        [],
        [],
    ]  # by id, as TFDS has annotations


def test_its_features_are_those_of_detection(tmp_path: Path) -> None:
    source, _, _ = listed(official(tmp_path))
    assert [
        (feature.name, feature.kind, feature.stored_shape, feature.sequence)
        for feature in source.features
    ] == [
        ("objects/bbox", FeatureKind.BOX, (None, 4), "objects"),
        ("objects/label", FeatureKind.CLASS_LABEL, (None,), "objects"),
        ("objects/area", FeatureKind.FLOAT32, (None,), "objects"),
        ("objects/is_crowd", FeatureKind.INT64, (None,), "objects"),
        ("objects/segmentation", FeatureKind.TEXT, (None,), "objects"),
        ("captions", FeatureKind.TEXT, (None,), ""),
    ]
    assert (
        source.features[1].names == CLASSES
    )  # by category id, not as they stand in the file, nor by name
    assert source.features[3].dtype == "bool"


@pytest.mark.parametrize(
    ("where", "images", "root"),
    [
        ("annotations/instances_train2017.json", "train2017", ""),
        ("annotations/instances_train2017.json", "images/train2017", ""),
        ("annotations/train.json", "images", ""),
        ("instances_train2017.json", "train2017", ""),
        ("all.json", "", ""),
        ("all.json", "images", ""),
        ("labels/all.json", "elsewhere/deep", "elsewhere/deep"),
        ("labels/instances_x.json", "elsewhere/x", "elsewhere"),
    ],
)
def test_where_images_are(tmp_path: Path, where: str, images: str, root: str) -> None:
    write(
        tmp_path,
        {f"{images}/{name}.png".lstrip("/"): picture() for name in OBJECTS}
        | {where: json.dumps(coco())},
    )
    _, rows, rejects = listed(tmp_path / where, image_root=f"{tmp_path}/{root}" if root else None)
    assert ([row["uri"] for row in rows], rejects) == (
        [f"{tmp_path}/{images}/{name}.png".replace("//", "/") for name in OBJECTS],
        [],
    )
    home = f"{tmp_path}/{root}".rstrip("/")
    assert [f"{home}/{row['id']}" for row in rows] == [row["uri"] for row in rows]


def test_roboflow_puts_the_json_beside_the_images(tmp_path: Path) -> None:
    files = {
        f"{split}/_annotations.coco.json": json.dumps(coco([name]))
        for split, name in zip(("train", "valid"), OBJECTS, strict=False)
    }
    write(
        tmp_path,
        {**files, **pictures("train", ["a"]), **pictures("valid", ["b"]), "README.txt": "x"},
    )
    source, rows, rejects = listed(tmp_path)
    assert source.states_splits
    assert ([(row["id"], row["split"]) for row in rows], rejects) == (
        [("train/a.png", "train"), ("valid/b.png", "validation")],
        [],
    )
    _, rows, _ = listed(tmp_path / "valid")
    assert [(row["id"], row["split"]) for row in rows] == [
        ("b.png", None)
    ]  # one set alone states no splits


def test_several_by_a_wildcard(tmp_path: Path) -> None:
    source, rows, rejects = listed(official(tmp_path) / "annotations" / "instances_*2017.json")
    assert ([row["id"] for row in rows], rejects) == (
        ["train2017/a.png", "train2017/b.png", "val2017/ü c.png"],
        [],
    )
    assert (source.states_splits, len(list(source.parts()))) == (True, 2)
    assert "x/captions" not in rows[0]


@pytest.mark.parametrize("store", ["s3_bucket", "gcs_bucket"])
def test_in_stores(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> None:
    bucket: Bucket = request.getfixturevalue(store)
    official(tmp_path)
    (tmp_path / "train2017" / "b.png").unlink()
    uri = upload(tmp_path, bucket, "data/coco")
    _, local, _ = listed(tmp_path)
    for place in (uri, f"{uri}/annotations/*_*2017.json"):
        source, rows, rejects = listed(place, bucket.options())
        assert source.describe().startswith(f"COCO json at {place} (")
        told = {key: [row[key] for row in rows] for key in rows[0] if key not in ("uri", "etag")}
        assert told == {key: [row[key] for row in local] for key in told}
        assert [row["uri"] for row in rows] == [f"{uri}/{row['id']}" for row in rows]
        assert all(row["etag"] for row in rows)
        assert reasons(rejects) == [("train2017/b.png", "missing_file")]
    _, rows, rejects = listed(
        f"{uri}/annotations/instances_val2017.json", bucket.options(), image_root=f"{uri}/val2017"
    )
    assert ([row["id"] for row in rows], rejects) == (["ü c.png"], [])


@pytest.mark.parametrize(
    ("annotation", "reason", "told"),
    [
        (
            {**GOOD, "category_id": 9},
            "unknown_label",
            "category_id 9, which categories does not have",
        ),
        ({**GOOD, "category_id": None}, "bad_value", "its category_id is None"),
        (
            {**GOOD, "bbox": [1, 2, 3]},
            "bad_value",
            "its bbox is [1, 2, 3]; it must be [x, y, width, height] in pixels",
        ),
        ({**GOOD, "bbox": "1 2 3 4"}, "bad_value", "its bbox is '1 2 3 4'"),
        (
            {**GOOD, "bbox": [1, 2, 3, "4"]},
            "bad_value",
            "its bbox has '4' in it, which is no number",
        ),
        ({**GOOD, "bbox": [1, 2, 3, True]}, "bad_value", "its bbox has True in it"),
        ({**GOOD, "area": "big"}, "bad_value", "its area has 'big' in it"),
        ({**GOOD, "iscrowd": 2}, "bad_value", "its iscrowd is 2; it must be 0 or 1"),
        ({**GOOD, "iscrowd": [1]}, "bad_value", "its iscrowd is [1]"),
        ({"id": 7, "image_id": 1, "category_id": 3}, "bad_value", "annotation 7 of "),
        ({"id": 7, "image_id": 1, "caption": 5}, "bad_value", "its caption is 5, which is no text"),
    ],
)
def test_an_annotation_that_cannot_be_read_rejects_its_image(
    tmp_path: Path, annotation: Any, reason: str, told: str
) -> None:
    other = {**IMAGE, "id": 2, "file_name": "b.png"}
    text = one(annotation, {**GOOD, "id": 8, "image_id": 2}, images=(IMAGE, other))
    write(tmp_path, {"a.png": picture(), "b.png": picture(), "x.json": text})
    _, rows, rejects = listed(tmp_path / "x.json")
    assert ([row["id"] for row in rows], reasons(rejects)) == (["b.png"], [("a.png", reason)])
    assert told in rejects[0].detail
    assert rejects[0].uri == f"{tmp_path}/a.png"


@pytest.mark.parametrize(
    "box",
    [
        [4, 2, 0, 10],
        [4, 2, 8, -1],
        [40, 2, 8, 10],
        [-8, 2, 8, 10],
        [4, 2, "NaN", 10],
        [4, 2, "Infinity", 10],
        [4, 10**400, 8, 10],
    ],
)
def test_a_box_without_area_is_left_out_and_listed(tmp_path: Path, box: list[Any]) -> None:
    text = (
        one({**GOOD, "id": 9, "bbox": box}, GOOD)
        .replace('"NaN"', "NaN")
        .replace('"Infinity"', "Infinity")
    )
    write(tmp_path, {"a.png": picture(), "x.json": text})
    _, [row], rejects = listed(tmp_path / "x.json")
    assert reasons(rejects) == [("a.png#9", "empty_box")]
    assert row["x/objects/bbox"] == [pytest.approx([0.1, 0.1, 0.6, 0.3])]
    assert (row["x/objects/label"], row["x/objects/area"], row["x/objects/segmentation"]) == (
        ["cat"],
        [80.0],
        [""],
    )


def test_boxes_that_reach_out_are_cut_off_at_the_edge(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": picture(), "x.json": one({**GOOD, "bbox": [-4, 15, 100, 100]})})
    _, [row], rejects = listed(tmp_path / "x.json")
    assert (row["x/objects/bbox"], rejects) == ([[0.75, 0, 1, 1]], [])


@pytest.mark.parametrize(
    ("images", "expected_rows", "expected_rejects"),
    [
        ([IMAGE, IMAGE], ["a.png"], [("a.png", "duplicate_id")]),
        ([IMAGE, {**IMAGE, "file_name": "b.png"}], ["a.png"], [("b.png", "duplicate_id")]),
        ([IMAGE, {"id": 2}], ["a.png"], [("", "bad_value")]),
        ([IMAGE, {"file_name": "b.png"}], ["a.png"], [("", "bad_value")]),
        ([IMAGE, {"id": [1], "file_name": "b.png"}], ["a.png"], [("", "bad_value")]),
        ([IMAGE, {"id": 2, "file_name": 5}], ["a.png"], [("", "bad_value")]),
        ([IMAGE, {"id": 2, "file_name": "\ud800.png"}], ["a.png"], [("", "bad_value")]),
        ([IMAGE, {"id": 2, "file_name": "a\0b.png"}], ["a.png"], [("a\0b.png", "unreadable")]),
        ([IMAGE, 5, None, "x"], ["a.png"], [("", "bad_value")] * 3),
        ([IMAGE, {"id": 2, "file_name": "gone.png"}], ["a.png"], [("gone.png", "missing_file")]),
        ([IMAGE, {"id": 2, "file_name": "empty.png"}], ["a.png"], [("empty.png", "empty_file")]),
        ([IMAGE, {"id": "x", "file_name": "b.png"}], ["a.png", "b.png"], []),
        ([{**IMAGE, "id": "1"}], ["a.png"], []),
        ([{**IMAGE, "id": 1.0}], ["a.png"], []),
        ([{**IMAGE, "file_name": "./deep/../a.png"}], ["a.png"], []),
        ([{**IMAGE, "file_name": "../outside.png"}], ["ROOT/outside.png"], []),
        ([{**IMAGE, "file_name": "ROOT/outside.png"}], ["ROOT/outside.png"], []),
        (
            [{**IMAGE, "file_name": "../../../../../../../../../../etc/nothing.png"}],
            [],
            [("/etc/nothing.png", "missing_file")],
        ),
    ],
)
def test_images(
    tmp_path: Path,
    images: list[Any],
    expected_rows: list[str],
    expected_rejects: list[tuple[str, str]],
) -> None:
    text = one(GOOD, images=images).replace("ROOT", str(tmp_path))
    files = {
        "data/a.png": picture(),
        "data/b.png": picture(),
        "data/empty.png": b"",
        "outside.png": picture(),
        "data/x.json": text,
    }
    write(tmp_path, files)
    _, rows, rejects = listed(tmp_path / "data" / "x.json")
    assert [row["id"] for row in rows] == [
        name.replace("ROOT", str(tmp_path)) for name in expected_rows
    ]
    assert reasons(rejects) == expected_rejects
    assert rows == [] or rows[0]["x/objects/label"] == ["cat"]


def test_annotations_of_images_that_are_not_there(tmp_path: Path) -> None:
    text = one(
        GOOD, {**GOOD, "image_id": 99}, {**GOOD, "image_id": 99}, {**GOOD, "image_id": None}, "x"
    )
    write(tmp_path, {"a.png": picture(), "x.json": text})
    _, [row], rejects = listed(tmp_path / "x.json")
    assert row["x/objects/label"] == ["cat"]
    assert reasons(rejects) == [("", "bad_value"), ("", "bad_value"), ("99", "bad_id")]
    assert rejects[2].detail.startswith(
        "annotations are of image_id 99, which images does not have"
    )


def test_a_size_that_is_not_stated_is_the_headers(tmp_path: Path) -> None:
    bare = [
        {"id": number, "file_name": name}
        for number, name in ((1, "a.png"), (2, "no.png"), (3, "none.png"))
    ]
    text = one(GOOD, {**GOOD, "image_id": 2}, images=bare)
    write(
        tmp_path,
        {"a.png": picture(80, 40), "no.png": b"no image", "none.png": b"no image", "x.json": text},
    )
    _, rows, rejects = listed(tmp_path / "x.json")
    assert [(row["id"], row["x/objects/bbox"]) for row in rows] == [
        ("a.png", [pytest.approx([0.05, 0.05, 0.3, 0.15])]),
        ("none.png", []),
    ]
    assert reasons(rejects) == [("no.png", "bad_value")]
    assert "states no width and height" in rejects[0].detail


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (one(GOOD)[:-30], "is no JSON object, or is cut short: "),
        (one(GOOD)[:-1], "is no JSON object, or is cut short: there should be a comma or }"),
        (one(GOOD) + "x", "there is more behind the object"),
        ("[1, 2]", "there should be an object"),
        ("", "there should be an object"),
        ('{"images": [{}}', "a comma or ]"),
        ('{"images": [], "images": []}', "'images' is no key, or stands there twice"),
        ('{"images": ' + "[" * 100_000, "is no JSON object"),
        ('{"images": [' + "9" * 5000 + "]}", "is no JSON object"),
        ('{"images": [{"id": 1, "file_name": "a.png"}]', "is no JSON object"),
        (b'{"images": ["\xff"]}', "is not UTF-8"),
        ('{"annotations": []}', "lists no `images`"),
        (
            one(GOOD, categories=[{"id": 3}]),
            "categories[0] is {'id': 3}; a category has an id and a name",
        ),
        (one(GOOD, categories=[{"id": 3, "name": "\ud800"}]), "a category has an id and a name"),
        (
            one(GOOD, categories=[CATEGORY, {"id": 4, "name": "cat "}]),
            "two categories have the id 4 or the name 'cat'",
        ),
        (
            one(GOOD, categories=[CATEGORY, {"id": 3.0, "name": "dog"}]),
            "two categories have the id 3 or the name 'dog'",
        ),
    ],
)
def test_files_that_are_no_coco(tmp_path: Path, text: str | bytes, told: str) -> None:
    write(tmp_path, {"a.png": picture(), "x.json": text})
    with pytest.raises(BuildError) as raised:
        listed(tmp_path / "x.json", input_format="coco")
    assert told in str(raised.value)
    assert str(tmp_path / "x.json") in str(raised.value)


def test_boxes_without_categories(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": picture(), "x.json": one(GOOD, categories=[])})
    with pytest.raises(UsageError, match="has boxes and no categories: add the section"):
        listed(tmp_path / "x.json")


def test_what_is_not_taken_for_coco(tmp_path: Path) -> None:
    write(
        tmp_path, {"a.png": picture(), "settings.json": '{"a": 1}', "annotations/notes.json": "[]"}
    )
    assert listed(tmp_path)[0].describe() == f"a folder at {tmp_path}"
    with pytest.raises(UsageError, match=r"settings\.json"):
        listed(tmp_path / "settings.json")
    with pytest.raises(UsageError, match=r"has no COCO json: give the \.json"):
        listed(write(tmp_path / "empty", {"a.png": picture()}), input_format="coco")


def test_images_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "test/a.png": picture(),
            "annotations/image_info_test.json": json.dumps({"images": [IMAGE]}),
        },
    )
    source, [row], rejects = listed(tmp_path)
    assert (source.features, source.describe()) == (
        (),
        f"COCO json at {tmp_path} (image_info_test.json) with images only",
    )
    assert (row["id"], rejects) == ("test/a.png", [])


def test_captions_only(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "images": [IMAGE],
            "annotations": [{"id": 1, "image_id": 1, "caption": "\ud83d\ude00 half \ud83d"}],
        }
    )
    source, [row], rejects = listed(
        write(tmp_path, {"a.png": picture(), "x.json": text}) / "x.json"
    )
    assert ([feature.name for feature in source.features], row["x/captions"], rejects) == (
        ["captions"],
        ["😀 half ?"],
        [],
    )


def test_annotations_before_images(tmp_path: Path) -> None:
    sections = json.loads(one(GOOD))
    text = json.dumps(
        {key: sections[key] for key in ("categories", "annotations", "images")}, indent=2
    )
    _, [row], rejects = listed(
        write(tmp_path, {"a.png": picture(), "x.json": "\ufeff" + text}) / "x.json"
    )
    assert (row["x/objects/label"], rejects) == (["cat"], [])


@pytest.mark.parametrize("last", [True, False])
def test_a_large_file_is_looked_at_by_its_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    sections: dict[str, Any] = {
        "info": "x" * 5000,
        "images": [IMAGE],
        "annotations": [GOOD] * 200,
        "more": "x" * 5000,
    }
    named = {"categories": [CATEGORY]}
    (tmp_path / "x.json").write_text(
        json.dumps({**sections, **named} if last else {**named, **sections})
    )
    whole = look_at_coco(str(tmp_path / "x.json"), NO_OPTIONS)
    monkeypatch.setattr("transforms.inputs.annotations.coco_files._SMALL_BYTES", 1000)
    monkeypatch.setattr("transforms.inputs.annotations.coco_files._LOOK_BYTES", 1000)
    monkeypatch.setattr(
        "transforms.inputs.annotations.coco_files.read_sections", None
    )  # the whole file is not needed
    assert (
        look_at_coco(str(tmp_path / "x.json"), NO_OPTIONS)
        == whole
        == ((("3", "cat"),), True, False)
    )


@pytest.mark.parametrize("num_bytes", range(1, 40))
def test_sections_come_whole_however_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int
) -> None:
    value = {
        "a": [1, 23, {"ü": 'x\\"]'}, [], -4.5e3],
        "b": {"c": [1]},
        "d": [],
        "e": 123456,
        "f": [[[0.25]]],
        "g": None,
        "h": "ü€😀",
    }
    (tmp_path / "x.json").write_text(json.dumps(value, ensure_ascii=False, indent=num_bytes % 3))
    monkeypatch.setattr("transforms.inputs.annotations.json_sections._READ_BYTES", num_bytes)
    expected = [
        (key, item)
        for key, items in value.items()
        for item in (items if isinstance(items, list) else [items])
    ]
    assert list(read_sections(str(tmp_path / "x.json"), NO_OPTIONS)) == expected


def test_a_whole_build(tmp_path: Path) -> None:
    annotations = [
        *coco(["a", "b"])["annotations"],
        {**GOOD, "id": 50, "image_id": 1, "category_id": 10, "bbox": [4, 2, 0, 10]},
    ]
    lost = {"id": 9, "file_name": "lost.png", "width": 4, "height": 4}
    train = coco(["a", "b"], annotations=annotations)
    train["images"].append(lost)
    write(official(tmp_path / "in"), {"annotations/instances_train2017.json": json.dumps(train)})
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "0.3") == 0
    records = records_of(tmp_path / "out")
    for split, name in (("train2017", "a"), ("train2017", "b"), ("val2017", "ü c")):
        record = records.pop(f"{split}/{name}.png")
        assert record["objects/bbox"] == pytest.approx(
            [edge for box in expected_boxes(name) for edge in box], abs=1e-7
        )
        assert record["objects/label"] == [CLASSES.index(label) for label, *_ in OBJECTS[name]]
        assert record["objects/segmentation"] == [b"[[1,2.5,3,4]]"] * len(OBJECTS[name])
        assert record["captions"] == (["först".encode(), b"second"] if name == "a" else [])
        assert record["image"] == [(tmp_path / "in" / split / f"{name}.png").read_bytes()]
    assert records == {}
    assert reasons_of(tmp_path / "out") == {
        "train2017/b.png#50": "empty_box",
        "train2017/lost.png": "missing_file",
    }
    assert {
        name: split["num_records"]
        for name, split in manifest_of(tmp_path / "out")["splits"].items()
    } == {"train": 2, "validation": 1}


def test_a_whole_build_from_a_store(s3_bucket: Bucket, tmp_path: Path) -> None:
    uri = upload(official(tmp_path / "in"), s3_bucket, "coco")
    options = [
        f"--storage-option={s3_bucket.uri}:{key}={value}"
        for key, value in s3_bucket.server.options.items()
    ]
    assert (
        build(
            f"{uri}/annotations/instances_*.json",
            tmp_path / "out",
            "--schema",
            "detection",
            *options,
        )
        == 0
    )
    records = records_of(tmp_path / "out")
    assert {key: record["objects/label"] for key, record in records.items()} == {
        "train2017/a.png": [2, 0], "train2017/b.png": [], "val2017/ü c.png": [1]
    }  # fmt: skip
    assert set(records["train2017/a.png"]) == {"image", "id", "objects/bbox", "objects/label"}
