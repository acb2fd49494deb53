"""Image transforms for `image=` of a reader: for training, for evaluation, or decoding only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.boxes import Boxes, boxes_of
from shardwright.images.crops import (
    Crop,
    View,
    draw_crop,
    draw_flip,
    draw_of_crop,
    evaluation_crop,
    inside,
    letterbox,
)
from shardwright.images.decode import OpenedImage, Part, StoredImage, fill_slots, open_image
from shardwright.images.libraries import dtype_name, numpy_dtype

_DTYPES = ("uint8", "bfloat16", "float32", "uint16")
# Of evaluation: the ratio of He et al. ("Deep Residual Learning") and most later work.
_RESIZE_PART = 256 / 224
_LETTERBOX = "letterbox"
_MAX_SIDE = 1 << 14  # of a result: a batch of larger images would not fit in memory


class CropImage:
    """A transform that shows one crop of an image; boxes and masks move with it.

    Picklable and stateless: many threads call it.
    """

    size: Any  # (height, width), once checked, or None
    dtype: Any  # of every result, a NumPy dtype once checked
    fast: bool = False
    flip: bool = False
    boxes: Any = None  # a `Boxes`, once checked
    masks: Any = ()  # a tuple of names, once checked

    def __post_init__(self, *, may_keep_size: bool = False) -> None:
        kept = may_keep_size and self.size is None
        _settle(
            self,
            size=None if kept else check_image_size(self.size),
            dtype=numpy_dtype(dtype_name(self.dtype, _DTYPES)),
            boxes=boxes_of(self.boxes),
            masks=_names_of(self.masks),
        )

    @property
    def shape(self) -> Any:
        """(height, width, channels) of every result; None where results differ."""
        return (*(self.size or (None, None)), 3)

    def _choose(self, height: int, width: int, draw: int) -> tuple[Crop, bool, Crop | None]:  # noqa: ARG002
        """Return the crop of an image of this size, whether it is flipped, and its frame.

        The frame is the rectangle of the result that the crop fills; None for all.
        """
        return Crop(0, 0, height, width), False, None

    def apply(
        self,
        data: bytes | memoryview,
        stored: StoredImage,
        draw: int,
        out: NDArray[Any] | None,
        show: Callable[[View], None] | None = None,
    ) -> NDArray[Any]:
        """Transform one image; return `out`, or a new array.

        Args:
            data: All stored bytes.
            stored: Their storage format.
            draw: The only source of randomness: 0 to 2**64 - 1.
            out: An array of `shape` and `dtype` for the result, or None for a new one. If images
                differ in size, so must `out`.
            show: Called with the part of the image that the result shows, before it is decoded.

        Raises:
            ImageFault: The bytes cannot be decoded. `out` may be partly written.
        """
        image = open_image(data, stored, fast=self.fast, deep=self.dtype != np.uint8)
        out, view = self._view(image, draw, out)
        if show is not None:
            # Before decoding, which takes most of the time: boxes that do not fit make a bad record
            # sooner.
            show(view)
        fill_slots(image, [_part_of(view, out)])
        return out

    def _view(
        self, image: OpenedImage, draw: int, out: NDArray[Any] | None
    ) -> tuple[NDArray[Any], View]:
        """Return `out` or a new array, and the part of an image that `apply` shows in it."""
        height, width = image.height, image.width
        crop, flip, frame = self._choose(height, width, draw)
        if out is None:
            rows, columns, channels = self.shape
            out = np.empty((rows or height, columns or width, channels), self.dtype)
        return out, View((height, width), crop, out.shape[:2], flip, frame)


def _part_of(view: View, out: NDArray[Any]) -> Part:
    if view.frame is None:
        return Part(view.crop, out, view.flip)
    out.fill(0)
    return Part(view.crop, inside(out, view.frame), view.flip)


@dataclass(frozen=True)
class TrainImage(CropImage):
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
        dtype: "uint8"; or "bfloat16" or "float32", with the same numbers from 0 to 255, and with
            fractions of PNGs of 16 bits; or "uint16", 0 to 65,535.
        fast: Decode JPEG faster, but not with TensorFlow's exact pixels.
        boxes: A feature of boxes that move with the image: its name, or `Boxes` to set which are
            kept and their form.
        masks: A feature of masks that move with the image, or several: decoded to [height, width,
            1] in its dtype, cropped and flipped as the image, and resized by the nearest pixel.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    dtype: Any = "uint8"
    fast: bool = True
    boxes: Boxes | str | None = None
    masks: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _settle(
            self,
            scale=_check_range("scale", self.scale, most=1.0),
            ratio=_check_range("ratio", self.ratio),
        )

    def _choose(self, height: int, width: int, draw: int) -> tuple[Crop, bool, Crop | None]:
        crop = draw_crop(draw, height, width, scale=self.scale, ratio=self.ratio)
        return crop, self.flip and draw_flip(draw), None


@dataclass(frozen=True)
class EvalImage(CropImage):
    """A centered crop at one size, or the whole image between black bars, for evaluation.

    Equals resizing the shorter side to `resize` and cutting out the middle, with a single resize.
    If the image is too small for that (a wide `size` of a square image), it is the largest centered
    crop with the aspect ratio of `size`. With `resize="letterbox"` the whole image is resized to
    the largest that fits `size`, with its aspect ratio, and centered; the bars have the value 0.

    Args:
        size: Result size in pixels: one number for a square, or (height, width).
        resize: Length of the shorter side after resizing; None for 256 / 224 of the shorter side
            of `size`; "letterbox" to cut off nothing.
        dtype: "uint8"; or "bfloat16" or "float32", with the same numbers from 0 to 255, and with
            fractions of PNGs of 16 bits; or "uint16", 0 to 65,535.
        fast: Decode JPEG as `TrainImage(fast=True)` does, not with TensorFlow's exact pixels.
        boxes: As for `TrainImage`.
        masks: As for `TrainImage`.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int]
    resize: int | str | None = None
    dtype: Any = "uint8"
    fast: bool = False
    boxes: Boxes | str | None = None
    masks: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is None:
            _settle(self, resize=round(min(self.shape[:2]) * _RESIZE_PART))
        elif self.resize != _LETTERBOX and not _is_length(self.resize):
            raise UsageError(
                f"resize must be a number of pixels from 1 to {_MAX_SIDE}, or {_LETTERBOX!r}, "
                f"got {self.resize!r}"
            )

    def _choose(self, height: int, width: int, draw: int) -> tuple[Crop, bool, Crop | None]:
        if isinstance(self.resize, int):
            size = self.shape[:2]
            return evaluation_crop(height, width, size=size, resize=self.resize), False, None
        crop, flip, _ = super()._choose(height, width, draw)
        return crop, flip, letterbox(height, width, size=self.shape[:2])


