"""Draws of a crop: inside the image, a function of the draw alone, distributed as documented."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.images.crops import Crop, centred, draw_crop, draw_flip, evaluation_crop, uniform

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
HEIGHT, WIDTH = 375, 500
Size = tuple[int, int]
NEIGHBORS = range(20_000)
SPREAD = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64).tolist()

draws = st.integers(0, 2**64 - 1)
sides = st.integers(1, 6000)


def crop_of(draw: int, height: int = HEIGHT, width: int = WIDTH) -> Crop:
    return draw_crop(draw, height, width, scale=SCALE, ratio=RATIO)


def distance(found: Sequence[float], low: float, high: float) -> float:
    """Kolmogorov-Smirnov's distance from a uniform distribution; one run in 1,000 exceeds 1.95."""
    values = (np.sort(found) - low) / (high - low)
    steps = np.arange(len(values) + 1) / len(values)
    gap = max(np.abs(values - steps[1:]).max(), np.abs(values - steps[:-1]).max())
    return float(gap * math.sqrt(len(values)))


def test_the_numbers_are_splitmix64s() -> None:
    # The first outputs of the reference implementation (Vigna, splitmix64.c) from seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    found = [uniform(1234567, number) for number in range(4)]
    assert found == [(value >> 11) * 2.0**-53 for value in expected]


@pytest.mark.parametrize(("draw", "expected"), [
    (0, (32, 25, 343, 261, False)),
    (1, (19, 29, 331, 434, False)),
    (2**63, (45, 169, 258, 261, True)),
    (2**64 - 1, (6, 39, 349, 450, False)),
])  # fmt: skip
def test_golden_crops(draw: int, expected: tuple[int, int, int, int, bool]) -> None:
    """A change here changes the images of every resumed run."""
    assert (*crop_of(draw), draw_flip(draw)) == expected


@given(draws, sides, sides)
def test_a_crop_lies_inside_and_follows_the_draw(draw: int, height: int, width: int) -> None:
    crop = crop_of(draw, height, width)
    assert crop == crop_of(draw, height, width)
    assert draw_flip(draw) == draw_flip(draw)
    assert min(crop.height, crop.width) >= 1
    assert 0 <= crop.top <= height - crop.height
    assert 0 <= crop.left <= width - crop.width


@pytest.mark.parametrize(("size", "expected"), [
    ((1, 1), Crop(0, 0, 1, 1)),
    ((1, 5000), Crop(0, 2499, 1, 1)),
    ((5000, 1), Crop(2499, 0, 1, 1)),
    ((3, 5000), Crop(0, 2498, 3, 4)),
    ((5000, 3), Crop(2498, 0, 4, 3)),
])  # fmt: skip
def test_a_narrow_image_gives_the_largest_centered_crop(size: Size, expected: Crop) -> None:
    found = {draw_crop(draw, *size, scale=(0.9, 1.0), ratio=RATIO) for draw in range(50)}
    assert found == {expected}


def test_a_narrow_image_often_falls_back_and_always_gives_a_crop() -> None:
    shapes = [crop_of(draw, 8, 5000) for draw in range(200)]
    assert all(1 <= crop.height <= 8 and 1 <= crop.width <= 11 for crop in shapes)


@pytest.mark.parametrize("draws", [SPREAD, NEIGHBORS], ids=["spread", "neighbors"])
def test_area_shape_place_and_flip_are_uniform(draws: Sequence[int]) -> None:
    """At this scale every first attempt fits, so that nothing is drawn again."""
    crops = [draw_crop(draw, 3000, 3000, scale=(0.1, 0.5), ratio=RATIO) for draw in draws]
    tops, lefts, heights, widths = np.array(crops).T
    areas, shapes = heights * widths / 3000**2, np.log(widths / heights)
    assert distance(areas, 0.1, 0.5) < 1.95
    assert distance(shapes, math.log(3 / 4), math.log(4 / 3)) < 1.95
    for offsets in ((tops + 0.5) / (3001 - heights), (lefts + 0.5) / (3001 - widths)):
        assert distance(offsets, 0, 1) < 1.95
        assert offsets.min() < 0.001
        assert offsets.max() > 0.999
    flips = [float(draw_flip(draw)) for draw in draws]
    assert abs(np.mean(flips) - 0.5) < 5 * 0.5 / math.sqrt(len(flips))
    correlations = np.corrcoef([areas, shapes, flips])[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 0.03


def test_every_place_of_a_small_image_is_as_likely() -> None:
    """The last row and column too: a whole crop has 1 place, a crop of 1 pixel 9."""
    crops = [draw_crop(draw, 3, 3, scale=(0.05, 0.2), ratio=(0.99, 1.01)) for draw in range(9_000)]
    assert {crop[2:] for crop in crops} == {(1, 1)}
    counts = np.bincount([3 * crop.top + crop.left for crop in crops])
    assert len(counts) == 9
    assert np.abs(counts - 1000).max() < 150  # five standard deviations


def test_the_distribution_is_that_of_torchvision() -> None:
    """Quantiles of 400,000 draws of RandomResizedCrop.get_params, 375 x 500 (torchvision 0.29)."""
    _, _, heights, widths = np.array([crop_of(draw) for draw in SPREAD]).T
    areas, shapes = heights * widths / (HEIGHT * WIDTH), widths / heights
    quantiles = np.quantile([areas, shapes], [0.1, 0.5, 0.9], axis=1).T
    expected = [[0.1480, 0.4219, 0.7357], [0.8105, 1.0467, 1.2761]]
    assert np.abs(quantiles - expected).max() < 0.012


@pytest.mark.parametrize(("image", "size", "resize", "expected"), [
    ((375, 500), (224, 224), 256, Crop(23, 86, 328, 328)),
    ((500, 375), (224, 224), 256, Crop(86, 23, 328, 328)),
    ((256, 256), (224, 224), 256, Crop(16, 16, 224, 224)),
    ((256, 257), (224, 224), 256, Crop(16, 16, 224, 224)),
    ((256, 256), (224, 224), 224, Crop(0, 0, 256, 256)),
    ((100, 100), (224, 224), 100, Crop(0, 0, 100, 100)),
    ((100, 300), (64, 128), 73, Crop(6, 62, 88, 175)),
    ((100, 100), (64, 128), 73, Crop(25, 0, 50, 100)),
    ((1, 5000), (224, 224), 256, Crop(0, 2499, 1, 1)),
    ((1, 1), (224, 224), 256, Crop(0, 0, 1, 1)),
])  # fmt: skip
def test_evaluation_crops(image: Size, size: Size, resize: int, expected: Crop) -> None:
    assert evaluation_crop(*image, size=size, resize=resize) == expected


@given(sides, sides, st.tuples(st.integers(1, 600), st.integers(1, 600)), st.integers(1, 700))
def test_an_evaluation_crop_is_in_the_middle(h: int, w: int, size: Size, resize: int) -> None:
    crop = evaluation_crop(h, w, size=size, resize=resize)
    assert 1 <= crop.height <= h
    assert 1 <= crop.width <= w
    assert 0 <= (h - crop.height) - 2 * crop.top <= 1
    assert 0 <= (w - crop.width) - 2 * crop.left <= 1


def test_centred() -> None:
    assert centred(5, 8, 2, 2) == Crop(1, 3, 2, 2)
