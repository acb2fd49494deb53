#!/usr/bin/env python
"""Measure datasets that grow: appends against full builds, and reading before and after compact.

Every command is measured as a whole process tree (measure.py). The parts:

  local   1 % is added to a dataset of photographs (hard links, growth_photos.py): the full build
          before it, the listing alone, the append, and an append that finds nothing new
  tiny    an append to a dataset of 1,000,000 GIFs of 140 bytes that finds nothing new
  S3      as local, on a server of this machine (`make servers`)
  days    daily appends, each of which adds 1 %, and replaces and removes 0.1 %; then `compact`.
          `sw.Reader` reads the grown and the compacted dataset and a fresh build of the same
          images in turns, in one process (growth_reading.py)

Exit code 1 if a target fails, unless --no-check is given.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import growth_report as report
import page
import raw_results
from ballast import Ballast
from growth_photos import GrowingPhotos
from growth_report import AGAIN, APPEND, BUILD, COMPACT, DAYS, FIND, LIST, LOCAL, S3, TINY, Growth
from measure import RunFailedError, Usage, measure
from photos import PhotoSet, make_photos
from startup import make_tiny_files
from systems import shardwright_command

_PHOTO_BYTES, _BLOCK_BYTES = 90_000, 4096  # a photograph in a shard; a tiny file takes a block
_PERCENT = 100
_PER_MILLE = 1_000
_GROW = ("--if-exists", "append")
_NOTHING = "nothing has changed"
_LIST = """
import sys
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.inputs.source import SourceRequest
source = detect_source(SourceRequest(sys.argv[1]))
parts = source.parts()
print(sum(rows.num_rows for part in parts for rows in source.list_part(part)))
"""
_PACKAGES = ("shardwright", "schemas", "transforms", "pipelines")


class Bench:
    """The commands of all parts in one work folder, and their results.

    Args:
        folder: For inputs, outputs and logs.
        out_bytes: The size of the largest output, which a tmpfs keeps allocated between runs.
    """

    def __init__(self, folder: Path, out_bytes: int) -> None:
        self.folder, self.out, self._log = folder, folder / "growth-out", folder / "growth-log"
        self._on_disk = page.directory_kind(folder) == "disk"
        self._ballast = Ballast(folder / "growth-ballast", 0 if self._on_disk else out_bytes)
        self.growth = Growth()

    def clear(self) -> None:
        """Remove the output."""
        self._ballast.swap(self.out)
        if self._on_disk:
            os.sync()  # else its bytes would be written back during the next run

    def run(
        self,
        part: str,
        command: str,
        words: Sequence[str],
        *,
        says: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Run a command, check that it prints `says`, and keep its figures."""
        usage = measure(list(words), log=self._log, env=env, each_look=self._look)
        ends = [self._log.with_suffix(end) for end in (".out", ".err")]
        text = "".join(end.read_text(errors="replace") for end in ends)
        if says not in text:
            raise RunFailedError(f"{' '.join(words)} did not print {says!r}: {text[-500:]}")
        self.growth.add(part, command, usage)
        page.say(f"{part}: {command}: {usage.wall_s:.2f} s, {_megabytes(usage)} MB")

    def grow_once(
        self, part: str, photos: GrowingPhotos, source: str, out: str, env: Mapping[str, str]
    ) -> None:
        """Build all photographs, add 1 %, list and append, append nothing, and take the 1 % away.

        Args:
            part: The part of the results.
            photos: The photographs, whose folder is that of `source`.
            source: INPUT.
            out: OUTPUT, which must not exist yet.
            env: Addresses and credentials of a store.
        """
        build = shardwright_command("build", source, out, "--shard-size", "150MB")
        self.growth.files[part] = len(photos)
        count = max(1, len(photos) // _PERCENT)
        self.run(part, BUILD, build, env=env)
        added = photos.add(count)
        if part == LOCAL:
            self.run(part, FIND, ["find", source, "-printf", "%s %T@\n"])
        words = [sys.executable, "-c", _LIST, source]
        self.run(part, LIST, words, says=str(len(photos)), env=env)
        self.run(part, APPEND, [*build, *_GROW], says=f": {count:,} added", env=env)
        self.run(part, AGAIN, [*build, *_GROW], says=_NOTHING, env=env)
        photos.remove(added)

    def _look(self, rss_bytes: int) -> None:
        self._ballast.follow(self.out, rss_bytes)

    def close(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self._ballast.remove()


def _megabytes(usage: Usage) -> str:
    return f"{usage.peak_rss_bytes / 1e6:.0f}"


def run_local(bench: Bench, base: PhotoSet, files: int, rounds: int) -> None:
    """Add 1 % to a local dataset, in each round to a new one."""
    source = bench.folder / "growth-local"
    shutil.rmtree(source, ignore_errors=True)
    photos = GrowingPhotos(base, source, files)
    for _ in range(rounds):
        bench.clear()
        bench.grow_once(LOCAL, photos, str(source), str(bench.out / "dataset"), {})
    bench.clear()
    shutil.rmtree(source)


def run_tiny(bench: Bench, files: int, rounds: int) -> None:
    """Append nothing to a dataset of tiny files."""
    source = str(make_tiny_files(bench.folder, files))
    build = shardwright_command("build", source, str(bench.out / "dataset"))
    bench.clear()
    bench.growth.files[TINY] = files
    bench.run(TINY, BUILD, build)
    for _ in range(rounds):
        bench.run(TINY, FIND, ["find", source, "-printf", "%s %T@\n"])
        bench.run(TINY, LIST, [sys.executable, "-c", _LIST, source], says=str(files))
        bench.run(TINY, AGAIN, [*build, *_GROW], says=_NOTHING)
    bench.clear()


def run_s3(bench: Bench, base: PhotoSet, files: int, rounds: int) -> None:
    """Add 1 % to a dataset on S3, read from S3."""
    import storage_server as server  # imports obstore and the tests' servers

    with server.Stores(bench.folder / "growth-stores") as stores, stores.line(server.S3, 0) as line:
        server.put_photos(stores, base)
        stores.servers[server.S3].make_bucket("growing")
        stored = PhotoSet(stores.bucket_folder(server.PHOTOS_BUCKET), base.files, base.num_bytes)
        photos = GrowingPhotos(stored, stores.bucket_folder("growing"), files)
        for number in range(rounds):
            bucket = f"grown-{number}"
            stores.servers[server.S3].make_bucket(bucket)
            out = f"s3://{bucket}/dataset"
            bench.grow_once(S3, photos, "s3://growing", out, line.env())
            stores.remove_bucket(bucket)


def run_days(bench: Bench, base: PhotoSet, files: int, days: int, rounds: int) -> None:
    """Append day by day, compact, build the same images anew, and read all three."""
    source = bench.folder / "growth-days"
    shutil.rmtree(source, ignore_errors=True)
    photos = GrowingPhotos(base, source, files)
    bench.clear()
    bench.growth.files[DAYS], bench.growth.days = files, days
    grown, fresh = bench.out / "grown", bench.out / "fresh"
    size = ("--shard-size", str(min(32_000_000, files * _PHOTO_BYTES // 8)))
    build = shardwright_command("build", str(source), str(grown), *size)
    bench.run(DAYS, BUILD, build)
    for day in range(days):
        photos.add(max(1, files // _PERCENT))
        photos.change(max(1, files // _PER_MILLE))
        photos.remove_some(max(1, files // _PER_MILLE))
        bench.run(DAYS, APPEND, [*build, *_GROW], says=f"version {day + 2}: {len(photos):,} ")
    words = shardwright_command("compact", str(grown))
    bench.run(DAYS, COMPACT, words, says=f"{len(photos):,} records")
    bench.run(DAYS, BUILD, shardwright_command("build", str(source), str(fresh), *size))
    read_days(bench, grown, fresh, rounds)
    bench.clear()
    shutil.rmtree(source)


def read_days(bench: Bench, grown: Path, fresh: Path, rounds: int) -> None:
    """Read the dataset that has grown, at the version before `compact` and at its newest one."""
    from growth_reading import View, read_all  # imports the reader

    views = [
        View(report.FRESH, fresh),
        View(report.GROWN, grown, bench.growth.days + 1),
        View(report.COMPACTED, grown),
    ]
    bench.growth.shards = {view.name: view.facts["shards"] for view in views}
    bench.growth.rates = read_all(views, rounds)


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--pictures", type=int, default=4_000, help="different photographs; files are links to one")
    add("--local", type=int, default=100_000, help="local photographs (0: leave this part out)")
    add("--tiny", type=int, default=1_000_000, help="tiny files (0: leave this part out)")
    add("--s3", type=int, default=100_000, help="photographs on S3 (0: leave this part out)")
    add("--daily", type=int, default=20_000, help="photographs at first (0: leave this part out)")
    add("--days", type=int, default=30, help="daily appends")
    add("--readings", type=int, default=7, help="rounds of reading")
    return parser.parse_args(argv)


def run_parts(bench: Bench, args: argparse.Namespace) -> None:
    """Run the parts that are asked for; the one that reads in this process is the last."""
    base = make_photos(bench.folder, photos=args.pictures)
    if args.local:
        run_local(bench, base, args.local, args.rounds)
    if args.tiny:
        run_tiny(bench, args.tiny, args.rounds)
    if args.s3:
        run_s3(bench, base, args.s3, args.rounds)
    if args.daily:
        run_days(bench, base, args.daily, args.days, args.readings)


def _out_bytes(args: argparse.Namespace) -> int:
    grown = args.daily * (1 + args.days / _PERCENT)
    # Three copies: what the appends wrote, the compacted shards, and the fresh build.
    return int(max(1.02 * args.local, 3.2 * grown) * _PHOTO_BYTES)


def main() -> int:
    args = parse_args(sys.argv[1:])
    out_bytes = _out_bytes(args)
    in_bytes = args.pictures * _PHOTO_BYTES + args.tiny * _BLOCK_BYTES
    s3_bytes = 2 * args.pictures * _PHOTO_BYTES + args.s3 * _PHOTO_BYTES if args.s3 else 0
    folder = page.work_folder(args.dir, in_bytes + out_bytes + s3_bytes)
    for package in _PACKAGES:  # else every run would compile, where Python writes no bytecode
        compileall.compile_dir(page.REPO / package, quiet=1)
    bench = Bench(folder, out_bytes)
    try:
        run_parts(bench, args)
    except RunFailedError as failure:
        sys.exit(str(failure))
    finally:
        bench.close()
    about = raw_results.circumstances(folder, args.rounds)
    result = raw_results.Result("growth", about, report.packed(bench.growth))
    return raw_results.finish(result, report, args)


if __name__ == "__main__":
    sys.exit(main())
