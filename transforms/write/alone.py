"""Make the records of a shard one image at a time in a child process.

A shard is written like this after an attempt at it died: the image that kills or stops its child is
rejected, and the others get the same bytes as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from shardwright.transforms.child_process import Death, call_in_child
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.examples import FramedRecords
from shardwright.transforms.write.image_chunks import Chunk
from shardwright.transforms.write.shard_chunks import make_chunks
from shardwright.transforms.write.write_job import WriteJob


def make_alone(references: pa.RecordBatch, job: WriteJob) -> Iterator[Chunk]:
    """Yield a chunk per row, in order. A row whose child dies is rejected as `crashed`."""
    made = call_in_child(partial(_make, references, job), references.num_rows, job.image_seconds)
    for row, chunk in enumerate(made):
        if isinstance(chunk, Death):
            yield _rejected(references, row, f"decoding or transforming it {chunk.detail}")
        else:
            # The child has made it of one row, so its own number there is 0.
            yield replace(chunk, rows=[row] * len(chunk.rows))


def _make(references: pa.RecordBatch, job: WriteJob, row: int) -> Chunk:
    return next(make_chunks(references.slice(row, 1), job))


def _rejected(references: pa.RecordBatch, row: int, detail: str) -> Chunk:
    image_id, uri = (references.column(name)[row].as_py() for name in ("id", "uri"))
    reject = Reject(image_id, uri, RejectReason.CRASHED, detail)
    return Chunk(FramedRecords([], [], [], [], [], 0), [], [], [], [], [], [reject], Counter())
