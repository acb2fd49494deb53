"""Rates and times left of a watched build, by hand and for random builds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.inspect.build_progress import (
    BuildPhase,
    BuildProgress,
    FinishedShard,
    WriteRate,
    overall_rate,
    recent_rate,
    slowest_of,
    time_left,
)
from tests.support.random_tests import examples

START = 10_000.0


def shards(*modified: float, records: float = 100, num_bytes: float = 1000) -> list[FinishedShard]:
    return [FinishedShard(f"s{at}", at, records, num_bytes) for at in modified]


@pytest.mark.parametrize(
    ("modified", "seconds", "overall", "recent"),
    [
        ((), 60, None, None),
        ((-5,), 60, None, None),  # of an earlier run
        ((-5, 20), 50, (50, 2.0), (50, 2.0)),
        ((0,), 10, (10, 10.0), (10, 10.0)),
        # Few shards: since the plan. More: the last five minutes, or since the fifth last.
        ((100, 200, 300, 900), 1000, (1000, 0.4), (1000, 0.4)),
        ((100, 700, 800, 900, 950), 1000, (1000, 0.5), (900, 4 / 9)),
        ((100, 700, 800, 850, 900, 950), 1000, (1000, 0.6), (300, 4 / 3)),
        ((100, 690, 800, 850, 900, 950), 1000, (1000, 0.6), (310, 400 / 310)),
        ((10, 20, 30, 40, 50), 60, (60, 500 / 60), (60, 500 / 60)),
    ],
)
def test_rates(
    modified: tuple[float, ...],
    seconds: float,
    overall: tuple[float, float] | None,
    recent: tuple[float, float] | None,
) -> None:
    found = shards(*(START + at for at in modified))
    for rate, wanted in ((overall_rate, overall), (recent_rate, recent)):
        measured = rate(found[::-1], START, START + seconds)
        assert rate(found, START, START + seconds) == measured
        if wanted is None:
            assert measured is None
        else:
            assert measured is not None
            assert (measured.seconds, measured.records_per_second) == pytest.approx(wanted)
            assert measured.bytes_per_second == pytest.approx(10 * measured.records_per_second)


@given(st.lists(st.floats(-500, 2000), max_size=30), st.floats(0, 2000))
@examples(100)
def test_rates_of_any_build(times: list[float], seconds: float) -> None:
    now = START + seconds
    found = shards(*(START + at for at in times if at <= seconds))
    recent, overall = (rate(found, START, now) for rate in (recent_rate, overall_rate))
    new = sum(shard.modified >= START for shard in found)
    assert (recent is None) == (overall is None) == (new == 0)
    if recent and overall:
        assert overall.records_per_second * overall.seconds == pytest.approx(100 * new)
        counted = recent.records_per_second * recent.seconds / 100
        assert min(new, 1) - 1e-6 <= counted <= new + 1e-6
        assert recent.seconds <= overall.seconds
        assert recent.seconds == overall.seconds or recent.seconds >= 300


def test_a_clock_behind_that_of_the_store() -> None:
    rate = overall_rate(shards(START + 2), START, START - 1)
    assert rate is not None
    assert rate.seconds > 0


@pytest.mark.parametrize(
    ("records", "rate", "seconds"),
    [(100, None, None), (100, 0.0, None), (0, 5.0, None), (-3, 5.0, None), (100, 5.0, 20.0)],
)
def test_time_left(records: int, rate: float | None, seconds: float | None) -> None:
    found = None if rate is None else WriteRate(1.0, rate, 0.0)
    assert time_left(records, found) == seconds


def test_the_slowest_shards() -> None:
    seconds = (3.0, None, 9.0, 3.0, 1.0)
    found = [FinishedShard(f"s{n}", 0, 1, 1, each) for n, each in enumerate(seconds)]
    assert slowest_of(found) == [("s2", 9.0), ("s0", 3.0), ("s3", 3.0)]


@pytest.mark.parametrize(
    ("phase", "idle", "slowest", "stalled"),
    [
        (BuildPhase.WRITING, 299.0, 0.0, False),
        (BuildPhase.WRITING, 301.0, 0.0, True),
        (BuildPhase.WRITING, 301.0, 200.0, False),
        (BuildPhase.WRITING, 401.0, 200.0, True),
        (BuildPhase.PUBLISHED, 1e6, 0.0, False),
        (BuildPhase.EMPTY, None, 0.0, False),
        (BuildPhase.PLANNING, 1e6, 0.0, True),
    ],
)
def test_a_stall(phase: BuildPhase, idle: float | None, slowest: float, stalled: bool) -> None:
    progress = BuildProgress(phase, idle_seconds=idle, slowest=[("s", slowest)])
    assert progress.is_stalled is stalled
    assert progress.to_json()["stalled"] is stalled
