#!/usr/bin/env python
"""Measure whole builds of shardwright and its peers (`make bench`).

Every system converts the same folders of JPEGs (see photos.py) to its output (see systems.py). Each
run is one command, measured as a whole process tree (see measure.py): imports, listing, planning,
reading, writing and closing. Rounds are interleaved: every round runs each system once and starts
with another one. Outputs are checked and deleted after each run. On a tmpfs, their memory stays in
use between runs (see ballast.py), or the first system of a round would pay for the others.

There are two throughputs:
  whole   files / wall time of the whole command, including start-up
  slope   (80,000 - 40,000) / (t80,000 - t40,000): steady state, excluding start-up

Beam's stock transforms hold several copies of the input in memory, so they run only up to
--beam-max-files. Their start-up is measured with 8 files: (8,000 - 8) / (t8,000 - t8). The peers
run at the two largest sizes only, and start-up is timed at the largest. Before the first round each
system converts 8 files, unmeasured: whichever imports from a cold disk would take seconds longer.

Exit code 1 if a required target fails, unless --no-check is given. Takes about 8 minutes.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

import environments
import page
import raw_results
import report
from ballast import Ballast
from measure import RunFailedError, Usage, measure, seconds_to_first_shard
from outputs import check_output
from photos import PhotoSet, make_photos
from report import BASE_FILES, BEAM, OURS, Results
from systems import NAMES, command

# The peers' log lines would not change a figure, but fill the logs.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
_BYTES_PER_FILE = 100_000  # generous: 80 KB of image and each format's overhead


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add(
        "--systems",
        type=page.choice(NAMES),
        default=list(NAMES),
        help="comma-separated, of: " + ", ".join(NAMES),
    )
    add(
        "--sizes",
        type=page.numbers,
        default=[8000, 40000, 80000],
        help="files (default 8000,40000,80000)",
    )
    add("--photos", type=int, default=8000, help="different photos among them")
    add("--beam-max-files", type=int, default=8000, help="largest size for beam-stock")
    add(
        "--build-args",
        type=shlex.split,
        default=[],
        help="more options for `shardwright build`, one string",
    )
    add(
        "--clean",
        action="store_true",
        help="also delete the photos at the end (default: keep them for the next run)",
    )
    add("--quick", action="store_true", help="one round of 2,000 files without targets, for CI")
    args = parser.parse_args(argv)
    if args.quick:
        args.sizes, args.photos, args.rounds, args.no_check = [2000], 2000, 1, True
    if odd := [size for size in args.sizes if size > args.photos and size % args.photos]:
        parser.error(
            f"--sizes {odd}: a size above --photos ({args.photos}) must be a multiple of it"
        )
    return args


def _photo_set(root: Path, files: int, photos: int) -> PhotoSet:
    different = min(files, photos)
    return make_photos(root, photos=different, names=files // different)


def _warm(photos: PhotoSet) -> None:
    """Read every file once, so that no system pays for the first read from disk."""
    for path in photos.folder.rglob("*.jpg"):
        path.read_bytes()


class Bench:
    """The runs of all systems in one work folder, and their results."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.out, self.logs = folder / "out", folder / "logs"
        self.build_args = args.build_args
        self.on_disk = page.directory_kind(folder) == "disk"
        out_bytes = max(args.sizes) * _BYTES_PER_FILE
        self.ballast = Ballast(folder / "ballast", 0 if self.on_disk else out_bytes)
        self.results = Results(beam_max_files=args.beam_max_files)

    def _prepare(self, photos: PhotoSet) -> None:
        self.ballast.swap(self.out)
        self.out.mkdir(parents=True)
        self.ballast.follow(self.out, 0)
        if self.on_disk:
            _warm(photos)
            os.sync()  # else the last run's bytes would be written back during this one

    def warm(self, system: str, photos: PhotoSet) -> None:
        """Run a system once, so that all that it imports has been read from disk."""
        self._measured(system, photos)

    def run(self, system: str, photos: PhotoSet, round_number: int) -> None:
        usage = self._measured(system, photos)
        self.results.add(system, photos.files, usage)
        page.say(
            f"round {round_number}: {system:<11} {photos.files:>6} files  {usage.wall_s:6.2f} s  "
            f"{photos.files / usage.wall_s:6,.0f}/s  CPU {usage.cpu_s:6.2f} s  "
            f"RSS {usage.peak_rss_bytes / 1e9:.2f} GB  PSS {usage.peak_pss_bytes / 1e9:.2f} GB"
        )

    def _measured(self, system: str, photos: PhotoSet) -> Usage:
        self._prepare(photos)
        words = command(system, photos.folder, self.out, self.build_args)
        usage = measure(
            words,
            log=self.logs / system,
            env=_QUIET,
            each_look=lambda rss_bytes: self.ballast.follow(self.out, rss_bytes),
        )
        check_output(system, self.out, files=photos.files, num_bytes=photos.num_bytes)
        self.ballast.swap(self.out)
        return usage

    def run_start_up(self, photos: PhotoSet, round_number: int) -> None:
        self._prepare(photos)
        words = command(OURS, photos.folder, self.out, self.build_args)
        seconds, name = seconds_to_first_shard(
            words, self.out, log=self.logs / "start-up", env=_QUIET
        )
        self.ballast.swap(self.out)
        self.results.add_start_up(photos.files, seconds)
        page.say(
            f"round {round_number}: {OURS} start-up {photos.files:>6} files  {seconds:6.2f} s "
            f"({name})"
        )

    def close(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.ballast.remove()


def _runs_at(system: str, files: int, args: argparse.Namespace) -> bool:
    """Return whether a table or a target needs the system at this size."""
    if system == BEAM:
        return files <= args.beam_max_files
    return files in (args.sizes if system == OURS else args.sizes[-2:])


def _run_round(bench: Bench, args: argparse.Namespace, sets: list[PhotoSet], number: int) -> None:
    for photos in sets:
        for system in page.turned(args.systems, number):
            if _runs_at(system, photos.files, args):
                bench.run(system, photos, number + 1)
    if OURS in args.systems:
        bench.run_start_up(sets[-1], number + 1)


def main() -> int:
    args = parse_args(sys.argv[1:])
    peers = environments.releases("build", args.systems, dated=args.write)
    need_bytes = (args.photos + max(args.sizes)) * _BYTES_PER_FILE
    folder = page.work_folder(args.dir, need_bytes)
    page.say(f"working in {folder} ({page.directory_kind(folder)}); making photos ...")
    sets = [_photo_set(folder / "photos", size, args.photos) for size in (BASE_FILES, *args.sizes)]
    bench = Bench(folder, args)
    try:
        for system in args.systems:
            bench.warm(system, sets[0])
        for number in range(args.rounds):
            _run_round(bench, args, sets, number)
    except RunFailedError as failure:  # without this run there is no fair comparison
        sys.exit(str(failure))
    finally:
        bench.close()
        if args.clean:
            shutil.rmtree(folder / "photos")
    about = raw_results.circumstances(folder, args.rounds, peers=peers)
    result = raw_results.Result("build", about, report.packed(bench.results))
    return raw_results.finish(result, report, args)


if __name__ == "__main__":
    sys.exit(main())
