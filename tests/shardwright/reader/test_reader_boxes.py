"""`sw.Reader` with `boxes=`: boxes and the lists of their objects follow the crop of the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shardwright as sw
from shardwright.errors import BadRecordError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from tests.support.bad_records import copy_with_bad_record
from tests.support.trainer_datasets import NUM_SCENES, scenes_fixture  # noqa: F401

BOX, LABEL, BOX_MASK = "objects/bbox", "objects/label", "objects/bbox_mask"
POINTS = "objects/keypoints"
CROP = sw.TrainImage(32, boxes=BOX)
PADDED = sw.TrainImage(32, boxes=sw.Boxes(BOX, max_boxes=2))
IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)
ID = Feature("id", FeatureKind.TEXT, Source.ID)


def read(dataset: str | Path, image: Any = CROP, **options: Any) -> sw.Reader:
    return sw.Reader(dataset, **{"batch_size": 8, "epochs": 1, "image": image, **options})


def painted(image: NDArray[Any], label: int) -> list[int]:
    """Return the bounding box xyxy of a channel's bright pixels; no area if there are none."""
    rows, columns = np.nonzero(image[..., label].astype(int) > 127)
    if not len(rows):
        return [0, 0, 0, 0]
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize("image", [
    CROP, sw.EvalImage(32, boxes=BOX), sw.DecodedImage(boxes=BOX), sw.DecodedImage(48, boxes=BOX),
    sw.TrainImage((24, 40), boxes=BOX, dtype="float32", fast=False),
    sw.EvalImage((64, 32), resize="letterbox", boxes=BOX),
], ids=str)  # fmt: skip
def test_boxes_and_labels_are_those_that_the_image_shows(scenes: str, image: Any) -> None:
    """Each object is painted in the channel of its class."""
    reader = read(scenes, image, shuffle=True, epochs=3, remainder="keep")
    channels = [("red", "green", "blue").index(name) for name in reader.class_names]
    num_seen = num_gone = 0
    for batch in reader:
        for pixels, boxes, labels in zip(batch["image"], batch[BOX], batch[LABEL], strict=True):
            assert (boxes.dtype, boxes.shape, labels.dtype) == (np.float32, (len(labels), 4), int)
            seen = {channels[label]: box for label, box in zip(labels, boxes, strict=True)}
            for channel in range(3):
                found = painted(pixels, channel)
                area = (found[2] - found[0]) * (found[3] - found[1])
                if channel not in seen:
                    assert min(found[2] - found[0], found[3] - found[1]) <= 2
                    num_gone += 1
                elif area:
                    np.testing.assert_allclose(seen[channel], found, atol=1.6)
                    num_seen += 1
    assert num_seen > NUM_SCENES
    assert num_gone > NUM_SCENES


def test_a_whole_image_has_the_stored_boxes(scenes: str) -> None:
    """The stored form, of a result that shows the whole image at any size, is what is stored."""
    stored = read(scenes, sw.DecodedImage())
    boxes = sw.Boxes(BOX, box_format="yxyx_rel")
    for found, wanted in zip(read(scenes, sw.DecodedImage(64, boxes=boxes)), stored, strict=True):
        for name in (BOX, LABEL):
            for one, other in zip(found[name], wanted[name], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)


def test_padded_boxes(scenes: str) -> None:
    """One array per feature, with a mask; rows without a record have no boxes."""
    for remainder, rows in (("pad", 16), ("keep", None)):
        lists = read(scenes, CROP, batch_size=16, shuffle=True, remainder=remainder)
        padded = read(scenes, PADDED, batch_size=16, shuffle=True, remainder=remainder)
        spec = padded.element_spec
        assert spec[BOX] == ((rows, 2, 4), np.float32)
        assert spec[LABEL] == ((rows, 2), np.int64)
        assert spec[BOX_MASK] == ((rows, 2), np.bool_)
        assert lists.element_spec[BOX] == ((rows,), object)
        for ours, theirs in zip(padded, lists, strict=True):
            assert list(ours) == list(spec)
            for name, (shape, dtype) in spec.items():
                assert ours[name].dtype == dtype
                assert ours[name].shape[1:] == shape[1:]
            for row, boxes in enumerate(theirs[BOX]):
                count = min(len(boxes), 2)
                assert ours[BOX_MASK][row].tolist() == [True] * count + [False] * (2 - count)
                np.testing.assert_array_equal(ours[BOX][row, :count], boxes[:2])
                np.testing.assert_array_equal(ours[LABEL][row, :count], theirs[LABEL][row][:2])
                assert not ours[BOX][row, count:].any()


