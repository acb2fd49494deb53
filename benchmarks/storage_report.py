"""Make the tables and targets of `storage.py` from its runs, with pure functions over `Results`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from page import Target, spread, table
from raw_results import pack
from raw_results import unpack as unpack_runs
from storage_builds import BEAM, BOTO3, NAMES, OURS

_OUTPUTS = ("folder", "S3")
_CPU = ("cpu_s", "server_cpu_s", "proxy_cpu_s")
_GROWTH_LIMIT = 64e6
# Fraction of all cores. The rest is used by the measurement, by interrupts and at the end of runs.
_BUSY = 0.85


class Run(NamedTuple):
    """The resources that one client used for `items` objects, keys or uploads.

    Memory is in bytes; growth is relative to the memory before.
    """

    items: int
    wall_s: float
    cpu_s: float
    growth_bytes: int
    peak_rss_bytes: int
    server_cpu_s: float = 0.0
    proxy_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.items / self.wall_s

    @property
    def cpu_rate(self) -> float:
        """The items per CPU second of the client."""
        return self.items / self.cpu_s


class Results:
    """The runs of each case, in the order of rounds; a case is (part, settings ..., client)."""

    def __init__(self) -> None:
        self.runs: dict[tuple[object, ...], list[Run]] = {}
        self.cores = os.cpu_count() or 1

    def add(self, case: tuple[object, ...], run: Run) -> None:
        self.runs.setdefault(case, []).append(run)

    def of(self, part: str) -> dict[tuple[object, ...], list[Run]]:
        return {case[1:]: runs for case, runs in self.runs.items() if case[0] == part}

    def slopes(self, output: str, name: str) -> list[Run]:
        """Return the difference between the larger and the smaller build of each round.

        A round in which the larger build was not slower, because of noise, has none.
        """
        sizes = sorted(
            (case[2], runs) for case, runs in self.of("build").items() if case[:2] == (output, name)
        )
        if len(sizes) < 2:
            return []
        pairs = zip(sizes[-2][1], sizes[-1][1], strict=True)
        return [_difference(small, large) for small, large in pairs if large.wall_s > small.wall_s]


def packed(results: Results) -> dict[str, Any]:
    """Return the results as JSON."""
    return {"runs": pack(results.runs), "cores": results.cores}


def unpack(raw: dict[str, Any]) -> Results:
    """Return the results from their JSON."""
    results = Results()
    results.runs, results.cores = unpack_runs(raw["runs"], Run), raw["cores"]
    return results


def _difference(small: Run, large: Run) -> Run:
    return Run(
        large.items - small.items,
        large.wall_s - small.wall_s,
        large.cpu_s - small.cpu_s,
        0,
        max(small.peak_rss_bytes, large.peak_rss_bytes),
        large.server_cpu_s - small.server_cpu_s,
        large.proxy_cpu_s - small.proxy_cpu_s,
    )


def brief(run: Run) -> str:
    """Return a line of progress."""
    return (
        f"{run.rate:9,.0f}/s  CPU {run.cpu_s:6.2f} s  server {run.server_cpu_s:5.2f} s  proxy "
        f"{run.proxy_cpu_s:5.2f} s  RSS {run.peak_rss_bytes / 1e6:5.0f} MB"
    )


def _per_thousand(runs: Sequence[Run], seconds: str) -> str:
    return spread([getattr(run, seconds) / run.items * 1000 for run in runs], ".2f")


def _read_table(results: Results) -> list[str]:
    rows = []
    for (msec, scheme, name), runs in sorted(
        results.of("read").items(), key=lambda item: (str(item[0][1]), item[0][0])
    ):
        rate, cpu = spread([run.rate for run in runs], ",.0f"), _per_thousand(runs, "cpu_s")
        peak = max(run.peak_rss_bytes for run in runs) / 1e6
        rows.append(
            [
                f"{scheme} {name}",
                str(msec),
                f"{runs[0].items:,}",
                rate,
                cpu,
                _per_thousand(runs, "server_cpu_s"),
                f"{peak:.0f}",
            ]
        )
    head = [
        "client",
        "ms added",
        "objects",
        "objects/s",
        "CPU s per 1,000",
        "server CPU s per 1,000",
        "peak RSS MB",
    ]
    return (
        ["### Reading objects of 80 KB", "", *table(head, rows), "", *_proxy_note(results)]
        if rows
        else []
    )


def _proxy_note(results: Results) -> list[str]:
    lines = []
    for (msec, *_), runs in results.of("proxy").items():
        rate = median(run.rate for run in runs)
        cost = median(run.proxy_cpu_s / run.items * 1e6 for run in runs)
        lines = [
            f"The proxy with {msec} ms added passes {rate:,.0f} objects/s to obstore alone, at "
            f"{cost:.0f} us of its own CPU each.",
            "",
        ]
    return lines


def _cores(runs: Sequence[Run], seconds: str) -> float:
    return float(median(getattr(run, seconds) / run.wall_s for run in runs))


def _busy_cores(runs: Sequence[Run]) -> float:
    return median((run.cpu_s + run.server_cpu_s + run.proxy_cpu_s) / run.wall_s for run in runs)


def _build_table(results: Results) -> list[str]:
    rows = []
    for output in _OUTPUTS:
        for name in NAMES:
            slopes = results.slopes(output, name)
            if not slopes:
                continue
            sizes = sorted(
                int(str(case[2])) for case in results.of("build") if case[:2] == (output, name)
            )
            cores = [f"{_cores(slopes, seconds):.2f}" for seconds in _CPU]
            peak = max(run.peak_rss_bytes for run in slopes) / 1e9
            between = " and ".join(f"{size:,}" for size in sizes)
            rows.append(
                [
                    f"{name} to {output}",
                    between,
                    spread([run.rate for run in slopes], ",.0f"),
                    *cores,
                    f"{peak:.2f}",
                ]
            )
    head = [
        "build",
        "between files",
        "images/s",
        "client's cores",
        "server's",
        "proxy's",
        "peak RSS GB",
    ]
    note = (
        f"Cores: CPU seconds per second of that part of the run, of {results.cores} that all share."
    )
    return (
        ["### Whole builds from S3, excluding start-up", "", *table(head, rows), "", note, ""]
        if rows
        else []
    )


def _cpu_usec(runs: Sequence[Run], *parts: str) -> float:
    """Return the CPU time an image, in microseconds, of these parts together."""
    return 1e6 * median(sum(getattr(run, part) for part in parts) / run.items for run in runs)


def _bound(results: Results, runs: Sequence[Run]) -> float:
    """Return the images a second with every core at work, for client, server and proxy.

    Small builds may differ by no tick of the clock.
    """
    return results.cores * 1e6 / max(_cpu_usec(runs, *_CPU), 1.0)


def _bound_table(results: Results) -> list[str]:
    rows = []
    for output in _OUTPUTS:
        theirs = median([run.rate for run in results.slopes(output, BOTO3)] or [0])
        for name in (OURS, BOTO3) if theirs else ():
            if runs := results.slopes(output, name):
                usec = [_cpu_usec(runs, part) for part in _CPU] + [_cpu_usec(runs, *_CPU)]
                bound = _bound(results, runs)
                figures = [f"{figure:,.0f}" for figure in (*usec, bound)]
                rows.append([f"{name} to {output}", *figures, f"{bound / theirs:.2f}x"])
    parts = ["client's us an image", "server's", "proxy's", "sum"]
    head = ["bound by CPU", *parts, "images/s with all cores at work", f"of {BOTO3}'s images/s"]
    return [*table(head, rows), ""] if rows else []


def _upload_table(results: Results) -> list[str]:
    rows = []
    for (msec, scheme, name), runs in results.of("upload").items():
        growth = max(run.growth_bytes for run in runs) / 1e6
        seconds = (
            spread([getattr(run, key) for run in runs], ".2f") for key in ("wall_s", "cpu_s")
        )
        rows.append([f"{scheme} {name}", str(msec), *seconds, f"{growth:.0f}"])
    head = ["client", "ms added", "wall s", "CPU s", "memory growth MB"]
    return (
        ["### Uploading a shard", "", *table(head, sorted(rows, key=lambda row: row[1])), ""]
        if rows
        else []
    )


def _list_table(results: Results) -> list[str]:
    rows = []
    for (layout, name), runs in results.of("list").items():
        growth = max(run.growth_bytes for run in runs) / 1e6
        run = runs[0]
        rows.append(
            [
                f"{name}, {layout}",
                f"{run.items:,}",
                f"{run.wall_s:.1f}",
                f"{run.rate:,.0f}",
                f"{run.cpu_rate:,.0f}",
                f"{growth:.0f}",
            ]
        )
    head = ["client", "keys", "wall s", "keys/s", "keys per CPU s", "memory growth MB"]
    return ["### Listing", "", *table(head, rows), ""] if rows else []


def build_ratios(results: Results, output: str, other: str) -> list[float]:
    """Return how many times as fast as another system builds are, in each round."""
    pairs = zip(results.slopes(output, OURS), results.slopes(output, other), strict=False)
    return [ours.rate / theirs.rate for ours, theirs in pairs]


def _build_ratio(results: Results, output: str, other: str, need: float) -> Target:
    text = f"build from S3 to {output} at least {need:g}x {other}"
    ours, theirs = ([run.rate for run in results.slopes(output, name)] for name in (OURS, other))
    if not ours or not theirs:
        return Target(text, "not measured", None)
    ratios = build_ratios(results, output, other)
    rates = f"{median(ours):,.0f} against {median(theirs):,.1f}/s"
    found = f"{spread(ratios, '.2f')}x ({rates})"
    if other == BOTO3:
        bound = _bound(results, results.slopes(output, OURS)) / median(theirs)
        found += f"; bound by CPU: {bound:.2f}x"
    return Target(text, found, median(ratios) >= need)


def _build_limit(results: Results, output: str) -> Target:
    text = (
        f"build from S3 to {output} bound by CPU, not by waiting: at least {_BUSY:.0%} of the "
        "machine at work"
    )
    slopes = results.slopes(output, OURS)
    if not slopes:
        return Target(text, "not measured", None)
    used = _busy_cores(slopes) / results.cores
    largest = max(
        ("client", "cpu_s"), ("server", "server_cpu_s"), key=lambda part: _cores(slopes, part[1])
    )
    return Target(text, f"{used:.0%}, most of it the {largest[0]}'s", used >= _BUSY)


def _build_memory(results: Results) -> Target:
    peaks = [
        run.peak_rss_bytes
        for (_, name, _), runs in results.of("build").items()
        if name == OURS
        for run in runs
    ]
    text = "builds' peak memory (summed RSS) under 1 GB"
    return (
        Target(text, f"{max(peaks) / 1e9:.2f} GB", max(peaks) < 1e9)
        if peaks
        else Target(text, "not measured", None)
    )


def _upload_targets(results: Results) -> list[Target]:
    found = []
    for (msec, scheme, name), theirs in results.of("upload").items():
        if name == OURS:
            continue
        ours = results.of("upload")[msec, scheme, OURS]
        ratios = [their.wall_s / our.wall_s for our, their in zip(ours, theirs, strict=True)]
        text = f"upload to {scheme}, {msec} ms added, at least 1.1x {name}"
        # Only the comparison with boto3 is required.
        passed = median(ratios) >= 1.1 if scheme == "s3" else None
        found.append(Target(text, f"{spread(ratios, '.2f')}x", passed))
    growths = [
        run.growth_bytes
        for (_, _, name), runs in results.of("upload").items()
        if name == OURS
        for run in runs
    ]
    if growths:
        found.append(
            Target(
                "an upload's memory growth under 64 MB",
                f"{max(growths) / 1e6:.0f} MB",
                max(growths) < _GROWTH_LIMIT,
            )
        )
    return found


def _list_targets(results: Results) -> list[Target]:
    runs = {case: found[0] for case, found in results.of("list").items()}
    found = []
    for layout in dict.fromkeys(case[0] for case in runs):
        ours, theirs = runs[layout, OURS], runs[layout, "boto3-paginator"]
        ratio = ours.cpu_rate / theirs.cpu_rate
        found.append(
            Target(
                f"keys per CPU second, {layout}, at least 5x boto3's paginator",
                f"{ratio:.1f}x",
                ratio >= 5,
            )
        )
        grown = f"{ours.growth_bytes / 1e6:.0f} MB for {ours.items:,} keys"
        found.append(
            Target(
                f"a listing's memory growth, {layout}, under 64 MB",
                grown,
                ours.growth_bytes < _GROWTH_LIMIT,
            )
        )
    return found


def targets(results: Results) -> list[Target]:
    """Return every required target of the parts that were run."""
    builds = [
        check
        for output in _OUTPUTS
        if results.of("build")
        for check in (
            _build_ratio(results, output, BEAM, 10),
            _build_ratio(results, output, BOTO3, 4),
            _build_limit(results, output),
        )
    ]
    return [
        *builds,
        *([_build_memory(results)] if builds else []),
        *_upload_targets(results),
        *_list_targets(results),
    ]


def render(results: Results, circumstances: Sequence[str]) -> str:
    """Return the whole section as Markdown."""
    return "\n".join(
        [
            "## Object stores",
            "",
            *circumstances,
            "",
            *_read_table(results),
            *_build_table(results),
            *_bound_table(results),
            *_upload_table(results),
            *_list_table(results),
            "Medians (smallest-largest); peaks are the worst round. Clients, server and proxy run "
            "on the same cores.",
        ]
    )
