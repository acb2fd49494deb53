#!/usr/bin/env python
"""Measure `shardwright plan` on a table of 5,000,000 images.

The table is Parquet with the columns path, label and num_bytes. The files do not exist: with a size
column, planning opens none and is arithmetic on references. So this measures reading the table, the
split, the global order and packing into shards, as one whole command (see measure.py).

Exit code 1 if a target fails (25 s, 1.3 GB), unless --no-check is given.
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
from ballast import Ballast
from measure import RunFailedError, Usage, measure
from page import Target
from systems import shardwright_command

MAX_WALL_S, MAX_RSS_BYTES = 25, 1_300_000_000
_CHUNK = 500_000
_CLASSES = 1000
_BYTES_PER_ROW = 60  # generous: the table and the plan that is written
_COLUMNS = ["--image-column", "path", "--label-column", "label", "--size-column", "num_bytes"]
PLAN_OPTIONS = [*_COLUMNS, "--split", "train=0.9,validation=0.05,test=0.05", "--json"]


def _rows(start: int, count: int) -> pa.Table:
    """Return `count` rows from `start`, always the same, with sizes of photos (median 110 KB)."""
    rng = np.random.default_rng(start)
    labels = [f"class_{number:03d}" for number in rng.integers(0, _CLASSES, count)]
    numbers = range(start, start + count)
    paths = [f"photos/{label}/img_{n:012d}.jpg" for label, n in zip(labels, numbers, strict=True)]
    num_bytes = rng.lognormal(np.log(110_000), 0.5, count).astype(np.int64)
    return pa.table({"path": paths, "label": labels, "num_bytes": num_bytes})


def make_table(folder: Path, rows: int) -> Path:
    """Return the table with this number of rows; made once, then kept."""
    path = folder / f"rows-{rows}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        with pq.ParquetWriter(unfinished, _rows(0, 1).schema) as writer:
            for start in range(0, rows, _CHUNK):
                writer.write_table(_rows(start, min(_CHUNK, rows - start)))
        unfinished.rename(path)
    return path


def _sums(value: object, sums: dict[str, int], key: str = "") -> dict[str, int]:
    """Return the sum of the integers in a JSON document by their key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _sums(inner, sums, name)
    elif isinstance(value, list):
        for inner in value:
            _sums(inner, sums, key)
    elif isinstance(value, int):
        sums[key] = sums.get(key, 0) + value
    return sums


def check_plan(text: str, rows: int) -> None:
    """Raise RunFailedError unless the plan accounts for every row.

    The values of some key must sum to the rows, or to twice the rows if splits and total have it.
    Nothing else is checked, so that the plan's format can change without a change here.
    """
    try:
        sums = _sums(json.loads(text), {})
    except ValueError as error:
        raise RunFailedError(
            f"`shardwright plan --json` printed no JSON: {text[:200]!r}"
        ) from error
    if not any(total in (rows, 2 * rows) for total in sums.values()):
        raise RunFailedError(
            f"`shardwright plan --json` does not account for {rows} rows: {text[:500]}"
        )


def unpack(raw: Any) -> dict[int, list[Usage]]:
    """Return the usages by number of rows."""
    return {rows: usages for (rows,), usages in raw_results.unpack(raw, Usage).items()}


def targets(found: dict[int, list[Usage]]) -> list[Target]:
    (rows, usages), *_ = found.items()
    middle = median(usage.wall_s for usage in usages)
    peak = max(usage.peak_rss_bytes for usage in usages)
    plan, limit = f"plan of {rows:,} rows", f"{MAX_RSS_BYTES / 1e9:g} GB"
    return [
        Target(f"{plan}: at most {MAX_WALL_S} s", f"{middle:.1f} s", middle <= MAX_WALL_S),
        Target(f"{plan}: at most {limit}", f"{peak / 1e9:.2f} GB", peak <= MAX_RSS_BYTES),
    ]


def render(found: dict[int, list[Usage]], lines: Sequence[str]) -> str:
    head = ["rows", "rows/s", *page.USAGE_HEAD]
    table = [
        [
            f"{rows:,}",
            f"{rows / median(usage.wall_s for usage in usages):,.0f}",
            *page.usage_cells(usages, ".1f"),
        ]
        for rows, usages in found.items()
    ]
    command = f"`shardwright plan TABLE OUT {' '.join(PLAN_OPTIONS)}`"
    measured = f"- Measured: {command}, the whole command"
    title = "## Planning without the images"
    return "\n".join([title, "", *lines, measured, "", *page.table(head, table)])


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=5_000_000, help="rows of the table")
    add(
        "--clean",
        action="store_true",
        help="also delete the table at the end (default: keep it for the next run)",
    )
    return parser.parse_args(argv)


def _run(table: Path, out: Path, rows: int, ballast: Ballast) -> Usage:
    ballast.swap(out)
    ballast.follow(out, 0)
    words = shardwright_command("plan", str(table), str(out), *PLAN_OPTIONS)
    usage = measure(
        words,
        log=out.with_name("plan-log"),
        each_look=lambda rss_bytes: ballast.follow(out, rss_bytes),
    )
    check_plan(usage.stdout.read_text(), rows)
    shutil.rmtree(out, ignore_errors=True)
    print(
        f"{rows:,} rows  {usage.wall_s:.1f} s  CPU {usage.cpu_s:.1f} s  "
        f"RSS {usage.peak_rss_bytes / 1e9:.2f} GB  PSS {usage.peak_pss_bytes / 1e9:.2f} GB",
        file=sys.stderr,
    )
    return usage


def main() -> int:
    args = parse_args(sys.argv[1:])
    need_bytes = args.rows * _BYTES_PER_ROW + MAX_RSS_BYTES
    folder = page.work_folder(args.dir, need_bytes)
    table = make_table(folder, args.rows)
    on_tmpfs = page.directory_kind(folder) == "tmpfs"
    ballast = Ballast(folder / "ballast", MAX_RSS_BYTES if on_tmpfs else 0)
    try:
        usages = [_run(table, folder / "plan-out", args.rows, ballast) for _ in range(args.rounds)]
    except RunFailedError as failure:
        sys.exit(str(failure))
    finally:
        ballast.remove()
    if args.clean:
        table.unlink()
    about = raw_results.circumstances(folder, args.rounds)
    raw = raw_results.pack({(args.rows,): usages})
    return raw_results.finish(raw_results.Result("plan", about, raw), sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
