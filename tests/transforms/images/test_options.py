"""Options that decide an image's bytes: from the command line, in a plan, and as sizes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.pipelines.options.build import BuildOptions, parse_options
from shardwright.transforms.images.geometry import Geometry, plan_geometry
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import ImagePolicy, PolicyFault

SIDES = st.integers(1, 3000)
SIZES = st.tuples(SIDES, SIDES)
FITS = st.sampled_from(["cover", "contain", "stretch"])
Size = tuple[int, int]


def options_of(args: str = "") -> BuildOptions:
    return parse_options(["in", "out", *args.split()])


def test_all_of_them_from_the_command_line() -> None:
    args = (
        "--encode raw --resize 64x48 --fit cover --grayscale "
        "--strip-metadata --on exif=keep --on alpha=reject "
        "--max-pixels 1000 --max-aspect 2.5 --min-side 9"
    )
    policy = ImagePolicy({PolicyFault.EXIF: "keep", PolicyFault.ALPHA: "reject"}, 1000, 2.5, 9)
    expected = EncodeOptions(
        "raw", (64, 48), fit="cover", grayscale=True, strip_metadata=True, policy=policy,
    )  # fmt: skip
    assert options_of(args).encode == expected
    options = options_of("--encode jpeg --max-side 640 --quality 7")
    assert options.encode == EncodeOptions("jpeg", max_side=640, quality=7)
    assert options_of().encode == EncodeOptions()


@pytest.mark.parametrize(("args", "message"), [
    ("--on exif", "--on 'exif': expected FAULT=ACTION; faults: exif, cmyk, 16bit, palette, alpha"),
    ("--on blur=fix", "--on 'blur=fix': expected FAULT=ACTION"),
    ("--on exif=FIX", "actions: keep, fix, reject"),
    ("--on exif=fix --on exif=keep", "--on exif is both fix and keep: choose one"),
    ("--on small=fix", "--on small=fix needs a limit: give --min-side"),
    ("--max-aspect 0.5", "--max-aspect must be at least 1"),
    ("--encode jpeg --on alpha=keep", "--on alpha=keep: encode 'jpeg' cannot hold that"),
    ("--max-side 64", "--encode 'keep' stores files unchanged, got max-side 64"),
    ("--grayscale", "--encode 'keep' stores files unchanged, got grayscale"),
    ("--encode png --max-side 0",
     "--max-side must be a whole number of pixels from 1 to 65,500, got 0"),
    ("--encode png --max-side 64 --resize 8x8",
     "--resize gives all images one size, max-side a maximum"),
    ("--encode png --fit cover", "--fit 'cover' needs resize, got none"),
    ("--encode raw --max-side 64", "--encode 'raw' needs one shape for all images"),
    ("--encode png --max-side 64 --min-side 65",
     "--min-side 65 is above max-side 64: no image has both"),
])  # fmt: skip
def test_wrong_values_on_the_command_line(args: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        options_of(args)
    assert message in str(caught.value)


def test_choices() -> None:
    with pytest.raises(ValueError, match=r"fit must be one of .*, got 'other'"):
        EncodeOptions("raw", (8, 8), fit="other")  # type: ignore[arg-type]


def test_settings_hold_every_option_that_decides_bytes() -> None:
    """Two builds resume one another's shards only where these are equal."""
    changes = (
        "", "--fit cover", "--fit contain", "--grayscale",
        "--strip-metadata", "--on exif=keep", "--on exif=reject",
        "--on alpha=reject", "--max-pixels 9", "--max-aspect 3", "--min-side 3", "--quality 3",
    )  # fmt: skip
    settings = [options_of(f"--encode raw --resize 64x48 {change}").settings for change in changes]
    assert len({repr(each["encode"]) for each in settings}) == len(changes)


def test_options_can_be_pickled() -> None:
    options = options_of("--on exif=fix --max-pixels 9").encode
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert copy.watched == options.watched == (PolicyFault.EXIF, PolicyFault.BOMB)


def test_settings_state_what_is_not_the_default() -> None:
    settings = options_of().settings["encode"]
    assert settings == {"encode": "keep", "resize": [], "quality": 90}
    settings = options_of("--encode jpeg --resize 8x6 --quality 80").settings["encode"]
    assert settings == {"encode": "jpeg", "resize": [8, 6], "quality": 80}


