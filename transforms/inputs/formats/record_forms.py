"""Iterate over the records of tables, data sets and arrays, without importing their libraries."""

from __future__ import annotations

import io
import itertools
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.transforms.inputs.columns import check_width, first_doubled
from shardwright.transforms.inputs.file_rules import has_image_magic

_BYTES = (bytes, bytearray, memoryview)
_PLAIN = (str, bytes, int, float, os.PathLike)  # taken as they are, without a closer look
# Pillow's modes whose pixels are stored as they are; those that no PNG has are rejects.
_MODES = ("L", "RGB", "RGBA", "I;16", "I;16B", "I;16L", "I;16N", "F")
_INDEXED = ("1", "P")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> gray, RGB, RGBA
_AVERAGE = 3
_DTYPES = ("uint8", "uint16")
_LABEL = "label"
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


def picture_path(value: Any) -> str | None:
    """Return the path of a simple value that is one, or None."""
    return os.fspath(value) if isinstance(value, str | os.PathLike) else None


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


def records_of(source: Any) -> Iterator[Record]:
    """Yield the records of a source, with simple values.

    Args:
        source: An iterable of dicts or (input, label) pairs, a pandas DataFrame, an Arrow table, an
            object with `__len__` and `__getitem__`, a `tf.data.Dataset`, or one NumPy array, a
            pair or a dict of them of one length.

    Raises:
        UsageError: It is none of these, or an item is no record.
    """
    return itertools.starmap(_numbered, enumerate(_items_of(source)))


def _numbered(number: int, item: Any) -> Record:
    """Return a record with simple values; an error says its number."""
    try:
        return simple_record(item)
    except UsageError as error:
        raise UsageError(f"record {number}: {error}") from error


def simple_record(item: Any) -> Record:
    """Return a record with simple values.

    Raises:
        UsageError: The item is neither a dict nor a pair of input and label.
    """
    if isinstance(item, tuple) and len(item) == 2:
        inputs, label = map(simple_value, item)
        return {input_key(inputs): inputs, _LABEL: label}
    if not isinstance(item, Mapping):
        raise UsageError(
            f"a record must be a dict, or a pair of input and label, got {type(item).__name__}"
        )
    return {name: simple_value(value) for name, value in item.items()}


def _items_of(source: Any) -> Iterable[Any]:
    if isinstance(source, np.ndarray) and not source.ndim:
        source = source.item()
    if isinstance(source, str | bytes | os.PathLike):
        raise UsageError(
            f"records must be an iterable of dicts, a table, a data set or arrays, got {source!r}; "
            "`shardwright build` reads files and folders"
        )
    if isinstance(source, np.ndarray):
        names = source.dtype.names
        columns = {name: source[name] for name in names} if names else _named([source])
        return _rows_of_arrays(columns, len(columns))
    if isinstance(source, tuple) and all(isinstance(each, np.ndarray) for each in source):
        return _rows_of_arrays(_named(source), len(source))
    if isinstance(source, Mapping):
        return _rows_of_arrays(source, len(source))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return _rows_of_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _rows_of_arrow(source)
    if hasattr(source, "as_numpy_iterator"):
        return map(_with_texts, source.as_numpy_iterator())
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[index] for index in range(len(source)))
    if isinstance(source, Iterable):
        return source
    raise UsageError(
        "records must be an iterable of dicts, a table, a data set or arrays, got "
        f"{type(source).__name__}; for a function that makes them, pass shards="
    )


def _named(arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first array by the key of its rows, and the second as the label."""
    keys = [*(input_key(np.empty(one.shape[1:], one.dtype)) for one in arrays[:1]), _LABEL]
    return dict(zip(keys, arrays, strict=False))


def _rows_of_arrays(columns: Mapping[str, Any], number: int) -> Iterator[Record]:
    """Yield a record for each row of arrays of the same length."""
    if any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in columns.values()):
        raise UsageError(
            "records must be an iterable of dicts, or a dict of arrays, got one dict of single "
            "values: put it in a list"
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(columns) < number or len(set(lengths.values())) != 1:
        raise UsageError(
            f"arrays must be (inputs, labels) or a dict, of one length, got "
            f"{counted(number, 'array')} of lengths {sorted(set(lengths.values()))}"
        )
    for row in range(next(iter(lengths.values()))):
        yield {name: column[row] for name, column in columns.items()}


def _rows_of_arrow(source: Any) -> Iterator[Record]:
    """Yield the rows of what has Arrow's interface: tables and readers of it, Polars, DuckDB."""
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"records must be a table, got one column ({type(source).__name__}): name it, as in "
            '{"key": column}'
        ) from error
    _check_names(reader.schema.names)
    for batch in reader:
        for start in range(0, batch.num_rows, SAMPLE_RECORDS):
            yield from batch.slice(start, SAMPLE_RECORDS).to_pylist()


def _rows_of_pandas(table: Any) -> Iterator[Record]:
    _check_names(list(table.columns))
    for start in range(0, len(table), SAMPLE_RECORDS):
        rows = table.iloc[start : start + SAMPLE_RECORDS]
        # A missing text is NaN, a float, which Arrow would not take for one.
        yield from rows.astype(object).where(rows.notna(), None).to_dict("records")


def _check_names(names: Sequence[Any]) -> None:
    doubled = first_doubled(names)
    if doubled is not None:
        raise UsageError(f"the table has two columns called {doubled!r}: rename one of them")
    check_width("the table", names)


def _with_texts(item: Any) -> Any:
    """Return an element of tf.data with texts in place of bytes that are UTF-8 and no image."""
    if isinstance(item, Mapping):
        return {name: _as_text(value) for name, value in item.items()}
    return tuple(map(_as_text, item)) if isinstance(item, tuple) else item


def _as_text(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _as_text(value.tolist())
    if isinstance(value, list):
        return list(map(_as_text, value))
    if not isinstance(value, bytes) or has_image_magic(value):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
