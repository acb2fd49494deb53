"""Geometry of boxes: fractions of the image, cut off at its edges, and lists of references."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs import boxes
from shardwright.transforms.rejects import Reject
from tests.support.detection_makers import picture, reasons, write
from tests.support.helpers import references, rejects_of, rows_of

SIDES = st.integers(1, 60_000)
NAN, INF = math.nan, math.inf
Log = pytest.LogCaptureFixture


@st.composite
def boxes_in_images(draw: st.DrawFn) -> tuple[int, int, list[float]]:
    """Return (width, height, [x, y, width, height] in pixels) of a box inside an image."""
    width, height = draw(SIDES), draw(SIDES)
    x, y = draw(st.floats(0, width - 1)), draw(st.floats(0, height - 1))
    w, h = (draw(st.floats(1, max(1.0, side))) for side in (width - x, height - y))
    return width, height, [x, y, w, h]


@given(boxes_in_images())
def test_pixels_come_back_from_fractions(case: tuple[int, int, list[float]]) -> None:
    width, height, (x, y, w, h) = case
    corners = boxes.corners_of_sides(np.array([[x, y, w, h]]), 0) / [height, width, height, width]
    center = [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]
    of_center = boxes.corners_of_sides(np.array([center]), 0.5)
    np.testing.assert_allclose(of_center, corners, atol=1e-9)
    [settled], [keep] = boxes.settle_boxes(corners)
    assert keep
    assert (settled >= 0).all()
    assert (settled <= 1).all()
    ymin, xmin, ymax, xmax = settled.astype(float) * [height, width, height, width]
    found = [xmin, ymin, xmax - xmin, ymax - ymin]
    assert found == pytest.approx([x, y, w, h], abs=max(width, height) * 2e-7)


NEAR = st.floats(-1, 2, width=32)


@given(st.lists(st.lists(st.floats() | NEAR, min_size=4, max_size=4), max_size=5))
def test_boxes_are_cut_off_at_edges_and_have_an_area(drawn: list[list[float]]) -> None:
    corners = np.array(drawn, float).reshape(-1, 4)
    settled, keep = boxes.settle_boxes(corners)
    assert settled.dtype == np.float32
    inside = np.clip(corners, 0, 1).astype(np.float32)
    has_area = (inside[:, :2] < inside[:, 2:]).all(axis=1)
    np.testing.assert_array_equal(keep, has_area & np.isfinite(corners).all(axis=1))
    np.testing.assert_array_equal(settled[keep], inside[keep])


def with_objects(
    ids: list[str], rows: list[int], corners: Any, stated: Any = None, **more: Any
) -> list[pa.RecordBatch | Reject]:
    labels = {boxes.LABEL: pa.array([str(place) for place in range(len(rows))])}
    found = boxes.ObjectRows(np.array(rows, np.int64), np.array(corners), labels, range(len(rows)))
    return list(boxes.with_objects(references(ids, **more), found, stated, NO_OPTIONS))


def test_objects_are_lists_of_their_images_and_a_box_without_area_is_left_out() -> None:
    corners = [[0, 0, 0.5, 1], [0.5, 0.5, 0.5, 1], [0.25, 0.5, 2, 0.75]]
    reject, batch = with_objects(["i", "j", "k"], [0, 2, 2], corners)
    assert isinstance(reject, Reject)
    assert batch.column("x/objects/label").to_pylist() == [["0"], [], ["2"]]
    column = batch.column("x/objects/bbox")
    assert column.type == pa.list_(boxes.BOX_TYPE)
    assert column.to_pylist() == [[[0, 0, 0.5, 1]], [], [[0.25, 0.5, 1, 0.75]]]
    assert reasons([reject]) == [("k#1", "empty_box")]
    assert reject.uri == batch.column("uri")[2].as_py()
    assert "(ymin=0.5, xmin=0.5, ymax=0.5, xmax=1, as fractions)" in reject.detail
    [batch] = with_objects(["i", "j"], [], np.zeros((0, 4)))
    assert batch.column("x/objects/bbox").to_pylist() == [[], []]


@pytest.mark.parametrize("wrong", [(0.5, 0.5, 0.4, 1), (0.5, 0.5, 1, 0.4), (NAN, 0, 1, 1)])
def test_an_image_with_an_invalid_box_is_rejected(wrong: tuple[float, ...]) -> None:
    corners = [[0, 0, 0.5, 1], wrong, wrong, [0.5, 0.5, 0.5, 1], [0, 0, 1, 1]]
    [reject, batch] = with_objects(["i", "j"], [0, 0, 0, 0, 1], corners)
    assert isinstance(reject, Reject)
    assert reasons([reject]) == [("i", "bad_value")]
    assert reject.detail.startswith(f"box i#1 is ymin={wrong[0]:g}, ")
    assert batch.column("x/objects/label").to_pylist() == [["4"]]


def test_a_size_that_is_not_stated_is_the_headers(tmp_path: Path) -> None:
    names = ["a.png", "no.png", "none.png", "stated.png"]
    write(tmp_path, {"a.png": picture(80, 40), **dict.fromkeys(names[1:], b"no image")})
    stated = [None, None, None, boxes.ImageSize(20, 40)]
    uris = [f"{tmp_path}/{name}" for name in names]
    found = with_objects(names, [0, 1, 3], [[2, 4, 12, 12]] * 3, stated, uri=uris)
    assert [(row["id"], row["x/objects/bbox"], row["stated_size"]) for row in rows_of(found)] == [
        ("a.png", [pytest.approx([0.05, 0.05, 0.3, 0.15])], [40, 80]), ("none.png", [], None),
        ("stated.png", [pytest.approx([0.1, 0.1, 0.6, 0.3])], [20, 40]),
    ]  # fmt: skip
    [reject] = rejects_of(found)
    assert reasons([reject]) == [("no.png", "bad_value")]
    assert "its boxes have no scale" in reject.detail


@pytest.mark.parametrize(("num_outside", "reach", "warned"), [
    (2, 1.02, True), (1, 1.5, False), (2, 1.005, False), (5, -0.02, True), (0, 1, False),
])  # fmt: skip
def test_many_boxes_that_reach_out_of_their_images_are_a_warning(
    num_outside: int, reach: float, warned: bool, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "_folders_told", set())
    box = (reach, 0.2, 0.7, 0.4) if reach < 0 else (0.1, 0.2, 0.7, reach)
    for _ in range(2):
        with_objects(["i"], [0] * 5, [box] * num_outside + [(0, 0, 1, 1)] * (5 - num_outside))
    assert len(caplog.messages) == warned
    told = f"{num_outside} of the first 5 boxes reach out of their images"
    assert (told in caplog.text) == warned


def test_stated_sizes() -> None:
    for size in ((2, 3), (2.5, 3)):
        assert boxes.stated_size(*size) == size
    for wrong in (0, -1, True, "2", None, NAN, INF, 10**400):
        assert boxes.stated_size(wrong, 3) is boxes.stated_size(3, wrong) is None


def test_sizes_of_headers(tmp_path: Path) -> None:
    jpeg = picture(30, 7, kind="JPEG")
    long = b"\xff\xd8" + (b"\xff\xef\xff\xff" + bytes(65533)) * 5 + jpeg[2:]
    files = {"a.jpg": jpeg, "long.jpg": long, "no.jpg": b"hello", "cut.png": picture()[:20]}
    write(tmp_path, files)
    sizes = {name: boxes.read_size(f"{tmp_path}/{name}", NO_OPTIONS) for name in files}
    assert sizes == {"a.jpg": (7, 30), "long.jpg": (7, 30), "no.jpg": None, "cut.png": None}
    assert boxes.read_size(f"{tmp_path}/gone.png", NO_OPTIONS) is None
