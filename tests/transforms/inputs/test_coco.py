"""COCO json as INPUT: layouts, splits, stores, invalid files, and rejects of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind as K
from shardwright.transforms.inputs.formats import coco, coco_files
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.detection_makers import CATEGORY, GOOD, IMAGE, coco_json, picture
from tests.support.listing_cases import Case, by_case, listing, write_files


def official(root: Path) -> Path:
    """Write the layout of COCO's own archives."""
    captions = [
        {"id": 5, "image_id": 0, "caption": "second"},
        {"id": 2, "image_id": 0, "caption": "först"},
    ]
    train = det.coco(["a", "b"])
    contents = {
        "instances_train2017": train,
        "captions_train2017": det.coco(["a", "b"], annotations=captions, categories=[]),
        "person_keypoints_train2017": train,
        "instances_val2017": json.dumps(det.coco(["ü c"]), ensure_ascii=False),
    }
    files = {f"annotations/{name}.json": content for name, content in contents.items()}
    images = {**det.pictures("train2017", "ab"), **det.pictures("val2017", ["ü c"])}
    return write_files(root, {**images, **files})


def test_the_official_layout(tmp_path: Path) -> None:
    found = listing(official(tmp_path))
    source, rows = found.source, found.rows
    assert source.description == (
        f"COCO json at {tmp_path} (instances_train2017.json, captions_train2017.json, "
        "instances_val2017.json) with boxes of 3 classes and captions; "
        "person_keypoints_train2017.json left out"
    )
    assert (source.states_splits, source.class_names, found.rejects) == (True, None, [])
    assert found.of("id", "split", "row", "x/image_id", "x/captions", "x/objects/area") == [
        ("train2017/a.png", "train", 0, 0, ["först", "second"], [7.5] * 2),  # by id, as in TFDS
        ("train2017/b.png", "train", 1, 1, [], []),
        ("val2017/ü c.png", "validation", 0, 0, [], [7.5]),
    ]
    det.assert_same_objects(rows, tmp_path, tolerance=1e-7, segmentation="[[1,2.5,3,4]]")
    kinds = {"bbox": K.BOX, "label": K.CLASS_LABEL, "area": K.FLOAT32, "is_crowd": K.INT64}
    assert [(one.name, one.kind, one.sequence) for one in source.features] == [
        *((f"objects/{name}", kind, "objects") for name, kind in kinds.items()),
        ("objects/segmentation", K.TEXT, "objects"), ("captions", K.TEXT, ""),
    ]  # fmt: skip
    assert source.features[1].names == det.CLASSES  # by category id, not by place or name
    assert source.features[3].dtype == "bool"


def test_a_json_without_a_split_beside_others_is_refused(tmp_path: Path) -> None:
    """All images would be in one split; one kind of files can be given by a wildcard."""
    more = {"annotations/image_info_unlabeled2017.json": det.coco(["a"], annotations=[])}
    root = write_files(official(tmp_path), more)
    told = r"val2017.json, whose names state splits, beside \S+unlabeled2017.json, without"
    with pytest.raises(UsageError, match=told):
        listing(root)
    given = f"{root}/annotations/instances_*.json"
    assert listing(given, image_root=str(root)).source.states_splits


@pytest.mark.parametrize(("where", "images", "root"), [
    ("annotations/instances_train2017.json", "train2017", ""),
    ("annotations/instances_train2017.json", "images/train2017", ""),
    ("annotations/train.json", "images", ""), ("instances_train2017.json", "train2017", ""),
    ("all.json", "", ""), ("labels/all.json", "elsewhere/deep", "elsewhere/deep"),
    ("labels/instances_x.json", "elsewhere/x", "elsewhere"),
])  # fmt: skip
def test_folders_of_images(tmp_path: Path, where: str, images: str, root: str) -> None:
    """An absolute path does not decide the folder of relative ones."""
    files = {f"{images}/{name}.png".lstrip("/"): picture() for name in det.OBJECTS}
    content = det.coco()
    content["images"][0]["file_name"] = f"{tmp_path}/in/{next(iter(files))}"
    home = f"{tmp_path}/in/{root}".rstrip("/")
    Case(
        {**files, where: content}, where, options={"image_root": home if root else None},
        rows={"uri": [f"FOLDER/{name}" for name in files],
              "id": [name.removeprefix(f"{root}/") for name in files]},
    ).check(tmp_path)  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [
    ("train/labels.json", "val/labels.json"), ("annotations/train.json", "annotations/val.json"),
    ("train/_annotations.coco.json", "val.json"),
])  # fmt: skip
def test_a_json_of_any_name_is_known_by_its_content(
    tmp_path: Path, first: str, second: str
) -> None:
    """Beside it are other json files, and a folder of annotations may have none."""
    files: dict[str, Any] = {f"{number}.json": {} for number in range(9)}
    files |= {"annotations/README.txt": "x", first: det.coco(["a"]), second: det.coco(["b"])}
    root = write_files(
        tmp_path, {**files, **det.pictures("train", "a"), **det.pictures("val", "b")}
    )
    found = listing(root)
    expected = [("train/a.png", "train"), ("val/b.png", "validation")]
    assert (sorted(found.of("id", "split")), found.rejects) == (expected, [])
    if second.startswith("val/"):  # one set alone states no splits
        assert listing(root / "val").of("id", "split") == [("b.png", None)]


