"""The options of `build` and `plan` about images: what `--help` says, and the EncodeOptions that they make."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import get_args

from shardwright.errors import UsageError
from transforms.images import CHECKS, EncodeOptions, ImagePolicy, PolicyFault, policy_table
from transforms.images.options import ColorProfile, Encode, Fit, TensorType
from transforms.images.policy import Action

_POLICY = f"""\
--on FAULT=keep|fix|reject says what is done about images that are not as a training set wants them. With --encode keep, `fix` encodes
that image alone anew: a JPEG as JPEG, all else as PNG. What an encoding cannot hold is fixed by default, and so is exif wherever images
are encoded anew. Fixes are counted in the report. TensorFlow decodes no WebP with alpha or animation, and few BMPs: these are rejects
unless a fault of theirs is fixed.
{policy_table()}"""


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """The groups "images" and "image policy"."""
    group = parser.add_argument_group("images")
    add = group.add_argument
    add(
        "--encode",
        choices=get_args(Encode),
        default="keep",
        help="keep the files' bytes (default), or encode anew; raw is uint8 RGB, tensor a serialized TensorProto for tf.io.parse_tensor",
    )
    add(
        "--resize",
        metavar="WxH",
        help="resize to exactly this; needs --encode jpeg, png, raw or tensor",
    )
    add(
        "--fit",
        choices=get_args(Fit),
        default="stretch",
        help="of another aspect ratio: stretch distorts (default), cover crops the middle, contain fills up with black",
    )
    add(
        "--max-side",
        type=int,
        metavar="N",
        help="scale down images with a longer side than N pixels; never up",
    )
    add("--quality", type=int, default=90, help="of --encode jpeg, 1 to 100 (default: 90)")
    add("--grayscale", action="store_true", help="store one channel of brightness")
    add(
        "--tensor-dtype",
        choices=get_args(TensorType),
        default="uint8",
        help="of --encode tensor: 0 to 255 (default), or 0 to 1",
    )
    add(
        "--strip-metadata",
        action="store_true",
        help="cut EXIF, GPS, XMP, comments and thumbnails out of the bytes, pixels untouched; the orientation becomes a feature, "
        "unless --on exif=fix applies it",
    )
    add(
        "--color-profile",
        choices=get_args(ColorProfile),
        help="leave colour profiles in (default with --encode keep), take them out (default else), or convert pixels to sRGB",
    )
    add(
        "--check",
        choices=CHECKS,
        default="header",
        help="look at header and end of file (default), decode in full, or neither",
    )
    add(
        "--max-reject-fraction",
        type=float,
        default=0.01,
        metavar="F",
        help="of inputs that may be rejects, 0 to 1 (default: 0.01)",
    )
    _add_policy_options(parser)


def _add_policy_options(parser: argparse.ArgumentParser) -> None:
    usual = ImagePolicy()
    group = parser.add_argument_group("image policy", _POLICY)
    group.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="FAULT=ACTION",
        help="such as exif=fix; may be repeated",
    )
    group.add_argument(
        "--max-pixels",
        type=int,
        default=usual.max_pixels,
        metavar="N",
        help=f"of one image; at most, and by default, {usual.max_pixels:,}",
    )
    group.add_argument(
        "--max-aspect",
        type=float,
        metavar="R",
        help="of the longer side to the shorter one (default: any)",
    )
    group.add_argument(
        "--min-side", type=int, metavar="N", help="pixels of the shorter side (default: any)"
    )


def parse_encode_options(known: argparse.Namespace) -> EncodeOptions:
    """Raises UsageError for a value that breaks its rule, or values that do not go together."""
    resize = None if known.resize is None else _parse_resize(known.resize)
    actions = _parse_actions(known.on)
    try:
        return EncodeOptions(
            encode=known.encode,
            resize=resize,
            quality=known.quality,
            fit=known.fit,
            max_side=known.max_side,
            grayscale=known.grayscale,
            tensor_dtype=known.tensor_dtype,
            policy=ImagePolicy(actions, known.max_pixels, known.max_aspect, known.min_side),
            strip_metadata=known.strip_metadata,
            color_profile=known.color_profile,
        )
    except ValueError as error:
        raise UsageError(f"--{error}") from error  # its messages begin with the option's name


def _parse_resize(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text.lower())
    if not match:
        raise UsageError(
            f"--resize {text!r} is no size; write width x height in pixels, such as 224x224"
        )
    return int(match[1]), int(match[2])


def _parse_actions(texts: Sequence[str]) -> dict[PolicyFault, Action]:
    actions: dict[PolicyFault, Action] = {}
    for text in texts:
        fault, _, action = text.partition("=")
        if fault not in list(PolicyFault) or action not in get_args(Action):
            rule = f"write FAULT=ACTION; faults: {', '.join(PolicyFault)}; actions: {', '.join(get_args(Action))}"
            raise UsageError(f"--on {text!r}: {rule}")
        if actions.setdefault(PolicyFault(fault), action) != action:  # type: ignore[arg-type]
            raise UsageError(
                f"--on {fault} is given as {actions[PolicyFault(fault)]} and as {action}: choose one"
            )
    return actions
