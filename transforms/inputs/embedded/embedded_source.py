"""Parquet and Arrow files with encoded images in a column as input, as on the Hugging Face hub.

The images lie in compressed pages and cannot be read by offset, so they go through the spool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from shardwright.transforms.inputs.embedded.embedded_files import DamagedFileError, open_rows
from shardwright.transforms.inputs.embedded.embedded_look import EmbeddedFacts, look
from shardwright.transforms.inputs.embedded.embedded_references import RawRows, list_rows
from shardwright.transforms.inputs.input_files import state_of
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from shardwright.transforms.rejects import incomplete


def list_part(facts: EmbeddedFacts, part: str) -> Rows:
    """Yield the rows of a file; embedded images go to the spool."""
    file, request = facts.file_of(part), facts.request
    state = state_of(part, request.storage)
    if not state.num_bytes:
        yield incomplete(file.name, part, "the file has no bytes", 0)
        return

    def make(writer: SpoolWriter) -> Rows:
        read = _Readable()
        try:
            with open_rows(part, request.storage) as (_, batches):
                yield from list_rows(facts, file, map(RawRows, read.until_fault(batches)), writer)
        except DamagedFileError as error:
            read.fault = error
        if read.fault is not None:
            yield incomplete(file.name, part, read.fault, read.num_rows)

    optional = ["optional"] if request.may_lack_images else []
    declared = sorted(facts.layout.declared.items())
    rules = rules_digest(file, facts.layout, request.image_root, *optional, *declared)
    etag = f"{state.etag}-{state.num_bytes}-{rules}"
    yield from spooled(request.spool, part, etag, request.storage, make)


class _Readable:
    """The rows of a file up to its fault, so that those are listed that are readable.

    Attributes:
        num_rows: Number of rows so far.
        fault: The error that ended the rows, or None.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self.fault: Exception | None = None

    def until_fault(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                self.num_rows += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError) as error:
            self.fault = error


# Tables of image paths, in the same files, are for `table`.
FORMAT = SourceFormat(
    "Parquet or Arrow files with encoded images in a column (Hugging Face hub): "
    "a file, a wildcard or a folder",
    look,
    list_part,
    rank=25,
)
