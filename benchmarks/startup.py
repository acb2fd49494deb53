#!/usr/bin/env python
"""Measure what every command pays before its work: help, small builds and unchanged datasets.

Each figure is the wall time of a whole command (measure.py), the median of the rounds:

  --help, build --help   of the installed command
  photographs            a build of 8,000 photographs (photos.py), and the same command again, which
                         finds the dataset up to date
  tiny files             the same with 1,000,000 GIFs of 140 bytes in 1,000 class folders, where
                         listing and planning are most of the time; `find -printf '%s %T@'` reads
                         the same lengths and times and is the limit to aim at

Exit code 1 if a target fails, unless --no-check is given.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import page
import raw_results
from measure import RunFailedError, Usage, measure
from page import Target, spread
from photos import make_photos
from systems import shardwright_command

_FILE_BYTES, _FOLDERS = 140, 1_000
_GIF = (
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0"
    b"\x02\x02D\x01\0;"
)
_PHOTO_BYTES = 80_000
_PACKAGES = ("shardwright", "schemas", "transforms", "pipelines")
_BLOCK_BYTES = 4096  # a tiny file takes a block
_AGAIN = "up to date: all"


@dataclass
class Case:
    """One command, its limit in seconds, and its runs."""

    text: str
    limit_s: float | None
    usages: list[Usage] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        return median(usage.wall_s for usage in self.usages)


def cases_of(photos: int, tiny: int) -> dict[str, Case]:
    """Return the commands by name, before any run."""
    cases = {
        "help": Case("`shardwright --help`", 0.3),
        "build-help": Case("`shardwright build --help`", 0.3),
    }
    if photos:
        cases["build"] = Case(f"build of {photos:,} photographs", 4)
        cases["again"] = Case(f"{photos:,} photographs, up to date", 1.5)
    if tiny:
        cases["tiny"] = Case(f"build of {tiny:,} tiny files", 50)
        cases["tiny-again"] = Case(f"{tiny:,} tiny files, up to date", 8)
        cases["find"] = Case(f"`find -printf '%s %T@'` on {tiny:,} files", None)
    return cases


def make_tiny_files(folder: Path, files: int) -> Path:
    """Return a folder with this number of different tiny GIFs; made once, then kept."""
    root = folder / f"tiny-{files}"
    if not root.exists():
        unfinished = root.with_suffix(".tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        for number in range(_FOLDERS):
            (unfinished / f"class_{number:03d}").mkdir(parents=True)
        for number in range(files):
            # After the end of a GIF its decoder reads nothing, so these bytes only tell them apart.
            data = (_GIF + b"%d" % number).ljust(_FILE_BYTES, b"\0")
            name = f"class_{number % _FOLDERS:03d}/image_{number:07d}.gif"
            (unfinished / name).write_bytes(data)
        unfinished.rename(root)
    return root


class Bench:
    """The cases, and the folder for outputs and logs."""

    def __init__(self, folder: Path, photos: int, tiny: int) -> None:
        self._out, self._log = folder / "startup-out", folder / "startup-log"
        self._photos = make_photos(folder, photos=photos).folder if photos else None
        self._tiny = make_tiny_files(folder, tiny) if tiny else None
        self.cases = cases_of(photos, tiny)

    def run(self) -> None:
        """Run every case once."""
        self._measure("help", [shardwright_command("plan")[0], "--help"])
        self._measure("build-help", shardwright_command("build", "--help"))
        for source, name, again in (
            (self._photos, "build", "again"),
            (self._tiny, "tiny", "tiny-again"),
        ):
            if source is None:
                continue
            shutil.rmtree(self._out, ignore_errors=True)
            words = shardwright_command("build", str(source), str(self._out))
            self._measure(name, words)
            self._measure(again, words, says=_AGAIN)
        if self._tiny:
            self._measure("find", ["find", str(self._tiny), "-printf", "%s %T@\n"])
        shutil.rmtree(self._out, ignore_errors=True)

    def _measure(self, name: str, words: Sequence[str], *, says: str = "") -> None:
        usage = measure(list(words), log=self._log)
        text = self._log.with_suffix(".err").read_text(errors="replace")
        if says not in text:
            raise RunFailedError(f"{' '.join(words)} did not print {says!r}: {text[-500:]}")
        self.cases[name].usages.append(usage)
        print(f"{self.cases[name].text}: {usage.wall_s:.2f} s", file=sys.stderr, flush=True)


def unpack(raw: dict[str, Any]) -> list[Case]:
    """Return the cases from their JSON."""
    cases = cases_of(raw["photos"], raw["tiny"])
    for (name,), usages in raw_results.unpack(raw["runs"], Usage).items():
        cases[name].usages += usages
    return list(cases.values())


def targets(cases: Sequence[Case]) -> list[Target]:
    return [
        Target(
            f"{case.text}: at most {case.limit_s:g} s",
            f"{case.wall_s:.2f} s",
            case.wall_s <= case.limit_s,
        )
        for case in cases
        if case.limit_s is not None
    ]


def render(cases: Sequence[Case], circumstances: Sequence[str]) -> str:
    head = ["command", "wall s", "CPU s", "peak RSS MB"]
    rows = [
        [
            case.text,
            spread([usage.wall_s for usage in case.usages], ".2f"),
            spread([usage.cpu_s for usage in case.usages], ".2f"),
            f"{max(usage.peak_rss_bytes for usage in case.usages) / 1e6:.0f}",
        ]
        for case in cases
    ]
    title = "## Start-up, and datasets that are up to date"
    return "\n".join([title, "", *circumstances, "", *page.table(head, rows)])


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--photos", type=int, default=8_000, help="photographs (default %(default)s; 0: none)")
    add("--tiny", type=int, default=1_000_000, help="tiny files (default %(default)s; 0: none)")
    return parser.parse_args(argv)


def main() -> int:
    args = parse_args(sys.argv[1:])
    need_bytes = 2 * (args.photos * _PHOTO_BYTES + args.tiny * _BLOCK_BYTES)
    folder = page.work_folder(args.dir, need_bytes)
    for package in _PACKAGES:  # else every run would compile, where Python writes no bytecode
        compileall.compile_dir(page.REPO / package, quiet=1)
    try:
        bench = Bench(folder, args.photos, args.tiny)
        for _ in range(args.rounds):
            bench.run()
    except RunFailedError as failure:
        sys.exit(str(failure))
    about = raw_results.circumstances(folder, args.rounds)
    runs = raw_results.pack({(name,): case.usages for name, case in bench.cases.items()})
    raw = {"photos": args.photos, "tiny": args.tiny, "runs": runs}
    result = raw_results.Result("startup", about, raw)
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
