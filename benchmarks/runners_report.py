"""Make the tables of `runners.py` from its runs, with pure functions over `Results`.

Figures are medians over the rounds; ratios are computed within each round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from engines import BEAM_THREADS, PROCESSES, THREADS
from page import table

START = "8 photos"  # the work that measures start-up time
_LEAST_S = 1.0


@dataclass(frozen=True)
class Work:
    """A dataset to build: `images` files of a folder, with these options."""

    name: str
    source: Path
    images: int
    options: tuple[str, ...]


@dataclass(frozen=True)
class Run:
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
        self.failures[runner, work] = why

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

    @property
    def sound(self) -> bool:
        """True if nothing failed and all runs of the same work wrote the same bytes."""
        return not self.failures and all(len(self.digests(work.name)) <= 1 for work in self.works)

    def seconds(self, runner: str, work: Work) -> list[float]:
        return [run.wall_s for run in self.runs.get((runner, work.name), [])]


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
                shown = (
                    f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})x" if each else ""
                    for each in found
                )
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
        f"- {runner}, {work}: failed: {why.splitlines()[0]}"
        for (runner, work), why in results.failures.items()
    ]
    return "\n".join(lines)
