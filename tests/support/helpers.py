"""Helpers of several test files: run one transform, make references, write tiny inputs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.format.schema import ExampleSchema
from shardwright.storage.counters import COUNTERS
from shardwright.transforms.inputs.file_rules import etag_of
from shardwright.transforms.references import LABEL_INDEX, REFERENCE_SCHEMA, set_column
from shardwright.transforms.reject_files import unpack_rejects
from shardwright.transforms.rejects import Reject, rejects_in

# A gray image of one pixel.
TINY_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
_collected: dict[int, dict[str, list[Any]]] = {}
_runs = itertools.count()


@dataclass(frozen=True)
class Run:
    """A transform's result: elements by output ("main" if there is only one), Beam's counters."""

    outputs: Mapping[str, list[Any]]
    counters: Mapping[str, int]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the main output, sorted by id: runners promise no order."""
        return sorted(rows_of(self.outputs["main"]), key=lambda row: (row["id"], row["row"]))

    @property
    def rejects(self) -> list[tuple[str, str]]:
        """(id, reason) of every reject, sorted."""
        return sorted((reject.id, str(reject.reason)) for reject in self.outputs["rejects"])


def run_transform(transform: beam.PTransform, inputs: Iterable[Any] | None = None) -> Run:
    """Run one transform in one pipeline, once, in this process.

    Args:
        inputs: Its elements; None for a transform that begins a pipeline.
    """
    COUNTERS.drain()  # of this process: requests of the tests before this one
    run = next(_runs)
    kept = _collected[run] = {}
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
        begin = pipeline if inputs is None else pipeline | "Inputs" >> beam.Create(list(inputs))
        result = begin | "Tested" >> transform
        named = result._asdict() if hasattr(result, "_asdict") else {"main": result}
        # An output that the transform has only with some options is None.
        for name, collection in ((name, each) for name, each in named.items() if each is not None):
            kept[name] = []
            _ = collection | f"Collect {name}" >> beam.Map(_collect, run, name)
        finished = pipeline.run()
        finished.wait_until_finish()
        counters: Counter[str] = Counter()  # each step has its own
        for counter in finished.metrics().query()["counters"]:
            if counter.key.metric.namespace == "shardwright":
                counters[counter.key.metric.name] += counter.result
        if "rejects" in kept:
            tables = map(unpack_rejects, kept["rejects"])
            kept["rejects"] = [reject for rows in tables for reject in rejects_in(rows)]
        return Run(kept, counters)
    finally:
        del _collected[run]


def _collect(element: Any, run: int, name: str) -> None:
    _collected[run][name].append(element)


def rows_of(parts: Iterable[pa.RecordBatch | Reject]) -> list[dict[str, Any]]:
    """Return the rows of the batches among `parts`, in order."""
    return [row for part in parts if isinstance(part, pa.RecordBatch) for row in part.to_pylist()]


def rejects_of(parts: Iterable[pa.RecordBatch | Reject]) -> list[Reject]:
    """Return the rejects among `parts`, in order."""
    return [part for part in parts if isinstance(part, Reject)]


def references(
    ids: Sequence[str],
    *,
    labelled: bool = False,
    extras: Mapping[str, Any] | None = None,
    **columns: Any,
) -> pa.RecordBatch:
    """Return a reference batch with these ids.

    Args:
        labelled: Add a label index of 0.
        extras: More columns, last.
        columns: Any other column: a list with a value for each row, or one value for all.
    """
    values: dict[str, Any] = {
        "id": ids, "uri": [f"/in/{image_id}" for image_id in ids], "offset": None,
        "num_bytes": 1000, "etag": "e", "row": list(range(len(ids))), "split": None, "group": None,
        "label": None, **columns,
    }  # fmt: skip
    spread = {
        name: value if isinstance(value, list) else [value] * len(ids)
        for name, value in (values | {"id": list(ids)}).items()
    }
    known = {name: spread.pop(name) for name in REFERENCE_SCHEMA.names}
    batch = pa.RecordBatch.from_pydict(known, schema=REFERENCE_SCHEMA)
    for name, extra in {**spread, **(extras or {})}.items():
        batch = set_column(batch, name, pa.array(extra))
    if labelled:
        batch = set_column(batch, LABEL_INDEX, pa.array([0] * len(ids), pa.int64()))
    return batch


def file_references(
    paths: Sequence[Path], ids: Sequence[str] | None = None, **columns: Any
) -> pa.RecordBatch:
    """Return references to files as they are now, by name; a missing file has 1 byte, no etag."""
    status = [path.stat() if path.exists() else None for path in paths]
    return references(
        ids or [path.name for path in paths],
        uri=[str(path) for path in paths],
        num_bytes=[found.st_size if found else 1 for found in status],
        etag=[etag_of(found) if found else None for found in status],
        **columns,
    )


def make_files(root: Path, *names: str, data: bytes = TINY_PNG) -> Path:
    """Write `data` to each name below `root`, creating folders; return `root`."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_schema(path: Path, schema: ExampleSchema) -> Path:
    """Write a schema as the JSON file that --schema reads; return its path."""
    path.write_text(json.dumps(schema.to_json()))
    return path
