"""Move the boxes of objects with the crop of their image, and choose those that are left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.crops import Crop, View
from shardwright.sizes import check_whole

_FORMATS = ("xyxy", "yxyx_rel")
# Edges are stored as float32 fractions, so a side of exactly 1 pixel comes out as 0.9999 or 1.0001.
# This share of the image's length is twice as much as a side can lose, and is given to all sides.
_ROUNDING = 2.0**-23


@dataclass(frozen=True)
class Boxes:
    """A feature of boxes that are cropped, resized and flipped with their image.

        boxes = sw.Boxes("objects/bbox", min_visibility=0.3, max_boxes=100)
        sw.Reader("coco/", batch_size=16, image=sw.TrainImage(512, boxes=boxes))

    Boxes are clamped to the crop, and those that are then too small are dropped, as torchvision's
    `resized_crop` and `SanitizeBoundingBoxes` do. With a box goes its item in every other list of
    the same objects, such as `objects/label`. Keypoints among them move with the image, as x, y and
    visibility; those outside of the crop and those without a label are 0, 0, 0.

    A batch has the boxes by the feature's name: objects [rows], each float32 [boxes, 4], and the
    lists [boxes]. With `max_boxes` they are padded arrays [rows, max_boxes, 4] and
    [rows, max_boxes], and the batch has a mask by the name of the boxes and `_mask`, bool
    [rows, max_boxes], True for boxes.

    Args:
        name: The feature: a list of boxes, whose schema has the kind `BOX` and shape (None, 4).
        box_format: "xyxy" for xmin, ymin, xmax, ymax in pixels of the result; "yxyx_rel" for the
            stored form, ymin, xmin, ymax, xmax from 0 to 1 of its height and width. Keypoints are
            in pixels or from 0 to 1, too.
        min_size: Smallest width and height of a box that is kept, in pixels of the result. If this
            and `min_area` are 0, even boxes outside of the crop are kept, with the area 0.
        min_area: Smallest area of a box that is kept, in square pixels of the result.
        min_visibility: Smallest share of a box's area inside the crop, 0 to 1.
        max_boxes: Number of boxes in each row, padded with zeros; further ones are dropped. None
            for as many as there are.
        lists: Other features with an item per box; None for those in the same sequence of the
            schema, as `objects/label` is with `objects/bbox`.
        mirrored: For each keypoint of an object, the number of the one that takes its place in a
            mirrored image, from 0: the right eye for the left eye. Needed for keypoints where
            images are flipped; the `flip_idx` of a YOLO data.yaml.

    Raises:
        UsageError: A value is out of range.
    """

    name: str
    box_format: str = "xyxy"
    min_size: float = 1
    min_area: float = 1
    min_visibility: float = 0
    max_boxes: int | None = None
    lists: Sequence[str] | None = None
    mirrored: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UsageError(
                f"boxes={self.name!r} must be the name of a feature or sw.Boxes(name, ...)"
            )
        if self.box_format not in _FORMATS:
            raise UsageError(
                f"Boxes(box_format={self.box_format!r}) must be one of {', '.join(_FORMATS)}"
            )
        for name in ("min_size", "min_area", "min_visibility"):
            value, most = getattr(self, name), 1 if name == "min_visibility" else math.inf
            if not isinstance(value, Real) or not 0 <= float(value) <= most or value == math.inf:
                upto = "" if most == math.inf else f" and at most {most}"
                raise UsageError(f"Boxes({name}={value!r}) must be a number of at least 0{upto}")
        if self.max_boxes is not None:
            check_whole("Boxes(max_boxes)", self.max_boxes, 1)
        if isinstance(self.lists, str):
            raise UsageError(f"Boxes(lists={self.lists!r}) must be a list of names")
        if self.lists is not None:
            object.__setattr__(self, "lists", tuple(self.lists))
        if self.mirrored is not None:
            object.__setattr__(self, "mirrored", _checked_pairs(self.mirrored))

    def move(
        self, boxes: NDArray[np.float32], view: View
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the boxes that are left in a view of their image, and which those are.

        Args:
            boxes: [n, 4], ymin, xmin, ymax, xmax from 0 to 1 of the image.
            view: The part of the image that is shown.

        Returns:
            float32 [m, 4] in `box_format`, and bool [n], True for those m.
        """
        crop, (height, width) = view.crop, view.size
        frame = view.frame or Crop(0, 0, height, width)
        # By axis: NumPy takes microseconds a call, and most images have few boxes.
        edges = boxes.astype(np.float64)
        y, down, tall = _show(
            edges[:, ::2], view.image_size[0], crop.top, crop.height, frame.height
        )
        x, across, wide = _show(
            edges[:, 1::2], view.image_size[1], crop.left, crop.width, frame.width
        )
        areas = down * across
        kept = (down >= self.min_size) & (across >= self.min_size) & (areas >= self.min_area)
        if self.min_visibility:
            kept &= areas >= tall * wide * self.min_visibility
        if view.flip:
            x = frame.width - x[:, ::-1]
        if view.frame is not None:
            y, x = y + frame.top, x + frame.left
        moved = np.empty((len(boxes), 4), np.float32)
        if self.box_format == "xyxy":
            moved[:, ::2], moved[:, 1::2] = x, y
        else:
            moved[:, ::2], moved[:, 1::2] = y / height, x / width
        return moved[kept], kept

    def move_points(self, points: NDArray[np.float32], view: View) -> NDArray[np.float32]:
        """Return keypoints in a view of their image.

        Args:
            points: [n, points, 3], x and y from 0 to 1 of the image, and visibility.
            view: The part of the image that is shown.

        Returns:
            As many, x and y in the unit of `box_format`; 0, 0, 0 for those that are not shown.
        """
        crop, (height, width) = view.crop, view.size
        frame = view.frame or Crop(0, 0, height, width)
        x, y, visibility = np.moveaxis(points.astype(np.float64), -1, 0)
        x, y = x * view.image_size[1] - crop.left, y * view.image_size[0] - crop.top
        inside = (x >= 0) & (x <= crop.width) & (y >= 0) & (y <= crop.height)
        x, y = x * (frame.width / crop.width), y * (frame.height / crop.height)
        if view.flip:
            x = frame.width - x
        scale = (width, height) if self.box_format == "yxyx_rel" else (1, 1)
        moved = np.stack(
            [(x + frame.left) / scale[0], (y + frame.top) / scale[1], visibility], axis=-1
        )
        moved[~inside | (visibility == 0)] = 0
        if view.flip and self.mirrored is not None:
            moved = moved[:, list(self.mirrored)]
        return moved.astype(np.float32)


