"""NumPy's `.npy` and `.npz` files as input: a row of the arrays is a record.

Pixels have no encoded bytes to read in place, so they go to the spool as PNG.
"""

from __future__ import annotations

from shardwright.transforms.inputs.arrays.array_files import read_records
from shardwright.transforms.inputs.arrays.array_look import ArrayFacts, look
from shardwright.transforms.inputs.input_files import state_of
from shardwright.transforms.inputs.records.record_rows import list_records
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.spool import SpoolWriter, rules_digest, spooled


def list_part(facts: ArrayFacts, part: str) -> Rows:
    """Yield the rows of a file; their images go to the spool."""
    file, request = facts.file_of(part), facts.request
    state = state_of(part, request.storage)

    def make(writer: SpoolWriter) -> Rows:
        records = read_records(part, request.storage)
        yield from list_records(facts, records, file, f"{file.name}#", writer)

    declared = sorted(facts.layout.declared.items())
    rules = rules_digest(file, facts.records, facts.layout, *declared)
    etag = f"{state.etag}-{state.num_bytes}-{rules}"
    yield from spooled(request.spool, part, etag, request.storage, make)


FORMAT = SourceFormat(
    "NumPy arrays (.npy, .npz): a file or a wildcard", look, list_part, rank=20, reads_records=True
)
