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
from typing import Any, NamedTuple

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
from shardwright.transforms.features.lists import as_lists
from shardwright.transforms.references import (
    STATED_SIZE,
    STATED_SIZE_TYPE,
    extra_name,
    keep_rows,
    reference_schema,
    with_columns,
)
from shardwright.transforms.rejects import Reject, RejectReason

BOX, LABEL, AREA, IS_CROWD, SEGMENTATION, KEYPOINTS = (
    f"objects/{name}" for name in ("bbox", "label", "area", "is_crowd", "segmentation", "keypoints")
)
POSE, IS_TRUNCATED, IS_DIFFICULT = (
    f"objects/{name}" for name in ("pose", "is_truncated", "is_difficult")
)
# Value of an object -> its column's type and its feature's kind.
_VALUES = {
    **dict.fromkeys((LABEL, POSE), (pa.string(), FeatureKind.CLASS_LABEL)),
    **dict.fromkeys((IS_CROWD, IS_TRUNCATED, IS_DIFFICULT), (pa.int64(), FeatureKind.INT64)),
    AREA: (pa.float64(), FeatureKind.FLOAT32),
    SEGMENTATION: (pa.large_string(), FeatureKind.TEXT),
}
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


class ImageObject(NamedTuple):
    """An object of an image.

    Attributes:
        number: Its number in its file.
        box: Its ymin, xmin, ymax and xmax, as fractions or in pixels.
        values: Its other values, such as the class.
    """

    number: int
    box: tuple[float, ...]
    values: tuple[object, ...]


class ObjectRows(NamedTuple):
    """The objects of a batch of images.

    Attributes:
        rows: The batch row of each object's image, ascending.
        corners: Shape [n, 4]: ymin, xmin, ymax, xmax, any float.
        columns: Name -> one value per object; class names for LABEL.
        numbers: The number of each object in rejects, such as 17 for "a.jpg#17".
    """

    rows: NDArray[np.int64]
    corners: NDArray[np.float64]
    columns: Mapping[str, pa.Array]
    numbers: Sequence[int]

    @classmethod
    def of(
        cls, found: Sequence[tuple[int, ImageObject]], types: Mapping[str, pa.DataType]
    ) -> ObjectRows:
        """Return objects, given with the rows of their images, and the types of their values."""
        columns = {
            name: pa.array([one.values[place] for _, one in found], kind)
            for place, (name, kind) in enumerate(types.items())
        }
        corners = np.array([one.box for _, one in found], float).reshape(-1, 4)
        rows = np.array([row for row, _ in found], np.int64)
        return cls(rows, corners, columns, [one.number for _, one in found])


def value_types(*names: str, num_keypoints: int = 0) -> dict[str, pa.DataType]:
    """Return the types of these values of objects, and of keypoints if there are any."""
    types = {name: _VALUES[name][0] for name in names}
    if num_keypoints:
        types[KEYPOINTS] = pa.list_(pa.list_(pa.float32(), 3), num_keypoints)
    return types


def value_features(
    types: Mapping[str, pa.DataType], class_names: Sequence[str] = ()
) -> tuple[Feature, ...]:
    """Return the features of boxes and of `value_types`; empty `class_names` are learned later."""
    features = [Feature(BOX, FeatureKind.BOX, shape=(None, 4), sequence="objects")]
    for name, kind in types.items():
        if name == KEYPOINTS:
            shape = None, kind.list_size, 3
            features.append(Feature(name, FeatureKind.KEYPOINTS, shape=shape, sequence="objects"))
            continue
        names = tuple(class_names) if name == LABEL else ()
        of = _VALUES[name][1]
        flag = "bool" if of is FeatureKind.INT64 else ""
        features.append(
            Feature(name, of, shape=(None,), names=names, dtype=flag, sequence="objects")
        )
    return tuple(features)


def objects_schema(
    types: Mapping[str, pa.DataType], others: Iterable[tuple[str, pa.DataType]] = ()
) -> pa.Schema:
    """Return the columns of references with the lists of `with_objects`, after `others`."""
    lists = ((name, pa.list_(kind)) for name, kind in {BOX: BOX_TYPE, **types}.items())
    return reference_schema([*others, *lists, (STATED_SIZE, STATED_SIZE_TYPE)])


