"""EncodeOptions: every setting that decides the bytes of a stored image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from shardwright.images.formats import MAX_PIXELS
from transforms.images.policy import Action, ImagePolicy, PolicyFault

Encode = Literal["keep", "jpeg", "png", "raw", "tensor"]
Fit = Literal["cover", "contain", "stretch"]
TensorType = Literal["uint8", "float32"]
ColorProfile = Literal["keep", "drop", "srgb"]

MAX_JPEG_SIDE = 65_500  # libjpeg's limit; the other encodings allow at least as much
_CHOICES = {"encode": Encode, "fit": Fit, "tensor_dtype": TensorType, "color_profile": ColorProfile}
_BARE = ("raw", "tensor")


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """Options that decide how images are stored.

    Attributes:
        encode: 'keep' stores the bytes of the file, 'jpeg' and 'png' re-encode, 'raw' stores bare
            pixels, 'tensor' a serialized TensorProto of them, [height, width, channels].
        resize: (width, height) in pixels of every stored image; None for no change.
        quality: JPEG quality, 1 to 100. The loss at 90 is invisible at training sizes, at about
            half the bytes of 95.
        fit: 'cover' scales an image of another aspect ratio to cover `resize` and crops the middle,
            'contain' scales it to fit in and pads with black (as `tf.image.resize_with_pad`),
            'stretch' distorts it.
        max_side: Without `resize`, the longer side is scaled down to at most this many pixels;
            None for no limit.
        grayscale: Store every image with one channel of brightness.
        tensor_dtype: For 'tensor': 'uint8', 0 to 255, or 'float32', 0 to 1, as from
            `tf.image.convert_image_dtype`.
        policy: The actions for images with faults.
        strip_metadata: With 'keep', cut EXIF, XMP, comments, thumbnails and all else but pixels
            out of the bytes. Re-encoded images never carry any.
        color_profile: 'keep' keeps ICC profiles, 'drop' cuts them out, pixels untouched, and
            'srgb' converts images with another one. None: 'keep' with `encode` 'keep', else 'drop'.
        actions: Every fault's action; follows from `policy` and `encode`.
        watched: The faults to look for in each image; follows from `actions`.

    Raises:
        ValueError: A value breaks its rule, or the values do not go together.
    """

    encode: Encode = "keep"
    resize: tuple[int, int] | None = None
    quality: int = 90
    fit: Fit = "stretch"
    max_side: int | None = None
    grayscale: bool = False
    tensor_dtype: TensorType = "uint8"
    policy: ImagePolicy = field(default_factory=ImagePolicy)
    strip_metadata: bool = False
    color_profile: ColorProfile | None = None
    actions: Mapping[PolicyFault, Action] = field(init=False, repr=False, compare=False)
    watched: tuple[PolicyFault, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_values()
        self._check_together()
        actions = self.policy.resolve(self.encode, grayscale=self.grayscale)
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
        for name, kind in _CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(kind) and not (name == "color_profile" and value is None):
                raise ValueError(
                    f"{name.replace('_', '-')} must be one of {', '.join(get_args(kind))}, "
                    f"got {value!r}"
                )
        if type(self.quality) is not int or not 1 <= self.quality <= 100:
            raise ValueError(
                f"quality must be a whole number from 1 to 100, got {self.quality!r}: "
                "90 is the default"
            )
        if self.resize is not None:
            _check_resize(self.resize)
        if self.max_side is not None and (
            type(self.max_side) is not int or not 1 <= self.max_side <= MAX_JPEG_SIDE
        ):
            raise ValueError(
                f"max-side must be a whole number of pixels from 1 to {MAX_JPEG_SIDE:,}, "
                f"got {self.max_side!r}"
            )

    def _check_together(self) -> None:
        if self.encode == "keep":
            size = "x".join(map(str, self.resize or ()))
            for given, what in (
                (size, f"resize {size}"),
                (self.max_side, f"max-side {self.max_side}"),
                (self.grayscale, "grayscale"),
            ):
                if given:
                    raise ValueError(
                        f"encode 'keep' stores files unchanged, got {what}: "
                        "choose jpeg, png, raw or tensor"
                    )
        if self.encode == "raw" and self.resize is None:
            raise ValueError(
                "encode 'raw' needs one shape for all images, got no resize: give a width and "
                "height, or choose tensor"
            )
        if self.resize is None and self.fit != "stretch":
            raise ValueError(f"fit {self.fit!r} needs resize, got none: give a width and height")
        if self.resize and self.max_side:
            raise ValueError(
                "resize gives all images one size, max-side a maximum: choose one of the two"
            )
        if self.encode in _BARE and self.color_profile == "keep":
            raise ValueError(
                f"color-profile keep: encode {self.encode!r} cannot hold a profile; "
                "choose drop or srgb"
            )
        if self.tensor_dtype != "uint8" and self.encode != "tensor":
            raise ValueError(
                f"tensor-dtype {self.tensor_dtype} needs encode 'tensor', got {self.encode!r}"
            )
        if self.max_side and (self.policy.min_side or 0) > self.max_side:
            raise ValueError(
                f"min-side {self.policy.min_side} is above max-side {self.max_side}: "
                "no image has both"
            )

    @property
    def profile(self) -> ColorProfile:
        """The action for color profiles."""
        return self.color_profile or ("keep" if self.encode == "keep" else "drop")

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
        return (
            self.encode != "keep"
            or self.profile == "srgb"
            or "fix" in (self.actions[fault] for fault in self.watched)
        )

    @property
    def shape(self) -> tuple[int | None, ...]:
        """(height, width, channels) of all images, None where they differ; () if unknown."""
        channels = 1 if self.grayscale else 3
        if self.resize:
            return (self.resize[1], self.resize[0], channels)
        return (None, None, channels) if self.encode == "tensor" else ()

    @property
    def image_dtype(self) -> str:
        """The NumPy dtype of the numbers in a tensor; "" is uint8, as of all other images."""
        return self.tensor_dtype if self.tensor_dtype != "uint8" else ""

    def to_json(self) -> dict[str, Any]:
        """Return the settings that decide bytes.

        Settings added after the first datasets are left out at their default, so that the JSON of
        older datasets stays the same.
        """
        record: dict[str, Any] = {
            "encode": self.encode,
            "resize": list(self.resize or []),
            "quality": self.quality,
        }
        usual = EncodeOptions()
        for name in (
            "fit",
            "max_side",
            "grayscale",
            "tensor_dtype",
            "strip_metadata",
            "color_profile",
        ):
            if getattr(self, name) != getattr(usual, name):
                record[name] = getattr(self, name)
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
