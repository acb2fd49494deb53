"""COCO json as INPUT: layouts, splits, stores, and invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind as K
from shardwright.transforms.inputs.formats import coco_files
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.listings import columns_of


def official(root: Path) -> Path:
    """Write the layout of COCO's own archives."""
    captions = [
        {"id": 5, "image_id": 0, "caption": "second"},
        {"id": 2, "image_id": 0, "caption": "först"},
    ]
    train = json.dumps(det.coco(["a", "b"]))
    texts = {
        "instances_train2017": train,
        "captions_train2017": json.dumps(det.coco(["a", "b"], annotations=captions, categories=[])),
        "person_keypoints_train2017": train,
        "instances_val2017": json.dumps(det.coco(["ü c"]), ensure_ascii=False),
    }
    files = {f"annotations/{name}.json": text for name, text in texts.items()}
    return det.write(
        root, {**det.pictures("train2017", "ab"), **det.pictures("val2017", ["ü c"]), **files}
    )


def test_the_official_layout(tmp_path: Path) -> None:
    source, rows, rejects = det.listed(official(tmp_path))
    assert source.description == (
        f"COCO json at {tmp_path} (instances_train2017.json, captions_train2017.json, "
        "instances_val2017.json) with boxes of 3 classes and captions; "
        "person_keypoints_train2017.json left out"
    )
    assert (source.states_splits, source.class_names, rejects) == (True, None, [])
    assert columns_of(rows, "id", "split", "row", "x/image_id", "x/captions") == [
        ("train2017/a.png", "train", 0, 0, ["först", "second"]),  # by id, as in TFDS
        ("train2017/b.png", "train", 1, 1, []),
        ("val2017/ü c.png", "validation", 0, 0, []),
    ]
    det.assert_same_objects(rows, tmp_path, tolerance=1e-7, segmentation="[[1,2.5,3,4]]")
    assert [row["x/objects/area"] for row in rows] == [[7.5] * 2, [], [7.5]]

    kinds = {"bbox": K.BOX, "label": K.CLASS_LABEL, "area": K.FLOAT32, "is_crowd": K.INT64}
    assert {one.name: one.kind for one in source.features} == {
        **{f"objects/{name}": kind for name, kind in kinds.items()},
        "objects/segmentation": K.TEXT, "captions": K.TEXT,
    }  # fmt: skip
    assert [one.sequence for one in source.features] == [*["objects"] * 5, ""]
    assert source.features[1].names == det.CLASSES  # by category id, not by place or name
    assert source.features[3].dtype == "bool"


def test_a_json_without_a_split_beside_others_is_refused(tmp_path: Path) -> None:
    """All images would be in one split; one kind of files can be given by a wildcard."""
    root, more = official(tmp_path), json.dumps(det.coco(["a"], annotations=[]))
    det.write(root, {"annotations/image_info_unlabeled2017.json": more})
    told = r"val2017.json, whose names state splits, beside \S+unlabeled2017.json, without"
    with pytest.raises(UsageError, match=told):
        det.listed(root)
    given = f"{root}/annotations/instances_*.json"
    assert det.listed(given, image_root=str(root))[0].states_splits


@pytest.mark.parametrize(("where", "images", "root"), [
    ("annotations/instances_train2017.json", "train2017", ""),
    ("annotations/instances_train2017.json", "images/train2017", ""),
    ("annotations/train.json", "images", ""), ("instances_train2017.json", "train2017", ""),
    ("all.json", "", ""), ("all.json", "images", ""),
    ("labels/all.json", "elsewhere/deep", "elsewhere/deep"),
    ("labels/instances_x.json", "elsewhere/x", "elsewhere"),
])  # fmt: skip
def test_folders_of_images(tmp_path: Path, where: str, images: str, root: str) -> None:
    """An absolute path does not decide the folder of relative ones."""
    files = {f"{images}/{name}.png".lstrip("/"): det.picture() for name in det.OBJECTS}
    coco = det.coco()
    coco["images"][0]["file_name"] = f"{tmp_path}/{next(iter(files))}"
    det.write(tmp_path, files | {where: json.dumps(coco)})
    _, rows, rejects = det.listed(
        tmp_path / where, image_root=f"{tmp_path}/{root}" if root else None
    )
    assert ([row["uri"] for row in rows], rejects) == ([str(tmp_path / name) for name in files], [])
    home = f"{tmp_path}/{root}".rstrip("/")
    assert [f"{home}/{row['id']}" for row in rows] == [row["uri"] for row in rows]


