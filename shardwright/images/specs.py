"""Image transforms for `image=` of a reader: for training, for evaluation, or decoding only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.crops import Crop, draw_crop, draw_flip, evaluation_crop
from shardwright.images.decode import StoredImage, fill_slot, open_image
from shardwright.images.libraries import load_library

_DTYPES = ("uint8", "bfloat16", "float32")
# Of evaluation: the ratio of He et al. ("Deep Residual Learning") and most later work.
_RESIZE_PART = 256 / 224
_MAX_SIDE = 1 << 14  # of a result: a batch of larger images would not fit in memory


@runtime_checkable
class ImageTransform(Protocol):
    """An image transform. It must be picklable and stateless: many threads call it."""

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        """(height, width, channels) of every result; None where results differ."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every result."""

    def apply(
        self, data: bytes | memoryview, stored: StoredImage, draw: int, out: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Transform one image.

        Args:
            data: All stored bytes.
            stored: Their storage format.
            draw: The only source of randomness: 0 to 2**64 - 1.
            out: An array of `shape` and `dtype` for the result, or None for a new one.

        Returns:
            `out`, or the new array.

        Raises:
            ImageFault: The bytes cannot be decoded. `out` may be partly written.
        """


@dataclass(frozen=True)
class TrainImage:
    """A random crop resized to one size and flipped with probability 1/2, for training.

    The crop is drawn as in torchvision's RandomResizedCrop and resized bilinearly. A crop at least
    twice as large as the result is first reduced by 2, 4, 8, ... (see `shardwright.images.decode`).
    All randomness comes from (seed, epoch, record), so a resumed run sees the same crops.

    With `fast`, subsampled color of JPEG is repeated instead of smoothed, and large files are
    decoded at a reduced size. Without it, pixels equal those of `tf.io.decode_image`. On 500 x 375
    photographs with color at half the resolution, decoded at full size, fast pixels differ by 1.0
    of 255 on average and by at most 42, at color edges (`benchmarks/decoders.py`).

    Args:
        size: Result size in pixels: one number for a square, or (height, width).
        scale: Minimum and maximum share of the image's area.
        ratio: Minimum and maximum width / height of the crop.
        flip: Flip left and right with probability 1/2.
        dtype: "uint8"; or "bfloat16" or "float32", with the same whole numbers from 0 to 255, or
            the stored values of images that were stored as float32.
        fast: Decode JPEG faster, but not with TensorFlow's exact pixels.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    dtype: Any = "uint8"
    fast: bool = True

    def __post_init__(self) -> None:
        _settle(self, size=check_image_size(self.size), dtype=check_dtype(self.dtype))
        _settle(
            self,
            scale=_check_range("scale", self.scale, most=1.0),
            ratio=_check_range("ratio", self.ratio),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        return _shape_of(self.size)

    def apply(
        self, data: bytes | memoryview, stored: StoredImage, draw: int, out: NDArray[Any] | None
    ) -> NDArray[Any]:
        """See `ImageTransform.apply`."""
        image = open_image(data, stored, fast=self.fast)
        crop = draw_crop(draw, image.height, image.width, scale=self.scale, ratio=self.ratio)
        slot = np.empty(self.shape, self.dtype) if out is None else out
        fill_slot(image, crop, slot, flip=self.flip and draw_flip(draw))
        return slot


@dataclass(frozen=True)
class EvalImage:
    """A centered crop at one size, for evaluation.

    Equals resizing the shorter side to `resize` and cutting out the middle, with a single resize.
    If the image is too small for that (a wide `size` of a square image), it is the largest centered
    crop with the aspect ratio of `size`.

    Args:
        size: Result size in pixels: one number for a square, or (height, width).
        resize: Length of the shorter side after resizing; None for 256 / 224 of the shorter side
            of `size`.
        dtype: "uint8"; or "bfloat16" or "float32", with the same whole numbers from 0 to 255, or
            the stored values of images that were stored as float32.
        fast: Decode JPEG as `TrainImage(fast=True)` does, not with TensorFlow's exact pixels.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int]
    resize: int | None = None
    dtype: Any = "uint8"
    fast: bool = False

    def __post_init__(self) -> None:
        _settle(self, size=check_image_size(self.size), dtype=check_dtype(self.dtype))
        if self.resize is None:
            _settle(self, resize=round(min(self.shape[:2]) * _RESIZE_PART))
        elif not _is_length(self.resize):
            raise UsageError(
                f"resize must be a number of pixels from 1 to {_MAX_SIDE}, got {self.resize!r}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        return _shape_of(self.size)

    def apply(
        self,
        data: bytes | memoryview,
        stored: StoredImage,
        draw: int,  # noqa: ARG002
        out: NDArray[Any] | None,
    ) -> NDArray[Any]:
        """See `ImageTransform.apply`."""
        image = open_image(data, stored, fast=self.fast)
        crop = evaluation_crop(
            image.height, image.width, size=self.shape[:2], resize=self.resize or 0
        )
        slot = np.empty(self.shape, self.dtype) if out is None else out
        fill_slot(image, crop, slot)
        return slot


@dataclass(frozen=True)
class DecodedImage:
    """The whole image, decoded with TensorFlow's exact pixels.

    Args:
        size: Result size in pixels, whatever the aspect ratio: one number for a square, or
            (height, width). None keeps the stored size.
        dtype: "uint8"; or "bfloat16" or "float32", with the same whole numbers from 0 to 255, or
            the stored values of images that were stored as float32.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int] | None = None
    dtype: Any = "uint8"

    def __post_init__(self) -> None:
        _settle(
            self,
            size=None if self.size is None else check_image_size(self.size),
            dtype=check_dtype(self.dtype),
        )

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        return (None, None, 3) if self.size is None else _shape_of(self.size)

    def apply(
        self,
        data: bytes | memoryview,
        stored: StoredImage,
        draw: int,  # noqa: ARG002
        out: NDArray[Any] | None,
    ) -> NDArray[Any]:
        """See `ImageTransform.apply`. Without `size`, `out` must have the image's own size."""
        image = open_image(data, stored, fast=False)
        shape = (image.height, image.width, 3) if self.size is None else _shape_of(self.size)
        slot = np.empty(shape, self.dtype) if out is None else out
        fill_slot(image, Crop(0, 0, image.height, image.width), slot)
        return slot


def check_image_size(size: object) -> tuple[int, int]:
    """Return (height, width) from one number or a pair.

    Raises:
        UsageError: The value is neither, or out of range.
    """
    pair = (size, size) if isinstance(size, int) else size
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(map(_is_length, pair)):
        return int(pair[0]), int(pair[1])
    raise UsageError(
        f"size must be a number of pixels from 1 to {_MAX_SIDE}, or a pair (height, width), "
        f"got {size!r}"
    )


def check_dtype(dtype: object) -> np.dtype[Any]:
    """Return the NumPy dtype for a name.

    Raises:
        UsageError: Images do not have this dtype, or ml_dtypes (for bfloat16) is not installed.
    """
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype)
    if name not in _DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    return np.dtype(load_library("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_SIDE


def _check_range(
    name: str, pair: tuple[float, float], most: float = float("inf")
) -> tuple[float, float]:
    try:
        low, high = map(float, pair)
    except (TypeError, ValueError):
        low = high = float("nan")
    if 0 < low <= high <= most and high < float("inf"):
        return low, high
    upto = "" if most == float("inf") else f" and at most {most:g}"
    raise UsageError(
        f"{name} must be a pair (minimum, maximum) of numbers above 0{upto}, got {pair!r}"
    )


def _shape_of(size: int | tuple[int, int]) -> tuple[int, int, int]:
    return (size, size, 3) if isinstance(size, int) else (*size, 3)


def _settle(spec: object, **values: object) -> None:
    """Set fields of a frozen dataclass to their checked values."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)
