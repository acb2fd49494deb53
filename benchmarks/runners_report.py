"""Make the tables of `runners.py` from its runs, with pure functions over `Results`.

Figures are medians over the rounds; ratios are computed within each round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engines import BEAM_THREADS, PROCESSES, THREADS
from page import Target, spread, table
from raw_results import pack
from raw_results import unpack as unpack_runs

START = "8 photos"  # the work that measures start-up time
_LEAST_S = 1.0


class Work(NamedTuple):
    """A dataset to build: `images` files of a folder, with these options."""

    name: str
    source: Path
    images: int
    options: Sequence[str]


class Run(NamedTuple):
    """One build: wall time, CPU without servers, peak memory with servers, sha256 of all shards."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    digest: str


@dataclass
class Results:
    """The runs of each (runner, work) in the order of rounds, the failures and missing runners."""

    works: Sequence[Work]
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    runners: list[str] = field(default_factory=list)

    def add(self, runner: str, work: str, run: Run) -> None:
        self._note(runner)
        self.runs.setdefault((runner, work), []).append(run)

    def fail(self, runner: str, work: str, why: str) -> None:
        self._note(runner)
        self.failures[runner, work] = why.splitlines()[0]

    def miss(self, runners: Sequence[str], fix: str) -> None:
        for runner in runners:
            self._note(runner)
            self.missing[runner] = fix

    def _note(self, runner: str) -> None:
        if runner not in self.runners:
            self.runners.append(runner)

    def digests(self, work: str) -> list[str]:
        """Return the distinct digests, the first run's first; one if all bytes are equal."""
        return list(
            dict.fromkeys(
                run.digest for (_, name), runs in self.runs.items() if name == work for run in runs
            )
        )

    def seconds(self, runner: str, work: Work) -> list[float]:
        return [run.wall_s for run in self.runs.get((runner, work.name), [])]


def packed(results: Results) -> dict[str, Any]:
    """Return the results as JSON."""
    return {
        "works": [[work.name, work.images, list(work.options)] for work in results.works],
        "runs": pack(results.runs),
        "failures": [[*case, why] for case, why in results.failures.items()],
        "missing": results.missing,
        "runners": results.runners,
    }


def unpack(raw: dict[str, Any]) -> Results:
    """Return the results from their JSON."""
    works = [Work(name, Path(), images, options) for name, images, options in raw["works"]]
    failures = {(runner, work): why for runner, work, why in raw["failures"]}
    runs = unpack_runs(raw["runs"], Run)
    return Results(works, runs, failures, raw["missing"], raw["runners"])


def targets(results: Results) -> list[Target]:
    """Return every required target, measured or not."""
    equal = all(len(results.digests(work.name)) <= 1 for work in results.works)
    failed = len(results.failures)
    photos = next((work for work in results.works if work.name == "photos"), None)
    faster = ratios(results, PROCESSES, photos) if photos else []
    return [
        Target("all runners write the same bytes", "yes" if equal else "no", equal),
        Target("no runner fails", f"{failed} failed", not failed),
        Target(
            f"{PROCESSES}, photos: at least 1.6x {THREADS}, excluding start-up",
            f"{spread(faster, '.2f')}x" if faster else "not measured",
            median(faster) >= 1.6 if faster else None,
        ),
    ]


def _cells(results: Results, runner: str, work: Work) -> list[str]:
    """Return the cells for equal bytes, images/s and peak memory."""
    if (runner, work.name) in results.failures:
        return ["**failed**", "", ""]
    runs = results.runs.get((runner, work.name))
    if not runs:
        return ["", "", ""]
    equal = {run.digest for run in runs} == {results.digests(work.name)[0]}
    speed = work.images / median(run.wall_s for run in runs)
    return [
        "yes" if equal else "**no**",
        f"{speed:,.0f}",
        f"{max(run.peak_bytes for run in runs) / 1e9:.2f}",
    ]


def _row(results: Results, runner: str) -> list[str]:
    measured = [work for work in results.works if work.name != START]
    if runner in results.missing:
        return [runner, f"not installed: `{results.missing[runner]}`", *[""] * (3 * len(measured))]
    starts = results.seconds(runner, results.works[0])
    return [
        runner,
        f"{median(starts):.1f}" if starts else "",
        *(cell for work in measured for cell in _cells(results, runner, work)),
    ]


def ratios(results: Results, runner: str, work: Work, *, of: str = "wall_s") -> list[float]:
    """Return the default's time divided by this runner's in each round, excluding start-up.

    Args:
        of: "wall_s" or "cpu_s". Start-up is the time of 8 photos. A round is left out if the rest
            is too short to measure.
    """
    theirs, ours = (
        [
            getattr(whole, of) - getattr(first, of)
            for whole, first in zip(
                results.runs.get((name, work.name), []),
                results.runs.get((name, START), []),
                strict=False,
            )
        ]
        for name in (runner, THREADS)
    )
    return [
        default / other
        for other, default in zip(theirs, ours, strict=False)
        if min(other, default) > _LEAST_S
    ]


def _comparison(results: Results) -> list[str]:
    measured = [work for work in results.works if work.name != START]
    rows = []
    for runner in (PROCESSES, BEAM_THREADS):
        for what, of in (("speed", "wall_s"), ("images per CPU second", "cpu_s")):
            found = [ratios(results, runner, work, of=of) for work in measured]
            if any(found):
                shown = (f"{spread(each, '.2f')}x" if each else "" for each in found)
                rows.append([f"{runner}: {what}", *shown])
    if not rows:
        return []
    text = (
        f"Relative to the default, one process ({THREADS}), excluding start-up (the time of "
        f"{START} is subtracted from both):"
    )
    return ["", text, "", *table(["", *(work.name for work in measured)], rows)]


def render(results: Results, circumstances: Sequence[str]) -> str:
    """Return the whole section as Markdown."""
    measured = [work for work in results.works if work.name != START]
    head = [
        "runner",
        f"{START}, s",
        *(cell for work in measured for cell in (f"{work.name}: equal", "images/s", "peak GB")),
    ]
    lines = [
        "## Runners",
        "",
        *circumstances,
        "",
        *table(head, [_row(results, runner) for runner in results.runners]),
        "",
    ]
    lines.append(
        "Whole commands; memory is the sum over all processes, including a cluster's. The "
        "cluster's own start-up is in no figure."
    )
    for work in results.works:
        found = ", ".join(f"`{each[:16]}`" for each in results.digests(work.name)) or "-"
        lines.append(
            f"- {work.name}: {work.images:,} images, `{' '.join(work.options)}`; sha256 over all "
            f"shards {found}"
        )
    lines += _comparison(results)
    lines += [
        f"- {runner}, {work}: failed: {why}" for (runner, work), why in results.failures.items()
    ]
    return "\n".join(lines)