def test_the_image_is_the_same_with_and_without_boxes(scenes: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "remainder": "keep"}
    with_boxes = read(scenes, **options)
    without = read(scenes, sw.TrainImage(32), features=["image", "id"], **options)
    for ours, theirs in zip(with_boxes, without, strict=True):
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_encodings_apply_to_what_is_left(scenes: str) -> None:
    """A user's encoding is kept, also where others are padded."""
    features = {"image": None, BOX: None, LABEL: sw.MultiHot()}
    for image in (CROP, PADDED):
        encoded = read(scenes, image, features=features, shuffle=True)
        for ours, theirs in zip(encoded, read(scenes, shuffle=True), strict=True):
            assert set(ours) == {"image", BOX, LABEL} | ({BOX_MASK} if image is PADDED else set())
            for hot, labels in zip(ours[LABEL], theirs[LABEL], strict=True):
                assert np.flatnonzero(hot).tolist() == sorted(set(labels.tolist()))
    features = {"image": None, LABEL: sw.Dense(4, fill=-1), BOX: sw.Dense(4)}
    for ours, theirs in zip(read(scenes, features=features), read(scenes), strict=True):
        for row, labels in enumerate(theirs[LABEL]):
            assert ours[LABEL][row].tolist() == [*labels, *[-1] * (4 - len(labels))]
            np.testing.assert_array_equal(ours[BOX][row, : len(labels)], theirs[BOX][row])


