#!/usr/bin/env python
"""Measure writing from Python: records a second of a loop, against the usual writers.

Photographs of 500 x 375 are written as encoded bytes (JPEG, 80 KB) and as arrays, which all store
as PNG: webdataset with its own encoder, TensorFlow with `tf.io.encode_png`. Rounds are interleaved.
Each run is a process (python_writers.py), which imports and warms up before it is timed; the peers
run in environments of their own. Ours also shuffles, checks each image, syncs its files, and writes
an index and a manifest; the others do none of that.

There are two throughputs, as in build.py:
  whole   records / wall time of the larger size
  slope   (larger - smaller size) / (difference of their wall times): without what each call costs

Exit code 1 if a target fails, unless --no-check is given. Takes about 5 minutes.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import environments
import measure
import numpy as np
import page
import raw_results
from headers import photograph
from PIL import Image
from python_writers import SYSTEMS
from systems import HERE

_BYTES_PER_RECORD = 400_000  # generous: a photograph as PNG, in the spool and in a shard
_DISTINCT = 32  # photographs; the records repeat them
BYTES, ARRAYS = "bytes", "arrays"
Case = tuple[str, str, int]  # form, system, records


class Cost(NamedTuple):
    """Seconds of one round: of the clock, and of all threads."""

    wall_s: float
    cpu_s: float


def make_pictures(folder: Path) -> None:
    """Write photographs by form: FOLDER/bytes/NUMBER.jpg, and their pixels in FOLDER/arrays.npy."""
    whole = np.asarray(photograph())
    arrays = [np.roll(whole, 7 * shift, 1) for shift in range(_DISTINCT)]
    np.save(folder / "arrays.npy", np.stack(arrays))
    (folder / BYTES).mkdir()
    for number, array in enumerate(arrays):
        Image.fromarray(array).save(folder / BYTES / f"{number:02d}.jpg", quality=90)


OURS = ("sw.write", "sw.Writer")
PEERS = ("tf.io.TFRecordWriter", "webdataset ShardWriter")


def run_writer(name: str, form: str, size: int, folder: Path) -> Cost:
    """Write records in a process of the system's environment."""
    words = [environments.python_of("write_python", name), str(HERE / "python_writers.py")]
    words += [name, form, str(size), str(folder / "pictures"), str(folder / "out")]
    usage = measure.measure(words, log=folder / "log", env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    shutil.rmtree(folder / "out")
    return Cost(*usage.told())


class Results(dict[Case, list[Cost]]):
    """The costs of each case by round."""

    def sizes(self, form: str) -> list[int]:
        return sorted({records for of, _, records in self if of == form})

    def whole(self, form: str, system: str) -> list[float]:
        """Return records a second of the larger size, by round."""
        records = self.sizes(form)[-1]
        return [records / cost.wall_s for cost in self[form, system, records]]

    def slope(self, form: str, system: str) -> list[float]:
        """Return records a second without what each call costs, by round; NaN for noise."""
        few, many = self.sizes(form)
        pairs = zip(self[form, system, few], self[form, system, many], strict=True)
        return [
            (many - few) / added if (added := more.wall_s - less.wall_s) > 0 else math.nan
            for less, more in pairs
        ]

    def ratio(self, form: str, measured: str, peer: str) -> float:
        """Return how many times as fast the slower one of ours is."""
        rates = {name: getattr(self, measured)(form, name) for name in (*OURS, peer)}
        return min(
            _median(own / other for own, other in zip(rates[name], rates[peer], strict=True))
            for name in OURS
        )


def _median(ratios: Iterable[float]) -> float:
    """Return the median, or NaN if noise left no value."""
    found = [ratio for ratio in ratios if not math.isnan(ratio)]
    return median(found) if found else math.nan


def run(sizes: dict[str, list[int]], rounds: int, folder: Path) -> Results:
    """Measure all systems, which take turns."""
    found = Results()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pictures").mkdir(parents=True)
    make_pictures(folder / "pictures")
    for number in range(rounds):
        for form, of in sizes.items():
            for size in of:
                for name in page.turned(list(SYSTEMS), number):
                    cost = run_writer(name, form, size, folder)
                    found.setdefault((form, name, size), []).append(cost)
                    page.say(f"round {number + 1}: {form} {size} {name} {cost.wall_s:.2f} s")
    shutil.rmtree(folder)
    return found


def unpack(raw: Sequence[dict[str, Any]]) -> Results:
    return Results(raw_results.unpack(raw, Cost))


def targets(found: Results) -> list[page.Target]:
    return [
        page.Target(
            f"{form}, {text}: sw.write and sw.Writer at least 1.0x {peer}",
            f"{ratio:.2f}x",
            None if math.isnan(ratio) else ratio >= 1,
        )
        for form in (BYTES, ARRAYS)
        for measured, text in (("whole", "whole run"), ("slope", "slope"))
        for peer in PEERS
        for ratio in [found.ratio(form, measured, peer)]
    ]


def render(found: Results, lines: Sequence[str]) -> str:
    head = ["records/s", "records", "whole run", "slope", "CPU us/record"]
    rows = []
    for form in (BYTES, ARRAYS):
        size = found.sizes(form)[-1]
        for name in SYSTEMS:
            cpu_us = [cost.cpu_s / size * 1e6 for cost in found[form, name, size]]
            whole, slope = found.whole(form, name), found.slope(form, name)
            rates = (page.spread(whole, ",.0f"), page.spread(slope, ",.0f"))
            rows.append([f"{form}: {name}", f"{size:,}", *rates, page.spread(cpu_us, ",.0f")])
    return "\n".join(
        [
            "## Writing from Python", "", *lines, "", *page.table(head, rows), "",
            "Photographs of 500 x 375, as JPEGs of 80 KB and as arrays. `slope` leaves out what "
            "each call costs, whatever the number of records.",
        ]
    )  # fmt: skip


def _two(text: str) -> list[int]:
    few, many = page.numbers(text)
    return [few, many]


def main() -> int:
    parser = page.parser(__doc__)
    parser.add_argument("--records", type=_two, default=[2000, 8000], help="photographs as bytes")
    parser.add_argument("--arrays", type=_two, default=[50, 250], help="photographs as arrays")
    args = parser.parse_args()
    sizes = {BYTES: args.records, ARRAYS: args.arrays}
    peers = environments.releases("write_python", SYSTEMS, dated=args.write)
    folder = page.work_folder(args.dir, max(map(max, sizes.values())) * _BYTES_PER_RECORD)
    try:
        found = run(sizes, args.rounds, folder / "write-python")
    except measure.RunFailedError as failure:
        sys.exit(str(failure))
    about = raw_results.circumstances(folder, args.rounds, peers=peers)
    result = raw_results.Result("write_python", about, raw_results.pack(found))
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
