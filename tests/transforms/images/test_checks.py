"""check_image: what passes, what is rejected and why; only an ImageFault is ever raised."""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images.headers import read_header
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.images.checks import CHECKS, check_image
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import ImagePolicy, PolicyFault
from shardwright.transforms.images.storing import store_image
from shardwright.transforms.rejects import RejectReason as R
from tests.support import image_corpus as corpus
from tests.support.encoded_images import encode_image
from tests.support.image_makers import bmp, patched
from tests.support.random_tests import examples

SAMPLES = {sample.name: sample for sample in corpus.all_samples()}
FIX = ImagePolicy(dict.fromkeys(PolicyFault, "fix"), max_pixels=2000, max_aspect=1.2, min_side=9)  # type: ignore[arg-type]
ENCODED = (
    EncodeOptions(), EncodeOptions("raw", (9, 7)), EncodeOptions("png"), EncodeOptions("jpeg"),
)  # fmt: skip
STORED = (
    EncodeOptions(policy=FIX, strip_metadata=True),
    EncodeOptions(strip_metadata=True),
    EncodeOptions("png", max_side=30),
)


def fault_of(call: Callable[[], object]) -> ImageFault | None:
    """Return the fault that a call ends with; any other exception fails the test."""
    try:
        call()
    except ImageFault as raised:
        fault = raised
    else:
        return None
    assert fault.what
    assert "\n" not in fault.what
    return fault


def reason_of(data: bytes, check: str, *, stored: bool = True) -> R | None:
    fault = fault_of(lambda: check_image(data, check, stored=stored))
    return fault.reason if fault else None


def test_the_samples_have_different_names() -> None:
    assert len(SAMPLES) == len(corpus.all_samples())


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_reasons(sample: corpus.Sample) -> None:
    data = sample.data
    assert reason_of(data, "header") == sample.header
    assert reason_of(data, "decode") == sample.decode
    assert reason_of(data, "decode", stored=False) == sample.reencode
    assert reason_of(data, "none") == (None if data else R.EMPTY_FILE)


@pytest.mark.parametrize("sample", corpus.good_samples(), ids=lambda sample: sample.name)
def test_info(sample: corpus.Sample) -> None:
    for check in CHECKS:
        assert check_image(sample.data, check) == sample.info
        assert check_image(sample.data, check, stored=False) == sample.info


def test_none_returns_as_much_as_the_header_tells_and_there_is_no_full() -> None:
    assert check_image(b"hello", "none") == ImageInfo("", 0, 0, 0)
    assert check_image(corpus.JPEG[:40], "none") == ImageInfo("jpeg", 0, 0, 0)
    assert check_image(corpus.JPEG[:-40], "none") == ImageInfo("jpeg", 61, 47, 3)
    with pytest.raises(ValueError, match="check must be one of header, decode, none, got 'full'"):
        check_image(corpus.JPEG, "full")


@pytest.mark.parametrize(("name", "words"), [
    ("tiff", "TIFF"), ("avif", "AVIF"), ("heic", "HEIC"), ("svg", "SVG"), ("html", "HTML page"),
    ("jpeg-2000", "JPEG 2000"), ("jpeg-xl", "JPEG XL"), ("lfs-pointer", "git lfs pull"),
    ("webp-alpha", "encode to png or jpeg"), ("bmp-palette", "encode to png or jpeg"),
    ("jpeg-half", "fetch it again"), ("png-no-end", "fetch it again"),
    ("gif-half", "fetch it again"), ("jpeg-bomb", "65,280 x 65,280 pixels"),
])  # fmt: skip
def test_the_detail_names_the_format_or_the_fix(name: str, words: str) -> None:
    with pytest.raises(ImageFault, match=words):
        check_image(SAMPLES[name].data, "decode")


@pytest.mark.parametrize(("bits", "compression", "tail", "words"), [
    (8, 0, bytes(1024), "a BMP of 8 bits with a palette other than 256 grays"),
    (4, 0, bytes(64), "a BMP of 4 bits with a palette other than 256 grays"),
    (1, 0, bytes(8), "a BMP of 1 bits with a palette other than 256 grays"),
    (16, 0, b"", r"a BMP of 16 bits with compression 0 \(gray, 24 or 32 bits"),
    (32, 3, bytes(12), r"a BMP of 32 bits with compression 3 \(gray, 24 or 32 bits"),
])  # fmt: skip
def test_the_reason_of_an_unsupported_bmp(
    bits: int, compression: int, tail: bytes, words: str
) -> None:
    data = bmp(bits, bytes(32 * 5), compression=compression, tail=tail)
    with pytest.raises(ImageFault, match=words):
        check_image(data, "header")


