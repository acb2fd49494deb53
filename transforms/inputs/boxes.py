"""Box geometry, and the columns and features that all detection formats share; follows TFDS.

A box is ymin, xmin, ymax, xmax as fractions of the image's height and width (`tfds.features.BBox`),
clipped to the image. A box without area inside the image is dropped and listed as EMPTY_BOX; its
image is kept. A box with swapped corners, a negative size or an edge that is not finite rejects its
image, which would train as background. Where many boxes reach out of their images, a warning says
so: they may be of another form, such as corners that are read as a corner, width and height.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.format.schema import Feature, FeatureKind
from shardwright.images.headers import read_header
from shardwright.sizes import counted
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.references import (
    STATED_SIZE,
    STATED_SIZE_TYPE,
    extra_name,
    keep_rows,
    with_columns,
)
from shardwright.transforms.rejects import Reject, RejectReason

BOX, LABEL, AREA, IS_CROWD, SEGMENTATION, KEYPOINTS = (
    f"objects/{name}" for name in ("bbox", "label", "area", "is_crowd", "segmentation", "keypoints")
)
POSE, IS_TRUNCATED, IS_DIFFICULT = (
    f"objects/{name}" for name in ("pose", "is_truncated", "is_difficult")
)
_LOG = logging.getLogger("shardwright.inputs")
BOX_TYPE = pa.list_(pa.float32(), 4)
_MAX_SIDE = 1 << 31
# Boxes of objects at the edge of an image may reach out of it, but not by much, and few do.
_MOST_OUTSIDE = 0.01  # of the image's side
_MOST_BOXES_OUTSIDE = 0.2
_folders_told: set[str] = set()  # by this process
_HEADER_BYTES = 1 << 18  # holds any header without a large preview or color profile


class ImageSize(NamedTuple):
    """An image's height and width in pixels."""

    height: float
    width: float


UNKNOWN_SIZE = ImageSize(np.nan, np.nan)


def corners_of_sides(boxes: NDArray[np.float64], part: float) -> NDArray[np.float64]:
    """Return boxes of a point, width and height as ymin, xmin, ymax, xmax, shape [n, 4].

    Args:
        boxes: Shape [n, 4]: x and y of the point, width, height.
        part: The part of the sides from the corner to the point: 0 for a corner, 0.5 for a center.
    """
    points, sides = boxes[:, 1::-1], boxes[:, :1:-1]
    with np.errstate(over="ignore", invalid="ignore"):  # `with_objects` rejects inf and nan
        return np.concatenate([points - part * sides, points + (1 - part) * sides], axis=1)


def keypoints_of_pixels(points: NDArray[np.float64], sizes: NDArray[np.float64]) -> pa.Array:
    """Return COCO keypoints as a column of `keypoint_type`, x and y as fractions.

    Args:
        points: Shape [n, points, 3]: x and y in pixels, and visibility.
        sizes: Heights and widths of the objects' images in pixels, shape [n, 2].
    """
    fractions = points.copy()
    fractions[..., :2] /= sizes[:, None, ::-1]
    return pa.array(fractions.tolist(), keypoint_type(points.shape[1]))


