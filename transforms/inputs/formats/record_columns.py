"""Turn Python records into Arrow batches with the columns of the first records."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.format.tensors import TENSOR_DTYPES
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.file_rules import has_image_magic
from shardwright.transforms.inputs.rows import (
    NOT_FITTING,
    PictureParts,
    RawRows,
    array_and_misfits,
)

_BYTES = (bytes, bytearray, memoryview)
_PLAIN = (str, bytes, int, float, os.PathLike)  # taken as they are, without a closer look
# Pillow's modes whose pixels are stored as they are; those that no PNG has are rejects.
_MODES = ("L", "RGB", "RGBA", "I;16", "I;16B", "I;16L", "I;16N", "F")
_INDEXED = ("1", "P")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> gray, RGB, RGBA
_AVERAGE = 3
_DTYPES = ("uint8", "uint16")
Record = Mapping[str, Any]
SAMPLE_RECORDS = 64  # the schema is inferred from them; as many are in memory at once


@dataclass(frozen=True, slots=True, eq=False)
class IndexedPixels:
    """A Pillow image with a palette, or of two colors.

    Attributes:
        colors: What it shows, as a feature of images has it.
        numbers: The numbers of its colors, as a mask has them, uint8 [height, width].
    """

    colors: np.ndarray[Any, Any]
    numbers: np.ndarray[Any, Any]


def simple_value(value: Any) -> Any:
    """Return a value that the caller cannot change: its buffer may be used for the next record.

    Pillow's images and tensors of any library become NumPy arrays, arrays of one value that value,
    and masked values None.
    """
    if isinstance(value, _PLAIN) or value is None:
        return value
    if isinstance(value, _BYTES):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [simple_value(each) for each in value]
    if hasattr(value, "getbands"):
        return _pixels_of(value)
    if not hasattr(value, "__array__"):
        return value
    if np.ma.is_masked(value):
        return value.tolist()
    # A copy: a loader may fill the same buffer with its next record.
    array = np.array(value)
    if array.dtype.kind in "mM":  # nanoseconds would become numbers
        return array.astype(f"{array.dtype.kind}8[us]").tolist()
    return array if array.ndim else array.item()


def is_picture(value: Any) -> bool:
    """Return whether a simple value is an image: its pixels, its encoded bytes or its path."""
    if isinstance(value, np.ndarray):
        return is_pixels(value)
    if isinstance(value, bytes):
        return has_image_magic(value)
    return isinstance(value, os.PathLike | IndexedPixels)


def input_key(value: Any) -> str:
    """Return the key of a simple value that has no name, such as the first of an (X, y) pair.

    Numbers in fewer than two dimensions, a vector or a single one, are "features"; all else, such
    as pixels, encoded bytes or a path, is "image".
    """
    if isinstance(value, np.ndarray):
        is_vector = value.ndim < 2 and value.dtype.kind in "biuf"
    else:
        numbers = value if isinstance(value, list) else [value]
        is_vector = all(isinstance(number, int | float) for number in numbers)
    return "features" if is_vector else "image"


def picture_bytes(value: Any, *, is_mask: bool = False) -> bytes | None:
    """Return the encoded image of a simple value; None for a path, or without an image.

    Args:
        value: The value.
        is_mask: It is a mask: of an image with a palette, the numbers are stored.

    Raises:
        ValueError: The value is no image.
    """
    if value is None or isinstance(value, str | os.PathLike):
        return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, IndexedPixels):
        value = value.numbers if is_mask else value.colors
    if isinstance(value, np.ndarray) and is_pixels(value):
        return encode_png(value)
    found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)[:80]
    raise ValueError(
        "an image must be a uint8 or uint16 array of shape (height, width) or (height, width, 1, 3 "
        f"or 4), a PIL image, encoded bytes or a path, got {found}"
    )


def column_value(value: Any, *, as_lists: bool) -> Any:
    """Return a simple value as Arrow takes it.

    Args:
        value: The value; no image.
        as_lists: Flatten arrays of several dimensions; if False they become `.npy` files, as
            features of kind tensor read them.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, np.ndarray) or value.ndim == 1:
        return value
    if as_lists:
        return value.ravel()
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return file.getvalue()


