"""encode_image: sizes, modes, orientation, one result for one input, and options that do not go together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from PIL import Image, ImageOps

from tests.image_corpus import ANIMATED_GIF, JPEG, PNG, WEBP, Sample, all_samples
from tests.image_makers import BGR_MASKS, bmp, exif_block, picture, png, saved
from transforms.images import EncodeOptions, ImageFault, ImageInfo, check_image, encode_image
from transforms.images.exif import exif_orientation
from transforms.rejects import RejectReason

OPENS = [sample for sample in all_samples() if sample.reencode is None]


def opened(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data))
    image.load()
    return image


def corner(data: bytes, options: EncodeOptions) -> tuple[int, ...]:
    """The first pixel of 'raw' bytes."""
    return tuple(encode_image(data, options)[0][:3])


def test_keep_returns_the_very_bytes() -> None:
    data, info = encode_image(JPEG, EncodeOptions())
    assert data is JPEG
    assert info == ImageInfo("jpeg", 61, 47, 3)


@pytest.mark.parametrize("encode", ["keep", "jpeg", "png", "raw"])
def test_the_empty_file(encode: Any) -> None:
    options = EncodeOptions(encode=encode, resize=None if encode == "keep" else (8, 8))
    with pytest.raises(ImageFault) as caught:
        encode_image(b"", options)
    assert caught.value.reason == RejectReason.EMPTY_FILE


@pytest.mark.parametrize("sample", OPENS, ids=lambda sample: sample.name)
@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_what_pillow_opens_is_encoded_in_the_size_asked_for(sample: Sample, encode: Any) -> None:
    data, info = encode_image(sample.data, EncodeOptions(encode=encode, resize=(20, 30)))
    assert (info.format, info.width, info.height) == (encode, 20, 30)
    if encode == "raw":
        assert info.channels == 3
        assert len(data) == 20 * 30 * 3
    else:
        assert check_image(data, "decode") == info


@pytest.mark.parametrize("sample", OPENS, ids=lambda sample: sample.name)
@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_without_resize_the_size_stays(sample: Sample, encode: Any) -> None:
    size = (
        opened(sample.data).size if sample.info is None else (sample.info.width, sample.info.height)
    )
    if sample.name == "jpeg-turned":
        size = (size[1], size[0])
    if max(size) > 65_500 and encode == "jpeg":
        with pytest.raises(ImageFault, match="use resize"):
            encode_image(sample.data, EncodeOptions(encode=encode))
        return
    data, info = encode_image(sample.data, EncodeOptions(encode=encode))
    assert (info.width, info.height) == size
    assert opened(data).size == size


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_the_same_bytes_from_every_thread(encode: Any) -> None:
    options = EncodeOptions(encode=encode, resize=(40, 30))
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(lambda _: encode_image(JPEG, options), range(20)))
    assert len(results) == 1


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_as_pillow_does(
    orientation: int, order: str, image_format: str
) -> None:
    data = saved(picture(), image_format, exif=exif_block(orientation, order=order))
    encoded, info = encode_image(data, EncodeOptions(encode="png"))
    expected = ImageOps.exif_transpose(opened(data))
    assert opened(encoded).tobytes() == expected.convert("RGB").tobytes()
    assert (info.width, info.height) == expected.size
    assert "exif" not in opened(encoded).info


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"Exif\0\0",
        b"II*\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        exif_block(6)[:-12],
        exif_block(9),
        exif_block(0),
        b"XX" * 30,
    ],
)
def test_a_damaged_orientation_counts_as_none(exif: bytes) -> None:
    assert exif_orientation(exif) == 1


def test_damaged_metadata_does_not_cost_the_image() -> None:
    data = saved(picture(), "JPEG", exif=exif_block(6)[:20])
    assert encode_image(data, EncodeOptions(encode="png"))[1] == ImageInfo("png", 61, 47, 3)


@pytest.mark.parametrize(
    ("mode", "jpeg_channels", "png_mode"),
    [
        ("1", 1, "1"),
        ("L", 1, "L"),
        ("I;16", 1, "I;16"),
        ("LA", 3, "LA"),
        ("P", 3, "P"),
        ("RGB", 3, "RGB"),
        ("RGBA", 3, "RGBA"),
    ],
)
def test_channels(mode: str, jpeg_channels: int, png_mode: str) -> None:
    data = saved(picture(mode), "PNG")
    assert encode_image(data, EncodeOptions(encode="jpeg"))[1].channels == jpeg_channels
    image = opened(encode_image(data, EncodeOptions(encode="png"))[0])
    assert image.mode == png_mode
    assert image.tobytes() == opened(data).tobytes()


def test_cmyk_becomes_rgb() -> None:
    data = saved(picture("CMYK"), "JPEG")
    for encode in ("jpeg", "png"):
        assert encode_image(data, EncodeOptions(encode=encode))[1].channels == 3


WHITE, RED = (255, 255, 255), (255, 0, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            saved(Image.new("RGBA", (2, 2), (0, 0, 0, 0)), "PNG"), WHITE, id="png-transparent"
        ),
        pytest.param(
            saved(Image.new("RGBA", (2, 2), (255, 0, 0, 255)), "PNG"), RED, id="png-opaque"
        ),
        pytest.param(
            saved(Image.new("RGBA", (2, 2), (0, 0, 0, 128)), "PNG"), (127, 127, 127), id="png-half"
        ),
        pytest.param(saved(Image.new("LA", (2, 2), (0, 0)), "PNG"), WHITE, id="gray-transparent"),
        pytest.param(
            saved(Image.new("P", (2, 2), 0), "PNG", transparency=0), WHITE, id="palette-transparent"
        ),
        pytest.param(saved(Image.new("L", (2, 2), 7), "PNG", transparency=7), WHITE, id="gray-key"),
        pytest.param(
            saved(Image.new("RGBA", (2, 2), (0, 0, 0, 0)), "WEBP", lossless=True), WHITE, id="webp"
        ),
        pytest.param(png((2, 2), depth=16), (0x5A, 0x5A, 0x5A), id="16-bits-keep-the-high-byte"),
        pytest.param(
            bmp(32, bytes((0, 0, 255, 0)) * 40, compression=3, tail=BGR_MASKS), RED, id="bmp-32"
        ),
    ],
)
def test_colours_as_raw(data: bytes, expected: tuple[int, int, int]) -> None:
    assert corner(data, EncodeOptions(encode="raw", resize=(2, 2))) == pytest.approx(
        expected, abs=1
    )
    assert corner(data, EncodeOptions(encode="raw", resize=(1, 1))) == pytest.approx(
        expected, abs=1
    )


def test_raw_is_rows_from_the_top_left() -> None:
    image = Image.new("RGB", (3, 2))
    image.putpixel((1, 0), RED)
    data, info = encode_image(saved(image, "PNG"), EncodeOptions(encode="raw", resize=(3, 2)))
    assert data == bytes(3) + bytes(RED) + bytes(12)
    assert info == ImageInfo("raw", 3, 2, 3)


def test_a_large_jpeg_shrinks_to_nearly_the_same_pixels_as_without_a_shortcut() -> None:
    data = saved(picture(size=(800, 600)).resize((1600, 1200)), "JPEG", quality=95)
    raw, _ = encode_image(data, EncodeOptions(encode="raw", resize=(100, 75)))
    slow = opened(data).resize((100, 75), Image.Resampling.BICUBIC).tobytes()
    assert sum(abs(a - b) for a, b in zip(raw, slow, strict=True)) / len(raw) < 2


def test_quality_and_metadata() -> None:
    data = saved(picture(), "JPEG", comment=b"hello", dpi=(300, 300), icc_profile=b"profile")
    small, _ = encode_image(data, EncodeOptions(encode="jpeg", quality=20))
    large, _ = encode_image(data, EncodeOptions(encode="jpeg", quality=95))
    assert len(small) < len(large)
    assert not {"comment", "icc_profile", "dpi"} & set(opened(large).info)
    assert not {"icc_profile", "dpi"} & set(
        opened(encode_image(data, EncodeOptions(encode="png"))[0]).info
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (JPEG[:-100], RejectReason.TRUNCATED),
        (PNG[: len(PNG) // 2], RejectReason.TRUNCATED),
        (WEBP[:-30], RejectReason.TRUNCATED),
        (ANIMATED_GIF[:-60], RejectReason.TRUNCATED),
        (b"hello", RejectReason.NOT_AN_IMAGE),
        (saved(picture(), "TIFF"), RejectReason.UNSUPPORTED_FORMAT),
        (png((60_000, 60_000), rows=b""), RejectReason.TOO_MANY_PIXELS),
        (png((7, 5), color=3), RejectReason.CORRUPT),
    ],
)
def test_what_does_not_decode(data: bytes, reason: RejectReason) -> None:
    with pytest.raises(ImageFault) as caught:
        encode_image(data, EncodeOptions(encode="raw", resize=(8, 8)))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encode": "webp"}, "encode must be one of keep, jpeg, png, raw, tensor, got 'webp'"),
        (
            {"encode": "keep", "resize": (8, 8)},
            "encode 'keep' stores files as they are, got resize 8x8: choose jpeg, png, raw or tensor",
        ),
        (
            {"encode": "raw"},
            "encode 'raw' needs one shape for all images, got no resize: give a width and height",
        ),
        (
            {"encode": "jpeg", "quality": 0},
            "quality must be a whole number from 1 to 100, got 0: 90 is the default",
        ),
        (
            {"encode": "jpeg", "quality": 101},
            "quality must be a whole number from 1 to 100, got 101: 90 is the default",
        ),
        (
            {"encode": "jpeg", "quality": 90.0},
            "quality must be a whole number from 1 to 100, got 90.0: 90 is the default",
        ),
        (
            {"encode": "jpeg", "quality": True},
            "quality must be a whole number from 1 to 100, got True: 90 is the default",
        ),
        (
            {"encode": "png", "resize": (0, 8)},
            "resize must be two whole numbers of pixels (width, height) from 1 to 65,500, got (0, 8)",
        ),
        (
            {"encode": "png", "resize": (8, 70_000)},
            "resize must be two whole numbers of pixels (width, height) from 1 to 65,500",
        ),
        ({"encode": "png", "resize": (8,)}, "got (8,): give for example (224, 224)"),
        ({"encode": "png", "resize": "8x8"}, "got '8x8': give for example (224, 224)"),
        ({"encode": "png", "resize": (8.0, 8)}, "got (8.0, 8): give for example (224, 224)"),
        (
            {"encode": "raw", "resize": (60_000, 60_000)},
            "resize must ask for at most 178,956,970 pixels, got (60000, 60000)",
        ),
    ],
)
def test_options_say_what_is_wrong(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared in full below
        EncodeOptions(**values)
    assert message in str(caught.value)


def test_options_that_go_together() -> None:
    for values in (
        {},
        {"encode": "jpeg", "quality": 1},
        {"encode": "png", "resize": (1, 1)},
        {"encode": "raw", "resize": (224, 224)},
    ):
        EncodeOptions(**values)


def test_palette_keeps_its_transparency_in_png() -> None:
    data = saved(picture("P"), "PNG", transparency=3)
    assert encode_image(data, EncodeOptions(encode="png"))[1].channels == 4
    assert encode_image(data, EncodeOptions(encode="png", resize=(8, 8)))[1].channels == 4


def test_exif_block_is_read_by_pillow_too() -> None:
    assert opened(saved(picture(), "JPEG", exif=exif_block(5))).getexif()[0x0112] == 5
