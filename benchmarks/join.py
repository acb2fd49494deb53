#!/usr/bin/env python
"""Measure the overhead of --labels in `shardwright plan`: a join with a listing of equal length.

Both are Parquet tables. The listing has paths and sizes, so that no files are needed; the labels
have the same paths in another order. Every worker holds the small table of labels in memory, while
the large one is joined by key. Each run is one whole command (see measure.py), with and without
--labels.

Exit code 1 if a plan lacks rows or exceeds its memory target, unless --no-check is given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import page
import pyarrow as pa
import pyarrow.parquet as pq
from measure import RunFailedError, Usage, measure
from report import Target, spread, verdict
from systems import shardwright_command

MAX_RSS_BYTES = 4 * 10**9
_CHUNK = 500_000
_CLASSES = 1000
_BYTES_PER_ROW = 120  # generous: both tables


class Run(NamedTuple):
    """The rounds of one command."""

    rows: int
    labels: bool
    usages: list[Usage]


def _path_of(number: int) -> str:
    return f"/data/photos/img_{number:012d}.jpg"


def make_tables(folder: Path, rows: int) -> tuple[Path, Path]:
    """Return the tables of listing and labels with this number of rows; made once, then kept."""
    listing, labels = (folder / f"{name}-{rows}.parquet" for name in ("listing", "labels"))
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(rows)
    order = rng.permutation(rows)
    for path, numbers in ((listing, np.arange(rows)), (labels, order)):
        if path.exists():
            continue
        unfinished = path.with_suffix(".tmp")
        with pq.ParquetWriter(unfinished, _chunk(path, numbers[:1]).schema) as writer:
            for start in range(0, rows, _CHUNK):
                writer.write_table(_chunk(path, numbers[start : start + _CHUNK]))
        unfinished.rename(path)
    return listing, labels


def _chunk(path: Path, numbers: np.ndarray) -> pa.Table:
    paths = [_path_of(number) for number in numbers.tolist()]
    if path.name.startswith("listing"):
        return pa.table({"path": paths, "num_bytes": 50_000 + numbers * 7919 % 100_000})
    return pa.table(
        {"path": paths, "label": [f"class_{number % _CLASSES:03d}" for number in numbers.tolist()]}
    )


def _run(folder: Path, rows: int, *, labels: bool) -> Usage:
    listing, table = make_tables(folder, rows)
    out = folder / "join-out"
    words = shardwright_command(
        "plan", str(listing), str(out), "--size-column", "num_bytes", "--json"
    )
    usage = measure(words + (["--labels", str(table)] if labels else []), log=folder / "join-log")
    shutil.rmtree(out, ignore_errors=True)
    check_plan(usage.stdout.read_text(), rows, classes=min(rows, _CLASSES) if labels else 0)
    told = "with labels" if labels else "without"
    print(
        f"{rows:,} rows {told}  {usage.wall_s:.1f} s  RSS {usage.peak_rss_bytes / 1e9:.2f} GB",
        file=sys.stderr,
    )
    return usage


def check_plan(text: str, rows: int, *, classes: int) -> None:
    """Raise RunFailedError unless the plan has every image and every class."""
    try:
        plan = json.loads(text)
    except ValueError as error:
        raise RunFailedError(f"`shardwright plan --json` prints no JSON: {text[:200]!r}") from error
    found = (plan["num_records"], plan["num_classes"], plan["rejects"])
    if found != (rows, classes, {}):
        raise RunFailedError(
            f"the plan has (records, classes, rejects) {found}, not ({rows}, {classes}, {{}})"
        )


def _render(runs: list[Run], checks: list[Target], circumstances: list[str]) -> str:
    head = ["rows", "--labels", "wall s", "CPU s", "peak RSS GB", "peak PSS GB"]
    table = [
        [
            f"{run.rows:,}",
            "yes" if run.labels else "no",
            spread([usage.wall_s for usage in run.usages], ".1f"),
            spread([usage.cpu_s for usage in run.usages], ".1f"),
            f"{max(usage.peak_rss_bytes for usage in run.usages) / 1e9:.2f}",
            f"{max(usage.peak_pss_bytes for usage in run.usages) / 1e9:.2f}",
        ]
        for run in runs
    ]
    verdicts = [[check.text, check.found, verdict(check.passed)] for check in checks]
    lines = ["## Joining a table of labels", "", *circumstances]
    lines += [
        "- Measured: `shardwright plan LISTING OUT --size-column num_bytes --json [--labels "
        "LABELS]`, the whole command",
        "",
    ]
    return "\n".join(
        [*lines, *page.table(head, table), "", *page.table(["required", "found", ""], verdicts)]
    )


def _targets(runs: list[Run]) -> list[Target]:
    peak = max(usage.peak_rss_bytes for run in runs for usage in run.usages)
    return [
        Target(
            f"under {MAX_RSS_BYTES / 1e9:.0f} GB (summed RSS)",
            f"{peak / 1e9:.2f} GB",
            peak < MAX_RSS_BYTES,
        )
    ]


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--rows",
        type=int,
        nargs="+",
        default=[100_000, 3_000_000],
        help="rows of each table (default %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=3,
        help="runs; the table shows the median (default %(default)s)",
    )
    add("--dir", type=Path, help="work here (default: a tmpfs with room, else the temp folder)")
    add(
        "--clean",
        action="store_true",
        help="also delete the tables at the end (default: keep them for the next run)",
    )
    add("--write", action="store_true", help="write the section of benchmarks/RESULTS.md")
    add("--no-check", action="store_true", help="exit code 0 even when a target fails")
    return parser.parse_args(argv)


def main() -> int:
    argv = sys.argv[1:]
    args = parse_args(argv)
    need_bytes = sum(args.rows) * _BYTES_PER_ROW
    folder = (args.dir or page.default_directory(need_bytes)).resolve()
    page.require_room(folder, need_bytes)
    try:
        cases = [(rows, labels) for rows in args.rows for labels in (False, True)]
        runs = [
            Run(rows, labels, [_run(folder, rows, labels=labels) for _ in range(args.rounds)])
            for rows, labels in cases
        ]
    except RunFailedError as failure:
        sys.exit(str(failure))
    if args.clean:
        for path in (path for rows in args.rows for path in make_tables(folder, rows)):
            path.unlink()
    for before, after in zip(runs[::2], runs[1::2], strict=True):
        added = median(usage.wall_s for usage in after.usages) - median(
            usage.wall_s for usage in before.usages
        )
        print(f"{after.rows:,} rows of labels add {added:.1f} s", file=sys.stderr)
    checks = _targets(runs)
    text = _render(
        runs, checks, page.circumstances("join.py", argv, rounds=args.rounds, folder=folder)
    )
    print(text)
    if args.write:
        page.write_section("join", text)
    failed = any(check.passed is False for check in checks)
    return 1 if failed and not args.no_check else 0


if __name__ == "__main__":
    sys.exit(main())
