"""Measure writing from Python: records a second of a loop, against the usual writers.

    .venv/bin/python benchmarks/write_python.py [--records 3000] [--arrays 300] [--rounds 5]

Photographs of 500 x 375 are written as encoded bytes (JPEG, 80 KB) and as arrays, which all store
as PNG: webdataset with its own encoder, TensorFlow with `tf.io.encode_png`. Rounds are interleaved,
in one process, after one round that imports and warms up. Ours also shuffles, checks each image,
syncs its files, and writes an index and a manifest; the others do none of that.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from headers import SIZE, photograph

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import shardwright as sw

SHARD_BYTES = 100_000_000
_DISTINCT = 32  # photographs; the records repeat them
Record = dict[str, Any]


class Cost(NamedTuple):
    """Seconds of one round: of the clock, and of all threads."""

    wall: float
    cpu: float


def pictures() -> tuple[list[bytes], list[np.ndarray[Any, Any]]]:
    """Return photographs as JPEG, and as pixels."""
    whole = np.asarray(photograph())
    arrays = [np.ascontiguousarray(np.roll(whole, 7 * shift, 1)) for shift in range(_DISTINCT)]
    return [_jpeg(array) for array in arrays], arrays


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


SYSTEMS: dict[str, Callable[[Iterator[Record], Path], None]] = {
    "sw.write": write_ours,
    "sw.Writer": write_in_loop,
    "tf.io.TFRecordWriter": write_tensorflow,
    "webdataset ShardWriter": write_webdataset,
}


def measure(name: str, source: Iterator[Record], folder: Path) -> Cost:
    out = folder / "out"
    wall, cpu = time.perf_counter(), time.process_time()
    SYSTEMS[name](source, out)
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    shutil.rmtree(out)
    return cost


def compare(images: list[Any], number: int, rounds: int, folder: Path) -> dict[str, list[Cost]]:
    """Return the costs of each system by round; the systems take turns."""
    for name in SYSTEMS:
        measure(name, records(images, 64), folder)  # imports
    found: dict[str, list[Cost]] = {name: [] for name in SYSTEMS}
    for _ in range(rounds):
        for name in SYSTEMS:
            found[name].append(measure(name, records(images, number), folder))
    return found


def show(title: str, found: dict[str, list[Cost]], number: int) -> None:
    """Print records a second, CPU time, and how many times as fast `sw.write` is."""
    print(f"{title:24}{'records/s':>12}{'CPU us/record':>16}{'sw.write is':>14}")
    ours = [cost.wall for cost in found["sw.write"]]
    for name, costs in found.items():
        speed = number / statistics.median(cost.wall for cost in costs)
        cpu = statistics.median(cost.cpu for cost in costs) / number * 1e6
        pairs = zip(costs, ours, strict=True)
        ratio = statistics.median(cost.wall / own for cost, own in pairs)
        print(f"{name:24}{speed:12.0f}{cpu:16.0f}{ratio:13.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=3000, help="photographs as bytes")
    parser.add_argument("--arrays", type=int, default=300, help="photographs as arrays")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where datasets are written (default: temporary)")
    known = parser.parse_args()
    files, arrays = pictures()
    with tempfile.TemporaryDirectory(dir=known.folder) as name:
        for title, images, number in (
            (f"bytes, {len(files[0]) / 1e3:.0f} KB", files, known.records),
            (f"arrays, {SIZE[0]} x {SIZE[1]}", arrays, known.arrays),
        ):
            show(title, compare(images, number, known.rounds, Path(name)), number)


if __name__ == "__main__":
    main()
