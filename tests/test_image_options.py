"""What decides an image's bytes: options from the command line, what they stand for in a plan, and sizes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.options import BuildOptions, parse_options
from shardwright.errors import UsageError
from transforms.images import EncodeOptions, ImagePolicy, PolicyFault
from transforms.images.geometry import Geometry, plan_geometry

SIDES = st.integers(1, 3000)
SIZES = st.tuples(SIDES, SIDES)


def options_of(*args: str) -> BuildOptions:
    return parse_options(["in", "out", *args])


def test_all_of_them_from_the_command_line() -> None:
    args = "--encode tensor --resize 64x48 --fit cover --grayscale --tensor-dtype float32 --color-profile srgb --strip-metadata "
    args += "--on exif=keep --on alpha=reject --max-pixels 1000 --max-aspect 2.5 --min-side 9"
    assert options_of(*args.split()).encode == EncodeOptions(
        "tensor",
        (64, 48),
        fit="cover",
        grayscale=True,
        tensor_dtype="float32",
        color_profile="srgb",
        strip_metadata=True,
        policy=ImagePolicy({PolicyFault.EXIF: "keep", PolicyFault.ALPHA: "reject"}, 1000, 2.5, 9),
    )
    assert options_of(
        "--encode", "jpeg", "--max-side", "640", "--quality", "7"
    ).encode == EncodeOptions("jpeg", max_side=640, quality=7)
    assert options_of().encode == EncodeOptions()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--on exif", "--on 'exif': write FAULT=ACTION; faults: exif, cmyk, 16bit, palette, alpha"),
        ("--on blur=fix", "--on 'blur=fix': write FAULT=ACTION"),
        ("--on exif=FIX", "actions: keep, fix, reject"),
        ("--on exif=fix --on exif=keep", "--on exif is given as fix and as keep: choose one"),
        ("--on small=fix", "--on small=fix needs a limit: give --min-side"),
        ("--max-aspect 0.5", "--max-aspect must be 1 or more"),
        ("--encode jpeg --on alpha=keep", "--on alpha=keep: encode 'jpeg' cannot hold that"),
        ("--max-side 64", "--encode 'keep' stores files as they are, got max-side 64"),
        ("--grayscale", "--encode 'keep' stores files as they are, got grayscale"),
        (
            "--encode png --max-side 0",
            "--max-side must be a whole number of pixels from 1 to 65,500, got 0",
        ),
        (
            "--encode png --max-side 64 --resize 8x8",
            "--resize gives all images one size, max-side a largest one",
        ),
        ("--encode png --fit cover", "--fit 'cover' says how images get one size, got no resize"),
        ("--encode raw --max-side 64", "--encode 'raw' needs one shape for all images"),
        (
            "--encode png --tensor-dtype float32",
            "--tensor-dtype float32 goes with encode 'tensor', got 'png'",
        ),
        (
            "--encode tensor --color-profile keep",
            "--color-profile keep: encode 'tensor' has no place for a profile",
        ),
        (
            "--encode png --max-side 64 --min-side 65",
            "--min-side 65 is above max-side 64: no image has both",
        ),
    ],
)
def test_wrong_values_on_the_command_line(args: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        options_of(*args.split())
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["fit", "tensor_dtype", "color_profile"])
def test_choices(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"{name.replace('_', '-')} must be one of .*, got 'other'"
    ):
        EncodeOptions("tensor", (8, 8), **{name: "other"})  # type: ignore[arg-type]


def test_settings_tell_all_that_decides_bytes() -> None:
    """Two builds go on with one another's shards only where these are equal."""
    base = "--encode tensor --resize 64x48"
    changes = (
        "--fit cover", "--fit contain", "--grayscale", "--tensor-dtype float32", "--color-profile srgb", "--strip-metadata",
        "--on exif=keep", "--on exif=reject", "--on alpha=reject", "--max-pixels 9", "--max-aspect 3", "--min-side 3", "--quality 3",
    )  # fmt: skip
    records = [
        options_of(*f"{base} {change}".split()).settings["encode"] for change in ("", *changes)
    ]
    assert all(record not in records[:number] for number, record in enumerate(records))


def test_options_travel_to_workers() -> None:
    options = options_of("--on", "exif=fix", "--max-pixels", "9").encode
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert copy.watched == options.watched == (PolicyFault.EXIF, PolicyFault.BOMB)