@dataclass(frozen=True)
class DecodedImage(CropImage):
    """The whole image, decoded with TensorFlow's exact pixels.

    Args:
        size: Result size in pixels, whatever the aspect ratio: one number for a square, or
            (height, width). None keeps the stored size.
        dtype: "uint8"; or "bfloat16" or "float32", with the same numbers from 0 to 255, and with
            fractions of PNGs of 16 bits; or "uint16", 0 to 65,535.
        boxes: As for `TrainImage`.
        masks: As for `TrainImage`.

    Raises:
        UsageError: A value is out of range.
    """

    size: int | tuple[int, int] | None = None
    dtype: Any = "uint8"
    boxes: Boxes | str | None = None
    masks: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__(may_keep_size=True)


@dataclass(frozen=True, init=False)
class MultiCrop:
    """Several crops of each image, which is decoded once, as DINO and SimCLR train on them.

        views = sw.MultiCrop(*[sw.TrainImage(224, scale=(0.4, 1))] * 2,
                             *[sw.TrainImage(96, scale=(0.05, 0.4))] * 6)

    A batch has the crops of a feature `image` as `image_0`, `image_1` and so on, in this order, and
    no `image`. Each is drawn on its own, and the first as if it were alone.

    Images are decoded with `fast` only if all crops have it, and in the largest size that a crop
    needs. So a large JPEG that one crop needs whole is reduced for the others by averaging pixels.

    Args:
        crops: `TrainImage`, `EvalImage` or `DecodedImage`, without boxes and masks.

    Raises:
        UsageError: There is no crop, or one is of another kind, or has boxes or masks.
    """

    crops: tuple[CropImage, ...]
    boxes: ClassVar[None] = None
    masks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *crops: CropImage) -> None:
        for crop in crops or (None,):
            if not isinstance(crop, CropImage):
                raise UsageError(
                    "MultiCrop needs crops such as sw.TrainImage(224) or sw.EvalImage(224), one or "
                    f"more, got {crop!r}"
                )
            if crop.boxes or crop.masks:
                raise UsageError(
                    f"MultiCrop: {crop} moves boxes or masks, and a batch has one of each, not one "
                    "per crop: leave boxes= and masks= out, or pass the crop itself as image="
                )
        _settle(self, crops=crops)

    def apply(
        self,
        data: bytes | memoryview,
        stored: StoredImage,
        draw: int,
        outs: Sequence[NDArray[Any] | None],
    ) -> list[NDArray[Any]]:
        """Return the crops of one image: see `CropImage.apply`; one of `outs` for each."""
        fast, deep = (
            all(crop.fast for crop in self.crops),
            any(crop.dtype != np.uint8 for crop in self.crops),
        )
        image = open_image(data, stored, fast=fast, deep=deep)
        shown = [
            crop._view(image, draw_of_crop(draw, number), out)
            for number, (crop, out) in enumerate(zip(self.crops, outs, strict=True))
        ]
        fill_slots(image, [_part_of(view, out) for out, view in shown])
        return [out for out, _ in shown]


def images_by_name(name: str, image: CropImage | MultiCrop | None) -> dict[str, CropImage | None]:
    """Return the name and the transform of each array that a batch has of a feature of images."""
    if isinstance(image, MultiCrop):
        return {f"{name}_{number}": crop for number, crop in enumerate(image.crops)}
    return {name: image}


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


def _names_of(names: object) -> tuple[str, ...]:
    known = (names,) if isinstance(names, str) else names
    if isinstance(known, tuple | list) and all(isinstance(name, str) for name in known):
        return tuple(known)
    raise UsageError(f"masks={names!r} must be the name of a feature, or a list of names")


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


def _settle(spec: object, **values: object) -> None:
    """Set fields of a frozen dataclass to their checked values."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)
