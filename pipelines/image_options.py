"""The image options of `build` and `plan`, and the EncodeOptions parsed from them."""

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
--on FAULT=keep|fix|reject sets what happens to images that a training set should not have. With
--encode keep, `fix` re-encodes only such images: JPEG as JPEG, all others as PNG. By default,
faults that --encode cannot store are fixed, and so is exif if images are re-encoded. The report
counts fixes. TensorFlow cannot decode WebP with alpha or animation, nor most BMPs: these are
rejected unless one of their faults is fixed.
{policy_table()}"""


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """Add the option groups "images" and "image policy"."""
    group = parser.add_argument_group("images")
    _add_encode_options(group)
    _add_metadata_options(group)
    _add_check_options(group)
    _add_policy_options(parser)


def _add_encode_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--encode",
        choices=get_args(Encode),
        default="keep",
        help="keep the bytes of the file (default), or re-encode; raw is uint8 RGB, tensor a "
        "serialized TensorProto for tf.io.parse_tensor",
    )
    add(
        "--resize",
        metavar="WxH",
        help="resize to exactly this size in pixels; needs --encode jpeg, png, raw or tensor",
    )
    add(
        "--fit",
        choices=get_args(Fit),
        default="stretch",
        help="resize to another aspect ratio: stretch distorts (default), cover crops the center, "
        "contain pads with black",
    )
    add(
        "--max-side",
        type=int,
        metavar="N",
        help="scale images down until the longer side has at most N pixels; never up",
    )
    add("--quality", type=int, default=90, help="JPEG quality, 1 to 100 (default: 90)")
    add("--grayscale", action="store_true", help="store one channel, brightness")
    add(
        "--tensor-dtype",
        choices=get_args(TensorType),
        default="uint8",
        help="type of --encode tensor: uint8, 0 to 255 (default), or float32, 0 to 1",
    )


def _add_metadata_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--strip-metadata",
        action="store_true",
        help="remove EXIF, GPS, XMP, comments and thumbnails, pixels unchanged; the orientation "
        "becomes a feature, unless --on exif=fix applies it",
    )
    group.add_argument(
        "--color-profile",
        choices=get_args(ColorProfile),
        help="keep color profiles (default with --encode keep), drop them (default otherwise), or "
        "convert pixels to sRGB",
    )


def _add_check_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--check",
        choices=CHECKS,
        default="header",
        help="check header and end of file (default), decode every image, or check nothing",
    )
    group.add_argument(
        "--max-reject-fraction",
        type=float,
        default=0.01,
        metavar="F",
        help="fail if more than this fraction of the inputs is rejected, 0 to 1 (default: 0.01)",
    )


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
        help=f"limit for bomb: width times height (default and maximum: {usual.max_pixels:,})",
    )
    group.add_argument(
        "--max-aspect",
        type=float,
        metavar="R",
        help="limit for aspect: longer side divided by shorter side (default: none)",
    )
    group.add_argument(
        "--min-side",
        type=int,
        metavar="N",
        help="limit for small: pixels of the shorter side (default: none)",
    )


def parse_encode_options(known: argparse.Namespace) -> EncodeOptions:
    """Return the encode options of a command line.

    Raises:
        UsageError: A value is invalid, or two options contradict each other.
    """
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
        raise UsageError(f"--{error}") from error  # the message begins with the option's name


def _parse_resize(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text.lower())
    if not match:
        raise UsageError(f"--resize must be WIDTHxHEIGHT in pixels, such as 224x224, got {text!r}")
    return int(match[1]), int(match[2])


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
