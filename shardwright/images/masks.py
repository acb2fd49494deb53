"""Decode masks, and crop, resize and flip them with their image, by the nearest pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature
from shardwright.format.tensors import parse_tensor_proto
from shardwright.images.crops import Crop, View, inside
from shardwright.images.kinds import PNG_MAGIC
from shardwright.images.libraries import cv2
from shardwright.images.png import png_header

_PNG_HEADER_END = 33  # of the first chunk


def mask_dtype(feature: Feature) -> np.dtype[Any]:
    """Return the dtype of a mask's numbers."""
    return np.dtype(feature.dtype or np.uint8)


def show_mask(feature: Feature, data: bytes, view: View) -> NDArray[Any]:
    """Return what a view of the image shows of its mask: the numbers, [height, width, 1].

    A pixel of the result has the number of the pixel of the mask that its center is in. Bars are 0.

    Args:
        feature: The mask, as it is stored.
        data: All stored bytes.
        view: The part of the image that is shown.

    Raises:
        ImageFault: The mask cannot be decoded, its numbers do not fit the feature's dtype, or its
            size is not that of the image.
    """
    numbers, dtype = _decode(feature, data), mask_dtype(feature)
    if numbers.shape != view.image_size:
        (height, width), (image_height, image_width) = numbers.shape, view.image_size
        raise ImageFault(
            f"mask {feature.name!r} has {width} x {height} pixels, "
            f"but its image has {image_width} x {image_height}"
        )
    crop, frame = view.crop, view.frame or Crop(0, 0, *view.size)
    shown = inside(numbers, crop)
    if numbers.dtype != dtype:
        for number in (shown.min(), shown.max()):
            if not 0 <= number <= np.iinfo(dtype).max:
                raise ImageFault(
                    f"mask {feature.name!r} holds {number}, which does not fit {dtype}: the "
                    "schema must give it the dtype 'uint16', and numbers must be at least 0"
                )
    shown = shown.astype(dtype)
    size = (frame.width, frame.height)
    if shown.shape[::-1] != size:
        # Not INTER_NEAREST, whose rounding shifts the picture by up to half a pixel.
        shown = cv2().resize(shown, size, interpolation=cv2().INTER_NEAREST_EXACT)
    shown = shown[:, ::-1] if view.flip else shown
    if view.frame is not None:
        bars = np.zeros(view.size, dtype)
        inside(bars, frame)[...] = shown
        shown = bars
    return shown[..., None]


def _decode(feature: Feature, data: bytes) -> NDArray[Any]:
    try:
        if feature.encoding == "raw":
            dtype = mask_dtype(feature).newbyteorder("<")
            shape = [size or 0 for size in feature.shape[:2]]
            return np.frombuffer(data, dtype).reshape(shape)
        if feature.encoding == "tensor":
            numbers = parse_tensor_proto(data)
            if numbers.ndim != 3 or numbers.shape[2] != 1 or numbers.dtype.kind not in "bui":
                raise ValueError(f"a tensor of {numbers.dtype} with shape {numbers.shape}")
            return numbers[..., 0]
        is_png = data.startswith(PNG_MAGIC) and len(data) >= _PNG_HEADER_END
        if is_png and (header := png_header(data)).kind == b"IHDR" and header.color:
            raise ValueError("a PNG that is not gray, whose colors OpenCV would turn into numbers")
        library = cv2()
        flags = library.IMREAD_GRAYSCALE | library.IMREAD_ANYDEPTH
        numbers = library.imdecode(
            np.frombuffer(data, np.uint8), flags | library.IMREAD_IGNORE_ORIENTATION
        )
    except (ValueError, ExampleFault, cv2().error) as error:
        raise ImageFault(f"mask {feature.name!r} cannot be decoded: {error}") from error
    if numbers is None:
        raise ImageFault(f"mask {feature.name!r} is damaged or cut short, or is no image")
    return numbers
