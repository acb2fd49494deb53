"""Make the tables and targets of `build.py` from its runs, with pure functions over `Results`.

Figures are medians over the rounds, with the smallest and the largest. A slope is the median of the
slopes of the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from measure import Usage
from page import USAGE_HEAD, Target, spread, table, usage_cells
from raw_results import pack
from raw_results import unpack as unpack_runs
from systems import NAMES

OURS, BEAM, PROCESSES = "shardwright", "beam-stock", "two-processes"
WHOLE_FILES = 80_000  # whole commands are compared here, where start-up is a small part of the time
BASE_FILES = 8  # enough to pass through every part of Beam, too few to take time themselves


@dataclass
class Results:
    """The usages of each (system, files) in the order of the rounds."""

    usages: dict[tuple[str, int], list[Usage]] = field(default_factory=dict)
    start_ups: dict[int, list[float]] = field(default_factory=dict)
    beam_max_files: int = 8000

    def add(self, system: str, files: int, usage: Usage) -> None:
        self.usages.setdefault((system, files), []).append(usage)

    def add_start_up(self, files: int, seconds: float) -> None:
        self.start_ups.setdefault(files, []).append(seconds)

    def systems(self) -> list[str]:
        run = {system for system, _ in self.usages}
        return [name for name in NAMES if name in run]

    def sizes(self, system: str | None = None) -> list[int]:
        """Return the sizes that were run (by this system), except the one for Beam's start-up."""
        found = {files for name, files in self.usages if system in (None, name)}
        return sorted(found - {BASE_FILES})

    def walls(self, system: str, files: int) -> list[float]:
        return [usage.wall_s for usage in self.usages.get((system, files), [])]

    def peaks(self, system: str, files: int) -> list[int]:
        """Return the peak RSS of each round, in bytes."""
        return [usage.peak_rss_bytes for usage in self.usages.get((system, files), [])]


def packed(results: Results) -> dict[str, Any]:
    """Return the results as JSON."""
    return {
        "usages": pack(results.usages),
        "start_ups": list(results.start_ups.items()),
        "beam_max_files": results.beam_max_files,
    }


def unpack(raw: dict[str, Any]) -> Results:
    """Return the results from their JSON."""
    usages = unpack_runs(raw["usages"], Usage)
    return Results(usages, dict(raw["start_ups"]), raw["beam_max_files"])


def whole_rates(results: Results, system: str) -> list[float]:
    """Return the images/s of each round's whole command, start-up included, at the largest size."""
    files = max(results.sizes(system))
    return [files / wall_s for wall_s in results.walls(system, files)]


def slopes(results: Results, system: str) -> list[float]:
    """Return the images/s of each round in steady state, from two sizes.

    They are the two largest sizes or, for beam-stock, 8 files and its largest size. A round in
    which the smaller size took longer, because of noise, has none.
    """
    sizes = results.sizes(system)
    if system == BEAM:
        sizes = [BASE_FILES, *sizes]
    if len(sizes) < 2:
        return []
    small, large = sizes[-2:]
    pairs = zip(results.walls(system, small), results.walls(system, large), strict=True)
    return [(large - small) / (slow - fast) for fast, slow in pairs if slow > fast]


def _run_rows(results: Results, files: int) -> list[list[str]]:
    rows = []
    for system in results.systems():
        usages = results.usages.get((system, files))
        if usages is None:
            continue
        rows.append(
            [
                system,
                f"{files:,}",
                f"{files / median(results.walls(system, files)):,.0f}",
                *usage_cells(usages, ".2f"),
            ]
        )
    return rows


def _ratio(results: Results, other: str, need: float, *, note: str = "") -> Target:
    """Return the target for our slope divided by another system's."""
    ours, theirs = slopes(results, OURS), slopes(results, other)
    text = f"slope at least {need:g}x {other}'s{note}"
    if not ours or not theirs:
        return Target(text, "not measured", None)
    ratio = median(ours) / median(theirs)
    rates = f"{spread(ours, ',.0f')} against {spread(theirs, ',.0f')}/s"
    return Target(text, f"{ratio:.2f}x ({rates})", ratio >= need)


def _processes_target(results: Results) -> Target:
    """Return the target for two processes; a slope above twice that of one says nothing.

    Then the smaller size took too long, because one process got most of its shards.
    """
    text = "slope of two processes at least 1.6x that of one"
    two, one = slopes(results, PROCESSES), slopes(results, OURS)
    if not two or not one:
        return Target(text, "not measured", None)
    ratio = median(two) / median(one)
    if ratio > 2:
        return Target(text, f"{ratio:.2f}x, more than possible: uneven shards", None)
    return Target(text, f"{ratio:.2f}x", ratio >= 1.6)


