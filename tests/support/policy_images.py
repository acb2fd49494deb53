"""Images with the faults of the policy, made in memory: every kind in every format that has it."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

from shardwright.transforms.images.policy import ImagePolicy, PolicyFault
from tests.support.image_corpus import (
    ANIMATED,
    ANIMATED_GIF,
    ANIMATED_PNG,
    BMP,
    FRAMES,
    JPEG,
    PNG,
    WEBP,
)
from tests.support.image_makers import chunk, drawn, exif_block, gif, patched, picture, png, saved

# With these limits the usual picture of 61 x 47 pixels has no fault.
LIMITS = {"max_pixels": 5000, "max_aspect": 4.0, "min_side": 20}


class Faulty(NamedTuple):
    """A file, its fault, and its name."""

    fault: PolicyFault
    name: str
    data: bytes


_INKS = drawn("JPEG", "CMYK")
_ADOBE = _INKS.index(b"\xff\xee")
_CLEAR = chunk(b"tRNS", b"\x5a\x5a")
_SIZE = (30, 25)
_LARGE, _LONG, _TALL = (picture(size=size) for size in ((90, 60), (130, 25), (21, 100)))
_LOW = picture(size=(70, 12))
_FORMATS = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "webp": "WEBP", "bmp": "BMP"}.items()

# At least two files of each fault; some have others beside it.
_FILES: dict[str, dict[str, bytes]] = {
    "exif": {
        **{f"turned-{turn}.jpg": drawn("JPEG", exif=exif_block(turn)) for turn in range(2, 9)},
        "turned.png": drawn("PNG", exif=exif_block(6)),
        "turned.webp": drawn("WEBP", exif=exif_block(8, order="<")),
        "turned-gray.jpg": drawn("JPEG", "L", exif=exif_block(5)),
        "turned-palette.png": drawn("PNG", "P", exif=exif_block(3)),
    },
    "cmyk": {
        "cmyk.jpg": _INKS, "ycck.jpg": patched(_INKS, _ADOBE + 15, b"\2"),
        "cmyk-without-adobe.jpg": _INKS[:_ADOBE] + _INKS[_ADOBE + 16 :],
    },
    "16bit": {
        "16bit-gray.png": png(_SIZE, depth=16), "16bit-rgb.png": png(_SIZE, depth=16, color=2),
        "16bit-gray-alpha.png": png(_SIZE, depth=16, color=4),
        "16bit-rgb-alpha.png": png(_SIZE, depth=16, color=6),
        "16bit-gray-transparent.png": png(_SIZE, depth=16, before=_CLEAR),
    },
    "palette": {
        "palette.png": drawn("PNG", "P"), "palette.bmp": drawn("BMP", "P"),
        "one-bit.bmp": drawn("BMP", "1"),
        "palette-transparent.png": drawn("PNG", "P", transparency=3),
    },
    "alpha": {
        "alpha-LA.png": drawn("PNG", "LA"), "alpha-RGBA.png": drawn("PNG", "RGBA"),
        "color-key-L.png": drawn("PNG", "L", transparency=3),
        "color-key-1.png": drawn("PNG", "1", transparency=0),
        "color-key-RGB.png": drawn("PNG", transparency=(0, 0, 0)),
        "color-key.gif": gif([(picture("P"), (0, 0), 7)], background=3),
        "alpha.webp": drawn("WEBP", "RGBA"),
        "alpha-lossless.webp": drawn("WEBP", "RGBA", lossless=True),
    },
    "grayscale": {
        "gray.jpg": drawn("JPEG", "L"), "gray.png": drawn("PNG", "L"),
        "gray.bmp": drawn("BMP", "L"), "gray-alpha.png": drawn("PNG", "LA"),
        "gray-16bit.png": drawn("PNG", "I;16"), "one-bit.png": drawn("PNG", "1"),
        "gray-key.png": drawn("PNG", "L", transparency=3),
    },
    "animation": {
        "frames.gif": ANIMATED_GIF, "frames-no-trailer.gif": ANIMATED_GIF[:-1],
        "frames.png": ANIMATED_PNG, "frames.webp": saved(FRAMES[0], "WEBP", **ANIMATED),
        "frames-alpha.webp": drawn("WEBP", "RGBA", **ANIMATED),
    },
    "bomb": {
        **{f"large.{end}": saved(_LARGE, kind) for end, kind in _FORMATS},
        "large-turned.jpg": saved(_LARGE, "JPEG", exif=exif_block(6)),
    },
    "aspect": {
        **{f"long.{end}": saved(_LONG, kind) for end, kind in _FORMATS},
        **{f"tall.{end}": saved(_TALL, kind) for end, kind in _FORMATS},
        "long-turned.jpg": saved(_LONG, "JPEG", exif=exif_block(8)),
    },
    "small": {
        **{f"small.{end}": saved(_LOW, kind) for end, kind in _FORMATS},
        "small-palette.png": saved(_LOW.convert("P"), "PNG"), "dot.png": png((1, 1)),
    },
    "extension": {
        "jpeg-called.png": JPEG, "png-called.JPG": PNG, "webp-called.jpg": WEBP,
        "bmp-called.png": BMP, "alpha-called.jpeg": drawn("PNG", "RGBA"),
        "gif-called.png": saved(Image.new("RGB", (30, 25), "red"), "GIF"),
    },
}  # fmt: skip
assert list(_FILES) == list(PolicyFault)
FAULTY = {
    name: Faulty(PolicyFault(fault), name, data)
    for fault, files in _FILES.items()
    for name, data in files.items()
}


def policy_of(action: str, *faults: PolicyFault) -> ImagePolicy:
    """Give these faults, or all, this action; no other is looked for."""
    actions = dict.fromkeys(PolicyFault, "keep") | dict.fromkeys(faults or PolicyFault, action)
    return ImagePolicy(actions, **LIMITS)  # type: ignore[arg-type]
