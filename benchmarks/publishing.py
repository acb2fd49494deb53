#!/usr/bin/env python
"""Publish 10,000,000 rejects and the summaries of 50,000 shards of 20,000 classes.

The graph of a build from its rejects and plans on, with the transforms of a build, in one process:
only the images are missing. Prints its seconds and its peak memory, with the start of Beam. Exit
code 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from measure import Usage, measure
from page import scratch_folder

from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.file_rules import NO_IMAGE_NAME
from shardwright.transforms.output_state import Clearance, OutputRequest
from shardwright.transforms.plan.packing import Layout, ShardCuts, ShardPlan
from shardwright.transforms.publish.companions import TfdsFiles
from shardwright.transforms.publish.publication import Publication
from shardwright.transforms.publish.publish_dataset import PublishDataset
from shardwright.transforms.publish.report_file import Report
from shardwright.transforms.references import REFERENCE_SCHEMA
from shardwright.transforms.reject_files import pack_rejects
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.rejects import REJECT_SCHEMA
from shardwright.transforms.write.clear_output import ClearOutput

MAX_S, MAX_BYTES = 60, 10**9
_BATCH, _RECORDS = 10_000, 1000  # rejects in a batch, records in a shard
_SHARD_BYTES, _SIDECAR_BYTES = 150_000_000, 50_000
_DIFFERENT = 200  # shards by their classes; drawing them for each would take half of the time
_NO_ROWS = pa.RecordBatch.from_pylist([], REFERENCE_SCHEMA)
_NAME, _LIMITS = "many", RejectLimits(1.0)


def make_rejects(number: int) -> bytes:
    """Return packed rejects of files that are no images."""
    ids = [f"class_{row % 997:03d}/{number:05d}-{row:05d}.txt" for row in range(_BATCH)]
    columns = {
        "id": ids,
        "uri": [f"s3://bucket/photos/{image_id}" for image_id in ids],
        "reason": ["other_file"] * _BATCH,
        "detail": [NO_IMAGE_NAME[1]] * _BATCH,
    }
    return pack_rejects(pa.table(columns, schema=REJECT_SCHEMA))


def make_plan(number: int, count: int) -> ShardPlan:
    return ShardPlan(ShardName(_NAME, "train", number, count), f"{number:032x}", _NO_ROWS)


@functools.cache
def draw_stats(seed: int, num_classes: int) -> dict[str, dict[str, int]]:
    """Return the statistics of records of random classes."""
    drawn = np.random.default_rng(seed).integers(0, num_classes, _RECORDS)
    labels, counts = np.unique(drawn, return_counts=True)
    return {
        "labels": dict(zip(map(str, labels.tolist()), counts.tolist(), strict=True)),
        "formats": {"jpeg": _RECORDS},
    }


@functools.cache
def make_folder(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def make_hole(path: str, num_bytes: int) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.truncate(file, num_bytes)
    os.close(file)


def summarize(number: int, count: int, clearance: Clearance, root: str) -> ShardSummary:
    """Return the summary of a shard with records of random classes; its files are holes."""
    plan = make_plan(number, count)
    stats = draw_stats(number % _DIFFERENT, len(clearance.vocabularies["label"]))
    make_folder(os.path.dirname(f"{root}/{plan.name.sidecar}"))
    make_hole(f"{root}/{plan.name.shard}", _SHARD_BYTES)
    make_hole(f"{root}/{plan.name.sidecar}", _SIDECAR_BYTES)
    return ShardSummary(
        *(plan.name, _RECORDS, _SHARD_BYTES, plan.name.index, plan.digest),
        stats=stats,
        sidecar=FileContent(_SIDECAR_BYTES, plan.name.index),
    )


def run_graph(root: str, num_rejects: int, num_shards: int, num_classes: int) -> None:
    """Clear the output and publish."""
    folder, schema = Folder(root), image_classification()
    layout = Layout(
        {"train": ShardCuts(_RECORDS * num_shards, num_shards)}, {"train": num_shards}, {}
    )
    vocabularies = {"label": tuple(f"class {number}" for number in range(num_classes))}
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        rejects = (
            pipeline
            | "Batches" >> beam.Create(range(num_rejects // _BATCH))
            | "Rejects" >> beam.Map(make_rejects).with_output_types(bytes)
        )
        shards = pipeline | "Shards" >> beam.Create(range(num_shards))
        plans = shards | "Plans" >> beam.Map(make_plan, num_shards)
        known = pipeline | "Layout" >> beam.Create([layout])
        clearance = plans | ClearOutput(
            OutputRequest(folder, {}, "resume"),
            layout=known,
            vocabularies=pipeline | "Vocabularies" >> beam.Create([vocabularies]),
            rejects=rejects,
            limits=_LIMITS,
        )
        summaries = shards | "Write" >> beam.Map(
            summarize, num_shards, AsSingleton(clearance), root
        )
        companions = (Report(), TfdsFiles())
        publication = Publication(folder, _NAME, "1.0.0", schema, {}, {}, _LIMITS, companions)
        _ = summaries | PublishDataset(publication, layout=known, clearance=clearance)


def publish_many(root: Path, num_rejects: int, num_shards: int, num_classes: int) -> Usage:
    """Run the graph in another process, and check that its manifest has everything."""
    root.mkdir()
    numbers = [str(number) for number in (num_rejects, num_shards, num_classes)]
    command = [sys.executable, __file__, "--graph", str(root / "out"), *numbers]
    usage = measure(command, log=root / "log")
    manifest = read_manifest(Folder(str(root / "out")))
    train = manifest.splits["train"]
    assert len(train.shards) == num_shards
    assert sum(train.stats["labels"].values()) == _RECORDS * num_shards
    assert sum(manifest.rejects.values()) == num_rejects // _BATCH * _BATCH
    return usage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--graph", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--rejects", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--dir", help="work here (default: the temp folder)")
    args = parser.parse_args()
    if args.graph:
        run_graph(args.graph[0], *map(int, args.graph[1:]))
        return 0
    with scratch_folder("publishing-", args.dir) as root:
        used = publish_many(root / "many", args.rejects, args.shards, args.classes)
    print(
        f"{args.rejects:,} rejects, {args.shards:,} shards, {args.classes:,} classes: published in "
        f"{used.wall_s:.1f} s, CPU {used.cpu_s:.1f} s, RSS {used.peak_rss_bytes / 1e6:.0f} MB"
    )
    return 0 if used.wall_s <= MAX_S and used.peak_rss_bytes <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
