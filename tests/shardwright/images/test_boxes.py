"""`sw.Boxes`: its checks, and boxes that show what the crop of their image shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.boxes import Boxes
from shardwright.images.crops import Crop, View
from shardwright.images.decode import StoredImage
from shardwright.images.specs import CropImage, DecodedImage, EvalImage, TrainImage

WHOLE = Crop(0, 0, 100, 200)
HALF = Crop(0, 100, 100, 100)  # the right half
QUARTER = [[0.25, 0.25, 0.75, 0.75]]  # yxyx: rows 25 to 75, columns 50 to 150


def moved(
    boxes: Any,
    crop: Crop = WHOLE,
    size: tuple[int, int] = (100, 200),
    *,
    flip: bool = False,
    **rules: Any,
) -> tuple[list[list[float]], list[bool]]:
    """Return boxes of an image of 100 x 200 pixels in a view of it, and which are left."""
    given = np.array(boxes, np.float32).reshape(-1, 4)
    found, kept = Boxes("boxes", **rules).move(given, View((100, 200), crop, size, flip))
    assert (found.dtype, kept.dtype) == (np.float32, np.bool_)
    return found.round(4).tolist(), kept.tolist()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Boxes(3), r"boxes=3 must be the name of a feature or sw\.Boxes"),  # type: ignore[arg-type]
    (lambda: TrainImage(8, boxes=["a"]), r"boxes=\['a'\] must be the name"),  # type: ignore[arg-type]
    (lambda: Boxes("b", box_format="xywh"), r"box_format='xywh'\) must be one of xyxy, yxyx_rel"),
    (lambda: Boxes("b", min_size=-1), r"min_size=-1\) must be a number of at least 0$"),
    (lambda: Boxes("b", min_area=float("nan")), r"min_area=nan\) must be a number"),
    (lambda: Boxes("b", min_area=float("inf")), r"min_area=inf\) must be a number"),
    (lambda: Boxes("b", min_size="1"), r"min_size='1'\) must be"),  # type: ignore[arg-type]
    (lambda: Boxes("b", min_visibility=1.5), r"min_visibility=1.5\) .* at least 0 and at most 1"),
    (lambda: Boxes("b", max_boxes=0), r"max_boxes\)=0 must be a whole number, at least 1"),
    (lambda: Boxes("b", max_boxes=2.0), r"max_boxes\)=2.0 must be"),  # type: ignore[arg-type]
    (lambda: Boxes("b", lists="labels"), r"lists='labels'\) must be a list of names"),
    *((lambda order=order: Boxes("b", mirrored=order), r"mirrored=.*\) must have a number from 0")
      for order in ([], 3, "10", [1, 2, 0], [1, 1], [0, 2], [0, -1], [0.0], [None])),
])  # fmt: skip
def test_invalid_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_a_name_stands_for_the_default_rules() -> None:
    for spec in (TrainImage(8, boxes="b"), EvalImage(8, boxes="b"), DecodedImage(boxes="b")):
        assert spec.boxes == Boxes("b")
        assert hash(spec) == hash(type(spec)(**vars(spec)))


@pytest.mark.parametrize(("crop", "size", "flip", "expected"), [
    (WHOLE, (100, 200), False, [50, 25, 150, 75]),
    (WHOLE, (50, 50), False, [12.5, 12.5, 37.5, 37.5]),
    (HALF, (100, 100), False, [0, 25, 50, 75]),
    (HALF, (100, 100), True, [50, 25, 100, 75]),
    (Crop(10, 40, 80, 120), (160, 240), True, [20, 30, 220, 130]),
])  # fmt: skip
def test_boxes_in_a_view(
    crop: Crop, size: tuple[int, int], flip: bool, expected: list[float]
) -> None:
    """Both forms are of the result: pixels, or fractions of its height and width."""
    assert moved(QUARTER, crop, size, flip=flip) == ([expected], [True])
    xmin, ymin, xmax, ymax = expected
    (relative,), _ = moved(QUARTER, crop, size, flip=flip, box_format="yxyx_rel")
    height, width = size
    assert_allclose(relative, [ymin / height, xmin / width, ymax / height, xmax / width], atol=1e-4)


@pytest.mark.parametrize(("flip", "expected"), [
    (False, [60, 75, 110, 125]), (True, [110, 75, 160, 125]),
])  # fmt: skip
def test_boxes_between_bars(flip: bool, expected: list[float]) -> None:
    """Fractions are of the whole result, bars included."""
    view = View((100, 200), WHOLE, (200, 220), flip, Crop(50, 10, 100, 200))
    boxes = np.array([[0.25, 0.25, 0.75, 0.5]], np.float32)
    assert_allclose(Boxes("b").move(boxes, view)[0], [expected], atol=1e-3)
    xmin, ymin, xmax, ymax = expected
    assert_allclose(
        Boxes("b", box_format="yxyx_rel").move(boxes, view)[0],
        [[ymin / 200, xmin / 220, ymax / 200, xmax / 220]],
        atol=1e-5,
    )


@pytest.mark.parametrize(("rules", "kept"), [
    ({}, [True, True, True, False, False]),
    ({"min_size": 2}, [True, True, False, False, False]),
    ({"min_area": 60}, [True, False, False, False, False]),
    ({"min_area": 0}, [True, True, True, False, False]),
    ({"min_size": 0, "min_area": 0}, [True, True, True, True, True]),
    ({"min_size": 0, "min_area": 0, "min_visibility": 0.5}, [True, False, True, True, False]),
    ({"min_visibility": 0.2}, [True, True, True, False, False]),
    ({"min_visibility": 0.3}, [True, False, True, False, False]),
])  # fmt: skip
def test_which_boxes_are_left(rules: dict[str, Any], kept: list[bool]) -> None:
    """Sizes are those of the clamped box in the result, visibility is the share of the area."""
    pixels = [
        (0, 0, 10, 10, "all inside, 10 x 10"),
        (10, 80, 20, 105, "a fifth inside, 5 x 10"),
        (30, 120, 40, 121, "1 x 10"),
        (50, 130, 60, 130.5, "0.5 x 10"),
        (50, 20, 60, 40, "outside"),
    ]
    boxes = [[y / 100, x / 200, y1 / 100, x1 / 200] for y, x, y1, x1, _ in pixels]
    boxes[0] = [0, 0.55, 0.1, 0.6]
    assert moved(boxes, HALF, (100, 100), **rules)[1] == kept


@given(st.integers(1, 4000), st.data())
def test_a_side_at_the_limit_is_kept(length: int, data: st.DataObject) -> None:
    """Sides of whole pixels are kept at a limit of as many, though fractions are float32."""
    side = data.draw(st.integers(1, length))
    start = data.draw(st.integers(0, length - side))
    box = np.array([[start / length, 0, (start + side) / length, 1]], np.float32)
    view = View((length, length), Crop(0, 0, length, length), (length, length), flip=False)
    assert Boxes("b", min_size=side, min_area=side * length).move(box, view)[1].all()
    assert not Boxes("b", min_size=side + 0.01).move(box, view)[1].any()


def test_no_boxes_and_invalid_ones() -> None:
    assert moved([]) == ([], [])
    assert moved([[np.nan] * 4, *QUARTER], HALF, (8, 8))[1] == [False, True]


SPECS = st.one_of(
    st.builds(TrainImage, st.tuples(st.integers(24, 64), st.integers(24, 64))),
    st.builds(EvalImage, st.integers(24, 64)),
    st.builds(
        EvalImage,
        st.tuples(st.integers(24, 64), st.integers(24, 64)),
        resize=st.just("letterbox"),
    ),
    st.builds(DecodedImage, st.none() | st.integers(24, 64)),
)


@given(SPECS, st.integers(0, 2**64 - 1), st.data())
def test_a_box_is_where_its_object_is_seen(spec: CropImage, draw: int, data: st.DataObject) -> None:
    """An independent oracle: a rectangle painted into the image, found in the result."""
    height, width = data.draw(st.tuples(st.integers(40, 150), st.integers(40, 150)))
    top, left = data.draw(st.integers(0, height - 12)), data.draw(st.integers(0, width - 12))
    bottom = data.draw(st.integers(top + 12, height))
    right = data.draw(st.integers(left + 12, width))
    picture = np.zeros((height, width, 3), np.uint8)
    picture[top:bottom, left:right] = 255
    views: list[View] = []
    stored = StoredImage("raw", picture.shape)
    seen = spec.apply(picture.tobytes(), stored, draw, None, views.append)
    box = np.array([[top / height, left / width, bottom / height, right / width]], np.float32)
    found, kept = Boxes("b", min_size=4, min_area=0).move(box, views[0])
    painted = painted_box(seen)
    if kept.any():
        # Pixels are whole, and a crop that is reduced first is rounded to whole reduced pixels.
        assert_allclose(found[0], painted, atol=1.5)
        assert 0 <= found.min() <= found.max() <= max(seen.shape)
    else:
        assert painted is None or min(painted[2] - painted[0], painted[3] - painted[1]) <= 6


@given(SPECS, st.integers(0, 2**64 - 1), st.data())
def test_keypoints_are_corners_of_boxes(spec: CropImage, draw: int, data: st.DataObject) -> None:
    """A point inside of the crop is where a box of no size is; others become 0, 0, 0."""
    fractions = st.floats(-1, 2, width=32) | st.integers(0, 4).map(lambda part: part / 4)
    point = st.tuples(fractions, fractions, st.integers(0, 2))
    points = np.array(data.draw(st.lists(st.tuples(point, point), max_size=4)), np.float32)
    points = points.reshape(-1, 2, 3)
    views: list[View] = []
    picture = np.zeros((40, 60, 3), np.uint8)
    spec.apply(picture.tobytes(), StoredImage("raw", picture.shape), draw, None, views.append)
    view = views[0]
    for box_format in ("xyxy", "yxyx_rel"):
        rules = Boxes("b", min_size=0, min_area=0, box_format=box_format, mirrored=[1, 0])
        found = rules.move_points(points, view)
        assert (found.dtype, found.shape) == (np.float32, points.shape)
        x, y, visibility = points.reshape(-1, 3).astype(np.float64).T
        boxes, kept = rules.move(np.stack([y, x, y, x], axis=1).astype(np.float32), view)
        assert kept.all()
        corners = boxes[:, :2] if box_format == "xyxy" else boxes[:, 1::-1]
        top, left, height, width = view.crop
        seen = (
            (y * 40 - top >= 0) & (y * 40 - top <= height)
            & (x * 60 - left >= 0) & (x * 60 - left <= width)
            & (visibility > 0)
        )  # fmt: skip
        wanted = np.column_stack([corners, visibility])
        wanted[~seen] = 0
        wanted = wanted.reshape(-1, 2, 3)
        if view.flip:
            wanted = wanted[:, ::-1]
        assert_allclose(found, wanted, atol=1e-4)


def painted_box(seen: NDArray[np.uint8]) -> list[int] | None:
    """Return the bounding box xyxy of the bright pixels."""
    rows, columns = np.nonzero(seen[..., 0] > 127)
    if not len(rows):
        return None
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]