def test_settings_of_older_datasets_are_still_the_same() -> None:
    assert options_of().settings["encode"] == {"encode": "keep", "resize": [], "quality": 90}
    args = ["--encode", "jpeg", "--resize", "8x6", "--quality", "80"]
    assert options_of(*args).settings["encode"] == {
        "encode": "jpeg",
        "resize": [8, 6],
        "quality": 80,
    }


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({}, ()),
        ({"encode": "jpeg"}, ()),
        ({"encode": "raw", "resize": (8, 6)}, (6, 8, 3)),
        ({"encode": "raw", "resize": (8, 6), "grayscale": True}, (6, 8, 1)),
        ({"encode": "tensor"}, (None, None, 3)),
        ({"encode": "tensor", "grayscale": True}, (None, None, 1)),
        ({"encode": "tensor", "max_side": 9}, (None, None, 3)),
    ],
)
def test_shape(values: Any, shape: tuple[int | None, ...]) -> None:
    assert EncodeOptions(**values).shape == shape


@pytest.mark.parametrize(
    ("size", "values", "expected"),
    [
        ((400, 300), {"resize": (64, 64)}, Geometry((400, 300), (64, 64), (64, 64))),
        (
            (400, 300),
            {"resize": (64, 64), "fit": "cover"},
            Geometry((300, 300), (64, 64), (64, 64)),
        ),
        (
            (400, 300),
            {"resize": (64, 64), "fit": "contain"},
            Geometry((400, 300), (64, 48), (64, 64)),
        ),
        ((30, 40), {"resize": (60, 60), "fit": "contain"}, Geometry((30, 40), (45, 60), (60, 60))),
        ((400, 300), {"max_side": 100}, Geometry((400, 300), (100, 75), (100, 75))),
        ((40, 30), {"max_side": 100}, Geometry((40, 30), (40, 30), (40, 30))),
        ((3000, 1), {"max_side": 100}, Geometry((3000, 1), (100, 1), (100, 1))),
    ],
)
def test_geometry(size: tuple[int, int], values: Any, expected: Geometry) -> None:
    assert plan_geometry(size, EncodeOptions("png", **values)) == expected


@given(size=SIZES, resize=SIZES, fit=st.sampled_from(["cover", "contain", "stretch"]))
def test_every_fit_gives_the_size_and_takes_a_middle_part(
    size: tuple[int, int], resize: tuple[int, int], fit: Any
) -> None:
    geometry = plan_geometry(size, EncodeOptions("png", resize, fit=fit))
    assert geometry.canvas == resize
    assert all(
        scaled <= canvas for scaled, canvas in zip(geometry.scaled, geometry.canvas, strict=True)
    )
    left, top, right, bottom = geometry.box(size, size)
    assert 0 <= left < right <= size[0]
    assert 0 <= top < bottom <= size[1]
    assert left + right == pytest.approx(size[0])
    assert top + bottom == pytest.approx(size[1])
    if fit == "cover":
        assert (right - left) * resize[1] == pytest.approx((bottom - top) * resize[0])
    else:
        assert geometry.crop == size
    if fit == "contain":
        assert any(
            scaled == canvas
            for scaled, canvas in zip(geometry.scaled, geometry.canvas, strict=True)
        )


LIMITED = ImagePolicy(
    dict.fromkeys((PolicyFault.BOMB, PolicyFault.ASPECT, PolicyFault.SMALL), "fix"),
    500_000,
    3.0,
    40,
)


@given(size=SIZES)
def test_what_is_fixed_keeps_the_limits(size: tuple[int, int]) -> None:
    geometry = plan_geometry(size, EncodeOptions("png", policy=LIMITED))
    width, height = geometry.canvas
    assert width * height <= 500_000
    assert min(width, height) >= 40
    assert max(geometry.crop) <= 3 * min(geometry.crop)
    if size[0] * size[1] <= 500_000 and min(size) >= 40:
        assert geometry.scaled == geometry.crop


@given(size=SIZES, max_side=SIDES)
def test_max_side_never_enlarges_and_keeps_the_aspect(size: tuple[int, int], max_side: int) -> None:
    canvas = plan_geometry(size, EncodeOptions("png", max_side=max_side)).canvas
    assert max(canvas) == min(max_side, max(size))
    assert all(
        abs(to - max(1, side * max(canvas) / max(size))) <= 0.5
        for to, side in zip(canvas, size, strict=True)
    )


@given(size=SIZES, resize=SIZES, fit=st.sampled_from(["cover", "contain", "stretch"]))
def test_a_jpeg_is_decoded_no_smaller_than_needed(
    size: tuple[int, int], resize: tuple[int, int], fit: Any
) -> None:
    geometry = plan_geometry(size, EncodeOptions("png", resize, fit=fit))
    needed = geometry.needed(size)
    for need, side, crop, scaled in zip(needed, size, geometry.crop, geometry.scaled, strict=True):
        assert need * crop / side >= 2 * scaled * (1 - 1e-9)