def _checked_pairs(mirrored: Sequence[int]) -> tuple[int, ...]:
    order = tuple(mirrored) if isinstance(mirrored, Iterable) else ()
    known = [isinstance(number, Integral) and 0 <= number < len(order) for number in order]
    # Mirrored twice, each point must be where it was.
    if order and all(known) and all(order[order[place]] == place for place in range(len(order))):
        return tuple(map(int, order))
    raise UsageError(
        f"Boxes(mirrored={mirrored!r}) must have a number from 0 for each keypoint, and name pairs "
        "in both directions: (0, 2, 1) swaps points 1 and 2"
    )


def _show(
    edges: NDArray[np.float64], image_length: int, start: int, length: int, size: int
) -> tuple[NDArray[np.float64], ...]:
    """Return edges in a crop, in pixels of the result, and how long boxes are inside and in all.

    Args:
        edges: [n, 2], two of each box as fractions of the image.
        image_length: Pixels of the image along this axis.
        start: The first of them in the crop.
        length: Their number in the crop.
        size: Pixels of the result.
    """
    zoom = size / length
    moved = edges * (image_length * zoom) - start * zoom
    # Not `clip`, which takes several times as long on few boxes.
    shown = np.minimum(np.maximum(moved, 0), size)
    sides = shown[:, 1] - shown[:, 0] + image_length * zoom * _ROUNDING
    return shown, sides, moved[:, 1] - moved[:, 0]


def boxes_of(boxes: Boxes | str | None) -> Boxes | None:
    """Return `boxes=` of an image transform, which may be the name alone."""
    return boxes if boxes is None or isinstance(boxes, Boxes) else Boxes(boxes)
