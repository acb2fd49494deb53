"""Odd images, made in memory: what each is, and what the checks must say. Nothing here is downloaded or random."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.image_makers import (
    BGR_MASKS,
    GRAY_PALETTE,
    HEIGHT,
    JPEG_12_BITS,
    JPEG_XL,
    LOSSLESS_JPEG,
    PNG_MAGIC,
    WIDTH,
    bmp,
    chunk,
    exif_block,
    gif_with_small_frame,
    picture,
    png,
    riff,
    saved,
    vp8x,
    webp_chunk,
)
from transforms.images import ImageInfo
from transforms.rejects import RejectReason as R

JPEG = saved(picture(), "JPEG", quality=90)
PROGRESSIVE = saved(picture(), "JPEG", quality=90, progressive=True)
SCAN = JPEG.index(b"\xff\xda")
PNG = saved(picture(), "PNG")
GIF = saved(picture(), "GIF")
WEBP = saved(picture(), "WEBP", quality=80)
BMP = saved(picture(), "BMP")
FRAMES = [picture().rotate(90 * turn) for turn in range(3)]
ANIMATED_GIF = saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:], duration=50)


@dataclass(frozen=True)
class Sample:
    """One file. The reasons are of check_image with 'header', with 'decode', and with 'decode' and stored=False."""

    name: str
    data: bytes
    info: ImageInfo | None = None
    header: R | None = None
    decode: R | None = None
    reencode: R | None = None


@cache
def good_samples() -> tuple[Sample, ...]:
    """What every check takes."""
    return tuple(_good_samples())


def _good_samples() -> Iterable[Sample]:
    for name, data, image_format, channels in (*_good_jpegs(), *_good_pngs(), *_good_others()):
        sizes = {"1x1": (1, 1), "7x5": (7, 5), "8x5": (8, 5)}
        size = next((sizes[part] for part in name.split("-") if part in sizes), (WIDTH, HEIGHT))
        yield Sample(name, data, ImageInfo(image_format, *size, channels))


def _good_jpegs() -> Iterable[tuple[str, bytes, str, int]]:
    thumbnail = saved(picture(size=(16, 12)), "JPEG")
    yield from (
        ("jpeg", JPEG, "jpeg", 3),
        ("jpeg-progressive", PROGRESSIVE, "jpeg", 3),
        ("jpeg-gray", saved(picture("L"), "JPEG"), "jpeg", 1),
        ("jpeg-cmyk", saved(picture("CMYK"), "JPEG"), "jpeg", 3),
        ("jpeg-444", saved(picture(), "JPEG", subsampling=0), "jpeg", 3),
        ("jpeg-rgb", saved(picture(), "JPEG", keep_rgb=True), "jpeg", 3),
        ("jpeg-restart-markers", saved(picture(), "JPEG", restart_marker_blocks=2), "jpeg", 3),
        ("jpeg-1x1", saved(picture(size=(1, 1)), "JPEG"), "jpeg", 3),
        ("jpeg-turned", saved(picture(), "JPEG", exif=exif_block(6)), "jpeg", 3),
        (
            "jpeg-thumbnail",
            saved(picture(), "JPEG", exif=exif_block(1, thumbnail=thumbnail)),
            "jpeg",
            3,
        ),
        ("jpeg-trailing-bytes", JPEG + b"SEFT phone data" * 9, "jpeg", 3),
        ("jpeg-trailing-jpeg-cut", JPEG + JPEG[:-40], "jpeg", 3),
        ("jpeg-fill-bytes", JPEG[:2] + b"\xff\xff\xff" + JPEG[2:], "jpeg", 3),
        ("jpeg-stray-bytes", JPEG[:20] + b"abc" + JPEG[20:], "jpeg", 3),
    )


def _good_pngs() -> Iterable[tuple[str, bytes, str, int]]:
    for mode, channels in (
        ("1", 1),
        ("L", 1),
        ("I;16", 1),
        ("LA", 2),
        ("P", 3),
        ("RGB", 3),
        ("RGBA", 4),
    ):
        yield f"png-{mode}", saved(picture(mode), "PNG"), "png", channels
    for color, depth, channels in ((0, 2, 1), (0, 16, 1), (2, 16, 3), (4, 16, 2), (6, 16, 4)):
        yield (
            f"png-7x5-color{color}-{depth}bits",
            png((7, 5), depth=depth, color=color),
            "png",
            channels,
        )
    palette = chunk(b"PLTE", bytes(range(9)))
    rows = (b"\0" + bytes(7)) * 5
    yield from (
        (
            "png-7x5-palette-2bits",
            png((7, 5), depth=2, color=3, before=palette, rows=b"\0\0\0" * 5),
            "png",
            3,
        ),
        ("png-P-transparent", saved(picture("P"), "PNG", transparency=3), "png", 4),
        ("png-L-transparent", saved(picture("L"), "PNG", transparency=3), "png", 1),
        ("png-1x1", png((1, 1)), "png", 1),
        ("png-1x1-interlaced", png((1, 1), interlace=1), "png", 1),
        ("png-7x5-interlaced", png((7, 5), interlace=1, color=2, depth=16), "png", 3),
        ("png-7x5-interlaced-4bits", png((7, 5), interlace=1, depth=4), "png", 1),
        ("png-7x5-extra-rows", png((7, 5), rows=rows * 2), "png", 1),
        ("png-trailing-bytes", PNG + b"junk" * 9, "png", 3),
        (
            "png-animated",
            saved(picture(), "PNG", save_all=True, append_images=FRAMES[1:]),
            "png",
            3,
        ),
        ("png-7x5-wrong-text-crc", png((7, 5), before=chunk(b"tEXt", b"a\0b", damage=1)), "png", 1),
        ("png-7x5-bad-profile", png((7, 5), before=chunk(b"iCCP", b"abc")), "png", 1),
        (
            "png-7x5-text-bomb",
            png((7, 5), before=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(70 << 20)))),
            "png",
            1,
        ),
    )


def _good_others() -> Iterable[tuple[str, bytes, str, int]]:
    upside_down = bytearray(BMP)
    struct.pack_into("<i", upside_down, 22, -HEIGHT)
    vp8 = webp_chunk(WEBP, b"VP8 ")
    lossless = webp_chunk(saved(picture(), "WEBP", lossless=True), b"VP8L")
    yield from (
        ("gif", GIF, "gif", 3),
        ("gif-87a", b"GIF87a" + GIF[6:], "gif", 3),
        ("gif-interlaced", saved(picture(), "GIF", interlace=True), "gif", 3),
        ("gif-transparent", saved(picture("P"), "GIF", transparency=3), "gif", 3),
        ("gif-animated", ANIMATED_GIF, "gif", 3),
        ("gif-no-trailer", GIF[:-1], "gif", 3),
        ("gif-trailing-bytes", GIF + b"xyz", "gif", 3),
        ("gif-frame-offset", gif_with_small_frame(), "gif", 3),
        ("webp", WEBP, "webp", 3),
        ("webp-lossless", riff((b"VP8L", lossless)), "webp", 3),
        ("webp-exif", saved(picture(), "WEBP", exif=exif_block(1)), "webp", 3),
        ("webp-extended", riff(vp8x(0), (b"VP8 ", vp8)), "webp", 3),
        ("webp-extended-wrong-alpha-flag", riff(vp8x(0x10), (b"VP8L", lossless)), "webp", 3),
        ("webp-trailing-bytes", WEBP + b"xyz", "webp", 3),
        ("bmp", BMP, "bmp", 3),
        ("bmp-upside-down", bytes(upside_down), "bmp", 3),
        ("bmp-gray", saved(picture("L"), "BMP"), "bmp", 1),
        ("bmp-8x5-32bits", bmp(32, bytes(range(160))), "bmp", 4),
        (
            "bmp-8x5-32bits-masks",
            bmp(32, bytes(range(160)), compression=3, tail=BGR_MASKS),
            "bmp",
            4,
        ),
        ("bmp-8x5-gap", bmp(24, bytes(range(120)), tail=bytes(10)), "bmp", 3),
    )


def refused_samples() -> Iterable[Sample]:
    """What opens in Pillow, but is not to be stored as it is."""
    no_table = bytearray(GIF[:13] + GIF[13 + 768 :])
    no_table[10] &= 0x7F
    opaque = {"save_all": True, "append_images": FRAMES[1:], "duration": 50}
    alpha = saved(picture("RGBA"), "WEBP", lossless=True)
    core = (
        b"BM"
        + struct.pack("<IHHI", 146, 0, 0, 26)
        + struct.pack("<IHHHH", 12, 8, 5, 1, 24)
        + bytes(120)
    )
    for name, data in (
        ("jpeg-lossless", LOSSLESS_JPEG),
        ("png-wide", png((1_000_001, 1))),
        ("gif-no-colour-table", bytes(no_table)),
        ("webp-alpha", saved(picture("RGBA"), "WEBP")),
        ("webp-lossless-alpha", riff((b"VP8L", webp_chunk(alpha, b"VP8L")))),
        ("webp-hidden-alpha", riff(vp8x(0), (b"VP8L", webp_chunk(alpha, b"VP8L")))),
        ("webp-animated", saved(FRAMES[0], "WEBP", **opaque)),
        ("webp-animated-alpha", saved(picture("RGBA"), "WEBP", **opaque)),
        ("bmp-1bit", saved(picture("1"), "BMP")),
        ("bmp-palette", saved(picture("P"), "BMP")),
        ("bmp-16bits", bmp(16, bytes(80))),
        (
            "bmp-run-lengths",
            bmp(8, b"\x08\x05\0\0" * 5 + b"\0\1", compression=1, tail=GRAY_PALETTE),
        ),
        ("bmp-os2", core),
        ("bmp-trailing-bytes", BMP + b"\0\0"),
    ):
        yield Sample(name, data, None, R.UNSUPPORTED_FORMAT, R.UNSUPPORTED_FORMAT, None)
    # One pixel of index 3 with a table of two colours: as LZW codes of 3 bits clear (4), 3, end (5).
    dot = (
        b"GIF89a\1\0\1\0\x80\0\0"
        + bytes(6)
        + b","
        + struct.pack("<HHHH", 0, 0, 1, 1)
        + b"\0\2\2\x5c\1\0;"
    )
    yield Sample("gif-index-beyond-table", dot, None, None, R.UNSUPPORTED_FORMAT, None)
    strange_order = bmp(
        32, bytes(160), compression=3, tail=struct.pack("<III", 0xFF00, 0xFF0000, 0xFF)
    )
    yield Sample("bmp-strange-masks", strange_order, None, *[R.UNSUPPORTED_FORMAT] * 3)
    yield Sample("jpeg-12-bits", JPEG_12_BITS, None, *[R.UNSUPPORTED_FORMAT] * 3)


def damaged_samples() -> Iterable[Sample]:
    """Files of the five formats with a fault. Pillow overlooks some faults of a PNG."""
    palette = picture("P").convert("L")
    yield from _damaged_jpegs()
    stray = (
        JPEG[: SCAN + 80] + b"\xff\xe9\xff\xf0" + JPEG[SCAN + 84 :]
    )  # looks like a segment longer than the file
    yield Sample("jpeg-stray-marker", stray, None, None, R.CORRUPT, None)
    for name, data, header, reencode in (
        ("png-no-end", PNG[:-12], R.TRUNCATED, None),
        ("png-end-cut", PNG[:-4], R.TRUNCATED, None),
        ("png-half", PNG[: len(PNG) // 2], R.TRUNCATED, R.TRUNCATED),
        ("png-header-only", PNG[:33], R.TRUNCATED, R.TRUNCATED),
        ("png-magic-only", PNG_MAGIC, R.TRUNCATED, R.TRUNCATED),
    ):
        yield Sample(name, data, None, header, R.TRUNCATED, reencode)
    compressed = zlib.compress((b"\0" + b"\x5a" * 7) * 5)
    middle = len(PNG) // 2
    for name, data, at_once, as_pixels in (
        ("png-wrong-header-crc", PNG[:29] + bytes([PNG[29] ^ 1]) + PNG[30:], R.CORRUPT, R.CORRUPT),
        ("png-zero-width", png((0, 5), rows=b"\0" * 5), R.CORRUPT, R.CORRUPT),
        ("png-depth-3", png((7, 5), depth=3), R.CORRUPT, R.CORRUPT),
        ("png-wrong-pixel-crc", PNG[:-13] + bytes([PNG[-13] ^ 1]) + PNG[-12:], None, None),
        (
            "png-flipped-pixels",
            PNG[:middle] + bytes([PNG[middle] ^ 255]) + PNG[middle + 1 :],
            None,
            R.CORRUPT,
        ),
        ("png-unknown-critical-chunk", png((7, 5), before=chunk(b"ABCD", b"")), None, None),
        ("png-no-palette", png((7, 5), color=3), R.CORRUPT, R.CORRUPT),
        ("png-short-rows", png((7, 5), rows=(b"\0" + bytes(7)) * 4), None, None),
        ("png-no-adler", png((7, 5), idat=compressed[:-4]), None, None),
        ("png-bad-filter", png((7, 5), rows=(b"\7" + bytes(7)) * 5), None, R.CORRUPT),
        ("png-no-pixels", PNG[:33] + PNG[-12:], None, R.CORRUPT),
    ):
        yield Sample(name, data, None, at_once, R.CORRUPT, as_pixels)
    for name, data in (
        ("gif-half", GIF[: len(GIF) // 2]),
        ("gif-cut-in-first-table", GIF[:300]),
        ("gif-animated-cut-in-a-later-frame", ANIMATED_GIF[:-60]),
        ("webp-half", WEBP[: len(WEBP) // 2]),
        ("webp-cut-1", WEBP[:-1]),
        ("bmp-half", BMP[: len(BMP) // 2]),
        ("bmp-cut-4", BMP[:-4]),
        ("bmp-header-cut", BMP[:22]),
        ("bmp-palette-cut", saved(palette, "BMP")[:-5]),
    ):
        yield Sample(name, data, None, *[R.TRUNCATED] * 3)
    yield Sample(
        "gif-cut-that-looks-whole",
        GIF[: len(GIF) // 2] + b"\0;",
        None,
        None,
        R.TRUNCATED,
        R.TRUNCATED,
    )
    yield Sample("bmp-padding-cut", BMP[:-1], None, R.TRUNCATED, R.TRUNCATED, None)
    for name, data in (
        ("gif-no-image", GIF[: 13 + 768] + b";"),
        ("webp-extended-only", riff(vp8x(0))),
        ("bmp-zero-width", BMP[:18] + bytes(4) + BMP[22:]),
    ):
        yield Sample(name, data, None, *[R.CORRUPT] * 3)
    yield from _bombs()


def _damaged_jpegs() -> Iterable[Sample]:
    frame = JPEG.index(b"\xff\xc0")
    thumbnail = saved(picture(size=(16, 12)), "JPEG")
    with_thumbnail = saved(picture(), "JPEG", exif=exif_block(1, thumbnail=thumbnail))
    for name, data in (
        ("jpeg-no-end", JPEG[:-2]),
        ("jpeg-half", JPEG[: (SCAN + len(JPEG)) // 2]),
        ("jpeg-half-then-zeros", JPEG[: (SCAN + len(JPEG)) // 2] + bytes(300)),
        ("jpeg-progressive-no-end", PROGRESSIVE[:-2]),
        ("jpeg-progressive-half", PROGRESSIVE[: len(PROGRESSIVE) // 2]),
        ("jpeg-thumbnail-half", with_thumbnail[: -len(JPEG) // 4]),
        ("jpeg-header-only", JPEG[:SCAN]),
        ("jpeg-magic-only", JPEG[:3]),
        ("jpeg-two-bytes", JPEG[:2]),
    ):
        yield Sample(name, data, None, *[R.TRUNCATED] * 3)
    for name, data, reason in (
        ("jpeg-zero-height", JPEG[: frame + 5] + b"\0\0" + JPEG[frame + 7 :], R.CORRUPT),
        ("jpeg-no-scan", JPEG[:SCAN] + b"\xff\xd9", R.CORRUPT),
        ("jpeg-no-frame", JPEG[:frame] + JPEG[SCAN:], R.CORRUPT),
        (
            "jpeg-two-components",
            JPEG[: frame + 9] + b"\2" + JPEG[frame + 10 :],
            R.UNSUPPORTED_FORMAT,
        ),
    ):
        yield Sample(name, data, None, *[reason] * 3)


def _bombs() -> Iterable[Sample]:
    frame = JPEG.index(b"\xff\xc0")
    for name, data in (
        ("jpeg-bomb", JPEG[: frame + 5] + b"\xff\x00\xff\x00" + JPEG[frame + 9 :]),
        ("png-bomb", png((60_000, 60_000), rows=b"")),
        ("gif-bomb", GIF[:6] + b"\xff\xff\xff\xff" + GIF[10:]),
        ("gif-half-bomb", GIF[:6] + struct.pack("<HH", 10_000, 9_000) + GIF[10:]),
        (
            "webp-bomb",
            riff(
                (b"VP8X", bytes(4) + b"\xff\xff\0\xff\xff\0"), (b"VP8 ", webp_chunk(WEBP, b"VP8 "))
            ),
        ),
        ("bmp-bomb", BMP[:18] + struct.pack("<ii", 60_000, 60_000) + BMP[26:]),
    ):
        yield Sample(name, data, None, *[R.TOO_MANY_PIXELS] * 3)


def strange_samples() -> Iterable[Sample]:
    """Files that are no image of the five formats."""
    yield Sample("empty", b"", None, *[R.EMPTY_FILE] * 3)
    for name, data in (
        ("text", b"hello world\n"),
        ("text-bm", b"BMW is a maker of cars and motorcycles"),
        ("html", b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
        ("xml", b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>"),
        ("lfs-pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
        ("zip", b"PK\3\4" + bytes(40)),
        ("pdf", b"%PDF-1.7\n"),
        ("zeros", bytes(500)),
        ("one-byte", b"a"),
        ("riff-wave", b"RIFF\x24\0\0\0WAVEfmt " + bytes(30)),
        ("leading-zero", b"\0" + JPEG),
        ("mp4", b"\0\0\0\x18ftypisom" + bytes(20)),
    ):
        yield Sample(name, data, None, *[R.NOT_AN_IMAGE] * 3)
    for name, data in (
        ("tiff", saved(picture(), "TIFF")),
        ("tiff-big-endian", b"MM\0*" + bytes(20)),
        ("jpeg-2000", saved(picture(), "JPEG2000")),
        ("avif", saved(picture(), "AVIF")),
        ("heic", b"\0\0\0\x18ftypheic" + bytes(20)),
        ("jpeg-xl", JPEG_XL),
        ("ico", saved(picture(), "ICO")),
        ("ppm", saved(picture(), "PPM")),
        ("psd", b"8BPS\0\1" + bytes(30)),
        ("svg", b"<?xml version='1.0'?>\n<!-- x --><svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("dicom", bytes(128) + b"DICM" + bytes(9)),
        ("png-apple", PNG_MAGIC + chunk(b"CgBI", bytes(4)) + PNG[8:]),
    ):
        yield Sample(name, data, None, *[R.UNSUPPORTED_FORMAT] * 3)


@cache
def all_samples() -> tuple[Sample, ...]:
    """All of them, made once: one is 70 MB before it is packed."""
    return (*good_samples(), *refused_samples(), *damaged_samples(), *strange_samples())
