"""Measure the steps of writing a shard in microseconds per image, and whole shards by threads.

    python benchmarks/writing.py [--rounds 5] [--write]

It shows what to optimize, and why one reading thread is the default for local files: reading and
writing 80 KB images is limited by memory bandwidth, so a second reading thread adds little. Figures
are the best of several rounds, because other load only makes a round slower.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import page
import pyarrow as pa
import raw_results
from google_crc32c import value
from photos import make_photos

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from schemas.image_classification import image_classification
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from transforms.features.rows import index_labels
from transforms.images.checks import check_image
from transforms.images.options import EncodeOptions
from transforms.inputs.detection import detect_source
from transforms.inputs.source import SourceRequest
from transforms.plan.shard_plans import ShardPlan
from transforms.write.examples import ExampleEncoder
from transforms.write.image_reads import main_places, read_local_image
from transforms.write.shard_writing import make_chunks, write_shard
from transforms.write.write_job import WriteJob

PHOTOS, ROUNDS, THREADS = 4000, 5, (1, 2, 3)


def best_us(function: Callable[[], object], images: int, rounds: int) -> float:
    """Return the wall time of the best round in microseconds per image."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken) / images * 1e6


def steps(references: pa.RecordBatch, folder: Path, rounds: int) -> list[tuple[str, float]]:
    """Return (step, microseconds per image), each step alone and in one thread."""
    rows = main_places(references)
    data = [read_local_image(row) for row in rows]
    encoder = ExampleEncoder(image_classification().with_class_names(("a",)))
    nothing, crcs = [b""] * len(data), [value(image) for image in data]

    def read_all() -> None:
        for row in rows:
            read_local_image(row)

    def read_and_sum_all() -> None:
        for row in rows:
            value(read_local_image(row))

    def make_all() -> None:
        deque(make_chunks(references, make_job(folder, 1)), maxlen=0)

    def write_all() -> None:
        with open(folder / "written", "wb", buffering=0) as file:
            for start in range(0, len(data), 50):
                os.writev(file.fileno(), data[start : start + 50])

    return [
        ("open, look at and read the file", best_us(read_all, len(rows), rounds)),
        (
            "header check",
            best_us(lambda: [check_image(image, "header") for image in data], len(rows), rounds),
        ),
        (
            "its CRC32C, not right after reading it",
            best_us(lambda: [value(image) for image in data], len(rows), rounds),
        ),
        ("read it, and its CRC32C at once", best_us(read_and_sum_all, len(rows), rounds)),
        (
            "frame it",
            best_us(lambda: encoder.frame(nothing, nothing, data, crcs), len(rows), rounds),
        ),
        ("all of these, as chunks are made", best_us(make_all, len(rows), rounds)),
        ("gathered write", best_us(write_all, len(rows), rounds)),
    ]


def make_job(folder: Path, threads: int) -> WriteJob:
    schema = image_classification().with_class_names(("a",))
    return WriteJob(Folder(str(folder)), schema, "header", EncodeOptions(), threads)


def whole_shards(references: pa.RecordBatch, folder: Path, threads: int, rounds: int) -> float:
    """Return the microseconds per image of `write_shard`, with reads, checks and sidecar."""
    job = make_job(folder, threads)
    half = references.num_rows // 2
    plans = [
        ShardPlan.make(ShardName("b", "train", i, 2), references.slice(i * half, half), b"")
        for i in range(2)
    ]
    return best_us(lambda: [write_shard(plan, job) for plan in plans], references.num_rows, rounds)


def shuffled_references(photos: Path) -> pa.RecordBatch:
    """Return the references of all photos in a shuffled order, as a build reads them."""
    source = detect_source(SourceRequest(str(photos), input_format="folder"))
    batches = [batch for batch in source.list_part("") if isinstance(batch, pa.RecordBatch)]
    batch = pa.concat_batches(batches)
    order = list(range(batch.num_rows))
    random.Random(0).shuffle(order)
    names = sorted(set(batch.column("label").to_pylist()))
    return next(iter(index_labels(batch.take(pa.array(order)), names)))


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return raw


def targets(_: dict[str, Any]) -> list[page.Target]:
    return []


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    steps = [[name, f"{us:.1f}"] for name, us in found["steps"]]
    shards = [[str(threads), f"{us:.1f}", f"{1e6 / us:,.0f}"] for threads, us in found["shards"]]
    return "\n".join(
        [
            "## Where the time of writing goes", "", *lines, "",
            *page.table(["step alone, one thread", "us per image"], steps), "",
            *page.table(["whole shards, reading threads", "us per image", "images/s"], shards), "",
            "Best of the rounds. `tar` above reads and writes the same bytes unprocessed.",
        ]
    )  # fmt: skip


def main() -> int:
    args = page.parser(__doc__, rounds=ROUNDS).parse_args()
    folder = page.work_folder(args.dir, 2 * 10**9)
    photos = make_photos(folder / "photos", photos=PHOTOS)
    out = folder / "writing"
    out.mkdir(parents=True, exist_ok=True)
    try:
        references = shuffled_references(photos.folder)
        alone = steps(references, out, args.rounds)
        whole = [(n, whole_shards(references, out, n, args.rounds)) for n in THREADS]
    finally:
        shutil.rmtree(out)
    about = raw_results.circumstances(folder, args.rounds)
    result = raw_results.Result("writing", about, {"steps": alone, "shards": whole})
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
