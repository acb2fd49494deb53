"""Route results and rejects into two PCollections, leave rows out, and encode Arrow batches.

Rejects are tagged outputs, because `with_exception_handling` rules the Prism runner out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam import coders, pvalue
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import no_annotations

from shardwright.transforms.metrics import count_rejects
from shardwright.transforms.references import BATCH_ROWS, from_ipc, to_ipc
from shardwright.transforms.reject_files import pack_rejects
from shardwright.transforms.rejects import Reject, rejects_to_table
from shardwright.transforms.row_keys import leave_out, sorted_keys

_REJECTS = "rejects"


class Routed(NamedTuple):
    """The two outputs of a step: its results, and its rejects, packed (`reject_files`)."""

    main: beam.PCollection
    rejects: beam.PCollection


class ArrowBatchCoder(coders.Coder):
    """A coder of `pyarrow.RecordBatch` as compressed IPC, smaller and faster than its pickle."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        return to_ipc(value)

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        return from_ipc(encoded)

    def estimate_size(self, value: pa.RecordBatch) -> int:
        # Beam estimates the first ten elements of every output, by default by encoding them: in a
        # build of 100,000 images that is each batch, at every step.
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        # Equal batches may be packed into different bytes, so a batch cannot be a key.
        return False

    def to_type_hint(self) -> Any:
        return pa.RecordBatch


coders.registry.register_coder(pa.RecordBatch, ArrowBatchCoder)


def routed(results: Iterable[Any]) -> Iterator[Any]:
    """Yield results as they are, and rejects, which are counted and packed, in their own output."""
    # Packed together: a reject by itself would cost a coder and a Parquet file.
    held: list[Reject] = []
    for result in results:
        if not isinstance(result, Reject):
            yield result
            continue
        held.append(result)
        if len(held) == BATCH_ROWS:
            yield _reject_batch(held)
            held = []
    if held:
        yield _reject_batch(held)


def _reject_batch(rejects: list[Reject]) -> pvalue.TaggedOutput:
    count_rejects(rejects)
    return pvalue.TaggedOutput(_REJECTS, pack_rejects(rejects_to_table(rejects)))


def in_global_window(result: Any) -> Any:
    """Return a value of `routed` as `finish_bundle` must yield it."""
    if isinstance(result, pvalue.TaggedOutput):
        # The value inside of the tag: Beam looks for the tag first.
        return pvalue.TaggedOutput(result.tag, GlobalWindows.windowed_value(result.value))
    return GlobalWindows.windowed_value(result)


class _RouteFn(beam.DoFn):
    def __init__(self, function: Callable[..., Iterable[Any]]) -> None:
        self._function = function

    @no_annotations  # else Beam takes `**kwargs: Any` for the type of one argument named kwargs
    def process(self, element: Any, **kwargs: Any) -> Iterable[Any]:
        return routed(self._function(element, **kwargs))


class Route(beam.PTransform):
    """A transform that applies a function yielding any number of results and `Reject`s.

    Args:
        function: Called with the element and `kwargs`. Or a DoFn that yields `routed` results.
        output_type: The type of a result, which selects its coder.
        kwargs: Side inputs or plain values for the function.
    """

    def __init__(
        self, function: Callable[..., Iterable[Any]] | beam.DoFn, output_type: Any, **kwargs: Any
    ) -> None:
        super().__init__()
        self._function = function
        self._output_type = output_type
        self._kwargs = kwargs

    def expand(self, elements: beam.PCollection) -> Routed:
        function = self._function
        do_fn = function if isinstance(function, beam.DoFn) else _RouteFn(function)
        applied = beam.ParDo(do_fn, **self._kwargs).with_output_types(
            self._output_type, **{_REJECTS: bytes}
        )
        outputs = elements | "Apply" >> applied.with_outputs(_REJECTS, main="main")
        return Routed(outputs.main, outputs[_REJECTS])


class LeaveOut(beam.PTransform):
    """A transform that leaves the rows with some keys out of batches of references.

    Args:
        keys: Arrays of keys, uint64 [rows]; every worker holds all of them.
    """

    def __init__(self, keys: beam.PCollection) -> None:
        super().__init__()
        self._keys = keys

    def expand(self, references: beam.PCollection) -> beam.PCollection:
        keys = (
            self._keys | "AllKeys" >> beam.combiners.ToList() | "Join" >> beam.Map(sorted_keys)
        )  # one sorted array of keys
        return references | "Rows" >> beam.FlatMap(
            leave_out, keys=pvalue.AsSingleton(keys)
        ).with_output_types(pa.RecordBatch)
