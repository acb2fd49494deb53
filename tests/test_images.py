"""check_image: what passes, what is refused and why, and that nothing but an ImageFault ever comes out."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.image_corpus import (
    ANIMATED_GIF,
    BMP,
    GIF,
    JPEG,
    PNG,
    PROGRESSIVE,
    SCAN,
    WEBP,
    Sample,
    all_samples,
    good_samples,
)
from transforms.images import (
    CHECKS,
    EncodeOptions,
    ImageFault,
    ImageInfo,
    ImagePolicy,
    PolicyFault,
    check_image,
    encode_image,
    store_image,
)
from transforms.rejects import RejectReason

SAMPLES = all_samples()
GOOD = list(good_samples())
KEPT = EncodeOptions()
RAW = EncodeOptions(encode="raw", resize=(9, 7))
FIX = ImagePolicy(dict.fromkeys(PolicyFault, "fix"), max_pixels=2000, max_aspect=1.2, min_side=9)  # type: ignore[arg-type]
ALL_FIXED = (
    EncodeOptions(policy=FIX, strip_metadata=True, color_profile="srgb"),
    EncodeOptions(strip_metadata=True, color_profile="drop"),
    EncodeOptions(encode="tensor", color_profile="srgb", max_side=30),
)

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
each_good = pytest.mark.parametrize("sample", GOOD, ids=lambda sample: sample.name)


def reason_of(data: bytes, check: str, *, stored: bool = True) -> RejectReason | None:
    fault = fault_of(lambda: check_image(data, check, stored=stored))
    return fault.reason if fault else None


def fault_of(call: Callable[[], object]) -> ImageFault | None:
    """The fault that a call ends with; any other exception fails the test."""
    try:
        call()
    except ImageFault as raised:
        fault = raised
    else:
        return None
    assert fault.detail
    assert "\n" not in fault.detail
    return fault


def test_the_samples_have_different_names() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)


@each_sample
def test_header(sample: Sample) -> None:
    assert reason_of(sample.data, "header") == sample.header


@each_sample
def test_decode(sample: Sample) -> None:
    assert reason_of(sample.data, "decode") == sample.decode


@each_sample
def test_decode_of_what_will_be_encoded_anew(sample: Sample) -> None:
    assert reason_of(sample.data, "decode", stored=False) == sample.reencode


@each_good
@pytest.mark.parametrize("check", CHECKS)
def test_info(sample: Sample, check: str) -> None:
    assert check_image(sample.data, check) == sample.info
    assert check_image(sample.data, check, stored=False) == sample.info


@each_sample
def test_none_refuses_the_empty_file_only(sample: Sample) -> None:
    expected = RejectReason.EMPTY_FILE if sample.name == "empty" else None
    assert reason_of(sample.data, "none") == expected


def test_none_tells_the_format_as_far_as_it_shows() -> None:
    assert check_image(b"hello", "none") == ImageInfo("", 0, 0, 0)
    assert check_image(JPEG[:40], "none") == ImageInfo("jpeg", 0, 0, 0)
    assert check_image(JPEG[:-40], "none") == ImageInfo("jpeg", 61, 47, 3)


def test_unknown_check() -> None:
    with pytest.raises(ValueError, match="check must be one of header, decode, none, got 'full'"):
        check_image(JPEG, "full")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tiff", "TIFF"),
        ("avif", "AVIF"),
        ("heic", "HEIC"),
        ("svg", "SVG"),
        ("jpeg-2000", "JPEG 2000"),
        ("jpeg-xl", "JPEG XL"),
        ("html", "HTML page"),
        ("lfs-pointer", "git lfs pull"),
        ("webp-alpha", "encode to png or jpeg"),
        ("bmp-palette", "encode to png or jpeg"),
        ("jpeg-half", "fetch it again"),
        ("png-no-end", "fetch it again"),
        ("gif-half", "fetch it again"),
        ("jpeg-bomb", "65,280 x 65,280 pixels"),
    ],
)
def test_the_detail_names_what_it_is_or_the_fix(name: str, words: str) -> None:
    sample = next(sample for sample in SAMPLES if sample.name == name)
    with pytest.raises(ImageFault) as caught:
        check_image(sample.data, "decode")
    assert words in caught.value.detail


def test_a_fault_survives_pickling() -> None:
    fault = pickle.loads(pickle.dumps(ImageFault(RejectReason.CORRUPT, "broken")))
    assert (fault.reason, fault.detail, str(fault)) == (
        RejectReason.CORRUPT,
        "broken",
        "corrupt: broken",
    )


@pytest.mark.parametrize(
    ("data", "start"),
    [
        pytest.param(JPEG, SCAN + 14, id="jpeg"),
        pytest.param(PROGRESSIVE, PROGRESSIVE.index(b"\xff\xda") + 10, id="progressive"),
        pytest.param(PNG, PNG.index(b"IDAT") + 4, id="png"),
        pytest.param(GIF, 800, id="gif"),
        pytest.param(ANIMATED_GIF, 800, id="gif-animated"),
        pytest.param(WEBP, 40, id="webp"),
        pytest.param(BMP, 60, id="bmp"),
    ],
)
@pytest.mark.parametrize("check", ["header", "decode"])
def test_a_cut_anywhere_in_the_pixels_is_found(data: bytes, start: int, check: str) -> None:
    stop = len(data) - 1  # a GIF that lacks its last byte, the trailer, is still whole
    cuts = range(start, stop, max(1, (stop - start) // 50))
    passed = [cut for cut in cuts if reason_of(data[:cut], check) != RejectReason.TRUNCATED]
    assert len(cuts) >= 50
    # Between two frames, an animation is whole but for its trailer.
    assert passed == []


def exercise(data: bytes) -> None:
    """Everything that reads bytes; whatever is raised but an ImageFault fails the test."""
    for check in CHECKS:
        reason_of(data, check)
        reason_of(data, check, stored=False)
    for options in (KEPT, RAW, EncodeOptions(encode="png"), EncodeOptions(encode="jpeg")):
        fault_of(partial(encode_image, data, options))
    for options in ALL_FIXED:
        fault_of(partial(store_image, data, options, check="decode", name="x.png"))


@settings(max_examples=150, deadline=None)
@given(sample=st.sampled_from(GOOD), share=st.floats(0, 1))
def test_any_beginning_of_an_image(sample: Sample, share: float) -> None:
    exercise(sample.data[: int(share * len(sample.data))])


@settings(max_examples=150, deadline=None)
@given(
    start=st.sampled_from(
        [
            b"",
            b"\xff\xd8\xff",
            PNG[:16],
            PNG[:41],
            GIF[:13],
            b"GIF89a",
            WEBP[:12],
            WEBP[:16],
            BMP[:18],
            BMP[:54],
        ]
    ),
    rest=st.binary(max_size=300),
)
def test_any_bytes(start: bytes, rest: bytes) -> None:
    exercise(start + rest)


@settings(max_examples=150, deadline=None)
@given(
    sample=st.sampled_from(GOOD),
    where=st.floats(0, 1, exclude_max=True),
    flips=st.binary(min_size=1, max_size=4),
)
def test_any_damage(sample: Sample, where: float, flips: bytes) -> None:
    data = bytearray(sample.data)
    start = int(where**3 * len(data))  # most of it in the header
    data[start : start + len(flips)] = flips
    exercise(bytes(data))


def test_nothing_is_printed_and_nothing_warns(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sample in SAMPLES:
            exercise(sample.data)
    assert capfd.readouterr() == ("", "")


def test_a_header_check_imports_no_decoder() -> None:
    program = (
        "import sys; from transforms.images import check_image; "
        f"check_image(bytes.fromhex('{JPEG.hex()}'), 'header'); "
        "print(sorted({'PIL', 'tensorflow', 'apache_beam'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
