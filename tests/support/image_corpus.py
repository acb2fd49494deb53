"""Odd images, made in memory, and the results of their checks. Nothing is downloaded or random."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cache

from shardwright.images.kinds import ImageInfo
from shardwright.transforms.rejects import RejectReason as R
from tests.support import image_makers as make

JPEG = make.drawn("JPEG", quality=90)
PROGRESSIVE = make.drawn("JPEG", quality=90, progressive=True)
SCAN, FRAME = JPEG.index(b"\xff\xda"), JPEG.index(b"\xff\xc0")
PNG, GIF, BMP = (make.drawn(image_format) for image_format in ("PNG", "GIF", "BMP"))
WEBP = make.drawn("WEBP", quality=80)
FRAMES = [make.picture().rotate(90 * turn) for turn in range(3)]
ANIMATED = {"save_all": True, "append_images": FRAMES[1:], "duration": 50}
ANIMATED_GIF = make.saved(FRAMES[0], "GIF", **ANIMATED)
ANIMATED_PNG = make.drawn("PNG", save_all=True, append_images=FRAMES[1:])
THUMBNAIL = make.saved(make.picture(size=(16, 12)), "JPEG")
_MASKS = struct.pack("<III", 0xFF00, 0xFF0000, 0xFF)
STRANGE_MASKS = make.bmp(32, bytes(160), compression=3, tail=_MASKS)


@dataclass(frozen=True)
class Sample:
    """A file, with check_image's reasons for 'header', 'decode', and 'decode' with stored=False."""

    name: str
    data: bytes
    info: ImageInfo | None = None
    header: R | None = None
    decode: R | None = None
    reencode: R | None = None


_SMALL = (7, 5)
_ROW, _PIXELS = b"\0" + bytes(7), bytes(range(160))
_PALETTE = make.chunk(b"PLTE", bytes(range(9)))
_BOMB = make.chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(70 << 20)))
_VP8 = make.webp_chunk(WEBP, b"VP8 ")
_LOSSLESS = make.webp_chunk(make.drawn("WEBP", lossless=True), b"VP8L")
_ALPHA = make.webp_chunk(make.drawn("WEBP", "RGBA", lossless=True), b"VP8L")
_WITH_THUMBNAIL = make.drawn("JPEG", exif=make.exif_block(1, thumbnail=THUMBNAIL))

