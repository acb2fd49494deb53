#!/usr/bin/env python
"""Measure `erase` of 100 ids beside `compact` of the same grown dataset (`make bench-erase`).

Photographs are built, and 1 % more appended. Each round copies the dataset twice by hard links, as
both commands write new files only, and runs both in turns. A ratio is the wall time of `compact`
divided by that of `erase`, start-up included.

Exit code 1 if the median ratio is below 0.6: docs/versions.md says that it takes 1.4 times as long.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from statistics import median

import page
from growth_photos import GrowingPhotos
from measure import RunFailedError, Usage, measure
from page import spread
from photos import make_photos
from systems import shardwright_command

_PHOTO_BYTES, _PERCENT, _ERASED = 90_000, 100, 100


class Erasures:
    """A grown dataset in a work folder, and the commands to compare.

    Args:
        folder: For inputs, outputs and logs.
        pictures: Number of different photographs.
        files: Number of photographs in the dataset; all are links to one of these.
    """

    def __init__(self, folder: Path, pictures: int, files: int) -> None:
        self._folder, self._log = folder, folder / "log"
        photos = GrowingPhotos(make_photos(folder, photos=pictures), folder / "in", files)
        self._dataset = folder / "dataset"
        words = shardwright_command("build", str(photos.folder), str(self._dataset))
        measure(words, log=self._log)
        photos.add(max(1, files // _PERCENT))
        measure([*words, "--if-exists", "append"], log=self._log)
        names = sorted(path.relative_to(photos.folder) for path in photos.folder.rglob("*.jpg"))
        self._ids = folder / "ids.txt"
        step = max(1, len(names) // _ERASED)
        self.erased = names[::step][:_ERASED]
        self._ids.write_text("".join(f"{name}\n" for name in self.erased), "utf-8")

    def _run(self, *words: str) -> Usage:
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._dataset, copy, copy_function=os.link)
        os.sync()  # else what the last run wrote would be written back during this one
        usage = measure(shardwright_command(words[0], str(copy), *words[1:]), log=self._log)
        shutil.rmtree(copy)
        return usage

    def compact(self) -> Usage:
        return self._run("compact")

    def erase(self) -> Usage:
        receipt = self._folder / "receipt.json"
        receipt.unlink(missing_ok=True)
        return self._run("erase", "--ids", str(self._ids), "--receipt", str(receipt), "--yes")


def main() -> int:
    parser = page.parser(__doc__)
    parser.add_argument("--pictures", type=int, default=4_000, help="different photographs")
    parser.add_argument("--files", type=int, default=100_000, help="photographs in the dataset")
    args = parser.parse_args()
    folder = page.work_folder(args.dir, int(2.2 * args.files * _PHOTO_BYTES)) / "erasure"
    folder.mkdir(parents=True, exist_ok=True)
    ratios = []
    try:
        erasures = Erasures(folder, args.pictures, args.files)
        for _ in range(args.rounds):
            compacted, erased = erasures.compact(), erasures.erase()
            ratios.append(compacted.wall_s / erased.wall_s)
            page.say(
                f"compact {compacted.wall_s:.1f} s, {compacted.peak_rss_bytes / 1e6:.0f} MB; "
                f"erase {erased.wall_s:.1f} s, {erased.peak_rss_bytes / 1e6:.0f} MB"
            )
    except RunFailedError as failure:
        sys.exit(str(failure))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told = f"{len(erasures.erased)} of {args.files:,} photographs"
    print(f"erase {told}: {spread(ratios, '.2f')} times the speed of compact")
    return int(median(ratios) < 0.6)


if __name__ == "__main__":
    sys.exit(main())
