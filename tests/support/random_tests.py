"""Random tests: the seeds of their rounds, and how long the rounds go on.

`make test` runs one round of each test from a fixed seed: each run gives the same result. `make
test-all` (`pytest --long --minutes M`) repeats rounds with new seeds for M minutes, of which each
test gets a share by its weight. So a slow machine runs fewer rounds, not more minutes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

LONG = "SHARDWRIGHT_TEST_LONG"
SEED = "SHARDWRIGHT_TEST_SEED"
FIXED_SEED = 20_261_122


def is_long() -> bool:
    """Return whether this is `pytest --long`."""
    return os.environ.get(LONG) == "1"


def seed() -> int:
    """Return the seed of this run, the same in all its processes."""
    return int(os.environ.get(SEED, FIXED_SEED))


def is_random(item: pytest.Item) -> bool:
    """Return whether a test draws from the seed: a property test, or one with the fixture `rng`."""
    names = getattr(item, "fixturenames", ())
    return "rng" in names or item.get_closest_marker("hypothesis") is not None


def weight_of(item: pytest.Item) -> float:
    """Return a random test's share of the minutes, relative to others."""
    marker = item.get_closest_marker("weight")
    return float(marker.args[0]) if marker else 1.0


def examples(number: int, *, weight: float = 1) -> Callable[[Any], Any]:
    """Return a decorator that sets the examples of a round: `@examples(5)` above `@given(...)`.

    Args:
        number: Examples of a round.
        weight: The test's share of the minutes of `make test-all`.
    """
    return lambda test: pytest.mark.weight(weight)(settings(max_examples=number)(test))


def seeds(seconds: float) -> Iterator[int]:
    """Yield a seed a round, until the seconds are over; the first one is the seed of this run."""
    start, following = time.monotonic(), random.Random(seed())
    yield seed()
    while time.monotonic() < start + seconds:
        yield following.getrandbits(32)


def load_profile() -> None:
    """Set the defaults of every property test."""
    # No deadline and no health checks of time: other tests run on the machine meanwhile. No
    # database: a seed alone decides what is drawn.
    settings.register_profile(
        "shardwright",
        deadline=None,
        derandomize=SEED not in os.environ,
        database=None,
        max_examples=25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("shardwright")
