"""Decode an image with the pixels of `tf.io.decode_image(channels=3)`, crop and resize it.

Gray is repeated, alpha is dropped, an animation gives its first frame, and EXIF orientation is not
applied. Beyond TensorFlow, this reads WebP with alpha or animation and BMP with 1, 4 or 16 bits or
run-length encoding, and applies BMP palettes (TensorFlow returns their indices as gray).

Downscaling by 2 or more takes two steps: first by a power of two, by averaging pixels or in
libjpeg while decoding, then bilinearly. Bilinear alone would use 4 of every 64 pixels when
downscaling by 8.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.format.schema import ExampleSchema
from shardwright.images.bmp import has_odd_masks
from shardwright.images.crops import Crop, bounds_of
from shardwright.images.gif import decode_frame, first_frame
from shardwright.images.headers import read_header
from shardwright.images.jpeg import MAX_REDUCTION, decode_jpeg, read_jpeg_header
from shardwright.images.kinds import check_size, image_format
from shardwright.images.libraries import cv2
from shardwright.images.png import essential_png, png_header
from shardwright.images.regions import decode_region, has_regions
from shardwright.sizes import counted

Pixels = NDArray[Any]  # uint8; uint16 of PNGs of 16 bits
_LOG = logging.getLogger("shardwright.reader")


class StoredImage(NamedTuple):
    """The storage format of a dataset's images.

    Attributes:
        encoding: "raw" for bare pixels; "jpeg", "png" or None (pass-through) for files, whose
            format is detected from their content.
        shape: (height, width, channels) of raw pixels, with 1, 3 or 4 channels. Ignored for files.
    """

    encoding: str | None = None
    shape: tuple[int | None, ...] = (None, None, 3)


def stored_image(schema: ExampleSchema) -> StoredImage:
    """Return how the images of a dataset are stored."""
    image = schema.image
    return StoredImage() if image is None else StoredImage(image.encoding, image.shape)


class OpenedImage(NamedTuple):
    """An image whose size is known and whose pixels are not decoded yet.

    Attributes:
        height: In pixels.
        width: In pixels.
        max_reduction: The largest reduction that `decode` supports.
        decode: Takes a reduction, a power of two, and returns uint8 or uint16 pixels
            [ceil(height / reduction), ceil(width / reduction), 3].
        decode_part: Takes a reduction and an area of the image, and returns the pixels of a part
            that has the area, with the part's first row and column in the image, multiples of 8;
            None if only the whole image can be decoded.
    """

    height: int
    width: int
    max_reduction: int
    decode: Callable[[int], Pixels]
    decode_part: Callable[[int, Crop], tuple[Pixels, int, int]] | None = None


def open_image(
    data: bytes | memoryview, stored: StoredImage, *, fast: bool, deep: bool | None = None
) -> OpenedImage:
    """Read the header of an image.

    Args:
        data: All stored bytes.
        stored: Their storage format.
        fast: Decode JPEG slightly faster than TensorFlow's exact pixels allow, and large ones at a
            reduced size.
        deep: Keep the 16 bits of a PNG that has so many, as uint16. False and None leave 8 of them,
            and False says so, once in a process.

    Raises:
        ImageFault: The bytes are not an image, the header is damaged, or there are too many pixels.
    """
    if stored.encoding == "raw":
        return _open_raw(data, stored)
    return _open_file(data, fast=fast, deep=deep)


def _open_file(data: bytes | memoryview, *, fast: bool, deep: bool | None) -> OpenedImage:
    # By content: a file's name or extension is not stored.
    kind = image_format(bytes(data[:16]))
    if kind == "jpeg":
        header = read_jpeg_header(data)
        height, width = header.height, header.width
        if not header.space:
            return OpenedImage(
                height, width, 1, lambda _: _decode_by_opencv(kind, header.data, height, width)
            )
        return OpenedImage(
            height,
            width,
            MAX_REDUCTION if fast else 1,
            lambda reduction: decode_jpeg(header, fast=fast, reduction=reduction),
            decode_part=functools.partial(decode_region, header, fast=fast)
            if has_regions(header)
            else None,
        )
    if kind == "gif":
        return _open_gif(bytes(data))
    whole = bytes(data)
    info = read_header(whole).info
    height, width = info.height, info.width
    check_size(kind, height, width)
    if kind == "bmp" and has_odd_masks(whole):
        raise ImageFault(
            "the 32-bit bmp image has unusual color masks: re-encode it as png or jpeg",
            "unsupported_format",
        )
    if kind == "png":
        whole = essential_png(whole)
        if deep is False and png_header(whole).depth == 16:
            _tell_of_16_bits()
    return OpenedImage(
        height,
        width,
        1,
        lambda _: _decode_by_opencv(kind, whole, height, width, deep=deep and kind == "png"),
    )


@functools.cache
def _tell_of_16_bits() -> None:
    _LOG.warning(
        "images of 16 bits a channel are read as 8 bits, as tf.io.decode_image reads them, so that "
        "256 of their values become one: give sw.DecodedImage and its like dtype='uint16' or "
        "'float32'"
    )


class Part(NamedTuple):
    """A crop of an image, and where it is written.

    Attributes:
        crop: The rectangle, in pixels of the image.
        slot: [height, width, 3], to which the crop is resized: 0 to 255, in a float dtype with
            fractions of an image of 16 bits; in uint16 0 to 65,535.
        flip: Mirror left and right.
    """

    crop: Crop
    slot: NDArray[Any]
    flip: bool = False

    @property
    def reduction(self) -> int:
        """The power of two by which the crop is reduced before it is resized bilinearly."""
        height, width = self.slot.shape[:2]
        return power_of_two(min(self.crop.height // height, self.crop.width // width))


def fill_slots(image: OpenedImage, parts: Sequence[Part]) -> None:
    """Decode an image once, and write crops of it, resized, into slots of a batch.

    Raises:
        ImageFault: The pixels are damaged or truncated.
    """
    # The decoder's part of the reductions; `_shrink` does the rest.
    reductions = [part.reduction for part in parts]
    decoded = min(image.max_reduction, *reductions)
    if image.decode_part:
        area = parts[0].crop if len(parts) == 1 else bounds_of([part.crop for part in parts])
        pixels, top, left = image.decode_part(decoded, area)
    else:
        pixels, top, left = image.decode(decoded), 0, 0
    for (crop, slot, flip), reduction in zip(parts, reductions, strict=True):
        shown = pixels[
            _reduced(crop.top - top, crop.height, decoded),
            _reduced(crop.left - left, crop.width, decoded),
        ]
        shown = _as_of_slot(shown, slot.dtype)
        _write(_shrink(shown, reduction // decoded), slot, flip=flip)


def _as_of_slot(pixels: Pixels, dtype: np.dtype[Any]) -> Pixels:
    """Return pixels in the range of a slot's dtype; uint8 stays for floats, which it fits."""
    if pixels.dtype == np.uint16:
        if dtype == np.uint8:
            return (pixels >> 8).astype(np.uint8)  # as OpenCV and TensorFlow do
        return pixels if dtype == np.uint16 else pixels.astype(np.float32) / np.float32(257)
    return pixels.astype(np.uint16) * np.uint16(257) if dtype == np.uint16 else pixels