@pytest.mark.parametrize(("options", "shape"), [
    (EncodeOptions(), ()), (EncodeOptions("jpeg"), ()), (EncodeOptions("raw", (8, 6)), (6, 8, 3)),
    (EncodeOptions("raw", (8, 6), grayscale=True), (6, 8, 1)),
])  # fmt: skip
def test_shape(options: EncodeOptions, shape: tuple[int, ...]) -> None:
    assert options.shape == shape


@pytest.mark.parametrize(("size", "options", "crop", "scaled", "canvas"), [
    ((400, 300), {"resize": (64, 64)}, (400, 300), (64, 64), (64, 64)),
    ((400, 300), {"resize": (64, 64), "fit": "cover"}, (300, 300), (64, 64), (64, 64)),
    ((400, 300), {"resize": (64, 64), "fit": "contain"}, (400, 300), (64, 48), (64, 64)),
    ((30, 40), {"resize": (60, 60), "fit": "contain"}, (30, 40), (45, 60), (60, 60)),
    ((400, 300), {"max_side": 100}, (400, 300), (100, 75), (100, 75)),
    ((40, 30), {"max_side": 100}, (40, 30), (40, 30), (40, 30)),
    ((3000, 1), {"max_side": 100}, (3000, 1), (100, 1), (100, 1)),
])  # fmt: skip
def test_geometry(size: Size, options: Any, crop: Size, scaled: Size, canvas: Size) -> None:
    found = plan_geometry(size, EncodeOptions("png", **options))
    assert found == Geometry(crop, scaled, canvas)


@given(size=SIZES, resize=SIZES, fit=FITS)
def test_every_fit_takes_a_middle_part(size: Size, resize: Size, fit: Any) -> None:
    geometry = plan_geometry(size, EncodeOptions("png", resize, fit=fit))
    left, top, right, bottom = geometry.box(size, size)
    assert geometry.canvas == resize
    assert geometry.scaled[0] <= resize[0]
    assert geometry.scaled[1] <= resize[1]
    assert 0 <= left < right <= size[0]
    assert 0 <= top < bottom <= size[1]
    assert (left + right, top + bottom) == pytest.approx(size)
    if fit == "cover":
        assert (right - left) * resize[1] == pytest.approx((bottom - top) * resize[0])
    else:
        assert geometry.crop == size
    if fit == "contain":
        assert geometry.scaled[0] == resize[0] or geometry.scaled[1] == resize[1]
    # A JPEG is decoded at twice the size that is needed, or more.
    for axis, needed in enumerate(geometry.needed(size)):
        part = geometry.crop[axis] / size[axis]
        assert needed * part >= 2 * geometry.scaled[axis] * (1 - 1e-9)


FIXED = dict.fromkeys((PolicyFault.BOMB, PolicyFault.ASPECT, PolicyFault.SMALL), "fix")
LIMITED = ImagePolicy(FIXED, 500_000, 3.0, 40)  # type: ignore[arg-type]


@given(size=SIZES)
def test_fixed_sizes_keep_the_limits(size: Size) -> None:
    geometry = plan_geometry(size, EncodeOptions("png", policy=LIMITED))
    width, height = geometry.canvas
    assert width * height <= 500_000
    assert min(width, height) >= 40
    assert max(geometry.crop) <= 3 * min(geometry.crop)
    if size[0] * size[1] <= 500_000 and min(size) >= 40:
        assert geometry.scaled == geometry.crop


@given(side=st.integers(1, 3), longer=st.integers(600_000, 10**8))
def test_a_narrow_bomb_keeps_the_limit(side: int, longer: int) -> None:
    policy = ImagePolicy({PolicyFault.BOMB: "fix"}, max_pixels=500_000)
    for size in ((side, longer), (longer, side)):
        width, height = plan_geometry(size, EncodeOptions("png", policy=policy)).canvas
        assert 0 < width * height <= 500_000


@given(size=SIZES, max_side=SIDES)
def test_max_side_never_enlarges_and_keeps_the_aspect(size: Size, max_side: int) -> None:
    canvas = plan_geometry(size, EncodeOptions("png", max_side=max_side)).canvas
    longest = min(max_side, max(size))
    assert max(canvas) == longest
    assert canvas == pytest.approx([max(1, side * longest / max(size)) for side in size], abs=0.5)
