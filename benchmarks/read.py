#!/usr/bin/env python
"""Measure reading with shardwright's readers and their peers (`make bench-read`).

The same photos (see photos.py) are read from TFRecord shards, and from each peer's own format (see
read_data.py), on all cores. Each loader runs in its own process (read_systems.py, read_torch.py).
Rounds are interleaved and start with another loader each.

  feed    images/s of 224x224 random-resized crops with flips, in batches of uint8, after a
          warm-up; first batch, memory
  raw     records/s without decoding
  random  the same in random order, in batches of 2,048, against formats for random access
  start   from imports to the first batch, on a dataset of 10,000 shards
  memory  growth of the reader's memory in half a minute

The tf.data pipeline is tuned first: the fastest of its variants takes part. The peers run in
environments of their own (environments.py). Exit code 1 if a required target fails, unless
--no-check is given. Takes about 12 minutes, and 4 GB.

Every loader is timed for the same number of seconds, so that slow ones do not take the most time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import environments
import page
import raw_results
import read_report as report
from measure import RunFailedError, measure
from read_data import IN_TORCH, make_data, make_many_shards
from read_feeds import ORDERS
from read_report import (
    EXACT,
    IN_ORDER,
    LOAD,
    RANDOM,
    RAW,
    READER,
    READER_TF,
    SHUFFLED,
    SYSTEMS,
    TF,
    Case,
    Results,
    Run,
    Session,
)
from systems import HERE

PARTS = ("feed", "raw", "random", "start", "memory")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
_SIZES = {"500x375": (500, 375), "1600x1200": (1600, 1200), "4000x3000": (4000, 3000)}
_BYTES_PER_PHOTO = 900_000  # 80 KB of photo in ten formats
_TINY_BYTES_PER_SHARD = 40_000


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add(
        "--parts",
        type=page.choice(PARTS),
        default=list(PARTS),
        help="comma-separated, of: " + ", ".join(PARTS),
    )
    add(
        "--systems",
        type=page.choice(SYSTEMS),
        default=list(SYSTEMS),
        help="in `feed`, of: " + ", ".join(SYSTEMS),
    )
    add("--photos", type=int, default=4200, help="number of different photos")
    add(
        "--pixels",
        choices=_SIZES,
        default="500x375",
        help="their size: 400 of 1600x1200 and 100 of 4000x3000 have bytes enough",
    )
    add("--seconds", type=float, default=4.0, help="timed seconds of a loader in `feed`")
    add("--warm-up", type=int, default=800, help="images before those")
    add("--records", type=int, default=60_000, help="records timed without decoding")
    add("--batch-size", type=int, default=64, help="images in a batch")
    add("--random-batch", type=int, default=2048, help="records in a batch of `random`")
    add("--shards", type=int, default=10_000, help="shards of the dataset of `start`")
    add("--memory-seconds", type=float, default=30.0, help="duration of the run of `memory`")
    add(
        "--cores",
        type=int,
        default=os.cpu_count(),
        help="workers or threads, if a peer needs a number (default: all)",
    )
    add("--quick", action="store_true", help="one round of few images without targets, for CI")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.no_check = 1, True
        args.photos, args.warm_up, args.batch_size = 80, 16, 8
        args.records, args.shards, args.seconds, args.memory_seconds = 320, 20, 0.2, 1.0
        args.random_batch = 16
    return args


def cases_of(part: str, systems: list[str]) -> list[Case]:
    """Return the cases of each round; in stored order only those that a target judges."""
    if part == "feed":
        both = (READER, EXACT, READER_TF, TF)
        orders = {name: ORDERS if name in both else (SHUFFLED,) for name in systems}
        return [Case(part, name, order) for name, found in orders.items() for order in found]
    if part == "random":
        return [Case(part, name, SHUFFLED) for name in (READER, *RANDOM)]
    ours = [Case(part, name, order) for name in (READER, LOAD) for order in ORDERS]
    return [Case(part, RAW, IN_ORDER), *ours] if part == "raw" else ours


class Bench:
    """The runs of all loaders on the data in one folder, and their results."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.folder, self.args = folder, args
        self.results: Results = {}
        self.tuned: dict[str, float] = {}
        self.chosen = "not tuned"

    def _measure(
        self, name: str, task: str, words: list[str]
    ) -> tuple[dict[str, object], int, list[tuple[float, int]]]:
        """Return the JSON of the loader's process, its peak RSS, and (time, RSS) samples."""
        looks: list[tuple[float, int]] = []
        usage = measure(
            [
                environments.python_of("read", name),
                str(HERE / ("read_torch.py" if name in IN_TORCH else "read_systems.py")),
                task,
                name,
                *words,
                "--cores",
                str(self.args.cores),
            ],
            log=self.folder / "logs" / f"{task}-{name}",
            env=_QUIET,
            timeout_s=900,
            each_look=lambda rss_bytes: looks.append((time.monotonic(), rss_bytes)),
        )
        return usage.told(), usage.peak_rss_bytes, looks

    def tune(self, data: Path) -> None:
        words = [
            "--data",
            str(data),
            "--batch-size",
            str(self.args.batch_size),
            "--items",
            str(self.args.warm_up),
        ]
        rates = self._measure(TF, "tune", words)[0]["rates"]
        assert isinstance(rates, dict)
        self.tuned = rates
        self.chosen = max(rates, key=lambda name: rates[name])
        page.say(
            "tf.data's variants: "
            f"{', '.join(f'{name} {rate:,.0f}/s' for name, rate in rates.items())}"
        )

    def run(self, case: Case, data: Path, *words: str) -> None:
        settings = json.dumps({"variant": self.chosen} if case.name == TF and self.tuned else {})
        is_random = case.part == "random"
        batch_size = self.args.random_batch if is_random else self.args.batch_size
        size = ["--batch-size", str(batch_size), "--settings", settings]
        task = "feed" if case.part == "memory" else case.part
        told, peak, looks = self._measure(
            case.name, task, ["--data", str(data), "--order", case.order, *size, *words]
        )
        rss_bytes = report.mean_between(looks, told.pop("times"))  # type: ignore[arg-type]
        found = Run(**told, peak_rss_bytes=peak, rss_bytes=rss_bytes)  # type: ignore[arg-type]
        self.results.setdefault(case, []).append(found)
        page.say(f"{case.part:<6} {case.name + ', ' + case.order:<34} {report.brief(found)}")


