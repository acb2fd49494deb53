"""encode_image: sizes, modes, orientation, determinism, and options that do not go together."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from shardwright.errors import ImageFault
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.metadata import exif_orientation
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.pixels import encode_png
from shardwright.transforms.rejects import RejectReason as R
from tests.support.encoded_images import encode_image, rejected
from tests.support.image_corpus import ANIMATED_GIF, JPEG, PNG, WEBP, Sample, all_samples
from tests.support.image_makers import (
    BGR_MASKS,
    bmp,
    drawn,
    exif_block,
    opened,
    picture,
    png,
    saved,
)

OPENS = [sample for sample in all_samples() if sample.reencode is None]
AS_PNG = EncodeOptions("png")
WHITE, RED = (255, 255, 255), (255, 0, 0)
RED_BMP = bmp(32, bytes((0, 0, 255, 0)) * 40, compression=3, tail=BGR_MASKS)
each_that_opens = pytest.mark.parametrize("sample", OPENS, ids=lambda sample: sample.name)


def test_keep_returns_the_very_bytes_and_rejects_the_empty_file_only() -> None:
    data, info = encode_image(JPEG, EncodeOptions())
    assert data is JPEG
    assert info == ImageInfo("jpeg", 61, 47, 3)
    assert encode_image(b"hello", EncodeOptions())[0] == b"hello"
    with rejected("empty_file"):
        encode_image(b"", EncodeOptions())


@each_that_opens
def test_what_pillow_opens_gets_the_requested_size(sample: Sample) -> None:
    for encode in ("jpeg", "png"):
        data, info = encode_image(sample.data, EncodeOptions(encode, (20, 30)))  # type: ignore[arg-type]
        assert (info.format, info.width, info.height) == (encode, 20, 30)
        assert check_image(data, "decode") == info
    data, info = encode_image(sample.data, EncodeOptions("raw", (20, 30)))
    assert (info, len(data)) == (ImageInfo("raw", 20, 30, 3), 20 * 30 * 3)


@each_that_opens
@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_without_resize_the_size_stays(sample: Sample, encode: Any) -> None:
    info = sample.info
    size = (info.width, info.height) if info else opened(sample.data).size
    if max(size) > 65_500 and encode == "jpeg":
        with pytest.raises(ImageFault, match="use resize"):
            encode_image(sample.data, EncodeOptions(encode))
        return
    data, info = encode_image(sample.data, EncodeOptions(encode))
    expected = size[::-1] if sample.name == "jpeg-turned" else size
    assert (info.width, info.height) == opened(data).size == expected


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_the_same_bytes_from_every_thread(encode: Any) -> None:
    options = EncodeOptions(encode, (40, 30))
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(lambda _: encode_image(JPEG, options), range(20)))
    assert len(results) == 1


def test_a_jpeg_holds_nothing_of_an_earlier_one_in_any_thread_or_forked_process() -> None:
    options = EncodeOptions("jpeg", quality=95)
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1200, 3), np.uint8)
    large, small = encode_png(noise), saved(picture(), "PNG")  # the first makes over 1 MB
    expected = [_by_pillow(image, quality=95) for image in (large, small)]
    assert len(expected[0]) > 1 << 20
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda image: encode_image(image, options)[0], [large, small, small] * 4)
        assert list(found) == [expected[0], expected[1], expected[1]] * 4
    assert _has_memory_file()
    child = os.fork()
    if not child:
        os._exit(_has_memory_file())
    assert os.waitpid(child, 0)[1] == 0


def _has_memory_file() -> bool:
    opened_files = [os.path.realpath(f"/proc/self/fd/{number}") for number in range(1000)]
    # A reader of another test may still have its file, of a longer name.
    return any("memfd:shardwright " in name for name in opened_files)


def _by_pillow(data: bytes, **options: int) -> bytes:
    file = BytesIO()
    opened(data).save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_as_in_pillow(orientation: int, order: str, kind: str) -> None:
    data = drawn(kind, exif=exif_block(orientation, order=order))
    assert opened(data).getexif()[0x0112] == orientation
    encoded, info = encode_image(data, AS_PNG)
    expected = ImageOps.exif_transpose(opened(data))
    assert opened(encoded).tobytes() == expected.convert("RGB").tobytes()
    assert (info.width, info.height) == expected.size
    assert "exif" not in opened(encoded).info


def test_a_damaged_orientation_counts_as_none() -> None:
    damaged = [b"", b"Exif\0\0", b"II*\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"XX" * 30]
    for exif in (*damaged, exif_block(6)[:-12], exif_block(9), exif_block(0)):
        assert exif_orientation(exif) == 1, exif
    data = drawn("JPEG", exif=exif_block(6)[:20])
    assert encode_image(data, AS_PNG)[1] == ImageInfo("png", 61, 47, 3)


@pytest.mark.parametrize(
    ("mode", "jpeg_channels"),
    [("1", 1), ("L", 1), ("I;16", 1), ("LA", 3), ("P", 3), ("RGB", 3), ("RGBA", 3)],
)
def test_channels(mode: str, jpeg_channels: int) -> None:
    data = drawn("PNG", mode)
    assert encode_image(data, EncodeOptions("jpeg"))[1].channels == jpeg_channels
    image = opened(encode_image(data, AS_PNG)[0])
    assert (image.mode, image.tobytes()) == (mode, opened(data).tobytes())


def test_cmyk_becomes_rgb_and_a_transparent_palette_rgba() -> None:
    inks, palette = drawn("JPEG", "CMYK"), drawn("PNG", "P", transparency=3)
    small = EncodeOptions("png", (8, 8))
    cases = ((inks, EncodeOptions("jpeg")), (inks, AS_PNG), (palette, AS_PNG), (palette, small))
    found = [encode_image(data, options)[1].channels for data, options in cases]
    assert found == [3, 3, 4, 4]


def solid(mode: str, color: Any, image_format: str = "PNG", **options: Any) -> bytes:
    return saved(Image.new(mode, (2, 2), color), image_format, **options)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(solid("RGBA", (0, 0, 0, 0)), WHITE, id="png-transparent"),
        pytest.param(solid("RGBA", (255, 0, 0, 255)), RED, id="png-opaque"),
        pytest.param(solid("RGBA", (0, 0, 0, 128)), (127, 127, 127), id="png-half"),
        pytest.param(solid("LA", (0, 0)), WHITE, id="gray-transparent"),
        pytest.param(solid("P", 0, transparency=0), WHITE, id="palette-transparent"),
        pytest.param(solid("L", 7, transparency=7), WHITE, id="gray-key"),
        pytest.param(solid("RGBA", (0, 0, 0, 0), "WEBP", lossless=True), WHITE, id="webp"),
        pytest.param(png((2, 2), depth=16), (0x5A, 0x5A, 0x5A), id="16-bits-keep-the-high-byte"),
        pytest.param(RED_BMP, RED, id="bmp-32"),
    ],
)
def test_colors_as_raw(data: bytes, expected: tuple[int, int, int]) -> None:
    for size in ((2, 2), (1, 1)):
        first_pixel = tuple(encode_image(data, EncodeOptions("raw", size))[0][:3])
        assert first_pixel == pytest.approx(expected, abs=1)


def test_raw_is_rows_from_the_top_left() -> None:
    image = Image.new("RGB", (3, 2))
    image.putpixel((1, 0), RED)
    data, info = encode_image(saved(image, "PNG"), EncodeOptions("raw", (3, 2)))
    assert data == bytes(3) + bytes(RED) + bytes(12)
    assert info == ImageInfo("raw", 3, 2, 3)


def test_a_large_jpeg_decoded_at_a_fraction_has_nearly_the_same_pixels() -> None:
    data = saved(picture(size=(800, 600)).resize((1600, 1200)), "JPEG", quality=95)
    raw, _ = encode_image(data, EncodeOptions("raw", (100, 75)))
    slow = opened(data).resize((100, 75), Image.Resampling.BICUBIC)
    fast = np.frombuffer(raw, np.uint8).reshape(75, 100, 3).astype(int)
    assert np.abs(fast - np.asarray(slow)).mean() < 2


def test_quality_and_metadata() -> None:
    data = drawn("JPEG", comment=b"hello", dpi=(300, 300), icc_profile=b"profile")
    small, large = (encode_image(data, EncodeOptions("jpeg", quality=q))[0] for q in (20, 95))
    assert len(small) < len(large)
    assert not {"comment", "icc_profile", "dpi"} & set(opened(large).info)
    assert not {"icc_profile", "dpi"} & set(opened(encode_image(data, AS_PNG)[0]).info)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", R.EMPTY_FILE), (JPEG[:-100], R.TRUNCATED), (PNG[: len(PNG) // 2], R.TRUNCATED),
        (WEBP[:-30], R.TRUNCATED), (ANIMATED_GIF[:-60], R.TRUNCATED), (b"hello", R.NOT_AN_IMAGE),
        (png((60_000, 60_000), rows=b""), R.TOO_MANY_PIXELS), (png((7, 5), color=3), R.CORRUPT),
        (drawn("TIFF"), R.UNSUPPORTED_FORMAT),
    ],
)  # fmt: skip
def test_reasons_of_what_does_not_decode(data: bytes, reason: R) -> None:
    for encode in ("jpeg", "png", "raw"):
        with rejected(f"^{reason}: "):
            encode_image(data, EncodeOptions(encode, (8, 8)))  # type: ignore[arg-type]


QUALITY = "quality must be a whole number from 1 to 100, got "
RESIZE = "resize must be two whole numbers of pixels (width, height) from 1 to 65,500, got "


@pytest.mark.parametrize(("values", "message"), [
    ({"encode": "webp"}, "encode must be one of keep, jpeg, png, raw, got 'webp'"),
    ({"encode": "keep", "resize": (8, 8)},
     "encode 'keep' stores files unchanged, got resize 8x8: choose jpeg, png or raw"),
    ({"encode": "raw"},
     "encode 'raw' needs one shape for all images, got no resize: give a width and height"),
    ({"quality": 0}, f"{QUALITY}0: 90 is the default"),
    ({"quality": 101}, f"{QUALITY}101: 90 is the default"),
    ({"quality": 90.0}, f"{QUALITY}90.0: 90 is the default"),
    ({"quality": True}, f"{QUALITY}True: 90 is the default"),
    ({"resize": (0, 8)}, f"{RESIZE}(0, 8): give for example (224, 224)"),
    ({"resize": (8, 65_501)}, f"{RESIZE}(8, 65501): give for example (224, 224)"),
    ({"resize": (8,)}, f"{RESIZE}(8,): give for example (224, 224)"),
    ({"resize": "8x8"}, f"{RESIZE}'8x8': give for example (224, 224)"),
    ({"resize": (8.0, 8)}, f"{RESIZE}(8.0, 8): give for example (224, 224)"),
    ({"resize": (60_000, 60_000)},
     "resize must have at most 178,956,970 pixels, got (60000, 60000)"),
])  # fmt: skip
def test_wrong_options(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        EncodeOptions(**{"encode": "jpeg", **values})
    assert message in str(caught.value)


def test_sizes_and_qualities_at_their_limits() -> None:
    for quality in (1, 100):
        EncodeOptions("jpeg", quality=quality)
    for resize in ((1, 1), (65_500, 1), (224, 224)):
        EncodeOptions("raw", resize)