def _pixels_of(image: Any) -> np.ndarray[Any, Any] | IndexedPixels:
    """Return a Pillow image's pixels without loss; other color spaces are converted."""
    if image.mode in _INDEXED:
        colors = np.array(image.convert("L" if image.mode == "1" else _with_colors(image)))
        return IndexedPixels(colors, np.array(image).astype(np.uint8))
    if image.mode == "I":
        numbers = np.array(image)
        fits = numbers.min(initial=0) >= 0 and numbers.max(initial=0) < 1 << 16
        return numbers.astype(np.uint16) if fits else numbers
    if image.mode == "La":  # Pillow has no direct way
        image = image.convert("LA")
    pixels = np.array(image if image.mode in _MODES else image.convert(_with_colors(image)))
    return pixels.astype(pixels.dtype.newbyteorder("="))


def _with_colors(image: Any) -> str:
    is_clear = image.mode in ("LA", "PA") or "transparency" in image.info
    return "RGBA" if is_clear else "RGB"


def is_pixels(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is [height, width] or [height, width, 1|3|4] of uint8 or uint16."""
    has_shape = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _COLOR_TYPES)
    return has_shape and array.dtype.name in _DTYPES and array.size > 0


def encode_png(pixels: npt.NDArray[Any]) -> bytes:
    """Return the PNG of an array for which `is_pixels` is true."""
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    depth = pixels.dtype.itemsize
    header = struct.pack(">IIBBBBB", width, height, 8 * depth, _COLOR_TYPES[channels], 0, 0, 0)
    # PNG's samples are big-endian.
    rows = np.ascontiguousarray(pixels, dtype=f">u{depth}").reshape(height, -1).view(np.uint8)
    # Run lengths only: in filtered photographs longer matches are rare, and the search for them is
    # slow.
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    data = packer.compress(_filtered(rows, channels * depth).data) + packer.flush()
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def _filtered(rows: npt.NDArray[np.uint8], pixel_bytes: int) -> npt.NDArray[np.uint8]:
    """Return each row as the filter's number and the differences to the mean of left and above."""
    left, above = np.zeros_like(rows), np.zeros_like(rows)
    left[:, pixel_bytes:] = rows[:, :-pixel_bytes]
    above[1:] = rows[:-1]
    # The mean without the carry of the sum, which needs a ninth bit.
    mean = (left & above) + ((left ^ above) >> 1)
    filtered = np.full((len(rows), rows.shape[1] + 1), _AVERAGE, np.uint8)
    np.subtract(rows, mean, out=filtered[:, 1:])
    return filtered


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return b"".join((len(content).to_bytes(4), kind, content, checksum.to_bytes(4)))


Shape = tuple[int | None, ...]

_STATED = {
    FeatureKind.FLOAT32: pa.float64(), FeatureKind.INT64: pa.int64(), FeatureKind.TEXT: pa.string()
}  # fmt: skip
_LARGE_BYTES = 8 << 10  # of an array that a thread encodes
URI = "python"  # stands for the place of records in rejects
_PICTURE = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])


def type_of(name: str, values: Sequence[Any], said: FeatureKind | None) -> pa.DataType:
    """Return the Arrow type of a column's values; a schema decides that of integers and of none.

    Values that do not fit a type that the schema decides are rejects later.

    Args:
        name: The key of the values.
        values: Simple values.
        said: The kind of the feature that the schema fills from them, or None.

    Raises:
        UsageError: The values have no common type.
    """
    wanted = _STATED.get(said) if said is not None else None
    plain = [column_value(value, as_lists=True) for value in values]
    try:
        kind = pa.array(plain).type
    except NOT_FITTING as error:
        if wanted is None:
            raise UsageError(_mixed(name, plain, error)) from error
        has_lists = any(isinstance(value, list | np.ndarray) for value in plain)
        return pa.list_(wanted) if has_lists else wanted
    inner = kind.value_type if is_list(kind) else kind
    may_change = pa.types.is_null(inner) or (pa.types.is_integer(inner) and wanted != pa.string())
    if wanted is None or not may_change:
        return kind
    return pa.list_(wanted) if is_list(kind) else wanted


def _mixed(name: str, plain: Sequence[Any], error: Exception) -> str:
    """Return the message about the first value that does not fit those before it."""
    for number in range(1, len(plain) + 1):
        try:
            pa.array(plain[:number])
        except NOT_FITTING:
            break
    return (
        f"key {name!r} of record {number - 1} is {plain[number - 1]!r:.80}, which cannot be stored "
        f"as one feature with the values before it ({error}): give all records values of one type, "
        "or declare the key with schema=, so that others are rejects"
    )