def power_of_two(ratio: int) -> int:
    """Return the largest power of two that is at most `ratio`, and at least 1."""
    return 1 << max(0, ratio.bit_length() - 1)


def _reduced(start: int, length: int, reduction: int) -> slice:
    """Return where pixels [start, start + length) are in a reduced image, rounded."""
    half = reduction // 2
    return slice((start + half) // reduction, (start + length + half) // reduction)


def _shrink(pixels: Pixels, factor: int) -> Pixels:
    """Return the mean of each factor x factor pixels, without the remainder at the edges."""
    if factor == 1:
        return pixels
    height, width = pixels.shape[0] // factor, pixels.shape[1] // factor
    # The remainder is cut off evenly at both sides, so that the picture does not shift.
    top, left = pixels.shape[0] % factor // 2, pixels.shape[1] % factor // 2
    whole = pixels[top : top + height * factor, left : left + width * factor]
    return cv2().resize(whole, (width, height), interpolation=cv2().INTER_AREA)


def _write(pixels: Pixels, slot: NDArray[Any], *, flip: bool) -> None:
    """Resize bilinearly, as tf.image.resize(antialias=False) does, and flip."""
    height, width = slot.shape[:2]
    # OpenCV writes to `dst` if it can, and silently to a new array if not.
    direct = slot if slot.dtype == pixels.dtype and slot.flags.c_contiguous else None
    made = pixels
    if pixels.shape[:2] != (height, width):
        made = cv2().resize(
            pixels, (width, height), dst=None if flip else direct, interpolation=cv2().INTER_LINEAR
        )
    if flip:
        made = cv2().flip(made, 1, dst=direct)
    if direct is None or not np.shares_memory(made, slot):
        # Unsafe, because floats of whole numbers, and float32 to bfloat16, count as such.
        np.copyto(slot, made, casting="unsafe")


def _open_raw(data: bytes | memoryview, stored: StoredImage) -> OpenedImage:
    shape = stored.shape
    if len(shape) != 3 or None in shape or shape[2] not in (1, 3, 4):
        raise ImageFault(
            "raw pixels must have shape (height, width, channels) with 1, 3 or 4 channels, "
            f"got {shape}"
        )
    height, width, channels = (int(length or 0) for length in shape)
    num_bytes = height * width * channels
    if len(data) != num_bytes:
        raise ImageFault(
            f"raw pixels of {counted(len(data), 'byte')}, but the dataset's shape needs "
            f"{height} x {width} x {channels} = {num_bytes:,}"
        )
    pixels = np.frombuffer(data, np.uint8).reshape(height, width, channels)
    shown = np.repeat(pixels, 3, axis=2) if channels == 1 else pixels[..., :3]
    return OpenedImage(height, width, 1, lambda _: shown)


def _open_gif(data: bytes) -> OpenedImage:
    first = first_frame(data)
    frame, height, width = first.frame, first.height, first.width
    # The frame is decoded as a whole, and may be larger than the canvas.
    check_size("gif", frame.height, frame.width)
    check_size("gif", height, width)

    def decode(_: int) -> Pixels:
        pixels = decode_frame(first)
        if (frame.top, frame.left, height, width) == (0, 0, *pixels.shape[:2]):
            return pixels
        canvas = np.zeros((height, width, 3), np.uint8)
        seen = canvas[frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
        seen[...] = pixels[: seen.shape[0], : seen.shape[1]]
        return canvas

    return OpenedImage(height, width, 1, decode)


def _decode_by_opencv(
    kind: str, data: bytes | memoryview, height: int, width: int, *, deep: bool | None = None
) -> Pixels:
    library = cv2()
    depth = library.IMREAD_ANYDEPTH if deep else 0  # of 8 bits it leaves 8
    try:
        pixels = library.imdecode(
            np.frombuffer(data, np.uint8),
            library.IMREAD_COLOR_RGB | library.IMREAD_IGNORE_ORIENTATION | depth,
        )
    except library.error as error:
        raise ImageFault(f"the {kind} image cannot be decoded: {error}") from error
    if pixels is None:
        other = ", cut short or of an unsupported kind (lossless, 12-bit)"
        told = other if kind == "jpeg" else " or cut short"
        raise ImageFault(f"the {kind} image is damaged{told}")
    if pixels.shape != (height, width, 3):
        raise ImageFault(
            f"the {kind} image has {pixels.shape[1]} x {pixels.shape[0]} pixels, "
            f"but its header states {width} x {height}"
        )
    return pixels