OWN = ExampleSchema((
    IMAGE, ID,
    Feature("boxes", FeatureKind.BOX, shape=(None, 4), dtype="float64"),
    Feature("names", FeatureKind.TEXT, shape=(None,)),
    Feature("points", FeatureKind.FLOAT32, shape=(None, 2)),
    Feature("tags", FeatureKind.TEXT, shape=(None,)),
    Feature("set", FeatureKind.MULTI_LABEL),
    Feature("boxes_mask", FeatureKind.INT64),
))  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two records of a schema without a sequence: their left half has the objects "a" and "c"."""
    boxes = [[0, 0, 1, 0.25], [0, 0.5, 1, 0.75], [0.5, 0.125, 1, 0.5]]
    lists = {"names": ["a", "b", "c"], "points": [[0, 1], [2, 3], [4, 5]]}
    record = {"image": np.zeros((8, 16, 3), np.uint8), "boxes": boxes, **lists, "set": ["x", "y"]}
    record["boxes_mask"] = 0
    records = [{"id": "0", **record, "tags": ["t"]}, {"id": "1", **record, "tags": ["t"] * 3}]
    root = tmp_path_factory.mktemp("own") / "out"
    sw.write(records, root, schema=OWN)
    return root


def shown(dataset: Path, features: list[str] | None = None, **rules: Any) -> dict[str, Any]:
    """Return a batch of the left half of the images, 8 x 8 pixels."""
    image = sw.EvalImage(8, 8, boxes=sw.Boxes("boxes", **rules))
    (batch,) = read(dataset, image, batch_size=2, features=features, remainder="keep")
    return dict(batch)


def test_lists_of_a_schema_without_a_sequence_are_stated(own: Path) -> None:
    """The crop is columns 4 to 12 of 16: of "a" nothing is left, of "c" four columns of six."""
    needs = r"does not say which lists have an item for each of 'boxes': write boxes=sw\.Boxes\("
    with pytest.raises(UsageError, match=needs + r"'boxes', lists=\['names', 'points', 'tags'\]"):
        shown(own)
    batch = shown(own, lists=["names", "points"])
    for row in range(2):
        assert batch["names"][row].tolist() == ["b", "c"]
        assert batch["points"][row].tolist() == [[2, 3], [4, 5]]
        assert batch["boxes"][row].tolist() == [[4, 0, 8, 8], [0, 4, 4, 8]]
        assert batch["boxes"][row].dtype == np.float32
        assert len(batch["set"][row]) == 2
    assert [len(tags) for tags in batch["tags"]] == [1, 3]
    assert [len(names) for names in shown(own, lists=[])["names"]] == [3, 3]
    assert len(shown(own, features=["image", "boxes"])["boxes"][0]) == 2


def test_a_list_that_does_not_fit_the_boxes_makes_a_bad_record(own: Path) -> None:
    reason = "feature 'tags' has 1 item, but 'boxes' has 3 boxes"
    with pytest.raises(BadRecordError, match=reason):
        shown(own, lists=["tags"])


def test_padded_lists_of_text_and_a_name_that_is_taken(own: Path) -> None:
    with pytest.raises(UsageError, match="'boxes_mask' has the same name as the mask of max_boxes"):
        shown(own, lists=[], max_boxes=3)
    names = ["image", "boxes", "names", "points"]
    batch = shown(own, names, lists=names[2:], max_boxes=3)
    assert batch["names"].tolist() == [["b", "c", ""]] * 2
    assert batch["points"].tolist() == [[[2, 3], [4, 5], [0, 0]]] * 2
    assert batch["boxes_mask"].tolist() == [[True, True, False]] * 2


def test_a_damaged_record_has_no_boxes(scenes: str, tmp_path: Path) -> None:
    copy, bad = copy_with_bad_record(scenes, tmp_path, row=7)
    reader = read(copy, PADDED, max_bad_records=1, remainder="pad")
    rows = [
        (name, bool(is_record), boxes)
        for batch in reader
        for name, is_record, boxes in zip(batch["id"], batch["mask"], batch[BOX_MASK], strict=True)
    ]
    assert [record.id for record in reader.bad_records] == [bad]
    assert sum(is_record for _, is_record, _ in rows) == NUM_SCENES - 1
    assert not any(boxes.any() for _, is_record, boxes in rows if not is_record)


@pytest.mark.parametrize("image", ["", b"\x89PNG\r\n\x1a\n"], ids=["none", "damaged"])
def test_a_record_without_an_image_shows_no_object(image: str | bytes, tmp_path: Path) -> None:
    schema = ExampleSchema((
        Feature("image", FeatureKind.IMAGE, Source.IMAGE, default=""), ID,
        Feature("objects/bbox", FeatureKind.BOX, shape=(None, 4), sequence="objects"),
    ))  # fmt: skip
    boxes = [[0.0, 0.0, 1.0, 1.0]]
    pixels = np.zeros((8, 8, 3), np.uint8)
    records = [{"id": "0", "image": image, BOX: boxes}, {"id": "1", "image": pixels, BOX: boxes}]
    sw.write(records, tmp_path / "out", schema=schema, check="none")
    reader = read(tmp_path / "out", PADDED, batch_size=2, remainder="pad", max_bad_records=1)
    (batch,) = reader
    assert batch[BOX_MASK].tolist().count([True, False]) == 1
    assert batch["mask"].sum() == 2 - bool(image)
    assert len(reader.bad_records) == bool(image)


POSES = ExampleSchema((
    IMAGE, ID,
    Feature(BOX, FeatureKind.BOX, shape=(None, 4), sequence="objects"),
    Feature(POINTS, FeatureKind.KEYPOINTS, shape=(None, 3, 3), sequence="objects"),
))  # fmt: skip


@pytest.fixture(scope="module")
def poses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty records of 8 x 16 pixels: a nose, two eyes; an object at the left edge; none."""
    objects = [
        {"bbox": [0, 0.25, 1, 0.75], "keypoints": [[0.5, 0.25, 2], [0.375, 0, 1], [0.875, 0, 2]]},
        {"bbox": [0, 0, 0.5, 0.125], "keypoints": [[0, 0, 2], [0.25, 0.5, 0], [0.1, 0.5, 2]]},
    ]
    lists = {BOX: [one["bbox"] for one in objects], POINTS: [one["keypoints"] for one in objects]}
    image = np.zeros((8, 16, 3), np.uint8)
    records = [{"id": str(number), "image": image, **lists} for number in range(20)]
    empty = {"id": "none", "image": image, BOX: [], POINTS: []}
    root = tmp_path_factory.mktemp("poses") / "out"
    sw.write([*records, empty], root, schema=POSES)
    return root


def test_keypoints_go_with_their_box(poses: Path) -> None:
    """The crop is columns 4 to 12 of 16, so the second object and the right eye are outside."""
    nose, eye, none = [4, 2, 2], [2, 0, 1], [0, 0, 0]
    for max_boxes in (None, 2):
        image = sw.EvalImage(8, 8, boxes=sw.Boxes(BOX, max_boxes=max_boxes))
        (batch,) = read(poses, image, batch_size=21)
        for name, points in zip(batch["id"], batch[POINTS], strict=True):
            found = [] if name == "none" else [[nose, eye, none]]
            assert points.dtype == np.float32
            found += [[none] * 3] * (max_boxes - len(found) if max_boxes else 0)
            assert points.tolist() == found
    shape = read(poses, image).element_spec[POINTS]
    assert shape == ((None, 2, 3, 3), np.float32)


