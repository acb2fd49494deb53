"""Tests of shardwright.transforms.routing."""

from __future__ import annotations

import pyarrow as pa
from apache_beam import coders

from shardwright.transforms import routing


def test_the_size_of_a_batch_is_estimated_without_encoding_it() -> None:
    batch = pa.record_batch({"id": pa.array(["a"] * 1000)})
    coder = coders.registry.get_coder(pa.RecordBatch)
    assert isinstance(coder, routing.ArrowBatchCoder)
    # Beam calls the implementation, whose default is the length after encoding.
    assert coder.get_impl().estimate_size(batch) == batch.nbytes > len(coder.encode(batch))
