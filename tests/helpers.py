"""What several test files need: running one transform once, making references, and writing tiny inputs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.references import LABEL_INDEX, REFERENCE_SCHEMA, set_column
from transforms.rejects import Reject

# The 67 bytes of a gray image of one pixel.
TINY_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
_collected: dict[int, dict[str, list[Any]]] = {}
_runs = itertools.count()


@dataclass(frozen=True)
class Run:
    """What a transform gave: the elements of each output by its name ("main" where there is one), and Beam's counters."""

    outputs: Mapping[str, list[Any]]
    counters: Mapping[str, int]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all batches of the main output, by id: runners promise no order."""
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
    run = next(_runs)
    kept = _collected[run] = {}
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
        begin = pipeline if inputs is None else pipeline | "Inputs" >> beam.Create(list(inputs))
        result = begin | "Tested" >> transform
        named = result._asdict() if hasattr(result, "_asdict") else {"main": result}
        for name, collection in named.items():
            kept[name] = []
            _ = collection | f"Collect {name}" >> beam.Map(_collect, run, name)
        finished = pipeline.run()
        finished.wait_until_finish()
        counters: Counter[str] = Counter()  # each step has its own
        for counter in finished.metrics().query()["counters"]:
            if counter.key.metric.namespace == "shardwright":
                counters[counter.key.metric.name] += counter.result
        return Run(kept, counters)
    finally:
        del _collected[run]


def _collect(element: Any, run: int, name: str) -> None:
    _collected[run][name].append(element)


def rows_of(parts: Iterable[pa.RecordBatch | Reject]) -> list[dict[str, Any]]:
    """The rows of the batches among `parts`, in order."""
    return [row for part in parts if isinstance(part, pa.RecordBatch) for row in part.to_pylist()]


def rejects_of(parts: Iterable[pa.RecordBatch | Reject]) -> list[Reject]:
    """The rejects among `parts`, in order."""
    return [part for part in parts if isinstance(part, Reject)]


def references(
    ids: Sequence[str],
    *,
    labelled: bool = False,
    extras: Mapping[str, list[Any]] | None = None,
    **columns: Any,
) -> pa.RecordBatch:
    """A reference batch with these ids.

    Args:
        labelled: Add a label index of 0.
        extras: More columns, last.
        columns: Any other column: one value for all rows, or a list of one a row.
    """
    defaults = {
        "offset": None,
        "num_bytes": 1000,
        "etag": "e",
        "row": list(range(len(ids))),
        "split": None,
        "group": None,
        "label": None,
    }
    values: dict[str, Any] = {"id": list(ids), "uri": [f"/in/{image_id}" for image_id in ids]}
    for name, value in {**defaults, **columns}.items():
        values[name] = value if isinstance(value, list) else [value] * len(ids)
    batch = pa.RecordBatch.from_pydict(
        {name: values.pop(name) for name in REFERENCE_SCHEMA.names}, schema=REFERENCE_SCHEMA
    )
    for name, extra in {**values, **(extras or {})}.items():
        batch = set_column(batch, name, pa.array(extra))
    return (
        set_column(batch, LABEL_INDEX, pa.array([0] * len(ids), pa.int64())) if labelled else batch
    )


def make_files(root: Path, *names: str, data: bytes = TINY_PNG) -> Path:
    """Write `data` under each name below `root`, folders included; gives `root`."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root
