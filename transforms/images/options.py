"""EncodeOptions: every setting that decides the bytes of a stored image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

from shardwright.errors import UsageError
from shardwright.images.jpeg import MAX_JPEG_SIDE
from shardwright.images.kinds import MAX_PIXELS
from shardwright.transforms.images.policy import Action, ImagePolicy, PolicyFault
from shardwright.transforms.options import IMAGES, check_values, option_of

Encode = Literal["keep", "jpeg", "png", "raw"]
Fit = Literal["cover", "contain", "stretch"]


def _parse_resize(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text.lower())
    if not match:
        raise UsageError(f"--resize must be WIDTHxHEIGHT in pixels, such as 224x224, got {text!r}")
    return int(match[1]), int(match[2])


class Overlays(NamedTuple):
    """The features of a schema that lie over its image, and that no step moves with its pixels.

    Attributes:
        boxes: Name of a feature of boxes, in fractions of the image; "" for none.
        outlines: Name of a feature in pixels of the file; "" for none.
    """

    boxes: str = ""
    outlines: str = ""


_SCALED = (PolicyFault.BOMB, PolicyFault.SMALL)


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """Options that decide how images are stored.

    Attributes:
        overlays: The features that lie over the image.
        actions: Every fault's action; follows from `policy`, `encode` and `overlays`.
        watched: The faults to look for in each image; follows from `actions`.

    Raises:
        ValueError: A value breaks its rule, or the values do not go together.
    """

    encode: Encode = IMAGES.option(
        "keep",
        "keep the bytes of the file (default), or re-encode; raw is RGB for tf.io.decode_raw",
        choices=get_args(Encode),
        usual=True,
    )
    # (width, height).
    resize: tuple[int, int] | None = IMAGES.option(
        None,
        "resize to exactly this size in pixels; needs --encode jpeg, png or raw",
        metavar="WxH",
        parse=_parse_resize,
        usual=True,
    )
    # `contain` is `tf.image.resize_with_pad`.
    fit: Fit = IMAGES.option(
        "stretch",
        "resize to another aspect ratio: stretch distorts (default), cover crops the center, "
        "contain pads with black",
        choices=get_args(Fit),
    )
    max_side: int | None = IMAGES.option(
        None,
        "scale images down until the longer side has at most N pixels; never up",
        rule=(
            f"a whole number of pixels from 1 to {MAX_JPEG_SIDE:,}",
            lambda side: type(side) is int and 1 <= side <= MAX_JPEG_SIDE,
        ),
        type=int,
        metavar="N",
    )
    # The loss at 90 is invisible at training sizes, at about half the bytes of 95.
    quality: int = IMAGES.option(90, "JPEG quality, 1 to 100 (default: 90)", type=int)
    grayscale: bool = IMAGES.option(False, "store one channel, brightness")
    strip_metadata: bool = IMAGES.option(
        False,
        "remove EXIF, GPS, XMP, comments and thumbnails, pixels unchanged; the orientation "
        "becomes a feature, unless --on exif=fix applies it",
    )
    policy: ImagePolicy = field(default_factory=ImagePolicy)
    overlays: Overlays = Overlays()
    actions: Mapping[PolicyFault, Action] = field(init=False, repr=False, compare=False)
    watched: tuple[PolicyFault, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_values()
        self._check_together()
        actions = self.policy.resolve(
            self.encode, grayscale=self.grayscale, has_boxes=bool(self.overlays.boxes)
        )
        limited = {
            # Images above MAX_PIXELS are rejected anyway.
            PolicyFault.BOMB: self.policy.max_pixels < MAX_PIXELS,
            PolicyFault.ASPECT: self.policy.max_aspect is not None,
            PolicyFault.SMALL: self.policy.min_side is not None,
        }
        object.__setattr__(self, "actions", actions)
        watched = tuple(
            fault
            for fault, action in actions.items()
            if action != "keep" and limited.get(fault, True)
        )
        object.__setattr__(self, "watched", watched)

    def _check_values(self) -> None:
        check_values(self)
        if type(self.quality) is not int or not 1 <= self.quality <= 100:
            raise ValueError(
                f"quality must be a whole number from 1 to 100, got {self.quality!r}: "
                "90 is the default"
            )
        if self.resize is not None:
            _check_resize(self.resize)

    def _check_together(self) -> None:
        scales = [f"resize {'x'.join(map(str, self.resize))}"] if self.resize else []
        scales += [f"max-side {self.max_side}"] if self.max_side else []
        changes = [*scales, *(["grayscale"] if self.grayscale else [])]
        if self.encode == "keep" and changes:
            raise ValueError(
                f"encode 'keep' stores files unchanged, got {changes[0]}: choose jpeg, png or raw"
            )
        if self.encode == "raw" and self.resize is None:
            raise ValueError(
                "encode 'raw' needs one shape for all images, got no resize: give a width and "
                "height"
            )
        if self.resize is None and self.fit != "stretch":
            raise ValueError(f"fit {self.fit!r} needs resize, got none: give a width and height")
        if self.resize and self.max_side:
            raise ValueError(
                "resize gives all images one size, max-side a maximum: choose one of the two"
            )
        self._check_overlays(scales)
        if self.max_side and (self.policy.min_side or 0) > self.max_side:
            raise ValueError(
                f"min-side {self.policy.min_side} is above max-side {self.max_side}: "
                "no image has both"
            )

    def _check_overlays(self, scales: list[str]) -> None:
        boxes, outlines = self.overlays
        fixed = [fault for fault, action in self.policy.actions.items() if action == "fix"]
        crops = [f"fit {self.fit}"] if self.fit != "stretch" else []
        crops += [f"on {fault}=fix" for fault in fixed if fault == PolicyFault.ASPECT]
        if boxes and crops:
            raise ValueError(
                f"{crops[0]} crops or pads images, and the boxes of {boxes!r} would stay where "
                "they are: choose resize with fit stretch, max-side, or a schema without boxes"
            )
        scales = scales + [f"on {fault}=fix" for fault in fixed if fault in _SCALED]
        if outlines and scales:
            raise ValueError(
                f"{scales[0]} scales images, and {outlines!r} is in pixels of the file: choose a "
                "schema without it, such as the ready one called detection"
            )

    @property
    def tells_orientation(self) -> bool:
        """True if the bytes lose an EXIF orientation that pixels need: it becomes a feature."""
        return (
            self.encode == "keep"
            and self.strip_metadata
            and self.actions[PolicyFault.EXIF] == "keep"
        )

    @property
    def decodes(self) -> bool:
        """True if some or all images are decoded, whatever the check."""
        return self.encode != "keep" or "fix" in (self.actions[fault] for fault in self.watched)

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width, channels) of all images; () where they differ."""
        return (*self.resize[::-1], 1 if self.grayscale else 3) if self.resize else ()

    def to_json(self) -> dict[str, Any]:
        """Return the settings that decide bytes, most of them only if they are not the default."""
        record: dict[str, Any] = {
            "encode": self.encode,
            "resize": list(self.resize or []),
            "quality": self.quality,
        }
        for option in filter(None, map(option_of, fields(self))):
            value = getattr(self, option.name)
            if option.name not in record and value != option.default:
                record[option.name] = value
        return record | ({"policy": policy} if (policy := self.policy.to_json()) else {})


def _check_resize(resize: tuple[int, int]) -> None:
    sides = resize if isinstance(resize, tuple) and len(resize) == 2 else ()
    if not sides or not all(type(side) is int and 1 <= side <= MAX_JPEG_SIDE for side in sides):
        rule = (
            "resize must be two whole numbers of pixels (width, height) "
            f"from 1 to {MAX_JPEG_SIDE:,}"
        )
        raise ValueError(f"{rule}, got {resize!r}: give for example (224, 224)")
    if resize[0] * resize[1] > MAX_PIXELS:
        raise ValueError(
            f"resize must have at most {MAX_PIXELS:,} pixels, got {resize!r}: choose a smaller size"
        )
