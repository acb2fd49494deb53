#!/usr/bin/env python
"""Measure writing from Python: records a second of a loop, against the usual writers.

Photographs of 500 x 375 are written as encoded bytes (JPEG, 80 KB) and as arrays, which all store
as PNG: webdataset with its own encoder, TensorFlow with `tf.io.encode_png`. Rounds are interleaved,
in one process, after one round that imports and warms up. Ours also shuffles, checks each image,
syncs its files, and writes an index and a manifest; the others do none of that.

There are two throughputs, as in build.py:
  whole   records / wall time of the larger size
  slope   (larger - smaller size) / (difference of their wall times): without what each call costs

Exit code 1 if a target fails, unless --no-check is given. Takes about 3 minutes.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import page
import raw_results
from headers import photograph

sys.path.insert(0, str(page.REPO))
import shardwright as sw

SHARD_BYTES = 100_000_000
_BYTES_PER_RECORD = 400_000  # generous: a photograph as PNG, in the spool and in a shard
_DISTINCT = 32  # photographs; the records repeat them
BYTES, ARRAYS = "bytes", "arrays"
Record = dict[str, Any]
Case = tuple[str, str, int]  # form, system, records


class Cost(NamedTuple):
    """Seconds of one round: of the clock, and of all threads."""

    wall_s: float
    cpu_s: float


def pictures() -> dict[str, list[Any]]:
    """Return photographs by form: as JPEG, and as pixels."""
    whole = np.asarray(photograph())
    arrays = [np.ascontiguousarray(np.roll(whole, 7 * shift, 1)) for shift in range(_DISTINCT)]
    return {BYTES: [_jpeg(array) for array in arrays], ARRAYS: arrays}


def _jpeg(pixels: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=90)
    return buffer.getvalue()


def records(images: list[Any], number: int) -> Iterator[Record]:
    for row in range(number):
        yield {"id": f"{row:08d}", "image": images[row % len(images)], "label": row % 10}


def write_ours(source: Iterator[Record], out: Path) -> None:
    sw.write(source, str(out), shard_size=SHARD_BYTES)


def write_in_loop(source: Iterator[Record], out: Path) -> None:
    with sw.Writer(str(out), shard_size=SHARD_BYTES) as writer:
        for record in source:
            writer.write(record)


def write_tensorflow(source: Iterator[Record], out: Path) -> None:
    import tensorflow as tf

    out.mkdir()
    writer, shard, written = None, 0, SHARD_BYTES
    for record in source:
        image = record["image"]
        data = image if isinstance(image, bytes) else tf.io.encode_png(image).numpy()
        if written >= SHARD_BYTES:
            if writer is not None:
                writer.close()
            writer = tf.io.TFRecordWriter(str(out / f"{shard:05d}.tfrecord"))
            shard, written = shard + 1, 0
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[record["id"].encode()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[record["label"]])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writer.write(example.SerializeToString())
        written += len(data)
    writer.close()


def write_webdataset(source: Iterator[Record], out: Path) -> None:
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(
        str(out / "%05d.tar"), maxsize=SHARD_BYTES, maxcount=1_000_000, verbose=0
    ) as writer:
        for record in source:
            image = record["image"]
            name = "jpg" if isinstance(image, bytes) else "png"
            writer.write({"__key__": record["id"], name: image, "cls": record["label"]})


OURS = ("sw.write", "sw.Writer")
PEERS = ("tf.io.TFRecordWriter", "webdataset ShardWriter")
SYSTEMS: dict[str, Callable[[Iterator[Record], Path], None]] = {
    "sw.write": write_ours,
    "sw.Writer": write_in_loop,
    "tf.io.TFRecordWriter": write_tensorflow,
    "webdataset ShardWriter": write_webdataset,
}


def measure(name: str, source: Iterator[Record], out: Path) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    SYSTEMS[name](source, out)
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    shutil.rmtree(out)
    return cost


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
    images, out, found = pictures(), folder / "write-python", Results()
    for form in sizes:
        for name in SYSTEMS:
            measure(name, records(images[form], 64), out)  # imports
    for number in range(rounds):
        for form, of in sizes.items():
            for size in of:
                for name in page.turned(list(SYSTEMS), number):
                    cost = measure(name, records(images[form], size), out)
                    found.setdefault((form, name, size), []).append(cost)
                    page.say(f"round {number + 1}: {form} {size} {name} {cost.wall_s:.2f} s")
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
    folder = page.work_folder(args.dir, max(map(max, sizes.values())) * _BYTES_PER_RECORD)
    found = run(sizes, args.rounds, folder)
    about = raw_results.circumstances(folder, args.rounds)
    result = raw_results.Result("write_python", about, raw_results.pack(found))
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