def test_in_a_store(s3_bucket: Bucket, tmp_path: Path) -> None:
    (official(tmp_path) / "train2017" / "b.png").unlink()
    uri = det.upload(tmp_path, s3_bucket, "data/coco")
    local = listing(tmp_path).rows
    for place in (uri, f"{uri}/annotations/*_*2017.json"):
        found = listing(place, storage=s3_bucket.options())
        det.assert_same_in_store(found.rows, local, uri)
        assert found.reasons == {"train2017/b.png": "missing_file"}


HALF = [
    {"id": 1, "image_id": 1, "caption": "\ud83d\ude00 half \ud83d"},
    {"id": 2, "image_id": 2, "caption": "of an image that is gone"},
]
TWO = [IMAGE, {"id": 2, "file_name": "gone.png"}]
INFO = "annotations/image_info_test.json"
GONE = {"test/gone.png": "missing_file"}
TEXT = coco_json(GOOD)
NO_FOLDER = "a folder at FOLDER, with the folders annotations"
OTHERS = {"a.png": b"", "settings.json": '{"a": 1}', "annotations/notes.json": "[]"}
CASES = {
    "images only": Case(
        {"test/a.png": picture(), INFO: {"images": TWO, "annotations": []}}, rejects=GONE,
        rows={"id": ["test/a.png"]}, says="(image_info_test.json) with images only",
    ),
    "captions only": Case(
        {"test/a.png": picture(), INFO: {"images": TWO, "annotations": HALF}}, rejects=GONE,
        rows={"x/captions": [["😀 half ?"]]}, says="(image_info_test.json) with captions",
    ),
    "no image": Case(
        {"test/b": "", INFO: {"images": TWO, "annotations": HALF}}, rows={"id": []},
        rejects={"test/a.png": "missing_file", **GONE},
    ),
    "no coco": Case(OTHERS, source={"name": "folder", "description": NO_FOLDER}),
    "no coco file": Case(OTHERS, "settings.json", error=UsageError(r"settings\.json")),
    "forced": Case(
        ["a.png"], options={"input_format": "coco"},
        error=UsageError(r"has no COCO json: give the \.json"),
    ),
    "boxes without categories": Case(
        {"a.png": picture(), "x.json": coco_json(GOOD, categories=())}, "x.json",
        error=UsageError("has boxes and no categories: add the section"),
    ),
    # Images of the same stem, as COCO's panoptic masks, are none.
    "images that no json lists": Case(
        {**det.pictures("images", "abc"), "x.json": det.coco(["a"]), "masks/a.jpg": picture()},
        rows={"id": ["images/a.png"]},
        warns="INPUT FOLDER has 2 images that no json lists, such as images/b.png",
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case.check(tmp_path, caplog)
    assert bool(case.warns) == ("no json lists" in caplog.text)


def categories(*found: dict[str, Any]) -> str:
    return coco_json(GOOD, categories=found)


@pytest.mark.parametrize(("text", "told"), [
    (TEXT[:-30], "is not COCO json, or is cut short: "),
    (TEXT[:-1], "is not COCO json, or is cut short: Expecting ',' delimiter: "),
    (TEXT + "x", "Extra data"),
    ("[1, 2]", "$: expected object, got array"),
    ("", "Expecting value"),
    ('{"images": [{}}', "Expecting ',' delimiter"),
    *((f'{{"images": [{text}], "images": []}}', "the key 'images' comes twice")
      for text in ("", '{"id": NaN}')),
    ('{"images": null}', "$.images is None: expected array, got null"),
    ('{"images": ' + "[" * 100_000, "it is nested more than 100 levels deep"),
    ('{"images": [' + "9" * 5000 + "]}", "lists no `images`"),
    (b'{"images": ["\xff"]}', "images[0] is not UTF-8"),
    (b'{"images": [], "images": ["\xff"]}', "x.json is not UTF-8"),
    ('{"annotations": []}', "lists no `images`"),
    (categories({"id": 3}),
     "categories[0]: object missing required field name; a category has an id and a name"),
    (categories({"id": 3, "name": "\ud800"}), "a category has an id and a name"),
    (categories(CATEGORY, {"id": 4, "name": "cat "}),
     "two categories have the id 4 or the name 'cat'"),
    (categories(CATEGORY, {"id": 3.0, "name": "dog"}),
     "two categories have the id 3 or the name 'dog'"),
])  # fmt: skip
def test_invalid_files(tmp_path: Path, text: str | bytes, told: str) -> None:
    write_files(tmp_path, {"a.png": picture(), "x.json": text})
    with pytest.raises(BuildError) as raised:
        listing(tmp_path / "x.json", input_format="coco")
    assert told in str(raised.value)
    assert str(tmp_path / "x.json") in str(raised.value)


def test_ids_that_are_numbers() -> None:
    numbers = {"7": 7, "-7": -7, "007": 7, str(-(2**63) + 1): -(2**63) + 1, "0": 0}
    others = ("--5", "-", "", "7.5", "x", "\u0661", str(2**63), "9" * 5000)
    assert {key: coco_files.number_of(key) for key in numbers} == numbers
    assert [coco_files.number_of(key) for key in others] == [None] * len(others)
    classes = coco_files.merge_categories([{"--5": "odd", "10": "cat"}, {"9": "dog"}])
    assert classes == ("dog", "cat", "odd")


B = {**IMAGE, "id": 2, "file_name": "b.png"}
PERSON = {"id": 4, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"]}
POINTS = [10, 5, 2, 4, 20, 1, 0, 0, 0]


@pytest.mark.parametrize(("wrong", "told"), [
    ({"category_id": 9}, "annotations[1].category_id is 9, which is not in `categories`"),
    ({"category_id": None}, "annotations[1] has no bbox, or no category_id"),
    ({"category_id": 3.5}, "annotations[1].category_id is 3.5: expected "),
    ({"bbox": [1, 2, 3]}, ".bbox: expected array of length 4, got 3"),
    ({"bbox": [1, 2, 3, "4"]}, ".bbox[3] is '4': expected float, got str"),
    ({"bbox": [1, 2, 3, True]}, ".bbox[3] is True: expected float, got bool"),
    ({"bbox": [1, 2, 10**400, 4]}, "number out of range"),
    ({"bbox": [4, 2, 8, -1]}, "box a.png#7 is ymin=0.1, xmin=0.1, ymax=0.05"),
    ({"area": "big"}, ".area is 'big': expected float | null, got str"),
    ({"iscrowd": 2}, ".iscrowd is 2: expected float <= 1"),
    ({"iscrowd": [1]}, ".iscrowd: expected bool | float, got array"),
    ({"caption": 5}, ".caption is 5: expected str, got int"),
    ({"keypoints": [1, 2, 2]}, ".keypoints has 3 values: expected x, y and visibility of each of"),
    ({"keypoints": [*POINTS, 1, 1, 1]}, "of each of the 3 that its category names"),
    ({"keypoints": [*POINTS[:-1], "x"]}, ".keypoints[8] is 'x': expected float, got str"),
])  # fmt: skip
def test_invalid_annotations(tmp_path: Path, wrong: Any, told: str) -> None:
    """They reject their image only; sections may be in any order."""
    good = {**GOOD, "id": 8, "image_id": 2}
    text = coco_json(good, {**GOOD, **wrong}, images=(IMAGE, B), categories=(CATEGORY, PERSON))
    text = "\ufeff" + json.dumps(dict([*json.loads(text).items()][::-1]), indent=2)
    files = {"a.png": picture(), "b.png": picture(), "x.json": text}
    found = listing(write_files(tmp_path, files) / "x.json")
    reason = "unknown_label" if "not in `categories`" in told else "bad_value"
    assert (found.of("id"), found.reasons) == ([("b.png",)], {"a.png": reason})
    assert told in found.details["a.png"]
    assert found.rejects[0].uri == f"{tmp_path}/a.png"


@pytest.mark.parametrize(("images", "ids", "rejects"), [
    ([IMAGE, IMAGE], ["a.png"], [("a.png", "duplicate_id")]),
    ([IMAGE, {**B, "id": 1}], ["a.png"], [("b.png", "duplicate_id")]),
    ([IMAGE, {"id": 2}, {"file_name": "b.png"}, {**B, "id": [1]}, {**B, "file_name": 5}, 5, None],
     ["a.png"], [("", "bad_value")] * 6),
    ([IMAGE, {**B, "file_name": "\ud800.png"}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {**B, "id": "\ud800"}], ["a.png", "b.png"], []),
    ([IMAGE, {**B, "id": "x"}], ["a.png", "b.png"], []),
    ([IMAGE, {**B, "file_name": "a\0b.png"}], ["a.png"], [("a\0b.png", "unreadable")]),
    ([IMAGE, {**B, "file_name": "empty.png"}], ["a.png"], [("empty.png", "empty_file")]),
    *(([{**IMAGE, "id": number}], ["a.png"], []) for number in ("1", 1.0)),
    ([{**IMAGE, "file_name": "./deep/../a.png"}], ["a.png"], []),
    *(([{**IMAGE, "file_name": f"{folder}/outside.png"}], ["ROOT/outside.png"], [])
      for folder in ("..", "ROOT")),
    ([{**IMAGE, "file_name": f"{'../' * 10}etc/nothing.png"}], [],
     [("/etc/nothing.png", "missing_file")]),
])  # fmt: skip
def test_images(tmp_path: Path, images: list[Any], ids: list[str], rejects: list[Any]) -> None:
    text = coco_json(GOOD, images=images).replace("ROOT", str(tmp_path))
    files = {"a.png": picture(), "b.png": picture(), "empty.png": b"", "x.json": text}
    write_files(tmp_path, {"outside.png": picture()})
    path = write_files(tmp_path / "in", files) / "x.json"
    found = listing(path, allow_outside=(str(tmp_path),))
    assert [row["id"].replace(str(tmp_path), "ROOT") for row in found.rows] == ids
    assert det.reasons(found.rejects) == rejects
    assert found.rows == [] or found.rows[0]["x/objects/label"] == ["cat"]


def test_annotations_of_missing_images(tmp_path: Path) -> None:
    lost, none = {**GOOD, "image_id": 99}, {**GOOD, "image_id": None}
    half = {**GOOD, "image_id": "\ud800"}
    text = coco_json(GOOD, lost, lost, none, "x", half)
    found = listing(write_files(tmp_path, {"a.png": picture(), "x.json": text}) / "x.json")
    assert found.of("x/objects/label") == [(["cat"],)]
    assert det.reasons(found.rejects) == [
        ("", "bad_value"), ("", "bad_value"), ("99", "bad_id"), ("?", "bad_id")
    ]  # fmt: skip
    told = "annotations have image_id 99, which is not in `images`"
    assert found.rejects[2].detail.startswith(told)


def test_small_batches_list_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}.png" for number in range(9)]
    images = [{**IMAGE, "id": number, "file_name": name} for number, name in enumerate(names)]
    boxes = [
        {"id": 99 - number, "image_id": number * 5 % 11, "category_id": 3 + (number == 7),
         "bbox": [number, 2, 8, 10], "segmentation": [[number, 0.5] * 3]}
        for number in range(40)
    ]  # fmt: skip
    bad = {"id": 7, "image_id": 4, "category_id": 3, "bbox": [1]}
    text = coco_json(*boxes[:20], bad, *boxes[20:], images=images)
    path = write_files(tmp_path, {**dict.fromkeys(names, picture()), "x.json": text}) / "x.json"
    whole = listing(path)
    expected = [
        (f"{row}.png", [  # by id: the last comes first
            f"[[{n},0.5,{n},0.5,{n},0.5]]" for n in reversed(range(40)) if n * 5 % 11 == row
        ])
        for row in (0, 1, 3, 5, 6, 7, 8)
    ]  # fmt: skip
    assert whole.of("id", "x/objects/segmentation") == expected
    assert whole.reasons == {
        "10": "bad_id", "9": "bad_id", "2.png": "unknown_label", "4.png": "bad_value"
    }  # fmt: skip
    monkeypatch.setattr(coco, "_BATCH_BYTES", 1500)
    assert listing(path) == whole


def test_keypoints(tmp_path: Path) -> None:
    """As fractions of 40 x 20 pixels; of a class with fewer of them, and without, zeros follow."""
    annotations = (
        {**GOOD, "category_id": 4, "keypoints": POINTS, "num_keypoints": 2},
        {**GOOD, "id": 8, "keypoints": [40, 20, 2]},
        {**GOOD, "id": 9, "category_id": 4, "bbox": [4, 2, 0, 0], "keypoints": [1] * 9},
        {**GOOD, "id": 10},
    )
    cat = {"id": 3, "name": "cat", "keypoints": ["tail"]}
    text = coco_json(*annotations, images=(IMAGE, B), categories=(PERSON, cat))
    none = [0.0] * 3
    points = [
        [[0.25, 0.25, 2], [pytest.approx(0.1), 1, 1], none], [[1, 1, 2], none, none], [none] * 3,
    ]  # fmt: skip
    files = {"a.png": picture(), "b.png": picture()}
    found = Case(
        {**files, "x.json": text}, "x.json", rows={"x/objects/keypoints": [points, []]},
        rejects={"a.png#9": "empty_box"}, says="with boxes of 2 classes and keypoints",
    ).listed(tmp_path)  # fmt: skip
    assert found.source.features[-1].shape == (None, 3, 3)
    Case(
        {**files, "x.json": coco_json({**GOOD, "keypoints": POINTS})}, "x.json",
        says="with boxes of 1 class; keypoints left out, as no category names them",
    ).check(tmp_path)  # fmt: skip