def tensor_feature(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Feature:
    """Return the feature of arrays; only the first dimension of their shape may vary.

    Raises:
        UsageError: They differ in more than that.
    """
    first = arrays[0]
    shape: Shape = first.shape
    if any(array.shape != first.shape for array in arrays):
        shape = (None, *first.shape[1:])
    if first.dtype.name not in TENSOR_DTYPES or any(
        array.dtype != first.dtype or not _has_shape(array, shape) for array in arrays
    ):
        shapes = sorted({f"{array.dtype} {array.shape}" for array in arrays})
        raise UsageError(
            f"key {name!r} holds arrays of {', '.join(shapes[:3])}: a tensor has one dtype of "
            f"{', '.join(TENSOR_DTYPES)}, and only its first dimension may vary"
        )
    return Feature(name, FeatureKind.TENSOR, shape=shape, dtype=first.dtype.name)


def _has_shape(array: np.ndarray[Any, Any], shape: Shape) -> bool:
    """Return whether an array has a shape, with None for any size."""
    return len(array.shape) == len(shape) and all(
        size in (None, found) for size, found in zip(shape, array.shape, strict=True)
    )


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of records.

    Attributes:
        schema: Name and type of each; that of images is a struct of bytes and path.
        tensors: The features of arrays of several dimensions.
        flat: The columns whose arrays are flattened, because a schema declares them as lists.
        shapes: The shapes that a schema declares for them.
        masks: The columns of `pictures` that hold class or instance numbers.
        numbered: Column for the numbers of records without an id, or "".
    """

    schema: pa.Schema
    tensors: Mapping[str, Feature] = field(default_factory=dict)
    flat: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    numbered: str = ""

    @property
    def pictures(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema if column.type == _PICTURE)

    def rows(self, records: Sequence[Record], ids: Sequence[str], pool: Executor) -> RawRows:
        """Return records as rows, with what is wrong with those that do not fit the columns.

        Args:
            records: The records, of simple values.
            ids: The number of each record as its id; for those without one.
            pool: Threads that encode images.
        """
        listed = ", ".join(name for name in self.schema.names if name != self.numbered)
        faults = {
            row: f"unknown key {name!r}; the known ones are {listed}"
            for row, record in enumerate(records)
            for name in record.keys() - {*self.schema.names}
        }
        arrays, pictures = [], {}
        for column in self.schema:
            values = [record.get(column.name) for record in records]
            if column.name == self.numbered:
                arrays.append(pa.array(ids, column.type))
            elif column.type == _PICTURE:
                arrays.append(pa.nulls(len(values), _PICTURE))
                is_mask = column.name in self.masks
                pictures[column.name], found = _pictures(values, column.name, pool, is_mask)
                faults |= found
            else:
                array, found = self._values(values, column)
                arrays.append(array)
                faults |= found
        rows = pa.RecordBatch.from_arrays(arrays, self.schema.names)
        return RawRows(rows, pictures, faults=faults)

    def plain_columns(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Return all columns of records, with the values of numbers; others are null."""
        arrays = [
            array_and_misfits([record.get(column.name) for record in records], column.type)[0]
            if pa.types.is_floating(column.type)
            else pa.nulls(len(records), column.type)
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, values: Sequence[Any], column: pa.Field) -> tuple[pa.Array, dict[int, str]]:
        name, shape = column.name, self.shapes.get(column.name, ())
        faults = {}
        for row, value in enumerate(values) if name in self.shapes else ():
            # A flat array has no shape of its own.
            if isinstance(value, np.ndarray) and value.ndim > 1 and not _has_shape(value, shape):
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                told = f"must have the shape ({sizes}), got {value.dtype} {value.shape}"
                faults[row] = f"key {name!r} {told}"
        plain = [
            None if row in faults else column_value(value, as_lists=name in self.flat)
            for row, value in enumerate(values)
        ]
        array, misfits = array_and_misfits(plain, column.type)
        told = f"key {name!r} must be {column.type}"
        return array, faults | {row: f"{told}, got {values[row]!r:.80}" for row in misfits}


def infer_columns(
    records: Sequence[Record],
    said: Mapping[str, FeatureKind],
    *,
    shapes: Mapping[str, Shape] | None = None,
    find_images: bool = True,
) -> RecordColumns:
    """Return the columns of the first records.

    Args:
        records: The first records, of simple values; a key may be missing in some.
        said: Column -> kind, where `--schema` or an option sets it.
        shapes: Column -> shape, where `--schema` sets it.
        find_images: Columns are images by their values, too; if False by `said` only.

    Raises:
        UsageError: A key is no text, the values of a key cannot be one feature, or a key of images
            has none.
    """
    keys = {name: None for record in records for name in record}
    if bad := [name for name in keys if not isinstance(name, str) or not name]:
        raise UsageError(f"the keys of records must be texts, got {bad[0]!r}: rename it")
    columns = {name: [record.get(name) for record in records] for name in keys}
    pictures = _picture_columns(columns, said, find_images=find_images)
    tensors: dict[str, Feature] = {}
    flat = []
    types = {}
    for name, values in columns.items():
        arrays = [value for value in values if isinstance(value, np.ndarray) and value.ndim > 1]
        if name in pictures:
            types[name] = _PICTURE
        elif arrays and said.get(name, FeatureKind.TENSOR) == FeatureKind.TENSOR:
            types[name] = pa.large_binary()
            tensors[name] = tensor_feature(name, arrays)
        else:
            flat.append(name)
            types[name] = type_of(name, values, said.get(name))
    return RecordColumns(
        pa.schema(list(types.items())),
        tensors,
        flat=tuple(flat),
        shapes={name: shape for name, shape in (shapes or {}).items() if name in flat},
        masks=tuple(name for name in sorted(pictures) if said.get(name) is FeatureKind.MASK),
    )


def hold_images(records: Sequence[Record]) -> bool:
    """Return whether records have images: by a key's values, or by its name.

    So a wrong value under a usual name, such as `image`, is an error, and not a feature.
    """
    keys = {name for record in records for name in record}
    names = {name.strip().lower() for name in keys if isinstance(name, str)}
    return not names.isdisjoint(ROLE_COLUMNS["image"]) or any(
        is_picture(value) for record in records for value in record.values()
    )


def _picture_columns(
    columns: Mapping[str, Sequence[Any]], said: Mapping[str, FeatureKind], *, find_images: bool
) -> set[str]:
    """Return the columns of images: by a schema, else by their values, else by a usual name."""
    pictures = {name for name in columns if said.get(name) in PICTURES}
    if find_images:
        pictures |= {name for name in columns.keys() - said if any(map(is_picture, columns[name]))}
    if find_images and not pictures:
        # Those with paths, then undeclared ones: a wrong value under a usual name is an error.
        by_lower = {name.strip().lower(): name for name in columns}
        usual = [by_lower[name] for name in ROLE_COLUMNS["image"] if name in by_lower]
        paths = [name for name in usual if any(isinstance(value, str) for value in columns[name])]
        pictures = {*[*paths, *(name for name in usual if name not in said)][:1]}
    for name in pictures:
        _check_pictures(name, columns[name])
    return pictures


def _check_pictures(name: str, values: Sequence[Any]) -> None:
    """Raise UsageError if no value of a column of images is one; otherwise, others are rejects."""
    given = [value for value in values if value is not None]
    if not given or any(isinstance(one, str | bytes) or is_picture(one) for one in given):
        return
    try:
        picture_bytes(given[0])
    except ValueError as error:
        raise UsageError(
            f"key {name!r}: {error}. Scale floats to uint8, or store them as a feature, a tensor: "
            "rename the key, or give --schema records"
        ) from error


def _pictures(
    values: Sequence[Any], name: str, pool: Executor, is_mask: bool
) -> tuple[list[PictureParts], dict[int, str]]:
    """Return the images of a column, and what is wrong with the others."""
    # Handing bytes or a few pixels to a thread takes longer than what it does with them.
    is_large = any(
        isinstance(value, IndexedPixels)
        or (isinstance(value, np.ndarray) and value.nbytes >= _LARGE_BYTES)
        for value in values
    )
    encode = partial(_encoded, is_mask=is_mask)
    encoded = list((pool.map if is_large else map)(encode, values))
    faults = {
        row: f"key {name!r}: {result}"
        for row, result in enumerate(encoded)
        if isinstance(result, ValueError)
    }
    data = (None if isinstance(result, ValueError) else result for result in encoded)
    paths = (os.fspath(value) if isinstance(value, str | os.PathLike) else None for value in values)
    return list(zip(data, paths, strict=True)), faults


def _encoded(value: Any, is_mask: bool) -> bytes | ValueError | None:
    try:
        return picture_bytes(value, is_mask=is_mask)
    except ValueError as error:
        return error
