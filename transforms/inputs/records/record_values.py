"""Take the values of Python records apart: images, paths, arrays, numbers and texts."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from transforms.inputs.image_values import has_image_magic
from transforms.inputs.records.array_png import encode_png, is_pixels

_BYTES = (bytes, bytearray, memoryview)
_PLAIN = (str, bytes, int, float, os.PathLike)  # taken as they are, without a closer look
_MODES = ("L", "RGB", "RGBA", "I;16")  # Pillow's modes that a PNG of an array has, too


def simple_value(value: Any) -> Any:
    """Return a value that the caller cannot change: its buffer may be used for the next record.

    Pillow's images and tensors of any library become NumPy arrays, and arrays of one value that
    value.
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
    array = np.array(value)
    return array if array.ndim else array.item()


def is_picture(value: Any) -> bool:
    """Return whether a simple value is an image: its pixels, its encoded bytes or its path."""
    if isinstance(value, np.ndarray):
        return is_pixels(value)
    if isinstance(value, bytes):
        return has_image_magic(value)
    return isinstance(value, os.PathLike)


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


def picture_bytes(value: Any) -> bytes | None:
    """Return the encoded image of a simple value; None for a path, or without an image.

    Raises:
        ValueError: The value is no image.
    """
    if value is None or isinstance(value, str | os.PathLike):
        return None
    if isinstance(value, bytes):
        return value
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


def _pixels_of(image: Any) -> np.ndarray[Any, Any]:
    """Return a Pillow image's pixels; modes that PNG lacks are converted, as Pillow does."""
    if image.mode not in _MODES:
        gray = image.mode in ("1", "F", "I")
        clear = image.mode in ("LA", "PA", "La") or "transparency" in image.info
        image = image.convert("L" if gray else "RGBA" if clear else "RGB")
    return np.array(image)
