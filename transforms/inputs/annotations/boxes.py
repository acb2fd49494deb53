"""Boxes of objects in images: geometry, and the columns and features that every detection format brings. Follows TFDS.

A box is ymin, xmin, ymax, xmax as fractions of the image's height and width (`tfds.features.BBox`). What reaches out of the image is
cut off at its edges. A box with no area inside the image, or with an edge that is no number, is left out, and listed as EMPTY_BOX: its
image is as good without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.schema import Feature, FeatureKind
from shardwright.storage import StorageOptions, files_of
from transforms.images.headers import read_header
from transforms.images.kinds import ImageFault
from transforms.references import extra_name
from transforms.rejects import Reject, RejectReason

BOX, LABEL, AREA, IS_CROWD, SEGMENTATION = (
    f"objects/{name}" for name in ("bbox", "label", "area", "is_crowd", "segmentation")
)
POSE, IS_TRUNCATED, IS_DIFFICULT = (
    f"objects/{name}" for name in ("pose", "is_truncated", "is_difficult")
)
BOX_TYPE = pa.list_(pa.float32(), 4)
_MAX_SIDE = 1 << 31
_HEADER_BYTES = 1 << 18  # holds the header of all but images with a large preview or colour profile


class ImageSize(NamedTuple):
    """Height and width in pixels."""

    height: float
    width: float


def corners_of_pixels(
    boxes: NDArray[np.float64], heights: NDArray[np.float64], widths: NDArray[np.float64]
) -> NDArray[np.float64]:
    """ymin, xmin, ymax, xmax as fractions, shape (n, 4), of COCO's boxes: x, y of the corner at the top left, width, height in pixels."""
    x, y, width, height = boxes.T
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is told later
        return np.stack(
            [y / heights, x / widths, (y + height) / heights, (x + width) / widths], axis=1
        )


def corners_of_centres(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """ymin, xmin, ymax, xmax, shape (n, 4), of YOLO's boxes: x and y of the centre, width, height, all of them fractions already."""
    x, y, width, height = boxes.T
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], axis=1)


def settle_boxes(corners: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Boxes cut off at the edges of their images, and which of them have an area there.

    Args:
        corners: Shape (n, 4): ymin, xmin, ymax, xmax as fractions, of any value.

    Returns:
        The boxes, float32 in 0..1, shape (n, 4), and a mask of n: False for a box without area or with a corner that is not finite.
    """
    boxes = np.clip(corners, 0.0, 1.0).astype(np.float32)
    has_area = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
    return boxes, has_area & np.isfinite(corners).all(axis=1)


def list_array(values: pa.Array, rows: NDArray[np.int64], num_rows: int) -> pa.ListArray:
    """`values` as one list a row.

    Args:
        values: The items of all lists, row after row.
        rows: The row that each is of, ascending.
        num_rows: How many lists there are; those of rows without items are empty.
    """
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=num_rows)))).astype(
        np.int32
    )
    return pa.ListArray.from_arrays(pa.array(offsets), values)


class ObjectRows(NamedTuple):
    """The objects of a batch of images.

    Attributes:
        rows: The image of each, as a row of the batch, ascending.
        corners: Shape (n, 4), as `settle_boxes` takes them.
        columns: Name -> one value an object; LABEL's are class names.
        names: What each is called where it is left out, such as "a.jpg#17".
    """

    rows: NDArray[np.int64]
    corners: NDArray[np.float64]
    columns: dict[str, pa.Array]
    names: Sequence[str]


def object_columns(
    found: ObjectRows, uris: Sequence[str]
) -> tuple[dict[str, pa.Array], list[Reject]]:
    """Objects as columns of a reference batch, one list an image, and an EMPTY_BOX for each that has no area.

    Args:
        found: The objects.
        uris: Of the batch's images.
    """
    boxes, keep = settle_boxes(found.corners)
    empty = [
        Reject(
            found.names[place],
            uris[found.rows[place]],
            RejectReason.EMPTY_BOX,
            _told_box(found.corners[place]),
        )
        for place in np.flatnonzero(~keep).tolist()
    ]
    kept, mask = found.rows[keep], pa.array(keep)
    values = {
        BOX: pa.FixedSizeListArray.from_arrays(pa.array(boxes[keep].reshape(-1)), type=BOX_TYPE)
    }
    values |= {name: column.filter(mask) for name, column in found.columns.items()}
    return {
        extra_name(name): list_array(column, kept, len(uris)) for name, column in values.items()
    }, empty


def _told_box(corners: Iterable[float]) -> str:
    told = ", ".join(
        f"{name}={value:.6g}"
        for name, value in zip(("ymin", "xmin", "ymax", "xmax"), corners, strict=True)
    )
    return f"the box has no area inside the image ({told}, as fractions of it): it is left out, the image is kept"


def box_features(class_names: Sequence[str]) -> tuple[Feature, ...]:
    """The features of `objects` that every detection format has; () for names that are to be learned."""
    return (
        Feature(BOX, FeatureKind.BOX, shape=(None, 4), sequence="objects"),
        Feature(
            LABEL,
            FeatureKind.CLASS_LABEL,
            shape=(None,),
            names=tuple(class_names),
            sequence="objects",
        ),
    )


def flag_feature(name: str) -> Feature:
    """A list of booleans, one an object."""
    return Feature(name, FeatureKind.INT64, shape=(None,), dtype="bool", sequence="objects")


SEGMENTATION_FEATURE = Feature(SEGMENTATION, FeatureKind.TEXT, shape=(None,), sequence="objects")


def stated_size(height: object, width: object) -> ImageSize | None:
    """The size that a label file states; None where it states none, or 0, as some tools do."""
    sides = []
    for value in (height, width):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < _MAX_SIDE
        ):
            return None
        sides.append(float(value))
    return ImageSize(*sides)


def read_size(uri: str, storage: StorageOptions) -> ImageSize | None:
    """The size in an image's header; None where nothing can be read there."""
    files = files_of(uri, storage)
    try:
        try:
            info = read_header(files.read_range(uri, 0, _HEADER_BYTES)).info
        except ImageFault:  # it may be longer
            info = read_header(files.read_bytes(uri)).info
    except (
        Exception
    ):  # whatever it is: the writer meets it again, and rejects the image with the reason
        return None
    return stated_size(info.height, info.width)