def test_the_reason_of_a_bmp_with_a_short_header() -> None:
    header = struct.pack("<IHHHH", 12, 8, 5, 1, 24)
    data = b"BM" + struct.pack("<IHHI", 26 + 24 * 5, 0, 0, 26) + header + bytes(24 * 5)
    with pytest.raises(ImageFault, match="a BMP with a header of 12 bytes"):
        check_image(data, "header")


def test_a_fault_survives_pickling() -> None:
    fault = pickle.loads(pickle.dumps(ImageFault("broken", R.TRUNCATED)))
    assert (fault.reason, fault.what, str(fault)) == (R.TRUNCATED, "broken", "broken")


FIRST_PIXEL = {
    "jpeg": corpus.SCAN + 14, "jpeg-progressive": corpus.PROGRESSIVE.index(b"\xff\xda") + 10,
    "png-RGB": corpus.PNG.index(b"IDAT") + 4, "gif": 800, "gif-animated": 800, "webp": 40,
    "bmp": 60,
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_PIXEL)
@pytest.mark.parametrize("check", ["header", "decode"])
def test_a_cut_anywhere_in_the_pixels_is_found(name: str, check: str) -> None:
    data, start = SAMPLES[name].data, FIRST_PIXEL[name]
    # For the header, a GIF that lacks its last byte, the trailer, is still whole.
    stop = len(data) - (check == "header")
    cuts = range(start, stop, max(1, (stop - start) // 50))
    assert len(cuts) >= 50
    assert [cut for cut in cuts if reason_of(data[:cut], check) != R.TRUNCATED] == []


def exercise(data: bytes) -> None:
    """Call all functions that read bytes."""
    for check in CHECKS:
        reason_of(data, check)
        reason_of(data, check, stored=False)
    for options in ENCODED:
        fault_of(partial(encode_image, data, options))
    for options in STORED:
        fault_of(partial(store_image, data, options, check="decode", name="x.png"))


STARTS = (
    b"", b"\xff\xd8\xff", corpus.PNG[:16], corpus.PNG[:41], b"GIF87a", b"GIF89a", corpus.GIF[:13],
    corpus.WEBP[:12], corpus.WEBP[:16], corpus.BMP[:18], corpus.BMP[:54],
)  # fmt: skip
files = st.sampled_from([sample.data for sample in corpus.good_samples()])
beginnings = st.builds(lambda data, share: data[: int(share * len(data))], files, st.floats(0, 1))
inventions = st.builds(bytes.__add__, st.sampled_from(STARTS), st.binary(max_size=300))
damaged = st.builds(
    # Most of the damage is in the header.
    lambda data, where, new: patched(data, int(where**3 * len(data)), new)[: len(data)],
    files,
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=4),
)


@pytest.mark.long
@examples(300)
@given(beginnings | inventions | damaged)
def test_any_bytes_pass_or_are_a_fault(data: bytes) -> None:
    exercise(data)


def test_nothing_is_printed_and_nothing_warns(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sample in corpus.all_samples():
            exercise(sample.data)
    assert capfd.readouterr() == ("", "")


def test_a_header_check_imports_no_decoder() -> None:
    program = (
        "import sys; from shardwright.transforms.images.checks import check_image; "
        f"check_image(bytes.fromhex('{corpus.JPEG.hex()}'), 'header'); "
        "print(sorted({'PIL', 'tensorflow', 'apache_beam'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


@pytest.mark.parametrize("image_format", ["PNG", "GIF"])
def test_a_lost_sector_is_found_without_decoding_every_image(image_format: str) -> None:
    """A disk or a broken transfer leaves zeros; compressed pixels have no checksum in a GIF."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(file, image_format)
    whole = file.getvalue()
    assert not read_header(whole).odd
    damaged = whole[:1536] + bytes(512) + whole[2048:]
    assert read_header(damaged).odd == "a sector of zeros"
    with pytest.raises(ImageFault):
        check_image(damaged, "header")