def run_parts(bench: Bench, args: argparse.Namespace, data: Path, many: Path | None) -> None:
    """Run the chosen parts in rounds, and the long run for memory once."""
    if "feed" in args.parts and TF in args.systems:
        bench.tune(data)
    warm_up = ["--warm-up-items", str(args.warm_up)]
    words = {
        "feed": ["--seconds", str(args.seconds), *warm_up],
        "raw": ["--items", str(args.records), *warm_up],
        "random": ["--items", str(args.records), *warm_up],
        "start": [],
    }
    for number in range(args.rounds):
        for part in words:
            cases = cases_of(part, args.systems)
            for case in (
                page.turned(cases, number * max(1, len(cases) // args.rounds))
                if part in args.parts
                else ()
            ):
                bench.run(case, many if many and part == "start" else data, *words[part])
    if "memory" in args.parts:
        seconds = ["--seconds", str(args.memory_seconds)]
        bench.run(Case("memory", READER, SHUFFLED), data, *seconds, *warm_up)


def in_order(results: Results, systems: list[str]) -> Results:
    """Return the results in the order of the tables."""
    listed = [case for part in PARTS for case in cases_of(part, systems)]
    return {case: results[case] for case in sorted(results, key=listed.index)}


def main() -> int:
    args = parse_args(sys.argv[1:])
    of_part = {"feed": args.systems, "raw": [RAW], "random": RANDOM}
    used = [name for part in args.parts for name in of_part.get(part, ())]
    peers = environments.releases("read", used, dated=args.write)
    width, height = _SIZES[args.pixels]
    photo_bytes = _BYTES_PER_PHOTO * width * height // (500 * 375)
    need_bytes = args.photos * photo_bytes + args.shards * _TINY_BYTES_PER_SHARD
    folder = page.work_folder(args.dir, need_bytes)
    page.say(f"working in {folder} ({page.directory_kind(folder)}); making photos and formats ...")
    bench = Bench(folder, args)
    try:
        data = make_data(
            folder,
            args.photos,
            [READER, *(name for part in args.parts for name in of_part.get(part, ()))],
            (width, height),
        )
        many = make_many_shards(folder, args.shards) if "start" in args.parts else None
        run_parts(bench, args, data, many)
    except RunFailedError as failure:  # without this run there is no fair comparison
        sys.exit(str(failure))
    about = raw_results.circumstances(
        folder,
        args.rounds,
        sources=["shardwright"],
        peers=peers,
    )
    runs = in_order(bench.results, args.systems)
    raw = report.packed(Session(runs, bench.tuned, bench.chosen, args.shards, args.pixels))
    parts = args.parts if args.parts != list(PARTS) else []
    size = [] if args.pixels == "500x375" else [args.pixels]
    name = "-".join(["read", *parts, *size])
    return raw_results.finish(raw_results.Result(name, about, raw), report, args)


if __name__ == "__main__":
    sys.exit(main())
