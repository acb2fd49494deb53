"""Signals of pictures: known values, a slow reference, and what must not change them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from shardwright.errors import UsageError
from shardwright.images.signals import BINS, SIGNALS, Signals, measure_picture
from tests.support.random_tests import examples

NAMES = [signal.name for signal in SIGNALS]
PIXELS = np.random.default_rng(1).integers(0, 256, (96, 128, 3), np.uint8)


def flat(color: int, shape: tuple[int, ...] = (40, 60, 3)) -> NDArray[np.uint8]:
    return np.full(shape, color, np.uint8)


def measure_signals(pixels: NDArray[np.uint8], **size: int) -> Signals:
    return measure_picture(pixels, **size).signals


def faults_of(signals: Signals) -> set[str]:
    pairs = zip(SIGNALS, signals, strict=True)
    return {signal.fault for signal, value in pairs if signal.is_fault(value)}


@pytest.mark.parametrize(("pixels", "faults"), [
    (flat(0), {"dark", "low_contrast", "blurry", "low_information", "gray"}),
    (flat(255), {"bright", "low_contrast", "blurry", "low_information", "gray"}),
    (PIXELS, set()),
    (PIXELS // 4, {"dark"}),
    (PIXELS[..., :1], {"gray"}),
    (PIXELS[:30], {"odd_aspect"}),
    (PIXELS // 32 + 120, {"low_contrast"}),
    (PIXELS // 64 + 252, {"bright", "low_contrast"}),
])  # fmt: skip
def test_the_faults_of_pictures(pixels: NDArray[np.uint8], faults: set[str]) -> None:
    assert faults_of(measure_signals(pixels)) == faults


def test_the_values_of_a_picture_of_two_levels() -> None:
    pixels = flat(100, (10, 20, 1))
    pixels[:5] = 200
    found = measure_signals(pixels, width=400, height=100)
    assert found.brightness == pytest.approx(150 / 255)
    assert found.contrast == pytest.approx(50 / 255)
    assert found.entropy == 1
    assert (found.shadows, found.highlights) == (100 / 255, 200 / 255)
    assert (found.colorfulness, found.aspect, found.size) == (0, 0.25, 200)


def reference(pixels: NDArray[Any]) -> dict[str, float]:
    """Return some signals of small RGB pixels by the formulas; levels in float32, as measured."""
    colors = pixels[..., :3].astype(np.float32)
    red, green, blue = np.moveaxis(colors**2 * np.float32([0.241, 0.691, 0.068]), 2, 0)
    levels = np.floor(np.sqrt(red + green + blue) + np.float32(0.5)).astype(float)
    exact = np.sqrt(pixels[..., :3].astype(float) ** 2 @ [0.241, 0.691, 0.068])
    # A brightness halfway between two levels may become either.
    assert np.abs(levels - exact).max() < 0.5001
    shares = np.unique(levels, return_counts=True)[1] / levels.size
    padded = np.pad(levels, 1, mode="edge")
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return {
        "brightness": levels.mean() / 255,
        "highlights": np.percentile(levels, 99, method="inverted_cdf") / 255,
        "shadows": np.percentile(levels, 5, method="inverted_cdf") / 255,
        "contrast": levels.std() / 255,
        "sharpness": (4 * levels - around).std() / (levels.std() + 2),
        "entropy": -float((shares * np.log2(shares)).sum()),
    }


SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from([3, 4]))


@examples(25)
@given(shape=SHAPES, seed=st.integers(0, 2**32), top=st.integers(1, 256))
def test_a_small_picture_has_the_values_of_the_formulas(
    shape: tuple[int, int, int], seed: int, top: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, top, shape, np.uint8)
    measured = measure_picture(pixels)
    for name, value in reference(pixels).items():
        assert getattr(measured.signals, name) == pytest.approx(value, abs=1e-9), name
    assert measured.signals == measure_signals(np.ascontiguousarray(pixels[..., :3]))
    channels, colors = measured.channels, pixels[..., :3].reshape(-1, 3).astype(int)
    assert channels.pixels == len(colors)
    assert list(channels.sums) == colors.sum(0).tolist()
    assert list(channels.squares) == (colors**2).sum(0).tolist()


def test_the_sums_of_the_brightest_picture_are_exact() -> None:
    channels = measure_picture(np.full((256, 256, 3), 255, np.uint8)).channels
    assert channels.sums == (255 * 256**2,) * 3
    assert channels.squares == (255**2 * 256**2,) * 3


@examples(10)
@given(
    shape=st.tuples(st.integers(1, 700), st.integers(1, 700), st.sampled_from([1, 3, 4])),
    seed=st.integers(0, 2**32),
)
def test_every_value_is_finite_and_has_a_bin(shape: tuple[int, int, int], seed: int) -> None:
    signals = measure_signals(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))
    assert all(math.isfinite(value) and value >= 0 for value in signals)
    assert len(NAMES) == len(signals)
    unit = ("brightness", "highlights", "shadows", "aspect")
    assert all(getattr(signals, name) <= 1 for name in unit)
    assert signals.entropy <= 8
    assert signals.sharpness <= 8


def test_gray_stored_as_rgb_has_the_signals_of_gray() -> None:
    gray = PIXELS[..., :1]
    assert measure_picture(gray) == measure_picture(np.repeat(gray, 3, axis=2))


def test_the_resolution_hardly_changes_a_value() -> None:
    rng = np.random.default_rng(3)
    small = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
    pictures = [np.asarray(small.resize((side, side * 3 // 4))) for side in (320, 640, 1280, 2560)]
    first, *others = (measure_signals(picture) for picture in pictures)
    for other in others:
        for name in ("brightness", "highlights", "shadows", "contrast", "sharpness", "entropy"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=0.15), name


def test_blur_lowers_sharpness_and_dimming_does_not() -> None:
    picture = Image.fromarray(PIXELS).resize((512, 384))
    found = [
        measure_signals(np.asarray(picture.filter(ImageFilter.GaussianBlur(radius)))).sharpness
        for radius in (0, 2, 5, 10, 20)
    ]
    assert found == sorted(found, reverse=True)
    dim = np.asarray(picture) // 3 + 80
    assert measure_signals(dim).sharpness == pytest.approx(found[0], rel=0.15)


def test_histogram_edges_ascend() -> None:
    for signal in SIGNALS:
        assert len(signal.edges) == BINS + 1
        assert list(signal.edges) == sorted(set(signal.edges))


@pytest.mark.parametrize(("pixels", "told"), [
    (np.zeros((2, 2), np.uint8), r"got uint8 \[2, 2\]"),
    (np.zeros((2, 2, 2), np.uint8), r"got uint8 \[2, 2, 2\]"),
    (np.zeros((2, 2, 3), np.float32), r"got float32 \[2, 2, 3\]"),
    (np.zeros((0, 2, 3), np.uint8), r"must not be empty, got \[0, 2, 3\]"),
])  # fmt: skip
def test_other_arrays_are_errors(pixels: NDArray[Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        measure_picture(pixels)
