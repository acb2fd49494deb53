"""The figures of the reading benchmark: speeds, ratios, targets and the page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.benchmark_scripts import load, through_json

report = load("read_report")
ORDERS = ("sequential", "shuffled")
Rates = dict[tuple[str, str], list[float]]  # by (name, order)


def made_results(feed: Rates, **parts: Any) -> Any:
    """Runs of one second each.

    Args:
        feed: Images per second, round by round.
        parts: `raw` and `random` as `feed`, `first` in seconds, `rss` in bytes.
    """
    results = {}
    of_part = {"feed": feed, **{part: parts.get(part, {}) for part in ("raw", "random")}}
    for part, rates in of_part.items():
        for (name, order), values in rates.items():
            runs = [report.Run(int(value), 1.0, 2.0, 0.5, 10**9, (10**8,) * 6) for value in values]
            results[report.Case(part, name, order)] = runs
    for (name, order), seconds in parts.get("first", {}).items():
        runs = [report.Run(0, 0.0, 0.0, value, 10**8) for value in seconds]
        results[report.Case("start", name, order)] = runs
    if rss := parts.get("rss"):
        runs = [report.Run(1000, 60.0, 100.0, 0.5, max(rss), rss)]
        results[report.Case("memory", "reader", "shuffled")] = runs
    return results


def session_of(results: Any) -> Any:
    return report.Session(results, {}, "fast", 10_000)


def rates(tf_data: float, reader_tf: float, reader: float, peer: float) -> Rates:
    """Both orders alike, in three rounds on a machine that is twice as fast in the last."""
    made = {"tf.data": tf_data, "reader.tf_data": reader_tf, "load": reader_tf, "reader": reader}
    speeds = {(name, order): rate for name, rate in made.items() for order in ORDERS}
    speeds |= {("grain", "shuffled"): peer, ("torch", "shuffled"): peer / 2}
    return {case: [rate, rate, 2 * rate] for case, rate in speeds.items()}


@pytest.mark.parametrize(
    ("speeds", "passed"),
    [
        ((1000, 1500, 1700, 900), [True] * 6),
        ((1000, 1499, 1700, 900), [False, False, True, True, True, True]),
        ((1000, 1499, 1699, 900), [False, False, False, False, True, True]),
        ((1000, 1500, 1700, 1600), [True, True, True, True, True, False]),
        ((1000, 1500, 1700, 1700), [True, True, True, True, False, False]),
    ],
    ids=["all met", "tf.data slow", "all slow", "a peer between", "a peer as fast"],
)
def test_speeds_are_held_against_the_tuned_pipeline_and_the_nearest_peer(
    speeds: tuple[int, ...], passed: list[bool]
) -> None:
    found = report.targets(session_of(made_results(rates(*speeds))))
    assert [target.passed for target in found[:6]] == passed
    assert [target.passed for target in found[6:]] == [None] * 8
    others = "keras, grain-simplejpeg, webdataset, streaming, litdata"
    assert f"x grain's; not measured: {others}" in found[4].found


def test_ratios_are_of_the_same_round() -> None:
    feed = {
        ("reader", "shuffled"): [100, 300, 500],
        ("tf.data", "shuffled"): [100, 200, 250],
        ("tf.data", "sequential"): [1, 1],
    }
    ours, *others = (
        report.Case("feed", name, order) for name, order in [*feed, ("keras", "shuffled")]
    )
    found = [report.ratios(made_results(feed), ours, other) for other in others]
    assert found == [[1.0, 1.5, 2.0], [], []]


@pytest.mark.parametrize(
    ("raw", "random", "first", "rss", "passed"),
    [
        ((1000, 900), 8000, 1.49, 105, [True, True, True, True, True, True, True, True]),
        ((999, 899), 7999, 1.49, 105, [True, True, False, False, True, False, True, True]),
        ((900, 600), 4000, 1.5, 105, [True, True, False, False, True, False, False, True]),
        ((899, 599), 3999, 1.0, 106, [False, False, False, False, False, False, True, False]),
    ],
)
def test_records_start_and_memory_have_their_limits(
    raw: tuple[int, int], random: int, first: float, rss: int, passed: list[bool]
) -> None:
    speeds = dict(zip(ORDERS, raw, strict=True))
    reading = {
        (name, order): [speeds[order]] * 3 for name in ("reader", "load") for order in ORDERS
    }
    reading["tfrecord", "sequential"] = [1000] * 3
    starts = {("reader", "shuffled"): [0.5, 0.5, 0.5], ("load", "shuffled"): [0.5, first, 0.5]}
    grown = (10**8, 10**8, 10**8, 10**8, rss * 10**6, rss * 10**6)
    others = {"reader": random, "array_record": 1000, "lance": 1000}
    at_random = {(name, "shuffled"): [speed] * 3 for name, speed in others.items()}
    parts = {"raw": reading, "random": at_random, "first": starts, "rss": grown}
    found = report.targets(session_of(made_results({}, **parts)))[6:]
    assert [target.passed for target in found] == passed
    assert found[6].found == f"{first:.2f} s (load, shuffled)"


PAGE = """\
| reader, shuffled | 1,234 (1,234-2,468) | 1.23 (1.23-1.23) | 617 | 0.50 (0.50-0.50) | 1,000 \
| 100 / 100 / 100 |

| fast | 2 |
| slow | 1 |

| reader, shuffled | 15,000 | 0.75 | 7,500 |

10,000 shards of 4 tiny images

| loader | seconds | peak RSS MB |
| --- | ---: | ---: |
| load, shuffled | 1.50 | 100 |

RSS in MB over 60 s

That pipeline's variant: fast."""


def test_the_page_has_every_figure() -> None:
    raw = {("tfrecord", "sequential"): [20_000], ("reader", "shuffled"): [15_000]}
    speeds, first = rates(1000, 950, 1234, 900), {("load", "shuffled"): [1.5]}
    session = session_of(made_results(speeds, raw=raw, first=first, rss=(10**8,) * 6))
    session = session._replace(tuned={"slow": 1.0, "fast": 2.0})
    slower = "at least 1.5x the tuned tf.data pipeline", "0.95 (0.95-0.95)x", False
    text, *found = report.targets(session)[0]
    assert (text.partition(", ")[2].rpartition(", ")[2], *found) == slower
    page = report.render(through_json(report, session), ["-"])
    assert [part for part in PAGE.split("\n\n") if part not in page] == []


def test_memory_samples_are_put_to_their_times() -> None:
    mean_between = report.mean_between
    samples = [(0.0, 10), (1.0, 20), (2.0, 30), (9.0, 100)]
    assert mean_between(samples, [0.0, 1.0, 2.0, 4.0]) == (15, 25, 30)
    assert mean_between(samples, [4.0, 5.0, 7.0]) == (30, 100)
    assert mean_between(samples, []) == mean_between([], [0.0, 1.0]) == ()
