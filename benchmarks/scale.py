#!/usr/bin/env python
"""Measure what loaders hand out on 64 simulated cores (`make bench-scale`).

The codec is replaced by a call that sleeps for a millisecond without the interpreter's lock, as a
decoder works without it. So 64 threads that decode fit on two real cores, and the rest is what a
loader does around its codec: read, check, draw a crop, and bring batches of 224x224 together.

  reader                one process: with 64 threads, and with the 8 of its default
  processes=N           N processes, with 64 / N threads each
  tf.data               64 threads
  grain                 one process with 64 threads; 8 of its workers with 8 threads each

The rates are a lower limit: on 64 real cores, the processes would not share two. What limits one
reader there is the CPU time of the process with the loop, which has a column.

Each loader runs in its own process (scale_feeds.py), the peers in environments of their own
(environments.py). Rounds are interleaved. Exit code 1 if a target fails, unless --no-check is
given. Takes about 6 minutes, and 1 GB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import environments
import page
import raw_results
from page import Target, spread
from read_data import make_data
from read_feeds import time_in_process

CORES, NEED = 64, 40_000
READER, TF, GRAIN = "reader", "tf.data", "grain"
# Case -> the loader, its number of processes (0 for its own alone), and the threads of each.
CASES = {
    "reader": (READER, 0, CORES),
    "reader with 8 threads": (READER, 0, 8),
    **{f"processes={count}": (READER, count, CORES // count) for count in (2, 4, 8, 16)},
    TF: (TF, 0, CORES),
    GRAIN: (GRAIN, 0, CORES),
    "grain with 8 workers": (GRAIN, 8, CORES // 8),
}
_BYTES_PER_PHOTO = 300_000
_SETTINGS = ("processes", "threads")


class Run(NamedTuple):
    """Images a second, and CPU microseconds an image: of all processes, and of that of the loop.

    With the peak memory of all processes.
    """

    rate: float
    cpu_usec: float
    own_usec: float
    peak_pss_bytes: int


Results = dict[tuple[str], list[Run]]


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--cases", type=page.choice(list(CASES)), default=list(CASES), help="such as processes=8")
    add("--photos", type=int, default=1024, help="number of different photos")
    add("--batch-size", type=int, default=256, help="images in a batch")
    add("--seconds", type=float, default=5.0, help="timed seconds of a loader")
    add("--warm-up", type=int, default=8192, help="images before those")
    return parser.parse_args(argv)


def run(case: str, data: Path, args: argparse.Namespace) -> Run:
    """Time a loader in its own process."""
    name, *numbers = CASES[case]
    python = environments.python_of("scale", name)
    settings = dict(zip(_SETTINGS, numbers, strict=True))
    usage = time_in_process("scale_feeds.py", name, python, settings, args, data)
    told = usage.told()
    items = told["items"]
    cpu_usec = told["cpu_s"] / items * 1e6
    return Run(items / told["wall_s"], cpu_usec, told["own_usec"], usage.peak_pss_bytes)


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "runs": raw_results.unpack(raw["runs"], Run)}


def targets(found: dict[str, Any]) -> list[Target]:
    many = {case: of for (case,), of in found["runs"].items() if case.startswith("processes=")}
    if not many:
        return []
    best = max(many, key=lambda case: median([run.rate for run in many[case]]))
    rates, own = ([getattr(run, name) for run in many[best]] for name in ("rate", "own_usec"))
    text, most = f"one Reader on {CORES} simulated cores, {best}: ", 1e6 / NEED
    own_text = f"{text}at most {most:.0f} us an image in the process with the loop"
    return [
        Target(f"{text}at least {NEED:,} images/s", spread(rates, ",.0f"), median(rates) >= NEED),
        Target(own_text, spread(own, ".1f"), median(own) <= most),
    ]


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    rows = [
        [
            case,
            spread([run.rate for run in of], ",.0f"),
            spread([run.cpu_usec for run in of], ".0f"),
            spread([run.own_usec for run in of], ".1f"),
            f"{max(run.peak_pss_bytes for run in of) / 1e9:.2f}",
        ]
        for (case,), of in found["runs"].items()
    ]
    head = ["loader", "images/s", "CPU us an image", "of them in the loop's process", "peak PSS GB"]
    return "\n".join([
        f"## {CORES} simulated cores", "", *lines, "", *page.table(head, rows), "",
        "The codec of each loader is a call that sleeps for a millisecond, so that real cores only "
        "do what a loader does around it.",
        f"Batches of {found['batch_size']} from {found['photos']:,} photographs of 80 KB, "
        f"shuffled; {CORES} threads in all, also of processes, but where the row says otherwise.",
    ])  # fmt: skip


def main() -> int:
    args = parse_args(sys.argv[1:])
    used = sorted({CASES[case][0] for case in args.cases})
    peers = environments.releases("scale", used, dated=args.write)
    folder = page.work_folder(args.dir, args.photos * _BYTES_PER_PHOTO)
    page.say(f"working in {folder} ({page.directory_kind(folder)}); making photos and formats ...")
    data = make_data(folder, args.photos, [READER, *used])
    found: Results = {(case,): [] for case in args.cases}
    for number, case in page.in_rounds(args.cases, args.rounds):
        found[(case,)].append(run(case, data, args))
        page.say(f"round {number}: {case}: {found[(case,)][-1]}")
    about = raw_results.circumstances(folder, args.rounds, sources=["shardwright"], peers=peers)
    raw = {
        "batch_size": args.batch_size,
        "photos": args.photos,
        "runs": raw_results.pack(found),
    }
    return raw_results.finish(raw_results.Result("scale", about, raw), sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
