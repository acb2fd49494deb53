"""Geometry of boxes: fractions of the image, cut off at its edges, and the lists that references hold them in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.storage import NO_OPTIONS
from tests.detection_makers import picture
from transforms.inputs.annotations import boxes
from transforms.rejects import RejectReason

SIDES = st.integers(1, 60_000)
NAN, INF = math.nan, math.inf


@st.composite
def boxes_in_images(draw: st.DrawFn) -> tuple[int, int, list[float]]:
    """(width, height, [x, y, width, height] in pixels) of a box of a pixel at least, inside an image."""
    width, height = draw(SIDES), draw(SIDES)
    x, y = draw(st.floats(0, width - 1)), draw(st.floats(0, height - 1))
    return (
        width,
        height,
        [x, y, draw(st.floats(1, max(1.0, width - x))), draw(st.floats(1, max(1.0, height - y)))],
    )


@given(boxes_in_images())
def test_pixels_come_back_from_fractions(case: tuple[int, int, list[float]]) -> None:
    width, height, box = case
    corners = boxes.corners_of_pixels(
        np.array([box]), np.array([height], float), np.array([width], float)
    )
    [settled], [keep] = boxes.settle_boxes(corners)
    assert keep
    assert (settled >= 0).all()
    assert (settled <= 1).all()
    ymin, xmin, ymax, xmax = settled.astype(float) * [height, width, height, width]
    assert [xmin, ymin, xmax - xmin, ymax - ymin] == pytest.approx(
        box, abs=max(width, height) * 2e-7
    )


@given(boxes_in_images())
def test_centres_and_corners_say_the_same(case: tuple[int, int, list[float]]) -> None:
    width, height, (x, y, w, h) = case
    pixels = boxes.corners_of_pixels(
        np.array([[x, y, w, h]]), np.array([height], float), np.array([width], float)
    )
    centres = boxes.corners_of_centres(
        np.array([[(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]])
    )
    np.testing.assert_allclose(centres, pixels, atol=1e-9)


@given(st.lists(st.lists(st.floats(width=64), min_size=4, max_size=4), max_size=5))
def test_what_is_kept_is_a_box_of_tfds(corners: list[list[float]]) -> None:
    settled, keep = boxes.settle_boxes(np.array(corners, float).reshape(-1, 4))
    assert settled.dtype == np.float32
    for ymin, xmin, ymax, xmax in settled[keep]:
        assert 0 <= ymin < ymax <= 1
        assert 0 <= xmin < xmax <= 1
    assert not keep[~np.isfinite(np.array(corners, float).reshape(-1, 4)).all(axis=1)].any()


@pytest.mark.parametrize(
    ("corners", "expected"),
    [
        ((0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.3, 0.4)),
        ((-0.1, -5, 0.3, 1.5), (0, 0, 0.3, 1)),
        ((0, 0, 1, 1), (0, 0, 1, 1)),
        ((0.1, 0.2, 0.1, 0.4), None),
        ((0.1, 0.4, 0.3, 0.2), None),
        ((1.0, 0.2, 1.5, 0.4), None),
        ((0.1, -0.4, 0.3, 0.0), None),
        ((0.1, NAN, 0.3, 0.4), None),
        ((0.1, 0.2, INF, 0.4), None),
        ((-INF, 0.2, 0.3, 0.4), None),
    ],
)
def test_cut_off_at_the_edges(
    corners: tuple[float, ...], expected: tuple[float, ...] | None
) -> None:
    [settled], [keep] = boxes.settle_boxes(np.array([corners]))
    assert keep == (expected is not None)
    assert not expected or settled.tolist() == pytest.approx(expected, abs=1e-7)


def test_objects_as_lists_of_their_images() -> None:
    corners = np.array([[0, 0, 0.5, 1], [0.5, 0.5, 0.5, 1], [0.25, 0.5, 2, 0.75]])
    found = boxes.ObjectRows(
        np.array([0, 2, 2]),
        corners,
        {boxes.LABEL: pa.array(["x", "y", "z"])},
        ["i#1", "k#1", "k#2"],
    )
    columns, [reject] = boxes.object_columns(found, ["/i", "/j", "/k"])
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "x/objects/bbox": [[[0, 0, 0.5, 1]], [], [[0.25, 0.5, 1, 0.75]]],
        "x/objects/label": [["x"], [], ["z"]],
    }
    assert columns["x/objects/bbox"].type == pa.list_(boxes.BOX_TYPE)
    assert (reject.id, reject.uri, reject.reason) == ("k#1", "/k", RejectReason.EMPTY_BOX)
    assert "(ymin=0.5, xmin=0.5, ymax=0.5, xmax=1, as fractions of it)" in reject.detail


def test_no_objects_at_all() -> None:
    nothing = boxes.ObjectRows(
        np.array([], np.int64), np.empty((0, 4)), {boxes.LABEL: pa.array([], pa.string())}, []
    )
    columns, rejects = boxes.object_columns(nothing, ["/i", "/j"])
    assert ({name: column.to_pylist() for name, column in columns.items()}, rejects) == (
        {"x/objects/bbox": [[], []], "x/objects/label": [[], []]}, []
    )  # fmt: skip


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(2, 3, (2, 3)), (2.5, 3, (2.5, 3)), (0, 3, None), (-1, 3, None), (True, 3, None), ("2", 3, None), (None, 3, None), (NAN, 3, None),
     (2, INF, None), (2, 10**400, None)],
)  # fmt: skip
def test_stated_sizes(height: object, width: object, expected: tuple[float, float] | None) -> None:
    assert boxes.stated_size(height, width) == expected


def test_sizes_of_headers(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "a.jpg").write_bytes(picture(30, 7, kind="JPEG"))
    (folder / "long.jpg").write_bytes(
        b"\xff\xd8" + (b"\xff\xef\xff\xff" + bytes(65533)) * 5 + picture(30, 7, kind="JPEG")[2:]
    )
    (folder / "no.jpg").write_bytes(b"hello")
    (folder / "cut.png").write_bytes(picture()[:20])
    sizes = {
        name: boxes.read_size(f"{folder}/{name}", NO_OPTIONS)
        for name in ("a.jpg", "long.jpg", "no.jpg", "cut.png", "gone.png")
    }
    assert sizes == {
        "a.jpg": (7, 30),
        "long.jpg": (7, 30),
        "no.jpg": None,
        "cut.png": None,
        "gone.png": None,
    }
