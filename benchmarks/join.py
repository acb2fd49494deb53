#!/usr/bin/env python
"""Measure the overhead of --labels in `shardwright plan`: a join with a listing of equal length.

Both are Parquet tables. The listing has paths and sizes, so that no files are needed; the labels
have the same paths in another order, and are joined by key. Each run is one whole command (see
measure.py), with and without --labels.

Exit code 1 if a plan lacks rows or exceeds its memory target, unless --no-check is given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import page
import pyarrow as pa
import pyarrow.parquet as pq
import raw_results
from measure import RunFailedError, Usage, measure
from page import Target
from systems import shardwright_command

MAX_RSS_BYTES, MAX_ADDED_S = 4 * 10**9, 45
_CHUNK = 500_000
_CLASSES = 1000
_BYTES_PER_ROW = 120  # generous: both tables


Runs = dict[tuple[int, bool], list[Usage]]  # by rows, and if labels are joined


def _path_of(number: int) -> str:
    return f"photos/img_{number:012d}.jpg"


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


def unpack(raw: Any) -> Runs:
    return raw_results.unpack(raw, Usage)


def added_s(found: Runs, rows: int) -> float:
    """Return the seconds that labels add to a plan."""
    without, joined = (median(usage.wall_s for usage in found[rows, it]) for it in (False, True))
    return joined - without


def targets(found: Runs) -> list[Target]:
    peak = max(usage.peak_rss_bytes for usages in found.values() for usage in usages)
    rows = max(rows for rows, _ in found)
    added, limit = added_s(found, rows), f"{MAX_RSS_BYTES / 1e9:.0f} GB"
    return [
        Target(
            f"{rows:,} labels joined: at most {MAX_ADDED_S} s more than the plan without",
            f"{added:.1f} s",
            added <= MAX_ADDED_S,
        ),
        Target(f"a join under {limit}", f"{peak / 1e9:.2f} GB", peak < MAX_RSS_BYTES),
    ]


def render(found: Runs, lines: Sequence[str]) -> str:
    head = ["rows", "--labels", *page.USAGE_HEAD]
    table = [
        [f"{rows:,}", "yes" if labels else "no", *page.usage_cells(usages, ".1f")]
        for (rows, labels), usages in found.items()
    ]
    command = "`shardwright plan LISTING OUT --size-column num_bytes --json [--labels LABELS]`"
    measured = f"- Measured: {command}, the whole command"
    title = "## Joining a table of labels"
    return "\n".join([title, "", *lines, measured, "", *page.table(head, table)])


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--rows", type=int, nargs="+", default=[100_000, 3_000_000], help="rows of each table")
    add(
        "--clean",
        action="store_true",
        help="also delete the tables at the end (default: keep them for the next run)",
    )
    return parser.parse_args(argv)


def main() -> int:
    args = parse_args(sys.argv[1:])
    need_bytes = sum(args.rows) * _BYTES_PER_ROW
    folder = page.work_folder(args.dir, need_bytes)
    try:
        cases = [(rows, labels) for rows in args.rows for labels in (False, True)]
        runs = {
            (rows, labels): [_run(folder, rows, labels=labels) for _ in range(args.rounds)]
            for rows, labels in cases
        }
    except RunFailedError as failure:
        sys.exit(str(failure))
    if args.clean:
        for path in (path for rows in args.rows for path in make_tables(folder, rows)):
            path.unlink()
    about = raw_results.circumstances(folder, args.rounds)
    result = raw_results.Result("join", about, raw_results.pack(runs))
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