def test_keypoints_in_a_mirror(poses: Path) -> None:
    seen = set()
    boxes = sw.Boxes(BOX, mirrored=[0, 2, 1], box_format="yxyx_rel")
    image = sw.TrainImage((8, 16), scale=(1, 1), ratio=(2, 2), boxes=boxes)
    for batch in read(poses, image, shuffle=True, batch_size=1, remainder="keep"):
        if batch["id"][0] != "none":
            is_flipped = batch[BOX][0][0][1] == 0.25 and batch[BOX][0][1][1] > 0.5
            first = [[0.5, 0.25, 2], [0.375, 0, 1], [0.875, 0, 2]]
            mirror = [[0.5, 0.25, 2], [0.125, 0, 2], [0.625, 0, 1]]
            assert batch[POINTS][0][0].tolist() == (mirror if is_flipped else first)
            seen.add(is_flipped)
    assert seen == {False, True}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with a box that every record has: it cannot be dropped."""
    schema = ExampleSchema((IMAGE, ID, Feature("face", FeatureKind.BOX, shape=(4,))))
    record = {"id": "0", "image": np.zeros((8, 8, 3), np.uint8), "face": [0, 0, 1, 1]}
    root = tmp_path_factory.mktemp("face") / "out"
    sw.write([record], root, schema=schema)
    return root


@pytest.mark.parametrize(("dataset", "image", "features", "message"), [
    ("scenes", sw.TrainImage(8), None,
     r"TrainImage crops the image, but objects/bbox would stay as stored: "
     r"name lists of boxes, and masks, in boxes= and masks= of sw\.TrainImage, leave the rest out"),
    ("scenes", sw.EvalImage(8), None, r"in boxes= and masks= of sw\.EvalImage"),
    ("scenes", sw.TrainImage(8, boxes="bbox"), None,
     r"boxes='bbox' is not a feature that is read; those are image, id, objects/bbox, obj"),
    ("scenes", CROP, ["image", LABEL], "boxes='objects/bbox' is not a feature that is read"),
    ("scenes", CROP, [BOX, LABEL], r"needs the image: add 'image' to features="),
    ("scenes", sw.EvalImage(8, boxes=LABEL), None,
     r"boxes='objects/label' must be a list of boxes, of kind "
     r"box and shape \(None, 4\); it has kind class_label and shape \(None,\)"),
    ("scenes", sw.TrainImage(8, boxes=sw.Boxes(BOX, lists=["id", LABEL])), None,
     r"lists=\.\.\.\) has id, but the lists that are read beside objects/bbox are objects/label"),
    ("face", sw.TrainImage(8), None, "but face would stay as stored: "),
    ("face", sw.TrainImage(8, boxes="face"), None, r"it has kind box and shape \(4,\)"),
    ("poses", sw.TrainImage(8), None,
     f"but {BOX}, {POINTS} would stay as stored: name lists of boxes"),
    ("poses", sw.EvalImage(8, boxes=sw.Boxes(BOX, lists=[])), None,
     f"but {POINTS} would stay as stored: "),
    ("poses", sw.TrainImage(8, boxes=BOX), None,
     rf"flipped, and a left eye .* write sw.Boxes\('{BOX}', mirrored"),
    ("poses", sw.EvalImage(8, boxes=sw.Boxes(BOX, mirrored=[1, 0])), None,
     "has 2 numbers, but an object of 'objects/keypoints' has 3 points: give one number for each"),
], ids=str)  # fmt: skip
def test_objects_that_would_be_wrong(
    request: pytest.FixtureRequest, dataset: str, image: Any, features: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(request.getfixturevalue(dataset), image, features=features)


def test_numbers_named_as_positions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shapes: dict[str, tuple[Any, ...]] = {
        "objects/bbox": (None, 4), "face_Landmarks": (5, 2), "boxes": (4,), "key_points": (None,),
        "boxing": (None,), "box": (), "inbox": (None,),
    }  # fmt: skip
    numbers = [Feature(name, FeatureKind.FLOAT32, shape=shape) for name, shape in shapes.items()]
    values = {n: np.zeros([size or 1 for size in s], np.float32) for n, s in shapes.items()}
    record = {"id": "0", "image": np.zeros((8, 8, 3), np.uint8), **values}
    sw.write([record], tmp_path / "out", schema=ExampleSchema((IMAGE, ID, *numbers)))
    read(tmp_path / "out", sw.DecodedImage(8))
    read(tmp_path / "out", sw.EvalImage(8), features=["image", "id"])
    assert "stays as stored" not in caplog.text
    read(tmp_path / "out", sw.TrainImage(8))
    named = "objects/bbox, face_Landmarks, boxes, key_points stays as stored"
    assert f"TrainImage crops images, but {named}" in caplog.text