def test_images_that_no_json_lists(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Images of the same stem, as COCO's panoptic masks, are none."""
    files = {"labels.json": json.dumps(det.coco(["a"])), "masks/a.jpg": det.picture()}
    det.listed(det.write(tmp_path, {**det.pictures("images", "a"), **files}))
    assert "no json lists" not in caplog.text
    det.listed(det.write(tmp_path, det.pictures("images", "bc")))
    assert f"INPUT {tmp_path} has 2 images that no json lists, such as images/b.png" in caplog.text


@pytest.mark.parametrize(("first", "second"), [
    ("train/labels.json", "val/labels.json"), ("annotations/train.json", "annotations/val.json"),
    ("train/_annotations.coco.json", "val.json"),
    ("train/_annotations.coco.json", "val/_annotations.coco.json"),
])  # fmt: skip
def test_a_json_of_any_name_is_known_by_its_content(
    tmp_path: Path, first: str, second: str
) -> None:
    """Beside it are other json files, and a folder of annotations may have none."""
    files: dict[str, str | bytes] = {f"{number}.json": "{}" for number in range(9)}
    files |= {"annotations/README.txt": "x", first: json.dumps(det.coco(["a"]))}
    files |= {**det.pictures("train", "a"), **det.pictures("val", "b")}
    files[second] = json.dumps(det.coco(["b"]))
    _, rows, rejects = det.listed(det.write(tmp_path, files))
    expected = [("train/a.png", "train"), ("val/b.png", "validation")]
    assert (sorted(columns_of(rows, "id", "split")), rejects) == (expected, [])
    if second.startswith("val/"):  # one set alone states no splits
        assert columns_of(det.listed(tmp_path / "val")[1], "id", "split") == [("b.png", None)]


def test_in_a_store(s3_bucket: Bucket, tmp_path: Path) -> None:
    (official(tmp_path) / "train2017" / "b.png").unlink()
    uri = det.upload(tmp_path, s3_bucket, "data/coco")
    _, local, _ = det.listed(tmp_path)
    for place in (uri, f"{uri}/annotations/*_*2017.json"):
        _, rows, rejects = det.listed(place, s3_bucket.options())
        det.assert_same_in_store(rows, local, uri)
        assert det.reasons(rejects) == [("train2017/b.png", "missing_file")]


def test_folders_and_files_that_are_not_coco(tmp_path: Path) -> None:
    files = {"a.png": det.picture(), "settings.json": '{"a": 1}', "annotations/notes.json": "[]"}
    description = f"a folder at {tmp_path}, with the folders annotations"
    assert det.listed(det.write(tmp_path, files))[0].description == description
    with pytest.raises(UsageError, match=r"settings\.json"):
        det.listed(tmp_path / "settings.json")
    with pytest.raises(UsageError, match=r"has no COCO json: give the \.json"):
        det.listed(det.write(tmp_path / "empty", {"a.png": det.picture()}), input_format="coco")


HALF = [
    {"id": 1, "image_id": 1, "caption": "\ud83d\ude00 half \ud83d"},
    {"id": 2, "image_id": 2, "caption": "of an image that is gone"},
]


@pytest.mark.parametrize(("annotations", "features", "told", "captions"), [
    ([], [], "images only", None), (HALF, ["captions"], "captions", ["😀 half ?"]),
])  # fmt: skip
def test_images_and_captions_only(
    tmp_path: Path, annotations: list[Any], features: list[str], told: str, captions: Any
) -> None:
    images = [det.IMAGE, {"id": 2, "file_name": "gone.png"}]
    text = json.dumps({"images": images, "annotations": annotations})
    det.write(tmp_path, {"test/a.png": det.picture(), "annotations/image_info_test.json": text})
    source, [row], rejects = det.listed(tmp_path)
    assert [feature.name for feature in source.features] == features
    assert source.description == f"COCO json at {tmp_path} (image_info_test.json) with {told}"
    assert (row["id"], row.get("x/captions")) == ("test/a.png", captions)
    assert det.reasons(rejects) == [("test/gone.png", "missing_file")]
    (tmp_path / "test" / "a.png").unlink()
    _, rows, rejects = det.listed(tmp_path)
    assert (rows, len(rejects)) == ([], 2)


TEXT = det.coco_json(det.GOOD)


def categories(*found: dict[str, Any]) -> str:
    return det.coco_json(det.GOOD, categories=found)


@pytest.mark.parametrize(("text", "told"), [
    (TEXT[:-30], "is not COCO json, or is cut short: "),
    (TEXT[:-1], "is not COCO json, or is cut short: Expecting ',' delimiter: "),
    (TEXT + "x", "Extra data"),
    ("[1, 2]", "$: expected object, got array"),
    ("", "Expecting value"),
    ('{"images": [{}}', "Expecting ',' delimiter"),
    ('{"images": [], "images": []}', "the key 'images' comes twice"),
    ('{"images": [{"id": NaN}], "images": []}', "the key 'images' comes twice"),
    ('{"images": null}', "$.images is None: expected array, got null"),
    ('{"images": ' + "[" * 100_000, "it is nested more than 100 levels deep"),
    ('{"images": [' + "9" * 5000 + "]}", "lists no `images`"),
    ('{"images": [{"id": 1, "file_name": "a.png"}]', "Expecting ',' delimiter"),
    (b'{"images": ["\xff"]}', "images[0] is not UTF-8"),
    (b'{"images": [], "images": ["\xff"]}', "x.json is not UTF-8"),
    ('{"annotations": []}', "lists no `images`"),
    (categories({"id": 3}),
     "categories[0]: object missing required field name; a category has an id and a name"),
    (categories({"id": 3, "name": "\ud800"}), "a category has an id and a name"),
    (categories(det.CATEGORY, {"id": 4, "name": "cat "}),
     "two categories have the id 4 or the name 'cat'"),
    (categories(det.CATEGORY, {"id": 3.0, "name": "dog"}),
     "two categories have the id 3 or the name 'dog'"),
])  # fmt: skip
def test_invalid_files(tmp_path: Path, text: str | bytes, told: str) -> None:
    det.write(tmp_path, {"a.png": det.picture(), "x.json": text})
    with pytest.raises(BuildError) as raised:
        det.listed(tmp_path / "x.json", input_format="coco")
    assert told in str(raised.value)
    assert str(tmp_path / "x.json") in str(raised.value)


def test_ids_that_are_numbers() -> None:
    numbers = {"7": 7, "-7": -7, "007": 7, str(-(2**63) + 1): -(2**63) + 1, "0": 0}
    others = ("--5", "-", "", "7.5", "x", "\u0661", str(2**63), "9" * 5000)
    assert {key: coco_files.number_of(key) for key in numbers} == numbers
    assert [coco_files.number_of(key) for key in others] == [None] * len(others)
    classes = coco_files.merge_categories([{"--5": "odd", "10": "cat"}, {"9": "dog"}])
    assert classes == ("dog", "cat", "odd")


def test_boxes_without_categories(tmp_path: Path) -> None:
    det.write(tmp_path, {"a.png": det.picture(), "x.json": categories()})
    with pytest.raises(UsageError, match="has boxes and no categories: add the section"):
        det.listed(tmp_path / "x.json")
