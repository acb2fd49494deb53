"""Write your own Beam pipeline with shardwright's transforms: list, filter, plan, write shards.

    python examples/own_pipeline.py INPUT OUTPUT [--min-kb 10] [Beam options, such as --runner ...]

Between the steps travel Arrow batches of references, never pixels; `transforms/references.py`
documents their columns. Your own step is any function of such a batch. The one here drops images
below a size, and they are listed with the other rejects.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms import (
    AssignSplits,
    ClearOutput,
    EncodeFeatures,
    EncodeOptions,
    ListImages,
    OutputRequest,
    PlanShards,
    Publication,
    PublishDataset,
    Reject,
    RejectLimits,
    RejectReason,
    Report,
    Route,
    ShardPolicy,
    SourceRequest,
    StoredRecords,
    TfdsFiles,
    WriteJob,
    WriteShards,
    detect_source,
    keep_rows,
    parse_split,
    reject_rows,
)

NAME, LIMITS = "mine", RejectLimits(max_reject_fraction=0.5)


def drop_small(batch: pa.RecordBatch, min_bytes: int) -> Iterator[pa.RecordBatch | Reject]:
    """Reject references to small files: your own step."""
    small = batch.column("num_bytes").to_numpy() < min_bytes
    yield from reject_rows(
        batch, small, RejectReason.BAD_VALUE, f"{{num_bytes}} bytes; the minimum is {min_bytes}"
    )
    yield keep_rows(batch, np.logical_not(small))


def build(pipeline: beam.Pipeline, uri: str, root: Folder, min_bytes: int) -> beam.PCollection:
    """Build the graph; every step is a PTransform."""
    schema = image_classification()
    # The settings that determine the shards: other values make another dataset.
    settings = {"min_bytes": min_bytes}
    listed = pipeline | ListImages(detect_source(SourceRequest(uri)))  # references
    wanted = listed.main | "DropSmall" >> Route(drop_small, pa.RecordBatch, min_bytes=min_bytes)
    split = wanted.main | AssignSplits(parse_split("train=0.8,test=0.2"))
    encoded = split.main | EncodeFeatures(schema)
    planned = encoded.main | PlanShards(
        name=NAME,
        policy=ShardPolicy(num_records=16),
        seed=0,
        settings=repr(settings).encode(),
        num_buckets=8,
    )  # ShardPlan
    rejects = (
        listed.rejects,
        wanted.rejects,
        split.rejects,
        encoded.rejects,
        planned.rejects,
    ) | beam.Flatten()
    clearance = planned.shards | ClearOutput(
        OutputRequest(root, settings, if_exists="resume"),
        layout=planned.layout,
        vocabularies=encoded.vocabularies,
        rejects=rejects,
        limits=LIMITS,
    )  # permission to write, given once the plan is complete
    written = planned.shards | WriteShards(
        WriteJob(root, schema, StoredRecords("header", EncodeOptions())), clearance=clearance
    )
    publication = Publication(
        *(root, NAME, "1.0.0", schema, settings, {"input": uri}, LIMITS),
        companions=(Report(), TfdsFiles()),  # statistics and `report.html`; files for TFDS and TFX
    )
    return written.main | PublishDataset(
        publication, layout=planned.layout, clearance=clearance
    )  # one Manifest


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--min-kb", type=float, default=10)
    known, beam_args = parser.parse_known_args(argv)
    if not any(arg.startswith("--runner") for arg in beam_args):
        beam_args.append("--runner=FnApiRunner")
    with beam.Pipeline(options=PipelineOptions(beam_args)) as pipeline:
        manifest = build(pipeline, known.input, Folder.at(known.output), round(known.min_kb * 1000))
        _ = manifest | "Say" >> beam.Map(
            lambda found: print(f"{found.num_records} records, rejects: {dict(found.rejects)}")
        )


if __name__ == "__main__":
    main(sys.argv[1:])
