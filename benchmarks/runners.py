#!/usr/bin/env python
"""Measure time, memory and equal bytes of builds on every installed runner (`make bench-runners`).

    python benchmarks/runners.py [--runners FnApiRunner,Prism] [--datasets digits,photos]
                                 [--photos 8000] [--rounds 3] [--write]

Each run is `shardwright build`, measured as a whole process tree (see measure.py) with imports and
planning. Memory includes the processes of a cluster; its start-up time is in no figure. Rounds are
interleaved within a group of runners and start with another runner each. All shards of a run are
hashed before it is deleted.

Exit code 1 if a runner fails or writes different bytes. The default takes about 25 minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import engines
import page
import raw_results
import runners_report as report
from engines import Engine, MissingError
from measure import RunFailedError, Servers, measure
from photos import make_photos
from runners_report import START, Results, Run, Work
from systems import shardwright_command

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from demo_images import make_digits

MOST_BYTES = 4 * 10**9
MOST_DIFFERENT = 8000  # photos; further files are the same ones under other names
WORKS = ("digits", "photos", "re-encode")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def works(chosen: Sequence[str], folder: Path, photos: int) -> list[Work]:
    """Return the chosen work, after making its images unless they exist."""
    digits, pictures = folder / "digits", folder / "photos"
    different = min(photos, MOST_DIFFERENT)
    large = make_photos(pictures, photos=different, names=photos // different)
    splits = ("--records-per-shard", "256", "--split", "train=0.8,validation=0.1,test=0.1")
    anew = ("--records-per-shard", "500", "--encode", "jpeg", "--resize", "256x256")
    shards = ("--shard-size", "20MB")
    all_works = (
        Work(START, make_photos(pictures, photos=8).folder, 8, shards),
        Work("digits", digits, make_digits(digits), splits),
        Work("photos", large.folder, large.files, shards),
        Work("re-encode", large.folder, large.files, anew),
    )
    return [work for work in all_works if work.name in (START, *chosen)]


def digest(out: Path) -> str:
    """Return one sha256 of all shards, that of `sha256sum *.tfrecord-* | sha256sum`."""
    shards = sorted(path for path in out.iterdir() if ".tfrecord-" in path.name)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in shards)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def run(engine: Engine, work: Work, folder: Path, timeout_s: float) -> Run:
    """Build once.

    Raises:
        RunFailedError: The build failed or took longer than `timeout_s`.
    """
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = shardwright_command(
        "build", str(work.source), str(out), "--name", "bench", *work.options, *engine.arguments
    )
    servers = Servers(engine.servers)
    peak = [0]

    def look(rss_bytes: int) -> None:
        peak[0] = max(peak[0], rss_bytes + servers.rss_bytes())

    usage = measure(
        words,
        log=folder / "log",
        env={**_QUIET, **engine.environment},
        timeout_s=timeout_s,
        each_look=look,
    )
    found = Run(usage.wall_s, usage.cpu_s, peak[0], digest(out))
    shutil.rmtree(out)
    return found


def run_group(
    names: Sequence[str],
    group: engines.Group,
    todo: list[Work],
    args: argparse.Namespace,
    results: Results,
) -> None:
    """Run all rounds of the runners of one group."""
    for number in range(args.rounds):
        for work in todo:
            for name in page.turned(names, number):
                try:
                    found = run(group[name], work, args.dir, args.timeout)
                except RunFailedError as failure:
                    results.fail(name, work.name, str(failure))
                    page.say(f"round {number + 1}: {name:<21} {work.name:<9} FAILED: {failure}")
                    continue
                results.add(name, work.name, found)
                figures = (
                    f"{found.wall_s:6.2f} s  {found.peak_bytes / 1e9:.2f} GB  {found.digest[:12]}"
                )
                page.say(f"round {number + 1}: {name:<21} {work.name:<9} {figures}")


def parse_args() -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add(
        "--runners",
        type=page.choice(engines.NAMES),
        default=list(engines.NAMES),
        help="of: " + ", ".join(engines.NAMES),
    )
    add("--datasets", type=page.choice(WORKS), default=list(WORKS), help="of: " + ", ".join(WORKS))
    add("--photos", type=int, default=8000, help="number of photos")
    add(
        "--timeout",
        type=float,
        default=900,
        metavar="SECONDS",
        help="a run that takes longer has failed (default %(default)g)",
    )
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    args.dir = page.work_folder(args.dir, MOST_BYTES)
    page.say(f"working in {args.dir} ({page.directory_kind(args.dir)}); making images ...")
    todo = works(args.datasets, args.dir, args.photos)
    results = Results(todo)
    for names, starting in engines.groups(args.runners):
        try:
            with starting as group:
                run_group(names, group, todo, args, results)
        except MissingError as error:
            results.miss(names, str(error))
    about = raw_results.circumstances(args.dir, args.rounds)
    return raw_results.finish(
        raw_results.Result("runners", about, report.packed(results)), report, args
    )


if __name__ == "__main__":
    sys.exit(main())
