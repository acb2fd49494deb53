"""The number and the seed of random examples.

`make test` draws a few from a fixed seed: each run gives the same result. `make test-all`
(`pytest --long`) draws many, from a new seed that its last lines print.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = "SHARDWRIGHT_TEST_LONG"
SEED = "SHARDWRIGHT_TEST_SEED"
FIXED_SEED = 20_261_122
FEW, MANY = 25, 1000


def is_long() -> bool:
    """Return whether this is `pytest --long`."""
    return os.environ.get(LONG) == "1"


def seed() -> int:
    """Return the seed of this run, the same in all its processes."""
    return int(os.environ.get(SEED, FIXED_SEED))


def examples(few: int, many: int) -> settings:
    """Return settings for a property test: `@examples(5, 200)` above `@given(...)`.

    Args:
        few: Number of examples in `make test`.
        many: Number of examples in `make test-all`.
    """
    return settings(max_examples=many if is_long() else few)


def load_profile() -> None:
    """Set the defaults of every property test."""
    # No deadline and no health checks of time: other tests run on the machine meanwhile.
    settings.register_profile(
        "shardwright",
        deadline=None,
        derandomize=not is_long(),
        max_examples=MANY if is_long() else FEW,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("shardwright")
