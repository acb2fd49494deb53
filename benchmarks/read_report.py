"""Make the tables and targets of `read.py` from its runs, with pure functions over `Results`.

Ratios are computed within each round, against the hand-tuned tf.data pipeline of the same order.
The median of the rounds decides; the tables also show the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median
from typing import Any, NamedTuple

import raw_results
from page import Target, spread, table

READER, READER_TF, LOAD, TF = "reader", "reader.tf_data", "load", "tf.data"
WHOLE = "reader.whole"  # decodes whole images
EXACT = "reader.exact"  # the pixels of TensorFlow's accurate decoding
OURS = (READER, EXACT, WHOLE, READER_TF, LOAD)
PEERS = (
    "keras",
    "grain",
    "grain-simplejpeg",
    "torch",
    "webdataset",
    "streaming",
    "litdata",
    "lancedb",
)
SYSTEMS = (*OURS, TF, *PEERS)
RAW = "tfrecord"
# Formats for random access -> how many times as fast the reader has to be.
RANDOM = {"array_record": 4.0, "lance": 8.0}
IN_ORDER, SHUFFLED = "sequential", "shuffled"
_START_LIMIT_S = 1.5
_GROWTH_LIMIT = 1.05


class Case(NamedTuple):
    part: str
    name: str
    order: str


class Run(NamedTuple):
    """One run of a loader: `items` images or records after the warm-up.

    `rss_bytes` is the mean of the process tree's RSS in each part of that time.
    """

    items: int
    wall_s: float
    cpu_s: float
    first_batch_s: float
    peak_rss_bytes: int
    rss_bytes: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        return self.items / self.wall_s

    @property
    def thirds(self) -> list[float]:
        """The mean RSS in bytes of the first, the second and the last third."""
        size = len(self.rss_bytes) // 3
        return (
            [mean(self.rss_bytes[place : place + size]) for place in range(0, 3 * size, size)]
            if size
            else []
        )


Results = dict[Case, list[Run]]


class Session(NamedTuple):
    """All runs, the rates of the tf.data variants and the chosen one, the shards of `start`.

    `pixels` is the size of the images, which have as many bytes a pixel as 500x375 of 80 KB.
    """

    runs: Results
    tuned: dict[str, float]
    chosen: str
    shards: int
    pixels: str = "500x375"


def packed(session: Session) -> dict[str, Any]:
    """Return the results as JSON."""
    return {**session._asdict(), "runs": raw_results.pack(session.runs)}


def unpack(raw: dict[str, Any]) -> Session:
    """Return the results from their JSON."""
    return Session(**{**raw, "runs": raw_results.unpack(raw["runs"], Run, Case._make)})


def mean_between(samples: Sequence[tuple[float, int]], times: Sequence[float]) -> tuple[int, ...]:
    """Return the mean of (time, bytes) samples in each interval of `times`.

    An interval without a sample takes the nearest one.
    """
    if not samples:
        return ()
    found = []
    for start, end in pairwise(times):
        within = [value for when, value in samples if start <= when <= end]
        middle = (start + end) / 2
        found.append(
            round(mean(within or [min(samples, key=lambda sample: abs(sample[0] - middle))[1]]))
        )
    return tuple(found)


def brief(run: Run) -> str:
    """Return a line of progress."""
    speed = f"{run.rate:9,.0f}/s  CPU {run.cpu_s:6.2f} s  " if run.items else ""
    return f"{speed}first batch {run.first_batch_s:5.2f} s  RSS {run.peak_rss_bytes / 1e6:6,.0f} MB"


def _rates(results: Results, case: Case) -> list[float]:
    return [run.rate for run in results.get(case, [])]


def ratios(results: Results, case: Case, base: Case) -> list[float]:
    """Return a case's rates divided by another's per round, or [] if a round is missing."""
    ours, theirs = _rates(results, case), _rates(results, base)
    return (
        [our / their for our, their in zip(ours, theirs, strict=True)]
        if len(ours) == len(theirs)
        else []
    )


def _cases(results: Results, part: str) -> list[Case]:
    return [case for case in results if case.part == part]


def _megabytes(values: Sequence[float]) -> str:
    return " / ".join(f"{value / 1e6:,.0f}" for value in values)


def _feed_table(results: Results) -> list[str]:
    rows = []
    for case in _cases(results, "feed"):
        runs = results[case]
        per_cpu = median(run.items / run.cpu_s for run in runs)
        against = spread(ratios(results, case, Case("feed", TF, case.order)), ".2f")
        first = spread([run.first_batch_s for run in runs], ".2f")
        worst = max(runs, key=lambda run: run.peak_rss_bytes)
        memory = [f"{worst.peak_rss_bytes / 1e6:,.0f}", _megabytes(worst.thirds)]
        rows.append(
            [
                f"{case.name}, {case.order}",
                spread(_rates(results, case), ",.0f"),
                against,
                f"{per_cpu:,.0f}",
                first,
                *memory,
            ]
        )
    head = [
        "loader",
        "images/s",
        "of tf.data",
        "images per CPU s",
        "first batch s",
        "peak RSS MB",
        "RSS MB by thirds",
    ]
    return ["### Images for training", "", *table(head, rows), ""] if rows else []


def _raw_table(results: Results) -> list[str]:
    rows = []
    for case in _cases(results, "raw"):
        against = spread(ratios(results, case, Case("raw", RAW, IN_ORDER)), ".2f")
        per_cpu = median(run.items / run.cpu_s for run in results[case])
        rows.append(
            [
                f"{case.name}, {case.order}",
                spread(_rates(results, case), ",.0f"),
                against,
                f"{per_cpu:,.0f}",
            ]
        )
    head = ["reading", "records/s", f"of {RAW}", "records per CPU s"]
    return ["### Records of 80 KB as stored", "", *table(head, rows), ""] if rows else []


def _random_table(results: Results) -> list[str]:
    base = Case("random", READER, SHUFFLED)
    rows = [
        [
            case.name,
            spread(_rates(results, case), ",.0f"),
            spread(ratios(results, base, case), ".2f"),
            f"{median(run.items / run.cpu_s for run in results[case]):,.0f}",
        ]
        for case in _cases(results, "random")
    ]
    head = ["reading", "records/s", f"{READER} is faster", "records per CPU s"]
    title = "### Records of 80 KB as stored, in random order, in large batches"
    return [title, "", *table(head, rows), ""] if rows else []


def _start_table(results: Results, shards: int) -> list[str]:
    rows = []
    for case in _cases(results, "start"):
        first = spread([run.first_batch_s for run in results[case]], ".2f")
        peak = max(run.peak_rss_bytes for run in results[case]) / 1e6
        rows.append([f"{case.name}, {case.order}", first, f"{peak:,.0f}"])
    head = ["loader", "seconds", "peak RSS MB"]
    title = f"### From imports to the first batch, {shards:,} shards of 4 tiny images"
    return [title, "", *table(head, rows), ""] if rows else []


def _memory_table(results: Results) -> list[str]:
    rows = []
    for case in _cases(results, "memory"):
        for run in results[case]:
            sizes = [f"{value / 1e6:,.0f}" for value in run.rss_bytes]
            rows.append([f"{case.name}, {case.order}", f"{run.items:,}", *sizes])
    head = ["loader", "images", *(f"{part}/6" for part in range(1, 7))]
    seconds = max(
        (run.wall_s for case in _cases(results, "memory") for run in results[case]), default=0.0
    )
    return [f"### RSS in MB over {seconds:.0f} s", "", *table(head, rows), ""] if rows else []


def tuning_table(rates: dict[str, float]) -> list[str]:
    """Return the variants of the tf.data pipeline, the fastest first."""
    rows = [
        [name, f"{rate:,.0f}"] for name, rate in sorted(rates.items(), key=lambda item: -item[1])
    ]
    return (
        [
            "### Variants of the tf.data pipeline, tried before the rounds",
            "",
            *table(["variant", "images/s"], rows),
            "",
        ]
        if rows
        else []
    )


def _ratio_target(results: Results, text: str, case: Case, base: Case, need: float) -> Target:
    found = ratios(results, case, base)
    if not found:
        return Target(text, "not measured", None)
    return Target(text, f"{spread(found, '.2f')}x", median(found) >= need)


def _feed_targets(results: Results) -> list[Target]:
    def target(name: str, order: str, need: float) -> Target:
        text = f"{name}, {order}, at least {need:g}x the tuned tf.data pipeline"
        return _ratio_target(
            results, text, Case("feed", name, order), Case("feed", TF, order), need
        )

    return [
        *(target(name, SHUFFLED, 1.5) for name in (READER_TF, LOAD)),
        *(target(READER, order, 1.7) for order in (IN_ORDER, SHUFFLED)),
        *(target(EXACT, case.order, 1.7) for case in results if case[:2] == ("feed", EXACT)),
        *(_ahead(results, name) for name in (READER, READER_TF)),
    ]


def _ahead(results: Results, name: str) -> Target:
    """Compare with the fastest peer."""
    text = f"{name}, shuffled, ahead of all others"
    ours = Case("feed", name, SHUFFLED)
    found = {peer: ratios(results, ours, Case("feed", peer, SHUFFLED)) for peer in PEERS}
    found = {peer: values for peer, values in found.items() if values}
    if not found:
        return Target(text, "not measured", None)
    nearest = min(found, key=lambda peer: median(found[peer]))
    missing = [peer for peer in PEERS if peer not in found]
    told = f"{spread(found[nearest], '.2f')}x {nearest}'s" + (
        f"; not measured: {', '.join(missing)}" if missing else ""
    )
    return Target(text, told, median(found[nearest]) > 1.0)


def _raw_targets(results: Results) -> list[Target]:
    base = Case("raw", RAW, IN_ORDER)
    return [
        _ratio_target(
            results,
            f"records as stored, {name}, {order}, at least {need:g}x {RAW}",
            Case("raw", name, order),
            base,
            need,
        )
        for name, order, need in (
            (READER, IN_ORDER, 0.9),
            (READER, SHUFFLED, 0.6),
            (LOAD, IN_ORDER, 1.0),
            (LOAD, SHUFFLED, 0.9),
        )
    ]


def _random_targets(results: Results) -> list[Target]:
    base = Case("random", READER, SHUFFLED)
    return [
        _ratio_target(
            results,
            f"records as stored, in random order, {READER} at least {need:g}x {name}",
            base,
            Case("random", name, SHUFFLED),
            need,
        )
        for name, need in RANDOM.items()
    ]


def _start_target(results: Results) -> Target:
    text = f"first batch of many shards under {_START_LIMIT_S:g} s, the slowest"
    firsts = {
        case: max(run.first_batch_s for run in results[case]) for case in _cases(results, "start")
    }
    if not firsts:
        return Target(text, "not measured", None)
    slowest = max(firsts, key=lambda case: firsts[case])
    return Target(
        text,
        f"{firsts[slowest]:.2f} s ({slowest.name}, {slowest.order})",
        firsts[slowest] < _START_LIMIT_S,
    )


def _memory_target(results: Results) -> Target:
    text = f"memory flat: the last third of a long run at most {_GROWTH_LIMIT:g}x the first"
    runs = [run for case in _cases(results, "memory") for run in results[case] if run.thirds]
    if not runs:
        return Target(text, "not measured", None)
    grown = max(run.thirds[-1] / run.thirds[0] for run in runs)
    return Target(text, f"{grown:.2f}x", grown <= _GROWTH_LIMIT)


def targets(session: Session) -> list[Target]:
    """Return every required target, measured or not."""
    return [
        *_feed_targets(session.runs),
        *_raw_targets(session.runs),
        *_random_targets(session.runs),
        _start_target(session.runs),
        _memory_target(session.runs),
    ]


def _notes(chosen: str, pixels: str) -> list[str]:
    return [
        "Medians (smallest-largest) of the rounds; peaks are the worst round, summed RSS of all "
        f"processes, sampled every 100 ms. Images of {pixels}, with as many bytes a pixel as "
        "500x375 of 80 KB, become 224x224 random-resized crops, flipped at random, in batches of "
        "uint8. reader.whole is the reader without its extension, which decodes parts of JPEGs; "
        "reader.exact gives TensorFlow's exact pixels, by `fast=False`.",
        "The others read their own formats: keras and torch the JPEG files, grain ArrayRecord, "
        "webdataset tars, streaming MDS, litdata its chunks, lancedb a Lance table. "
        "keras makes no random-resized crop: it resizes the whole image to 256x256 and takes a "
        "window of 224x224. grain-simplejpeg is Grain with the decoder that the reader uses. load "
        "is shardwright.load with the reader's crop, and tf.data the tuned pipeline. "
        f"That pipeline's variant: {chosen}.",
        "Records as stored: tfrecord reads and checks whole records; reader and load read and "
        "check the image bytes alone. In random order, array_record reads each batch by one call "
        "of `__getitems__`, and lance by one of `take`, whose bytes stay in Arrow's memory.",
    ]


def render(session: Session, circumstances: Sequence[str]) -> str:
    """Return the whole section as Markdown."""
    runs = session.runs
    lines = [
        "## Reading",
        "",
        *circumstances,
        "",
        *_feed_table(runs),
        *tuning_table(session.tuned),
        *_raw_table(runs),
        *_random_table(runs),
        *_start_table(runs, session.shards),
        *_memory_table(runs),
    ]
    return "\n\n".join(["\n".join(lines).rstrip(), *_notes(session.chosen, session.pixels)])
