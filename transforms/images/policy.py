"""Define the image policy: faults of images, and the action for each: keep, fix or reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, get_args

from shardwright.images.formats import MAX_PIXELS

Action = Literal["keep", "fix", "reject"]


class PolicyFault(StrEnum):
    """A property that a training set may not want; its value is its name in `--on` and reports."""

    EXIF = "exif"
    CMYK = "cmyk"
    DEEP = "16bit"
    PALETTE = "palette"
    ALPHA = "alpha"
    GRAYSCALE = "grayscale"
    ANIMATION = "animation"
    BOMB = "bomb"
    ASPECT = "aspect"
    SMALL = "small"
    EXTENSION = "extension"


# Fault -> (what it is, what `fix` does); also the table in `build --help`.
MEANINGS: Mapping[PolicyFault, tuple[str, str]] = {
    PolicyFault.EXIF: ("EXIF says it is turned or mirrored", "turn it upright"),
    PolicyFault.CMYK: ("a JPEG in printing inks (CMYK, YCCK)", "make it RGB"),
    PolicyFault.DEEP: ("a PNG of 16 bits a sample", "keep the upper 8"),
    PolicyFault.PALETTE: ("a PNG or BMP with a palette", "make it RGB"),
    PolicyFault.ALPHA: ("transparency, or a channel for it", "show it on white"),
    PolicyFault.GRAYSCALE: ("one channel for brightness", "make it RGB"),
    PolicyFault.ANIMATION: ("more than one frame", "take the first"),
    PolicyFault.BOMB: ("more pixels than --max-pixels", "scale it down"),
    PolicyFault.ASPECT: ("longer than --max-aspect times its width", "crop its middle"),
    PolicyFault.SMALL: ("a side below --min-side", "scale it up"),
    PolicyFault.EXTENSION: ("its name says another format", "store as named"),
}
_DEFAULTS: Mapping[PolicyFault, Action] = dict.fromkeys(
    (PolicyFault.BOMB, PolicyFault.ASPECT, PolicyFault.SMALL), "reject"
)
_FLAT = frozenset(
    {
        PolicyFault.CMYK,
        PolicyFault.DEEP,
        PolicyFault.PALETTE,
        PolicyFault.ALPHA,
        PolicyFault.ANIMATION,
    }
)
# Faults that an encoding cannot hold, and so are fixed unless rejected.
_FORCED: Mapping[str, frozenset[PolicyFault]] = {
    "keep": frozenset(),
    "png": frozenset({PolicyFault.CMYK, PolicyFault.ANIMATION}),
    "jpeg": _FLAT,
    "raw": _FLAT | {PolicyFault.GRAYSCALE},
    "tensor": _FLAT | {PolicyFault.GRAYSCALE},
}


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """The actions for faults of images, and their limits.

    Attributes:
        actions: Non-default actions.
        max_pixels: Width times height of the largest image, at most `MAX_PIXELS`, whatever the
            action.
        max_aspect: The longer side over the shorter one, at least 1; None for any.
        min_side: Pixels of the shorter side, at least 1; None for any.

    Raises:
        ValueError: A value breaks its rule, or the values do not go together.
    """

    actions: Mapping[PolicyFault, Action] = field(default_factory=dict)
    max_pixels: int = MAX_PIXELS
    max_aspect: float | None = None
    min_side: int | None = None

    def __post_init__(self) -> None:
        for fault, action in self.actions.items():
            if fault not in list(PolicyFault):
                raise ValueError(f"on {fault}={action}: the faults are {', '.join(PolicyFault)}")
            if action not in get_args(Action):
                raise ValueError(
                    f"on {fault}={action}: the actions are {', '.join(get_args(Action))}"
                )
        if not 1 <= self.max_pixels <= MAX_PIXELS:
            raise ValueError(
                f"max-pixels must be from 1 to {MAX_PIXELS:,}, got {self.max_pixels:,}"
            )
        if self.max_aspect is not None and not self.max_aspect >= 1:
            raise ValueError(
                "max-aspect must be at least 1, the longer side over the shorter one, "
                f"got {self.max_aspect:g}"
            )
        if self.min_side is not None and self.min_side < 1:
            raise ValueError(f"min-side must be at least 1 pixel, got {self.min_side}")
        for fault, limit, option in (
            (PolicyFault.ASPECT, self.max_aspect, "--max-aspect"),
            (PolicyFault.SMALL, self.min_side, "--min-side"),
        ):
            if self.actions.get(fault, "keep") != "keep" and limit is None:
                raise ValueError(f"on {fault}={self.actions[fault]} needs a limit: give {option}")

    def resolve(self, encode: str, *, grayscale: bool = False) -> dict[PolicyFault, Action]:
        """Return every fault's action for images that are stored as `encode`.

        Raises:
            ValueError: The encoding cannot follow an action.
        """
        forced = _FORCED[encode]
        if grayscale:
            forced = forced - {PolicyFault.GRAYSCALE} | {PolicyFault.PALETTE, PolicyFault.ALPHA}
        for fault in forced:
            if self.actions.get(fault) == "keep":
                raise ValueError(
                    f"on {fault}=keep: encode '{encode}' cannot hold that; choose fix or reject"
                )
        if grayscale and self.actions.get(PolicyFault.GRAYSCALE) == "fix":
            raise ValueError(
                "on grayscale=fix makes gray images RGB, and grayscale makes all images gray: "
                "choose one"
            )
        if encode != "keep" and self.actions.get(PolicyFault.EXTENSION) == "fix":
            raise ValueError(
                "on extension=fix stores a file as its name says, "
                f"and encode '{encode}' stores all alike: choose one"
            )
        usual: dict[PolicyFault, Action] = dict.fromkeys(
            forced | (frozenset() if encode == "keep" else {PolicyFault.EXIF}), "fix"
        )
        return {
            fault: self.actions.get(fault) or usual.get(fault) or _DEFAULTS.get(fault, "keep")
            for fault in PolicyFault
        }

    def to_json(self) -> dict[str, Any]:
        """Return the non-default values."""
        record: dict[str, Any] = {}
        if self.actions:
            record["on"] = {str(fault): action for fault, action in sorted(self.actions.items())}
        if self.max_pixels != MAX_PIXELS:
            record["max_pixels"] = self.max_pixels
        return record | {
            name: value
            for name in ("max_aspect", "min_side")
            if (value := getattr(self, name)) is not None
        }


def policy_table() -> str:
    """Return a table of the faults, their default actions with `--encode keep`, and their fixes."""
    lines = [
        f"  {fault:<10} {_DEFAULTS.get(fault, 'keep'):<7} {what:<42} {fix}"
        for fault, (what, fix) in MEANINGS.items()
    ]
    return "\n".join([f"  {'FAULT':<10} {'default':<7} {'what it is':<42} what fix does", *lines])