def settle_boxes(corners: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Clip boxes to their images, and mark those that have an area there.

    Args:
        corners: Shape [n, 4]: ymin, xmin, ymax, xmax as fractions, any float.

    Returns:
        The boxes, float32 in 0..1, shape [n, 4]; and a mask, shape [n], False for boxes without
        area or with a corner that is not finite.
    """
    boxes = np.clip(corners, 0.0, 1.0).astype(np.float32)
    # After the rounding to float32, which may make the two edges of a thin box equal.
    has_area = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
    return boxes, has_area & ~_invalid(corners)


def _invalid(corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask, shape [n], of boxes with swapped corners, or an edge that is not finite."""
    ymin, xmin, ymax, xmax = corners.T
    return ~np.isfinite(corners).all(axis=1) | (ymax < ymin) | (xmax < xmin)


def with_objects(
    batch: pa.RecordBatch,
    found: ObjectRows,
    extras: Mapping[str, pa.Array] = MappingProxyType({}),
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with columns of their objects, and rejects of boxes and images.

    Args:
        batch: References of images.
        found: The objects of these images.
        extras: Further columns.
        faults: Row -> why it is a reject.
    """
    ids, uris = batch.column("id").to_pylist(), batch.column("uri").to_pylist()
    rows = found.rows.tolist()
    settled, keep = settle_boxes(found.corners)
    _warn_of_outside(found, uris)
    # Of an image, its first fault.
    told = dict(faults)
    for place in np.flatnonzero(_invalid(found.corners)).tolist():
        told.setdefault(rows[place], _fault(found, place))
    for row, fault in sorted(told.items()):
        yield Reject(ids[row], uris[row], RejectReason.BAD_VALUE, fault)
    for place in np.flatnonzero(~keep).tolist():
        if (row := rows[place]) not in told:
            detail = (
                f"the box has no area inside the image ({_shown(found.corners[place])}): box "
                "dropped, image kept"
            )
            yield Reject(found.names[place], uris[row], RejectReason.EMPTY_BOX, detail)
    if len(told) == batch.num_rows:
        return
    values = {
        BOX: pa.FixedSizeListArray.from_arrays(pa.array(settled[keep].reshape(-1)), type=BOX_TYPE)
    }
    values |= {name: column.filter(pa.array(keep)) for name, column in found.columns.items()}
    columns = {
        extra_name(name): list_array(column, found.rows[keep], batch.num_rows)
        for name, column in values.items()
    }
    if found.sizes is not None:
        size_of = dict(zip(rows, found.sizes.tolist(), strict=True))
        sizes = map(size_of.get, range(batch.num_rows))
        columns[STATED_SIZE] = pa.array(sizes, STATED_SIZE_TYPE)
    rest = ~np.isin(np.arange(batch.num_rows), [*told])
    yield keep_rows(with_columns(batch, {**columns, **extras}), rest)


def _warn_of_outside(found: ObjectRows, uris: Sequence[str]) -> None:
    """Log a warning, once a folder, if many boxes reach out of their images."""
    corners = found.corners[~_invalid(found.corners)]
    is_far = (corners < -_MOST_OUTSIDE) | (corners > 1 + _MOST_OUTSIDE)
    outside = corners[is_far.any(axis=1)]
    folder = uris[0].rpartition("/")[0] if uris else ""
    if len(outside) <= _MOST_BOXES_OUTSIDE * len(corners) or folder in _folders_told:
        return
    _folders_told.add(folder)
    _LOG.warning(
        "%s: %s of the first %s reach out of their images, and are cut off there; one has %s. Are "
        "they of the form that is read, such as x, y, width, height?",
        *(folder, f"{len(outside):,}", counted(len(corners), "box"), _shown(outside[0])),
    )


def _fault(found: ObjectRows, place: int) -> str:
    if found.sizes is not None and np.isnan(found.sizes[place]).any():
        return "no size is stated, and the image's header has none: its boxes have no scale"
    return (
        f"box {found.names[place]} is {_shown(found.corners[place])}: its corners must be finite, "
        "and ymin <= ymax and xmin <= xmax"
    )


def list_array(values: pa.Array, rows: NDArray[np.int64], num_rows: int) -> pa.ListArray:
    """Group values into one list per row.

    Args:
        values: The items of all lists, row after row.
        rows: The row of each item, ascending.
        num_rows: The number of lists; rows without items get an empty one.
    """
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=num_rows)))).astype(
        np.int32
    )
    return pa.ListArray.from_arrays(pa.array(offsets), values)


class ObjectRows(NamedTuple):
    """The objects of a batch of images.

    Attributes:
        rows: The batch row of each object's image, ascending.
        corners: Shape [n, 4], the input of `settle_boxes`.
        columns: Name -> one value per object; class names for LABEL.
        names: The id of each object in rejects, such as "a.jpg#17".
        sizes: Shape [n, 2], the height and width that corners in pixels were divided by, NaN if
            unknown; None if they were fractions.
    """

    rows: NDArray[np.int64]
    corners: NDArray[np.float64]
    columns: dict[str, pa.Array]
    names: Sequence[str]
    sizes: NDArray[np.float64] | None = None


class ImageObject(NamedTuple):
    """An object of an image.

    Attributes:
        number: Its number in its file.
        box: Its ymin, xmin, ymax and xmax, as fractions or in pixels.
        values: Its other values.
        size: The size that its file states of its image, or None.
    """

    number: int
    box: tuple[float, ...]
    values: tuple[object, ...]
    size: ImageSize | None = None


def object_rows(
    ids: Sequence[str],
    rows: Sequence[int],
    objects: Sequence[ImageObject],
    columns: Mapping[str, pa.DataType],
    sizes: NDArray[np.float64] | None = None,
) -> ObjectRows:
    """Return objects as `ObjectRows`.

    Args:
        ids: The ids of the images.
        rows: The row of each object's image, ascending.
        objects: The objects.
        columns: Name and type of each of `ImageObject.values`.
        sizes: Heights and widths of the images in pixels, shape [images, 2]; None for fractions.
    """
    places = np.array(rows, np.int64)
    corners = np.array([one.box for one in objects], float).reshape(-1, 4)
    values = {
        name: pa.array([one.values[place] for one in objects], kind)
        for place, (name, kind) in enumerate(columns.items())
    }
    names = [f"{ids[row]}#{one.number}" for row, one in zip(rows, objects, strict=True)]
    if sizes is not None:
        sizes = sizes[places]
        corners /= np.tile(sizes, 2)
    return ObjectRows(places, corners, values, names, sizes)


def _shown(corners: Iterable[float]) -> str:
    names = ("ymin", "xmin", "ymax", "xmax")
    pairs = zip(names, corners, strict=True)
    return ", ".join(f"{name}={value:.6g}" for name, value in pairs) + ", as fractions"


def box_features(class_names: Sequence[str]) -> tuple[Feature, ...]:
    """Return the `objects` features of detection formats; empty `class_names` are learned later."""
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


def keypoint_feature(num_points: int) -> Feature:
    """Return a feature of `num_points` keypoints per object."""
    return Feature(
        KEYPOINTS, FeatureKind.KEYPOINTS, shape=(None, num_points, 3), sequence="objects"
    )


def keypoint_type(num_points: int) -> pa.DataType:
    return pa.list_(pa.list_(pa.float32(), 3), num_points)


def flag_feature(name: str) -> Feature:
    """Return a feature that is a list of booleans, one per object."""
    return Feature(name, FeatureKind.INT64, shape=(None,), dtype="bool", sequence="objects")


SEGMENTATION_FEATURE = Feature(SEGMENTATION, FeatureKind.TEXT, shape=(None,), sequence="objects")


def stated_size(height: object, width: object) -> ImageSize | None:
    """Return the size that a label file states; None if absent, or 0, which some tools write."""
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


def sizes_of(
    stated: Sequence[ImageSize | None],
    with_objects: Iterable[int],
    uris: Sequence[str | None],
    storage: StorageOptions,
) -> NDArray[np.float64]:
    """Return the height and width of each image, shape [n, 2].

    They are as stated, else from its header; NaN if that has none.

    Args:
        stated: The sizes that are known.
        with_objects: The rows of images with objects. The size of others does not matter.
        uris: Addresses of the images; None for one that is no file of its own.
        storage: Options of their store.
    """
    unknown = sorted(row for row in set(with_objects) if stated[row] is None)

    def read(row: int) -> ImageSize | None:
        uri = uris[row]
        return None if uri is None else read_size(uri, storage)

    remote = bool(unknown) and is_remote(uris[unknown[0]] or "")
    found = map_reads(read, unknown) if remote else map(read, unknown)
    known = dict(zip(unknown, found, strict=True))
    sizes = (known.get(row, size or ImageSize(1, 1)) for row, size in enumerate(stated))
    return np.array([size or UNKNOWN_SIZE for size in sizes], float).reshape(-1, 2)


def read_size(uri: str, storage: StorageOptions) -> ImageSize | None:
    """Return the size in an image's header; None if it cannot be read."""
    files = files_of(uri, storage)
    try:
        start = size_in(files.read_range(uri, 0, _HEADER_BYTES))
        # The header may be longer.
        return start or size_in(files.read_bytes(uri))
    except Exception:  # the writer hits the same error, and rejects the image with its reason
        return None


def size_in(data: bytes) -> ImageSize | None:
    """Return the size in the header of an image's first bytes; None if they do not have it."""
    try:
        info = read_header(data).info
    except ImageFault:
        return None
    return stated_size(info.height, info.width)
