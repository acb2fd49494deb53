"""Define the image policy: faults of images, how to find them, and the action for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args

from shardwright.errors import UsageError
from shardwright.images.bmp import bmp_header
from shardwright.images.gif import GRAPHIC_CONTROL, IMAGE, whole_gif_blocks
from shardwright.images.kinds import MAX_PIXELS, Header
from shardwright.images.png import png_header, precedes_pixels
from shardwright.images.webp import is_animated
from shardwright.transforms.images.metadata import orientation_of
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


_EXTENSIONS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "jpeg"),
    **dict.fromkeys(("png", "apng"), "png"),
    **dict.fromkeys(("bmp", "dib"), "bmp"),
    **dict.fromkeys(("tif", "tiff"), "tiff"),
    **dict.fromkeys(("heic", "heif"), "heic"),
    **{name: name for name in ("gif", "webp", "avif", "jp2", "j2k", "ico", "psd", "svg")},
}


class Look(NamedTuple):
    """One image, as the tests for faults need it; `name` is for its extension, "" for none."""

    data: bytes
    header: Header
    name: str
    policy: ImagePolicy


def find_faults(look: Look, watched: Iterable[PolicyFault]) -> dict[PolicyFault, str]:
    """Return those of some faults that an image has, each with what was found, undecoded."""
    found = ((fault, _FAULTS[fault][2](look)) for fault in watched)
    return {fault: text for fault, text in found if text}


def named_format(name: str) -> str:
    """Return the format that a name's extension stands for, "" if unknown."""
    return _EXTENSIONS.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def _exif(look: Look) -> str:
    orientation = orientation_of(look.data, look.header)
    return "" if orientation == 1 else f"EXIF orientation {orientation}"


def _cmyk(look: Look) -> str:
    return "a JPEG of four inks" if look.header.inks else ""


def _deep(look: Look) -> str:
    is_deep = look.header.info.format == "png" and png_header(look.data).depth == 16
    return "16 bits a sample" if is_deep else ""


def _palette(look: Look) -> str:
    data, info = look.data, look.header.info
    if info.format == "png":
        return "a palette" if png_header(data).color == 3 else ""
    if info.format != "bmp":  # a GIF always has one
        return ""
    # A BMP of gray needs none.
    return "a palette" if bmp_header(data).bits <= 8 and info.channels == 3 else ""


def _alpha(look: Look) -> str:
    data, info = look.data, look.header.info
    if info.channels in (2, 4):
        return "an alpha channel"
    if info.format == "png":
        return "a transparent color" if precedes_pixels(data, b"tRNS") else ""
    return "a transparent color" if info.format == "gif" and _gif_is_transparent(data) else ""


def _gif_is_transparent(data: bytes) -> bool:
    """Return whether the first frame is transparent; its graphic control extension precedes it."""
    for start, end in whole_gif_blocks(data):
        if data[start] == IMAGE:
            return False
        if data[start + 1] == GRAPHIC_CONTROL and end > start + 3 and data[start + 3] & 1:
            return True
    return False


def _grayscale(look: Look) -> str:
    return "gray" if look.header.info.channels in (1, 2) else ""


def _animation(look: Look) -> str:
    data, image_format = look.data, look.header.info.format
    if image_format == "gif":
        frames = sum(data[start] == IMAGE for start, _ in whole_gif_blocks(data))
        return f"{frames} frames" if frames > 1 else ""
    if image_format == "webp":
        return "an animation" if is_animated(data) else ""
    return "an animation" if image_format == "png" and precedes_pixels(data, b"acTL") else ""


def _bomb(look: Look) -> str:
    info, limit = look.header.info, look.policy.max_pixels
    return f"{info.size}, above the limit of {limit:,}" if info.width * info.height > limit else ""


def _aspect(look: Look) -> str:
    info, limit = look.header.info, look.policy.max_aspect or 1
    sides = sorted((info.width, info.height))
    return f"{info.size}, an aspect ratio above {limit:g}" if sides[1] > limit * sides[0] else ""


def _small(look: Look) -> str:
    info, limit = look.header.info, look.policy.min_side or 1
    return f"{info.size}, a side below {limit:,}" if min(info.width, info.height) < limit else ""


def _extension(look: Look) -> str:
    said, found = named_format(look.name), look.header.info.format
    return f"the name says {said}, the content is {found}" if said and said != found else ""


# Fault -> (what it is, what `fix` does, what finds it); also the table in `build --help`.
_FAULTS: Mapping[PolicyFault, tuple[str, str, Callable[[Look], str]]] = {
    PolicyFault.EXIF: ("EXIF says it is turned or mirrored", "turn it upright", _exif),
    PolicyFault.CMYK: ("a JPEG in printing inks (CMYK, YCCK)", "make it RGB", _cmyk),
    PolicyFault.DEEP: ("a PNG of 16 bits a sample", "keep the upper 8", _deep),
    PolicyFault.PALETTE: ("a PNG or BMP with a palette", "make it RGB", _palette),
    PolicyFault.ALPHA: ("transparency, or a channel for it", "show it on white", _alpha),
    PolicyFault.GRAYSCALE: ("one channel for brightness", "make it RGB", _grayscale),
    PolicyFault.ANIMATION: ("more than one frame", "take the first", _animation),
    PolicyFault.BOMB: ("more pixels than --max-pixels", "scale it down", _bomb),
    PolicyFault.ASPECT: ("longer than --max-aspect times its width", "crop its middle", _aspect),
    PolicyFault.SMALL: ("a side below --min-side", "scale it up", _small),
    PolicyFault.EXTENSION: ("its name says another format", "store as named", _extension),
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
}


def policy_table() -> str:
    """Return a table of the faults, their default actions with `--encode keep`, and their fixes."""
    lines = [
        f"  {fault:<10} {_DEFAULTS.get(fault, 'keep'):<7} {what:<42} {fix}"
        for fault, (what, fix, _) in _FAULTS.items()
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
faults that --encode cannot store are fixed, and so is exif if images are re-encoded. With boxes,
exif is rejected, because they may be of the turned pixels or of the stored ones. The report
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

    def resolve(
        self, encode: str, *, grayscale: bool = False, has_boxes: bool = False
    ) -> dict[PolicyFault, Action]:
        """Return every fault's action for images that are stored as `encode`.

        Of an image that EXIF turns, nobody knows whether its boxes are of the turned pixels, so
        one that has boxes is rejected unless the user says so.

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
        if has_boxes:
            usual[PolicyFault.EXIF] = "reject"
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
