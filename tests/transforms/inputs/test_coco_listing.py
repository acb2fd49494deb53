"""Images and annotations of a COCO json: rows, and a reject for each that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.transforms.inputs.formats import coco
from shardwright.transforms.rejects import Reject
from tests.support.detection_makers import (
    CATEGORY,
    GOOD,
    IMAGE,
    coco_json,
    listed,
    picture,
    reasons,
    write,
)
from tests.support.listings import Rows


def list_json(root: Path, text: str, a: bytes = b"", **files: bytes) -> tuple[Rows, list[Reject]]:
    """List a json beside `a.png` and further images."""
    further = {f"{name}.png": data for name, data in files.items()}
    write(root, {"a.png": a or picture(), "x.json": text, **further})
    return listed(root / "x.json", allow_outside=(str(root.parent),))[1:]


PERSON = {"id": 4, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"]}
POINTS = [10, 5, 2, 4, 20, 1, 0, 0, 0]


@pytest.mark.parametrize(("wrong", "told"), [
    ({"category_id": 9}, "annotations[1].category_id is 9, which is not in `categories`"),
    ({"category_id": None}, "annotations[1] has no bbox, or no category_id"),
    ({"category_id": 3.5}, "annotations[1].category_id is 3.5: expected "),
    ({"bbox": [1, 2, 3]}, ".bbox: expected array of length 4, got 3"),
    ({"bbox": "1 2 3 4"}, ".bbox is '1 2 3 4': expected array, got str"),
    ({"bbox": [1, 2, 3, "4"]}, ".bbox[3] is '4': expected float, got str"),
    ({"bbox": [1, 2, 3, True]}, ".bbox[3] is True: expected float, got bool"),
    ({"bbox": [1, 2, 10**400, 4]}, "number out of range"),
    ({"bbox": [4, 2, 8, -1]}, "box a.png#7 is ymin=0.1, xmin=0.1, ymax=0.05"),
    ({"bbox": [4, 2, float("nan"), 10]}, "box a.png#7 is ymin=0.1, xmin=0.1, ymax=0.6, xmax=nan"),
    ({"area": "big"}, ".area is 'big': expected float | null, got str"),
    ({"iscrowd": 2}, ".iscrowd is 2: expected float <= 1"),
    ({"iscrowd": [1]}, ".iscrowd: expected bool | float, got array"),
    ({"caption": 5}, ".caption is 5: expected str, got int"),
    ({"keypoints": [1, 2, 2]}, ".keypoints has 3 values: expected x, y and visibility of each of"),
    ({"keypoints": [*POINTS, 1, 1, 1]}, "of each of the 3 that its category names"),
    ({"keypoints": "nose"}, ".keypoints is 'nose': expected array | null, got str"),
    ({"keypoints": [*POINTS[:-1], "x"]}, ".keypoints[8] is 'x': expected float, got str"),
])  # fmt: skip
def test_invalid_annotations(tmp_path: Path, wrong: Any, told: str) -> None:
    """They reject their image only; sections may be in any order."""
    images = (IMAGE, {**IMAGE, "id": 2, "file_name": "b.png"})
    good = {**GOOD, "id": 8, "image_id": 2}
    text = coco_json(good, {**GOOD, **wrong}, images=images, categories=(CATEGORY, PERSON))
    text = "\ufeff" + json.dumps(dict([*json.loads(text).items()][::-1]), indent=2)
    [row], [reject] = list_json(tmp_path, text, b=picture())
    reason = "unknown_label" if "not in `categories`" in told else "bad_value"
    assert (row["id"], *reasons([reject])) == ("b.png", ("a.png", reason))
    assert told in reject.detail
    assert reject.uri == f"{tmp_path}/a.png"


@pytest.mark.parametrize(("images", "ids", "expected"), [
    ([IMAGE, IMAGE], ["a.png"], [("a.png", "duplicate_id")]),
    ([IMAGE, {**IMAGE, "file_name": "b.png"}], ["a.png"], [("b.png", "duplicate_id")]),
    ([IMAGE, {"id": 2}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {"file_name": "b.png"}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {"id": [1], "file_name": "b.png"}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {"id": 2, "file_name": 5}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {"id": 2, "file_name": "\ud800.png"}], ["a.png"], [("", "bad_value")]),
    ([IMAGE, {"id": "\ud800", "file_name": "b.png"}], ["a.png", "b.png"], []),
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
    ([{**IMAGE, "file_name": f"{'../' * 10}etc/nothing.png"}], [],
     [("/etc/nothing.png", "missing_file")]),
])  # fmt: skip
def test_images(tmp_path: Path, images: list[Any], ids: list[str], expected: list[Any]) -> None:
    write(tmp_path, {"outside.png": picture()})
    text = coco_json(GOOD, images=images).replace("ROOT", str(tmp_path))
    rows, rejects = list_json(tmp_path / "data", text, b=picture(), empty=b"")
    assert [row["id"].replace(str(tmp_path), "ROOT") for row in rows] == ids
    assert reasons(rejects) == expected
    assert rows == [] or rows[0]["x/objects/label"] == ["cat"]


def test_annotations_of_missing_images(tmp_path: Path) -> None:
    lost, none = {**GOOD, "image_id": 99}, {**GOOD, "image_id": None}
    half = {**GOOD, "image_id": "\ud800"}
    [row], rejects = list_json(tmp_path, coco_json(GOOD, lost, lost, none, "x", half))
    assert row["x/objects/label"] == ["cat"]
    assert reasons(rejects) == [
        ("", "bad_value"), ("", "bad_value"), ("99", "bad_id"), ("?", "bad_id")
    ]  # fmt: skip
    told = "annotations have image_id 99, which is not in `images`"
    assert rejects[2].detail.startswith(told)


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
    write(tmp_path, {**dict.fromkeys(names, picture()), "x.json": text})
    whole = listed(tmp_path / "x.json")[1:]
    rows = (0, 1, 3, 5, 6, 7, 8)
    assert [row["id"] for row in whole[0]] == [f"{row}.png" for row in rows]
    for row, listed_row in zip(rows, whole[0], strict=True):  # by id: the last comes first
        numbers = [number for number in range(40) if number * 5 % 11 == row][::-1]
        segments = [f"[[{number},0.5,{number},0.5,{number},0.5]]" for number in numbers]
        assert listed_row["x/objects/segmentation"] == segments
    assert reasons(whole[1]) == [
        ("10", "bad_id"), ("9", "bad_id"), ("2.png", "unknown_label"), ("4.png", "bad_value")
    ]  # fmt: skip
    monkeypatch.setattr(coco, "_BATCH_BYTES", 1500)
    assert listed(tmp_path / "x.json")[1:] == whole


def test_keypoints(tmp_path: Path) -> None:
    """As fractions of 40 x 20 pixels; of a class with fewer of them, and without, zeros follow."""
    annotations = (
        {**GOOD, "category_id": 4, "keypoints": POINTS, "num_keypoints": 2},
        {**GOOD, "id": 8, "keypoints": [40, 20, 2]},
        {**GOOD, "id": 9, "category_id": 4, "bbox": [4, 2, 0, 0], "keypoints": [1] * 9},
        {**GOOD, "id": 10},
    )
    cat = {"id": 3, "name": "cat", "keypoints": ["tail"]}
    images = (IMAGE, {**IMAGE, "id": 2, "file_name": "b.png"})
    text = coco_json(*annotations, images=images, categories=(PERSON, cat))
    write(tmp_path, {"a.png": picture(), "b.png": picture(), "x.json": text})
    source, [row, without], rejects = listed(tmp_path / "x.json")
    assert without["x/objects/keypoints"] == []
    none = [0.0] * 3
    assert row["x/objects/keypoints"] == [
        [[0.25, 0.25, 2], [pytest.approx(0.1), 1, 1], none], [[1, 1, 2], none, none], [none] * 3,
    ]  # fmt: skip
    assert reasons(rejects) == [("a.png#9", "empty_box")]
    assert source.description.endswith("with boxes of 2 classes and keypoints")
    assert source.features[-1].shape == (None, 3, 3)
    write(tmp_path, {"x.json": coco_json({**GOOD, "keypoints": POINTS})})
    told = "with boxes of 1 class; keypoints left out, as no category names them"
    assert listed(tmp_path / "x.json")[0].description.endswith(told)