# Files that pass every check, by format and channels. A size other than 61 x 47 is in the name.
_GOOD: dict[tuple[str, int], dict[str, bytes]] = {
    ("jpeg", 1): {"jpeg-gray": make.drawn("JPEG", "L")},
    ("jpeg", 3): {
        "jpeg": JPEG, "jpeg-progressive": PROGRESSIVE, "jpeg-cmyk": make.drawn("JPEG", "CMYK"),
        "jpeg-444": make.drawn("JPEG", subsampling=0),
        "jpeg-rgb": make.drawn("JPEG", keep_rgb=True),
        "jpeg-restart-markers": make.drawn("JPEG", restart_marker_blocks=2),
        "jpeg-1x1": make.saved(make.picture(size=(1, 1)), "JPEG"),
        "jpeg-turned": make.drawn("JPEG", exif=make.exif_block(6)),
        "jpeg-thumbnail": _WITH_THUMBNAIL,
        "jpeg-trailing-bytes": JPEG + b"SEFT phone data" * 9,
        "jpeg-trailing-jpeg-cut": JPEG + JPEG[:-40],
        "jpeg-fill-bytes": make.inserted(JPEG, 2, b"\xff\xff\xff"),
        "jpeg-stray-bytes": make.inserted(JPEG, 20, b"abc"),
    },
    ("png", 1): {
        **{f"png-{mode}": make.drawn("PNG", mode) for mode in ("1", "L", "I;16")},
        **{f"png-7x5-color0-{bits}bits": make.png(_SMALL, depth=bits) for bits in (2, 16)},
        "png-L-transparent": make.drawn("PNG", "L", transparency=3),
        "png-1x1": make.png((1, 1)), "png-1x1-interlaced": make.png((1, 1), interlace=1),
        "png-7x5-interlaced-4bits": make.png(_SMALL, interlace=1, depth=4),
        "png-7x5-extra-rows": make.png(_SMALL, rows=_ROW * 10),
        "png-7x5-wrong-text-crc": make.png(_SMALL, before=make.chunk(b"tEXt", b"a\0b", damage=1)),
        "png-7x5-bad-profile": make.png(_SMALL, before=make.chunk(b"iCCP", b"abc")),
        "png-7x5-text-bomb": make.png(_SMALL, before=_BOMB),
    },
    ("png", 2): {
        "png-LA": make.drawn("PNG", "LA"),
        "png-7x5-color4-16bits": make.png(_SMALL, depth=16, color=4),
    },
    ("png", 3): {
        "png-RGB": PNG, "png-P": make.drawn("PNG", "P"), "png-animated": ANIMATED_PNG,
        "png-trailing-bytes": PNG + b"junk" * 9,
        "png-7x5-color2-16bits": make.png(_SMALL, depth=16, color=2),
        "png-7x5-interlaced": make.png(_SMALL, depth=16, color=2, interlace=1),
        "png-7x5-palette-2bits": make.png(
            _SMALL, depth=2, color=3, before=_PALETTE, rows=bytes(15)
        ),
    },
    ("png", 4): {
        "png-RGBA": make.drawn("PNG", "RGBA"),
        "png-P-transparent": make.drawn("PNG", "P", transparency=3),
        "png-7x5-color6-16bits": make.png(_SMALL, depth=16, color=6),
    },
    ("gif", 3): {
        "gif": GIF, "gif-87a": make.patched(GIF, 0, b"GIF87a"), "gif-animated": ANIMATED_GIF,
        "gif-interlaced": make.drawn("GIF", interlace=True),
        "gif-transparent": make.drawn("GIF", "P", transparency=3),
        "gif-trailing-bytes": GIF + b"xyz", "gif-frame-offset": make.gif_with_small_frame(),
    },
    ("webp", 3): {
        "webp": WEBP, "webp-trailing-bytes": WEBP + b"xyz",
        "webp-lossless": make.riff((b"VP8L", _LOSSLESS)),
        "webp-exif": make.drawn("WEBP", exif=make.exif_block(1)),
        "webp-extended": make.riff(make.vp8x(0), (b"VP8 ", _VP8)),
        "webp-extended-wrong-alpha-flag": make.riff(make.vp8x(0x10), (b"VP8L", _LOSSLESS)),
    },
    ("bmp", 1): {"bmp-gray": make.drawn("BMP", "L")},
    ("bmp", 3): {
        "bmp": BMP, "bmp-8x5-gap": make.bmp(24, _PIXELS[:120], tail=bytes(10)),
        "bmp-upside-down": make.patched(BMP, 22, struct.pack("<i", -make.HEIGHT)),
    },
    ("bmp", 4): {
        "bmp-8x5-32bits": make.bmp(32, _PIXELS),
        "bmp-8x5-32bits-masks": make.bmp(32, _PIXELS, compression=3, tail=make.BGR_MASKS),
    },
}  # fmt: skip

