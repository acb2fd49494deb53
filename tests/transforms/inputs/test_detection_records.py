"""Records of the Object Detection API: their boxes and classes are those of every other format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.formats.stated_features import read_label_map
from tests.support.detection_makers import (
    CLASSES,
    HEIGHT,
    OBJECTS,
    WIDTH,
    expected_boxes,
    listed,
    picture,
    write,
)
from tests.support.tfrecord_makers import example, write_records

# In the form of object_detection/data/mscoco_label_map.pbtxt, with what such files have besides.
LABEL_MAP = """\
# classes
item { name: "/m/01yrx" id: 1 display_name: "cat" }
item {
  id: 3
  name: 'zebra'
  keypoints { id: 7 label: "nose" }
}
item: { id: 2, name: "dog" }
"""


def records(**changes: Any) -> list[bytes]:
    """Return the records of `OBJECTS` as `create_coco_tf_record.py` writes them."""
    made = []
    for name, objects in OBJECTS.items():
        boxes = expected_boxes(name)
        y_min, x_min, y_max, x_max = map(list, zip(*boxes, strict=True)) if boxes else ([],) * 4
        labels = [label for label, *_ in objects]
        features = {
            "image__height": HEIGHT, "image__width": WIDTH,
            "image__filename": f"{name}.png".encode(), "image__source_id": f"{name}.png".encode(),
            "image__encoded": picture(), "image__format": b"png",
            "image__object__bbox__xmin": x_min, "image__object__bbox__xmax": x_max,
            "image__object__bbox__ymin": y_min, "image__object__bbox__ymax": y_max,
            "image__object__class__text": [label.encode() for label in labels],
            "image__object__class__label": [CLASSES.index(label) + 1 for label in labels],
            "image__object__is_crowd": [0 for _ in labels],
        }  # fmt: skip
        made.append(
            example(**{key: of for key, of in {**features, **changes}.items() if of != b""})
        )
    return made


@pytest.mark.parametrize(("label_map", "changes", "names", "told"), [
    ("", {}, (), "feature 'image/object/class/text'"),
    (LABEL_MAP, {}, ("cat", "dog", "zebra"), "the label map"),
    (LABEL_MAP, {"image__object__class__text": b""}, ("cat", "dog", "zebra"), "the label map"),
])  # fmt: skip
def test_the_same_objects(
    tmp_path: Path, label_map: str, changes: Any, names: tuple[str, ...], told: str
) -> None:
    write_records(tmp_path / "train.record", records(**changes))
    write(tmp_path, {"label_map.pbtxt": label_map})
    source, rows, rejects = listed(tmp_path)
    assert [row["id"] for row in rows] == [f"{name}.png" for name in OBJECTS]
    for row, (name, objects) in zip(rows, OBJECTS.items(), strict=True):
        assert row["x/objects/label"] == [label for label, *_ in objects]
        assert row["x/objects/is_crowd"] == [0] * len(objects)
        boxes = [pytest.approx(box, abs=1e-6) for box in expected_boxes(name)]
        assert row["x/objects/bbox"] == boxes
    features = {one.name: one for one in source.features}
    assert (features["objects/label"].names, source.labels_from) == (names, told)
    assert not [name for name in features if name.startswith("image/object")]
    assert rejects == []


def test_compressed_records(tmp_path: Path) -> None:
    """Their images go to the spool, and their boxes with them."""
    path = write_records(tmp_path / "train.record.gz", records(), "GZIP")
    for _ in range(2):  # the second time from the listing in the spool
        _, rows, _ = listed(path, spool=Folder.at(tmp_path / "spool"))
        assert [len(row["x/objects/bbox"]) for row in rows] == [2, 0, 1]


def test_classes_without_names(tmp_path: Path) -> None:
    changed = records(image__object__class__text=b"")
    _, rows, _ = listed(write_records(tmp_path / "train.record", changed))
    assert [row["x/objects/label"] for row in rows] == [[3, 1], [], [2]]


@pytest.mark.parametrize(("number", "changes", "reason", "told"), [
    (0, {"image__object__bbox__xmin": [0.5]}, "bad_value",
     "'image/object/bbox/ymin' has 2 values, and 'image/object/bbox/xmin' has 1"),
    *((0, {"image__object__class__text": [text, b"dog"]}, "bad_value",
       "image/object/class/text has no class in UTF-8 for its box")
      for text in (b" ", "\u72d7".encode("gbk"))),
    (2, {"image__object__bbox__xmax": [20.0]}, "bad_value", "must be fractions of the image"),
    (2, {"image__object__bbox__xmax": [-0.5]}, "bad_value", "ymin <= ymax and xmin <= xmax"),
])  # fmt: skip
def test_bad_boxes(tmp_path: Path, number: int, changes: Any, reason: str, told: str) -> None:
    made = records()
    made[number] = records(**changes)[number]
    # The first records, which decide the features, are good.
    _, rows, [reject] = listed(write_records(tmp_path / "a.record", [*records() * 40, *made]))
    assert (str(reject.reason), told in reject.detail) == (reason, True), reject.detail
    assert len(rows) == 122


def test_names_of_classes_stay_if_the_first_record_lacks_one(tmp_path: Path) -> None:
    """One bad record does not decide that the classes of all others are numbers."""
    bad = records(image__object__class__text=[b"cat"])[0]
    _, rows, [reject] = listed(write_records(tmp_path / "a.record", [bad, *records()]))
    assert "'image/object/class/text' has 1 values" in reject.detail
    assert rows[0]["x/objects/label"] == [label for label, *_ in next(iter(OBJECTS.values()))]


def test_label_maps(tmp_path: Path) -> None:
    folder = Folder.at(
        write(tmp_path, {"a.pbtxt": LABEL_MAP, "schema.pbtxt": "feature { name: 'a' }"})
    )
    assert read_label_map(folder) == {1: "cat", 2: "dog", 3: "zebra"}
    write(tmp_path, {"b.pbtxt": r"item { id: 1 name: 'it\'s' }"})
    with pytest.raises(UsageError, match="holds several label maps"):
        read_label_map(folder)
    write(tmp_path, {"a.pbtxt": ""})
    assert read_label_map(folder) == {1: "it's"}
    write(tmp_path, {"b.pbtxt": "item { id: 1 name: 'a' } item { id: 2 name: 'a' }"})
    assert read_label_map(folder) == {1: "a (1)", 2: "a (2)"}
    (tmp_path / "b.pbtxt").write_bytes("item { id: 1 name: '\u72d7' }".encode("utf-16"))
    assert read_label_map(folder) == {1: "\u72d7"}
    (tmp_path / "b.pbtxt").write_bytes("item { id: 1 name: '\u72d7' }".encode("gbk"))
    with pytest.raises(UsageError, match=r"b\.pbtxt is not UTF-8: save it as UTF-8"):
        read_label_map(folder)
