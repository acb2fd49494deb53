"""The draws of a crop: inside the image, a function of the draw alone, and spread as they are said to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.images.crops import Crop, centred, draw_crop, draw_flip, evaluation_crop, uniform

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
HEIGHT, WIDTH = 375, 500
NUM_DRAWS = 20_000

draws = st.integers(0, 2**64 - 1)
sides = st.integers(1, 6000)


def crop_of(draw: int, height: int = HEIGHT, width: int = WIDTH) -> Crop:
    return draw_crop(draw, height, width, scale=SCALE, ratio=RATIO)


def spread_draws(seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 2**64, NUM_DRAWS, dtype=np.uint64).tolist()


def distance(found: list[float], low: float, high: float) -> float:
    """Kolmogorov-Smirnov's distance from the even distribution, in units in which 1.95 is passed once in a thousand runs."""
    values = (np.sort(found) - low) / (high - low)
    steps = np.arange(len(values) + 1) / len(values)
    gap = max(np.abs(values - steps[1:]).max(), np.abs(values - steps[:-1]).max())
    return float(gap * math.sqrt(len(values)))


def test_the_numbers_are_splitmix64s() -> None:
    # The first outputs of the reference implementation (Vigna, splitmix64.c) from seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [uniform(1234567, number) for number in range(4)] == [
        (value >> 11) * 2.0**-53 for value in expected
    ]


@pytest.mark.parametrize(("draw", "expected"), [
    (0, (32, 25, 343, 261, False)),
    (1, (19, 29, 331, 434, False)),
    (2**63, (45, 169, 258, 261, True)),
    (2**64 - 1, (6, 39, 349, 450, False)),
])  # fmt: skip
def test_golden_crops(draw: int, expected: tuple[int, int, int, int, bool]) -> None:
    """A change here changes what every resumed run sees."""
    assert (*crop_of(draw), draw_flip(draw)) == expected


@given(draws, sides, sides)
def test_a_crop_lies_inside(draw: int, height: int, width: int) -> None:
    top, left, crop_height, crop_width = crop_of(draw, height, width)
    assert crop_height >= 1
    assert crop_width >= 1
    assert 0 <= top <= height - crop_height
    assert 0 <= left <= width - crop_width


@pytest.mark.parametrize(("size", "expected"), [
    ((1, 1), Crop(0, 0, 1, 1)),
    ((1, 5000), Crop(0, 2499, 1, 1)),
    ((5000, 1), Crop(2499, 0, 1, 1)),
    ((3, 5000), Crop(0, 2498, 3, 4)),
    ((5000, 3), Crop(2498, 0, 4, 3)),
])  # fmt: skip
def test_the_fallback_is_the_largest_centred_crop(size: tuple[int, int], expected: Crop) -> None:
    """Of an image so narrow that no attempt at a crop of the asked area fits."""
    assert {draw_crop(draw, *size, scale=(0.9, 1.0), ratio=RATIO) for draw in range(50)} == {
        expected
    }


def test_a_narrow_image_often_falls_back_and_always_gives_a_crop() -> None:
    shapes = [crop_of(draw, 8, 5000) for draw in range(200)]
    assert all(1 <= crop.height <= 8 and 1 <= crop.width <= 11 for crop in shapes)


@given(draws)
def test_the_same_draw_gives_the_same_crop(draw: int) -> None:
    assert crop_of(draw) == crop_of(draw)
    assert draw_flip(draw) == draw_flip(draw)


def test_different_draws_differ() -> None:
    """Neighbouring draws, too: nothing says that they are far apart."""
    assert len({crop_of(draw) for draw in range(10_000)}) > 9_990


@pytest.mark.parametrize("made", ["spread", "neighbours"])
def test_area_shape_and_place_are_spread_evenly(made: str) -> None:
    """With a scale at which every first attempt fits, so that nothing is drawn again."""
    draws = spread_draws() if made == "spread" else range(NUM_DRAWS)
    crops = [draw_crop(draw, 3000, 3000, scale=(0.1, 0.5), ratio=RATIO) for draw in draws]
    areas = [crop.height * crop.width / 3000**2 for crop in crops]
    shapes = [math.log(crop.width / crop.height) for crop in crops]
    assert distance(areas, 0.1, 0.5) < 1.95
    assert distance(shapes, math.log(3 / 4), math.log(4 / 3)) < 1.95
    for offsets in (
        [(c.top + 0.5) / (3001 - c.height) for c in crops],
        [(c.left + 0.5) / (3001 - c.width) for c in crops],
    ):
        assert distance(offsets, 0, 1) < 1.95
        assert min(offsets) < 0.001
        assert max(offsets) > 0.999
    assert (
        np.abs(
            np.corrcoef([areas, shapes, [float(draw_flip(draw)) for draw in draws]])[
                np.triu_indices(3, 1)
            ]
        ).max()
        < 0.03
    )


def test_every_place_of_a_small_image_comes_as_often() -> None:
    """The last row and column too: a whole crop has 1 place, a crop of 1 pixel 9."""
    crops = [draw_crop(draw, 3, 3, scale=(0.05, 0.2), ratio=(0.99, 1.01)) for draw in range(9_000)]
    counts = np.zeros((3, 3))
    for crop in crops:
        assert crop[2:] == (1, 1)
        counts[crop.top, crop.left] += 1
    assert np.abs(counts - 1000).max() < 150  # five standard deviations


def test_the_distribution_of_torchvision() -> None:
    """Quantiles of 400,000 draws of torchvision 0.29's RandomResizedCrop.get_params for 375 x 500, its defaults."""
    crops = [crop_of(draw) for draw in spread_draws(1)]
    areas = np.array([crop.height * crop.width / (HEIGHT * WIDTH) for crop in crops])
    assert np.quantile(areas, [0.1, 0.5, 0.9]) == pytest.approx([0.1480, 0.4219, 0.7357], abs=0.012)
    shapes = np.array([crop.width / crop.height for crop in crops])
    assert np.quantile(shapes, [0.1, 0.5, 0.9]) == pytest.approx(
        [0.8105, 1.0467, 1.2761], abs=0.012
    )


def test_half_are_mirrored() -> None:
    for draws in (spread_draws(2), range(NUM_DRAWS)):
        share = sum(map(draw_flip, draws)) / NUM_DRAWS
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(NUM_DRAWS)


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
def test_evaluation_crops(
    image: tuple[int, int], size: tuple[int, int], resize: int, expected: Crop
) -> None:
    assert evaluation_crop(*image, size=size, resize=resize) == expected


@given(sides, sides, st.tuples(st.integers(1, 600), st.integers(1, 600)), st.integers(1, 700))
def test_an_evaluation_crop_lies_inside_in_the_middle(
    height: int, width: int, size: tuple[int, int], resize: int
) -> None:
    top, left, crop_height, crop_width = evaluation_crop(height, width, size=size, resize=resize)
    assert 1 <= crop_height <= height
    assert 1 <= crop_width <= width
    assert 0 <= (height - crop_height) - 2 * top <= 1
    assert 0 <= (width - crop_width) - 2 * left <= 1


def test_centred() -> None:
    assert centred(5, 8, 2, 2) == Crop(1, 3, 2, 2)
