"""Measure the steps of a build in microseconds per image, and print them as JSON.

`writing.py` runs this with PYTHONPATH set to the checkout to measure. Figures are the best of
several rounds, because other load only makes a round slower.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from google_crc32c import value

from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.features.rows import index_labels
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.transforms.write.image_reads import ImageLocation, read_local_image
from shardwright.transforms.write.shard_writing import make_chunks, write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob

IMAGES, THREADS = 4000, (1, 2, 3)
_PIECE_ROWS = 250  # of a batch of 10,000 rows in each bucket of a shuffle
_LISTED = "list the folder"


def best_us(function: Callable[[], object], images: int, rounds: int) -> float:
    """Return the wall time of the best round in microseconds per image."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken) / images * 1e6


def list_references(photos: str) -> pa.RecordBatch:
    """Return the references of the first images of a folder."""
    source = detect_source(SourceRequest(photos, input_format="folder"))
    listed = (batch for batch in source.list_part("") if isinstance(batch, pa.RecordBatch))
    return pa.concat_batches(list(listed))


def shuffled(references: pa.RecordBatch) -> pa.RecordBatch:
    """Return references with labels in a random order, as a build reads them."""
    order = list(range(references.num_rows))
    random.Random(0).shuffle(order)
    names = sorted(set(references.column("label").to_pylist()))
    return next(iter(index_labels(references.take(pa.array(order[:IMAGES])), names)))


def pack_and_unpack(references: pa.RecordBatch) -> None:
    for start in range(0, references.num_rows, _PIECE_ROWS):
        from_ipc(to_ipc(references.slice(start, _PIECE_ROWS)))


def make_job(folder: Path, threads: int) -> WriteJob:
    schema = image_classification().with_class_names(("a",))
    return WriteJob(Folder(str(folder)), schema, StoredRecords("header", EncodeOptions()), threads)


def steps(references: pa.RecordBatch, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield (step, function that runs it on all images in one thread)."""
    names = [name for name in ImageLocation._fields if name in references.schema.names]
    columns = (references.column(name).to_pylist() for name in names)
    rows = [ImageLocation(*row) for row in zip(*columns, strict=True)]
    data = [read_local_image(row) for row in rows]
    encoder = ExampleEncoder(image_classification().with_class_names(("a",)))
    nothing, crcs = [b""] * len(data), [value(image) for image in data]

    def write_all() -> None:
        with open(folder / "written", "wb", buffering=0) as file:
            for start in range(0, len(data), 50):
                os.writev(file.fileno(), data[start : start + 50])

    yield "pack its reference for a shuffle, and unpack it", lambda: pack_and_unpack(references)
    yield "open, look at and read the file", lambda: [read_local_image(row) and 0 for row in rows]
    yield "header check", lambda: [check_image(image, "header") for image in data]
    yield "its CRC32C, not right after reading it", lambda: [value(image) for image in data]
    yield "read it, and its CRC32C at once", lambda: [value(read_local_image(row)) for row in rows]
    yield "frame it", lambda: encoder.frame(nothing, nothing, data, crcs)
    job = make_job(folder, 1)
    yield "reading to framing, in chunks", lambda: deque(make_chunks(references, job), maxlen=0)
    yield "gathered write", write_all


def write_shards(references: pa.RecordBatch, folder: Path, threads: int) -> None:
    """Write two shards with reads, checks and sidecars."""
    job, half = make_job(folder, threads), references.num_rows // 2
    for index in range(2):
        rows = references.slice(index * half, half)
        write_shard(ShardPlan.make(ShardName("b", "train", index, 2), rows, b""), job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", help="a folder of class folders")
    parser.add_argument("out", type=Path, help="a folder for shards")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    listed = list_references(args.photos)
    us = {_LISTED: best_us(lambda: list_references(args.photos), listed.num_rows, args.rounds)}
    references = shuffled(listed)
    images = references.num_rows
    for name, run in steps(references, args.out):
        us[name] = best_us(run, images, args.rounds)
    for n in THREADS:
        name = f"whole shards, {n} reading thread{'s' * (n > 1)}"
        us[name] = best_us(lambda n=n: write_shards(references, args.out, n), images, args.rounds)
    print(json.dumps(us))


if __name__ == "__main__":
    main()
