#!/usr/bin/env python
"""Write records from a Python loop with one system, for `write_python.py`: SYSTEM FORM N IN OUT.

IN has the photographs, as bytes and as arrays. The imports and 64 records come first, untimed. The
last line of stdout is JSON: seconds of the clock, and of all threads.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SHARD_BYTES = 100_000_000
_WARM_UP = 64
Record = dict[str, Any]


def pictures(folder: Path, form: str) -> list[Any]:
    """Return the photographs, as JPEG or as pixels."""
    if form == "bytes":
        return [path.read_bytes() for path in sorted((folder / form).iterdir())]
    import numpy as np

    return list(np.load(folder / f"{form}.npy"))


def records(images: list[Any], number: int) -> Iterator[Record]:
    for row in range(number):
        yield {"id": f"{row:08d}", "image": images[row % len(images)], "label": row % 10}


def write_ours(source: Iterator[Record], out: Path) -> None:
    import shardwright as sw

    sw.write(source, str(out), shard_size=SHARD_BYTES)


def write_in_loop(source: Iterator[Record], out: Path) -> None:
    import shardwright as sw

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=SYSTEMS, help="the system")
    parser.add_argument("form", choices=("bytes", "arrays"))
    parser.add_argument("number", type=int, metavar="N", help="records to write")
    parser.add_argument("source", type=Path, metavar="IN", help="made by write_python.py")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    args = parser.parse_args()
    write, images = SYSTEMS[args.name], pictures(args.source, args.form)
    write(records(images, _WARM_UP), args.out)
    shutil.rmtree(args.out)
    wall, cpu = time.perf_counter(), time.process_time()
    write(records(images, args.number), args.out)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


if __name__ == "__main__":
    main()
