"""Write records of your own Beam pipeline as a dataset: any source, any step, and shards.

    python examples/write_records.py OUTPUT [--number 200] [Beam options, such as --runner ...]

The records here are made by a function. Yours come from BigQuery, Avro, a model, or any other
transform that yields dicts with an id and an image: encoded bytes, an array or a path.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

import shardwright as sw


def make_record(number: int) -> dict[str, Any]:
    """Return a picture of noise: your own step."""
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
    label = "bright" if pixels.mean() > 127.5 else "dark"
    return {"id": f"noise-{number}", "image": pixels, "label": label, "mean": pixels.mean()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("output")
    parser.add_argument("--number", type=int, default=200)
    known, beam_args = parser.parse_known_args(argv)
    if not any(arg.startswith("--runner") for arg in beam_args):
        beam_args.append("--runner=FnApiRunner")
    with beam.Pipeline(options=PipelineOptions(beam_args)) as pipeline:
        manifest = (
            pipeline
            | beam.Create(range(known.number))  # int
            | beam.Map(make_record)  # dict
            | sw.WriteRecords(
                known.output,
                like=make_record(0),
                split={"train": 0.8, "test": 0.2},
                records_per_shard=50,
            )
        )  # one Manifest
        _ = manifest | "Say" >> beam.Map(lambda found: print(f"{found.num_records} records"))


if __name__ == "__main__":
    main(sys.argv[1:])