_HALF_JPEG = JPEG[: (SCAN + len(JPEG)) // 2]
_HALF_PNG, _HALF_GIF = PNG[: len(PNG) // 2], GIF[: len(GIF) // 2]
_RUN_LENGTHS = b"\x08\x05\0\0" * 5 + b"\0\1"
_OS2 = struct.pack("<IHHI", 146, 0, 0, 26) + struct.pack("<IHHHH", 12, 8, 5, 1, 24)
# One pixel of index 3 with a table of two colors: as LZW codes of 3 bits clear (4), 3, end (5).
_DOT = b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + b",\0\0\0\0\1\0\1\0\0\2\2\x5c\1\0;"

# All others, by their reasons; one reason stands for all three.
_FAILING: dict[tuple[R | None, ...], dict[str, bytes]] = {
    (R.UNSUPPORTED_FORMAT, R.UNSUPPORTED_FORMAT, None): {  # Pillow opens these
        "jpeg-lossless": make.LOSSLESS_JPEG, "png-wide": make.png((1_000_001, 1)),
        "gif-no-color-table": make.patched(GIF[:13], 10, bytes([GIF[10] & 0x7F])) + GIF[13 + 768 :],
        "webp-alpha": make.drawn("WEBP", "RGBA"),
        "webp-lossless-alpha": make.riff((b"VP8L", _ALPHA)),
        "webp-hidden-alpha": make.riff(make.vp8x(0), (b"VP8L", _ALPHA)),
        "webp-animated": make.saved(FRAMES[0], "WEBP", **ANIMATED),
        "webp-animated-alpha": make.drawn("WEBP", "RGBA", **ANIMATED),
        "bmp-1bit": make.drawn("BMP", "1"), "bmp-palette": make.drawn("BMP", "P"),
        "bmp-16bits": make.bmp(16, bytes(80)), "bmp-trailing-bytes": BMP + b"\0\0",
        "bmp-run-lengths": make.bmp(8, _RUN_LENGTHS, compression=1, tail=make.GRAY_PALETTE),
        "bmp-os2": b"BM" + _OS2 + bytes(120),
    },
    (None, R.UNSUPPORTED_FORMAT, None): {"gif-index-beyond-table": _DOT},
    (None, R.TRUNCATED, None): {  # some writers omit the trailer, and decoders need none
        "gif-no-trailer": GIF[:-1], "gif-animated-no-trailer": ANIMATED_GIF[:-1],
    },
    (None, R.TRUNCATED, R.TRUNCATED): {"gif-cut-that-looks-whole": _HALF_GIF + b"\0;"},
    (R.TRUNCATED, R.TRUNCATED, None): {
        "png-no-end": PNG[:-12], "png-end-cut": PNG[:-4], "bmp-padding-cut": BMP[:-1],
    },
    (R.TRUNCATED,): {
        "jpeg-two-bytes": JPEG[:2], "jpeg-magic-only": JPEG[:3], "jpeg-header-only": JPEG[:SCAN],
        "jpeg-half": _HALF_JPEG, "jpeg-half-then-zeros": _HALF_JPEG + bytes(300),
        "jpeg-no-end": JPEG[:-2], "jpeg-progressive-half": PROGRESSIVE[: len(PROGRESSIVE) // 2],
        "jpeg-progressive-no-end": PROGRESSIVE[:-2],
        "jpeg-thumbnail-half": _WITH_THUMBNAIL[: -len(JPEG) // 4],
        "png-half": _HALF_PNG, "png-header-only": PNG[:33], "png-magic-only": make.PNG_MAGIC,
        "gif-half": _HALF_GIF, "gif-cut-in-first-table": GIF[:300],
        "gif-animated-cut-in-a-later-frame": ANIMATED_GIF[:-60],
        "webp-half": WEBP[: len(WEBP) // 2], "webp-cut-1": WEBP[:-1],
        "bmp-half": BMP[: len(BMP) // 2], "bmp-cut-4": BMP[:-4], "bmp-header-cut": BMP[:22],
        "bmp-palette-cut": make.drawn("BMP", "L")[:-5],
    },
    (None, R.CORRUPT, None): {  # Pillow overlooks these
        "jpeg-stray-marker": make.patched(JPEG, SCAN + 80, b"\xff\xe9\xff\xf0"),
        "png-wrong-pixel-crc": make.patched(PNG, len(PNG) - 13, bytes([PNG[-13] ^ 1])),
        "png-unknown-critical-chunk": make.png(_SMALL, before=make.chunk(b"ABCD", b"")),
        "png-short-rows": make.png(_SMALL, rows=_ROW * 4),
        "png-no-adler": make.png(_SMALL, idat=zlib.compress((b"\0" + b"\x5a" * 7) * 5)[:-4]),
    },
    (None, R.CORRUPT, R.CORRUPT): {
        "png-flipped-pixels": make.patched(PNG, len(PNG) // 2, bytes([PNG[len(PNG) // 2] ^ 255])),
        "png-bad-filter": make.png(_SMALL, rows=(b"\7" + bytes(7)) * 5),
        "png-no-pixels": PNG[:33] + PNG[-12:],
    },
    (R.CORRUPT,): {
        "jpeg-zero-height": make.patched(JPEG, FRAME + 5, b"\0\0"),
        "jpeg-no-scan": JPEG[:SCAN] + b"\xff\xd9", "jpeg-no-frame": JPEG[:FRAME] + JPEG[SCAN:],
        "png-wrong-header-crc": make.patched(PNG, 29, bytes([PNG[29] ^ 1])),
        "png-zero-width": make.png((0, 5), rows=bytes(5)), "png-depth-3": make.png(_SMALL, depth=3),
        "png-no-palette": make.png(_SMALL, color=3), "gif-no-image": GIF[: 13 + 768] + b";",
        "webp-extended-only": make.riff(make.vp8x(0)),
        "bmp-zero-width": make.patched(BMP, 18, bytes(4)),
    },
    (R.TOO_MANY_PIXELS,): {
        "jpeg-bomb": make.patched(JPEG, FRAME + 5, b"\xff\x00\xff\x00"),
        "png-bomb": make.png((60_000, 60_000), rows=b""),
        "gif-bomb": make.patched(GIF, 6, b"\xff\xff\xff\xff"),
        "gif-half-bomb": make.patched(GIF, 6, struct.pack("<HH", 10_000, 9_000)),
        "webp-bomb": make.riff((b"VP8X", bytes(4) + b"\xff\xff\0\xff\xff\0"), (b"VP8 ", _VP8)),
        "bmp-bomb": make.patched(BMP, 18, struct.pack("<ii", 60_000, 60_000)),
    },
    (R.EMPTY_FILE,): {"empty": b""},
    (R.NOT_AN_IMAGE,): {
        "zeros": bytes(500), "one-byte": b"a", "leading-zero": b"\0" + JPEG,
        "text": b"hello world\n", "text-bm": b"BMW is a maker of cars and motorcycles",
        "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "xml": b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>",
        "lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "zip": b"PK\3\4" + bytes(40), "pdf": b"%PDF-1.7\n",
        "riff-wave": b"RIFF\x24\0\0\0WAVEfmt " + bytes(30),
        "mp4": b"\0\0\0\x18ftypisom" + bytes(20),
    },
    (R.UNSUPPORTED_FORMAT,): {
        "bmp-strange-masks": STRANGE_MASKS, "jpeg-12-bits": make.JPEG_12_BITS,
        "jpeg-two-components": make.patched(JPEG, FRAME + 9, b"\2"),
        "tiff": make.drawn("TIFF"), "tiff-big-endian": b"MM\0*" + bytes(20),
        "jpeg-2000": make.drawn("JPEG2000"), "jpeg-xl": make.JPEG_XL, "avif": make.drawn("AVIF"),
        "ico": make.drawn("ICO"), "ppm": make.drawn("PPM"), "dicom": bytes(128) + b"DICM",
        "heic": b"\0\0\0\x18ftypheic" + bytes(20), "psd": b"8BPS\0\1" + bytes(30),
        "svg": b"<?xml version='1.0'?>\n<!-- x --><svg xmlns='http://www.w3.org/2000/svg'/>",
        "png-apple": make.PNG_MAGIC + make.chunk(b"CgBI", bytes(4)) + PNG[8:],
    },
}  # fmt: skip


@cache
def good_samples() -> tuple[Sample, ...]:
    """Files that pass every check."""
    sizes = {"1x1": (1, 1), "7x5": (7, 5), "8x5": (8, 5)}
    samples = []
    for (image_format, channels), files in _GOOD.items():
        for name, data in files.items():
            width, height = sizes.get(name.split("-")[1] if "-" in name else "", (61, 47))
            samples.append(Sample(name, data, ImageInfo(image_format, width, height, channels)))
    return tuple(samples)


@cache
def all_samples() -> tuple[Sample, ...]:
    failing = (
        Sample(name, data, None, *(reasons * 3)[:3])
        for reasons, files in _FAILING.items()
        for name, data in files.items()
    )
    return (*good_samples(), *failing)
