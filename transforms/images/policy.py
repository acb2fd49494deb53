"""Define the image policy: faults of images, and the action for each: keep, fix or reject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from shardwright.errors import UsageError
from shardwright.images.formats.kinds import MAX_PIXELS
from shardwright.transforms.options import OptionGroup, check_values

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


def policy_table() -> str:
    """Return a table of the faults, their default actions with `--encode keep`, and their fixes."""
    lines = [
        f"  {fault:<10} {_DEFAULTS.get(fault, 'keep'):<7} {what:<42} {fix}"
        for fault, (what, fix) in MEANINGS.items()
    ]
    return "\n".join([f"  {'FAULT':<10} {'default':<7} {'what it is':<42} what fix does", *lines])


def _parse_actions(texts: Sequence[str]) -> dict[PolicyFault, Action]:
    actions: dict[PolicyFault, Action] = {}
    for text in texts:
        fault, _, action = text.partition("=")
        if fault not in list(PolicyFault) or action not in get_args(Action):
            rule = (
                f"expected FAULT=ACTION; faults: {', '.join(PolicyFault)}; actions: "
                f"{', '.join(get_args(Action))}"
            )
            raise UsageError(f"--on {text!r}: {rule}")
        if actions.setdefault(PolicyFault(fault), action) != action:  # type: ignore[arg-type]
            raise UsageError(
                f"--on {fault} is both {actions[PolicyFault(fault)]} and {action}: choose one"
            )
    return actions


_RULES = f"""\
--on FAULT=keep|fix|reject sets what happens to images that a training set should not have. With
--encode keep, `fix` re-encodes only such images: JPEG as JPEG, all others as PNG. By default,
faults that --encode cannot store are fixed, and so is exif if images are re-encoded. The report
counts fixes. TensorFlow cannot decode WebP with alpha or animation, nor most BMPs: these are
rejected unless one of their faults is fixed.
{policy_table()}"""
_GROUP = OptionGroup("image policy", _RULES)


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """The actions for faults of images, and their limits.

    Attributes:
        actions: Non-default actions.

    Raises:
        ValueError: A value breaks its rule, or the values do not go together.
    """

    actions: Mapping[PolicyFault, Action] = _GROUP.option(
        dict,
        "such as exif=fix; may be repeated",
        name="on",
        action="append",
        metavar="FAULT=ACTION",
        parse=_parse_actions,
    )
    # The limit of pixels counts whatever the action.
    max_pixels: int = _GROUP.option(
        MAX_PIXELS,
        f"limit for bomb: width times height (default and maximum: {MAX_PIXELS:,})",
        type=int,
        metavar="N",
    )
    max_aspect: float | None = _GROUP.option(
        None,
        "limit for aspect: longer side divided by shorter side (default: none)",
        rule=("at least 1, the longer side over the shorter one", lambda ratio: ratio >= 1),
        type=float,
        metavar="R",
    )
    min_side: int | None = _GROUP.option(
        None,
        "limit for small: pixels of the shorter side (default: none)",
        rule=("at least 1 pixel", lambda side: side >= 1),
        type=int,
        metavar="N",
    )

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
        check_values(self)
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
        fixed = forced if encode == "keep" else forced | {PolicyFault.EXIF}
        usual: dict[PolicyFault, Action] = {**_DEFAULTS, **dict.fromkeys(fixed, "fix")}
        return {fault: self.actions.get(fault) or usual.get(fault, "keep") for fault in PolicyFault}

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