def corners_of_sides(boxes: NDArray[np.float64], part: float) -> NDArray[np.float64]:
    """Return boxes of a point, width and height as ymin, xmin, ymax, xmax, shape [n, 4].

    Args:
        boxes: Shape [n, 4]: x and y of the point, width, height.
        part: The part of the sides from the corner to the point: 0 for a corner, 0.5 for a center.
    """
    points, sides = boxes[:, 1::-1], boxes[:, :1:-1]
    with np.errstate(over="ignore", invalid="ignore"):  # `with_objects` rejects inf and nan
        return np.concatenate([points - part * sides, points + (1 - part) * sides], axis=1)


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
    images: pa.RecordBatch,
    found: ObjectRows,
    stated: Sequence[ImageSize | None] | None,
    storage: StorageOptions,
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with the columns of `objects_schema`, and rejects of boxes and images.

    Args:
        images: References of images.
        found: The objects of these images.
        stated: The size of each image, None to read it from the image's header; None if boxes and
            keypoints are fractions.
        storage: Options of the images' stores.
        faults: Row -> why it is a reject.
    """
    ids, uris = images.column("id").to_pylist(), images.column("uri").to_pylist()
    rows, corners, values = found.rows.tolist(), found.corners, dict(found.columns)
    stated_sizes = pa.nulls(images.num_rows, STATED_SIZE_TYPE)
    unknown: set[int] = set()
    if stated is not None:
        sizes = _sizes_of(stated, sorted({*rows}), images, storage)
        unknown = {*np.flatnonzero(np.isnan(sizes).any(axis=1)).tolist()}
        scales = sizes[found.rows]
        corners = corners / np.tile(scales, 2)
        if KEYPOINTS in values:
            values[KEYPOINTS] = _scaled(values[KEYPOINTS], scales)
        known = {row: sizes[row].tolist() for row in rows}
        stated_sizes = pa.array(map(known.get, range(images.num_rows)), STATED_SIZE_TYPE)
    _warn_of_outside(corners, uris)
    told = dict(faults)
    names = [f"{ids[row]}#{number}" for row, number in zip(rows, found.numbers, strict=True)]
    for place in np.flatnonzero(_invalid(corners)).tolist():
        fault = (
            "no size is stated, and the image's header has none: its boxes have no scale"
            if rows[place] in unknown
            else f"box {names[place]} is {_shown(corners[place])}: its corners must be finite, and "
            "ymin <= ymax and xmin <= xmax"
        )
        told.setdefault(rows[place], fault)  # of an image, its first fault
    for row, fault in sorted(told.items()):
        yield Reject(ids[row], uris[row], RejectReason.BAD_VALUE, fault)
    settled, keep = settle_boxes(corners)
    for place in np.flatnonzero(~keep & ~np.isin(found.rows, [*told])).tolist():
        shown = f"the box has no area inside the image ({_shown(corners[place])})"
        detail = f"{shown}: box dropped, image kept"
        yield Reject(names[place], uris[rows[place]], RejectReason.EMPTY_BOX, detail)
    if len(told) < images.num_rows:
        boxes = pa.FixedSizeListArray.from_arrays(pa.array(settled.reshape(-1)), type=BOX_TYPE)
        lengths = np.bincount(found.rows[keep], minlength=images.num_rows)
        lists = {
            extra_name(name): as_lists(column.filter(pa.array(keep)), lengths)
            for name, column in {BOX: boxes, **values}.items()
        }
        rest = ~np.isin(np.arange(images.num_rows), [*told])
        yield keep_rows(with_columns(images, {**lists, STATED_SIZE: stated_sizes}), rest)


def _scaled(keypoints: pa.Array, sizes: NDArray[np.float64]) -> pa.Array:
    """Return keypoints in pixels as fractions of the heights and widths of their images."""
    shape = len(keypoints), keypoints.type.list_size, 3
    points = keypoints.flatten().flatten().to_numpy().reshape(shape).astype(float)
    points[..., :2] /= sizes[:, None, ::-1]
    return pa.array(points.tolist(), keypoints.type)


def _warn_of_outside(corners: NDArray[np.float64], uris: Sequence[str]) -> None:
    """Log a warning, once a folder, if many boxes reach out of their images."""
    corners = corners[~_invalid(corners)]
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


def _shown(corners: Iterable[float]) -> str:
    names = ("ymin", "xmin", "ymax", "xmax")
    pairs = zip(names, corners, strict=True)
    return ", ".join(f"{name}={value:.6g}" for name, value in pairs) + ", as fractions"


def stated_size(height: Any, width: Any) -> ImageSize | None:
    """Return the size that a label file states; None if absent, or 0, which some tools write."""
    for value in (height, width):
        if type(value) not in (int, float) or not 0 < value < _MAX_SIDE:
            return None
    return ImageSize(float(height), float(width))


def _sizes_of(
    stated: Sequence[ImageSize | None],
    with_objects: Sequence[int],
    images: pa.RecordBatch,
    storage: StorageOptions,
) -> NDArray[np.float64]:
    """Return the height and width of each image, shape [n, 2].

    They are as stated, else, for images with objects, from the header; NaN if that has none. An
    image inside another file has no header at the start of that file.
    """
    is_file = images.column("offset").is_null().to_pylist()
    unknown = [row for row in with_objects if stated[row] is None and is_file[row]]
    uris = [images.column("uri")[row].as_py() for row in unknown]
    read = map_reads if uris and is_remote(uris[0]) else map
    found = dict(zip(unknown, read(lambda uri: read_size(uri, storage), uris), strict=True))
    sizes = (size or found.get(row) or UNKNOWN_SIZE for row, size in enumerate(stated))
    return np.array([*sizes], float).reshape(-1, 2)


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
