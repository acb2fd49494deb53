"""How a reader's images are to come: for training, for evaluation, or whole. What `image=` of a reader takes."""

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
_RESIZE_PART = (
    256 / 224
)  # of evaluation: what He et al. ("Deep Residual Learning") and nearly all since then take
_MAX_SIDE = (
    1 << 14
)  # of a result; more is a slip of the pen, and a batch of it does not fit in memory


@runtime_checkable
class ImageTransform(Protocol):
    """What a reader needs of its `image=` argument. It must be picklable, and hold no state: many threads call it."""

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        """(height, width, channels) of every result; None where images differ."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of every result."""

    @property
    def is_random(self) -> bool:
        """Whether the result depends on the draw."""

    def apply(
        self, data: bytes | memoryview, stored: StoredImage, draw: int, out: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Makes one image.

        Args:
            data: The stored bytes, whole.
            stored: How they are stored.
            draw: 0 to 2**64 - 1: where all randomness of the result comes from.
            out: An array of `shape` and `dtype` to write the result to, or None for a new one.

        Returns:
            `out`, or the new array.

        Raises:
            ImageFault: The bytes do not decode. Then `out` may have been written to in part.
        """


@dataclass(frozen=True)
class TrainImage:
    """A random rectangle of the image, resized to one size, and mirrored one time in two: for training.

    The rectangle is drawn as torchvision's RandomResizedCrop does, and resized bilinearly; where it is two or more times as large as
    the result, it is first reduced by 2, 4, 8, ... (see `shardwright.images.decode`). All is drawn from (seed, epoch, record), so a
    run that is resumed sees the same rectangles.

    With `fast`, JPEG comes with colour repeated instead of smoothed where it is stored coarser than brightness, and of large files
    only the coarser coefficients are decoded. Without it, pixels are decoded exactly as `tf.io.decode_image` decodes them. Over
    photographs of 500 x 375 pixels whose colour is stored at half the resolution, decoded at full size, fast pixels differ from those
    of `tf.io` by 1.0 of 255 in the mean and by at most 42, at edges of colour (`benchmarks/decoders.py`).

    Args:
        size: Of the result: a number of pixels for a square, or (height, width).
        scale: Least and greatest part of the image's area.
        ratio: Least and greatest width / height of the rectangle.
        flip: Mirror one time in two.
        dtype: "uint8"; or "bfloat16" or "float32", which hold the same whole numbers from 0 to 255.
        fast: See above.

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

    @property
    def is_random(self) -> bool:
        return True

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
    """The middle of the image, at one size: for evaluation.

    What is left when the shorter side is resized to `resize` and the middle is cut out, done as one cut and one resize. Images that
    do not hold that much (a wide `size` of a square image) give the largest centred rectangle of the same shape.

    Args:
        size: Of the result: a number of pixels for a square, or (height, width).
        resize: Of the shorter side; 256 / 224 of the shorter side of `size` where it is not given.
        dtype: "uint8"; or "bfloat16" or "float32", which hold the same whole numbers from 0 to 255.
        fast: Decode as `TrainImage(fast=True)` does; else exactly as TensorFlow.

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

    @property
    def is_random(self) -> bool:
        return False

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
    """The whole image, decoded exactly as TensorFlow decodes it.

    Args:
        size: Resize to this, whatever the image's shape: a number of pixels for a square, or (height, width). None: as stored.
        dtype: "uint8"; or "bfloat16" or "float32", which hold the same whole numbers from 0 to 255.

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

    @property
    def is_random(self) -> bool:
        return False

    def apply(
        self,
        data: bytes | memoryview,
        stored: StoredImage,
        draw: int,  # noqa: ARG002
        out: NDArray[Any] | None,
    ) -> NDArray[Any]:
        """See `ImageTransform.apply`. Without a `size`, `out` must have the image's own."""
        image = open_image(data, stored, fast=False)
        shape = (image.height, image.width, 3) if self.size is None else _shape_of(self.size)
        slot = np.empty(shape, self.dtype) if out is None else out
        fill_slot(image, Crop(0, 0, image.height, image.width), slot)
        return slot


def check_image_size(size: object) -> tuple[int, int]:
    """(height, width) of a number, or of a pair of numbers.

    Raises:
        UsageError: It is neither, or out of range.
    """
    pair = (size, size) if isinstance(size, int) else size
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(map(_is_length, pair)):
        return int(pair[0]), int(pair[1])
    raise UsageError(
        f"size must be a number of pixels from 1 to {_MAX_SIDE}, or a pair (height, width) of such, got {size!r}"
    )


def check_dtype(dtype: object) -> np.dtype[Any]:
    """The NumPy type of a name.

    Raises:
        UsageError: It is none that images come in, or bfloat16 is not installed.
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
    upto = "" if most == float("inf") else f", up to {most:g}"
    raise UsageError(
        f"{name} must be a pair (least, greatest) of numbers above 0{upto}, got {pair!r}"
    )


def _shape_of(size: int | tuple[int, int]) -> tuple[int, int, int]:
    return (size, size, 3) if isinstance(size, int) else (*size, 3)


def _settle(spec: object, **values: object) -> None:
    """Sets what the checks have made of the fields of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)