def _share_of_tar(results: Results) -> float:
    """Return 0.9 where tar makes 13,000 images/s, 0.75 where it makes 20,000, a line between."""
    rate = median(slopes(results, "tar") or [0.0])
    return round(0.9 - 0.15 * min(max((rate - 13_000) / 7_000, 0), 1), 2)


def _start_up_target(results: Results) -> Target:
    text = "start-up before the first image under 5 s, at the largest size"
    if not results.start_ups:
        return Target(text, "not measured", None)
    seconds = median(results.start_ups[max(results.start_ups)])
    return Target(text, f"{seconds:.2f} s", seconds < 5)


def _whole_target(results: Results, files: int) -> Target:
    text = f"whole command at {files:,} files no slower than tf-loop's"
    ours, loop = results.walls(OURS, files), results.walls("tf-loop", files)
    if not ours or not loop:
        return Target(text, "not measured", None)
    found = f"{median(ours):.2f} s against {median(loop):.2f} s"
    return Target(text, found, median(ours) <= median(loop))


def _memory_targets(results: Results) -> list[Target]:
    sizes = results.sizes(OURS)
    peaks = [results.peaks(OURS, files) for files in sizes]
    texts = (
        "peak memory (summed RSS) under 500 MB",
        "peak memory flat: at most 1.10x of half the files",
    )
    if not peaks:
        return [Target(text, "not measured", None) for text in texts]
    worst = max(map(max, peaks))  # not the median: one run out of memory is a failure
    small = Target(texts[0], f"{worst / 1e9:.2f} GB", worst < 500e6)
    if len(peaks) < 2 or sizes[-1] != 2 * sizes[-2]:
        return [small, Target(texts[1], "not measured", None)]
    ratio = median(peaks[-1]) / median(peaks[-2])
    return [small, Target(texts[1], f"{ratio:.2f}x at {sizes[-1]:,} files", ratio <= 1.10)]


def targets(results: Results) -> list[Target]:
    """Return every required target, measured or not."""
    return [
        _ratio(results, "tar", _share_of_tar(results)),
        _ratio(results, "tf-loop", 1.3),
        _ratio(results, BEAM, 12, note=" own rate, excluding its start-up"),
        _processes_target(results),
        _start_up_target(results),
        _whole_target(results, WHOLE_FILES),
        *_memory_targets(results),
    ]


def _notes(results: Results) -> list[str]:
    notes = [
        "Wall and CPU seconds are medians (smallest-largest); peak memory is the worst round, all "
        "processes together, sampled every 100 ms. RSS counts shared pages once per process, PSS "
        "once in all."
    ]
    sizes = results.sizes(BEAM)
    if sizes and sizes != results.sizes():
        peak = max(results.peaks(BEAM, sizes[-1])) / 1e9
        notes.append(
            f"beam-stock is not run above {results.beam_max_files:,} files: it holds the images in "
            f"memory, {peak:.1f} GB at {sizes[-1]:,} files."
        )
    if BEAM in results.systems():
        start_up = spread(results.walls(BEAM, BASE_FILES), ".2f")
        notes.append(f"beam-stock's start-up, a whole run on {BASE_FILES} files: {start_up} s.")
    return notes


def render(results: Results, circumstances: Sequence[str]) -> str:
    """Return the whole section as Markdown."""
    head = ["system", "files", "images/s", *USAGE_HEAD]
    rows = [row for files in results.sizes() for row in _run_rows(results, files)]
    lines = ["## Whole builds", "", *circumstances, "", *table(head, rows), ""]
    rates = [[system, spread(slopes(results, system), ",.0f")] for system in results.systems()]
    lines += [
        "Throughput in steady state, excluding start-up:",
        "",
        *table(["system", "slope images/s"], rates),
        "",
    ]
    if results.start_ups:
        starts = [
            [f"{files:,}", spread(times, ".2f")]
            for files, times in sorted(results.start_ups.items())
        ]
        lines += [f"{OURS}, from the start to the first byte of the first shard:", ""]
        lines += [*table(["files", "seconds"], starts), ""]
    return "\n\n".join(["\n".join(lines).rstrip(), *_notes(results)])
