"""Images with the faults of the policy, made in memory: every kind in every format that can have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from PIL import Image

from tests.image_corpus import ANIMATED_GIF, BMP, FRAMES, JPEG, PNG, WEBP
from tests.image_makers import chunk, exif_block, picture, png, saved
from tests.odd_images import gif
from transforms.images import ImagePolicy, PolicyFault

# With these limits the usual picture of 61 x 47 pixels has no fault.
LIMITS = {"max_pixels": 5000, "max_aspect": 4.0, "min_side": 20}


class Faulty(NamedTuple):
    """A file, the fault it has, and its name."""

    fault: PolicyFault
    name: str
    data: bytes


def faulty_images() -> list[Faulty]:
    """At least two of each fault; some have others beside it."""
    made = [
        Faulty(PolicyFault(fault), name, data)
        for fault, name, data in (*_of_colours(), *_of_sizes(), *_of_names())
    ]
    assert {image.fault for image in made} == set(PolicyFault)
    return made


def _of_colours() -> Iterable[tuple[str, str, bytes]]:
    for orientation in range(2, 9):
        yield (
            "exif",
            f"turned-{orientation}.jpg",
            saved(picture(), "JPEG", exif=exif_block(orientation)),
        )
    yield "exif", "turned.png", saved(picture(), "PNG", exif=exif_block(6))
    yield "exif", "turned.webp", saved(picture(), "WEBP", exif=exif_block(8, order="<"))
    yield "exif", "turned-gray.jpg", saved(picture("L"), "JPEG", exif=exif_block(5))
    yield "exif", "turned-palette.png", saved(picture("P"), "PNG", exif=exif_block(3))
    yield "cmyk", "cmyk.jpg", saved(picture("CMYK"), "JPEG")
    plain_inks = saved(picture("CMYK"), "JPEG")
    mark = plain_inks.index(b"\xff\xee")
    yield "cmyk", "cmyk-without-adobe.jpg", plain_inks[:mark] + plain_inks[mark + 16 :]
    yield "cmyk", "ycck.jpg", plain_inks[: mark + 15] + b"\2" + plain_inks[mark + 16 :]
    for color, name in ((0, "gray"), (2, "rgb"), (4, "gray-alpha"), (6, "rgb-alpha")):
        yield "16bit", f"16bit-{name}.png", png((30, 25), depth=16, color=color)
    yield (
        "16bit",
        "16bit-gray-transparent.png",
        png((30, 25), depth=16, before=chunk(b"tRNS", b"\x5a\x5a")),
    )
    yield "palette", "palette.png", saved(picture("P"), "PNG")
    yield "palette", "palette-transparent.png", saved(picture("P"), "PNG", transparency=3)
    yield "palette", "palette.bmp", saved(picture("P"), "BMP")
    yield "palette", "one-bit.bmp", saved(picture("1"), "BMP")
    for mode in ("LA", "RGBA"):
        yield "alpha", f"alpha-{mode}.png", saved(picture(mode), "PNG")
    yield "alpha", "colour-key-L.png", saved(picture("L"), "PNG", transparency=3)
    yield "alpha", "colour-key-1.png", saved(picture("1"), "PNG", transparency=0)
    yield "alpha", "colour-key-RGB.png", saved(picture(), "PNG", transparency=(0, 0, 0))
    yield "alpha", "colour-key.gif", gif([(picture("P"), (0, 0), 7)], background=3)
    yield "alpha", "alpha.webp", saved(picture("RGBA"), "WEBP")
    yield "alpha", "alpha-lossless.webp", saved(picture("RGBA"), "WEBP", lossless=True)
    yield "grayscale", "gray.jpg", saved(picture("L"), "JPEG")
    yield "grayscale", "gray.png", saved(picture("L"), "PNG")
    yield "grayscale", "gray-alpha.png", saved(picture("LA"), "PNG")
    yield "grayscale", "gray-16bit.png", saved(picture("I;16"), "PNG")
    yield "grayscale", "gray-key.png", saved(picture("L"), "PNG", transparency=3)
    yield "grayscale", "one-bit.png", saved(picture("1"), "PNG")
    yield "grayscale", "gray.bmp", saved(picture("L"), "BMP")
    frames = {"save_all": True, "append_images": FRAMES[1:], "duration": 50}
    yield "animation", "frames.gif", ANIMATED_GIF
    yield "animation", "frames-no-trailer.gif", ANIMATED_GIF[:-1]
    yield (
        "animation",
        "frames.png",
        saved(picture(), "PNG", save_all=True, append_images=FRAMES[1:]),
    )
    yield "animation", "frames.webp", saved(FRAMES[0], "WEBP", **frames)
    yield "animation", "frames-alpha.webp", saved(picture("RGBA"), "WEBP", **frames)


def _of_sizes() -> Iterable[tuple[str, str, bytes]]:
    large, long, tall, small = (
        picture(size=size) for size in ((90, 60), (130, 25), (21, 100), (70, 12))
    )
    for name, image_format in (
        ("jpg", "JPEG"),
        ("png", "PNG"),
        ("gif", "GIF"),
        ("webp", "WEBP"),
        ("bmp", "BMP"),
    ):
        yield "bomb", f"large.{name}", saved(large, image_format)
        yield "aspect", f"long.{name}", saved(long, image_format)
        yield "aspect", f"tall.{name}", saved(tall, image_format)
        yield "small", f"small.{name}", saved(small, image_format)
    yield "small", "small-palette.png", saved(small.convert("P"), "PNG")
    yield "bomb", "large-turned.jpg", saved(large, "JPEG", exif=exif_block(6))
    yield "aspect", "long-turned.jpg", saved(long, "JPEG", exif=exif_block(8))
    yield "small", "dot.png", png((1, 1))


def _of_names() -> Iterable[tuple[str, str, bytes]]:
    yield "extension", "jpeg-called.png", JPEG
    yield "extension", "png-called.JPG", PNG
    yield "extension", "alpha-called.jpeg", saved(picture("RGBA"), "PNG")
    yield "extension", "webp-called.jpg", WEBP
    yield "extension", "bmp-called.png", BMP
    yield "extension", "gif-called.png", saved(Image.new("RGB", (30, 25), "red"), "GIF")


def policy_of(action: str, *faults: PolicyFault) -> ImagePolicy:
    """These faults, or all, get this action; none else is looked for."""
    actions = dict.fromkeys(PolicyFault, "keep") | dict.fromkeys(faults or PolicyFault, action)
    return ImagePolicy(actions, **LIMITS)  # type: ignore[arg-type]
