"""Parquet and Arrow files with encoded images in a column as input, as on the Hugging Face hub.

The images lie in compressed pages and cannot be read by offset, so they go through the spool.
"""

from __future__ import annotations

from transforms.inputs.embedded.embedded_files import open_rows
from transforms.inputs.embedded.embedded_look import EmbeddedFacts, look
from transforms.inputs.embedded.embedded_references import list_rows
from transforms.inputs.input_files import state_of
from transforms.inputs.source import Rows, SourceFormat
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.rejects import Reject, RejectReason


def list_part(facts: EmbeddedFacts, part: str) -> Rows:
    """Yield the rows of a file; embedded images go to the spool."""
    file, request = facts.file_of(part), facts.request
    state = state_of(part, request.storage)
    if not state.num_bytes:
        yield Reject(file.name, part, RejectReason.EMPTY_FILE, "the file has no bytes")
        return

    def make(writer: SpoolWriter) -> Rows:
        with open_rows(part, request.storage) as (_, batches):
            yield from list_rows(facts, file, batches, writer)

    rules = rules_digest(file, facts.layout, request.image_root)
    etag = f"{state.etag}-{state.num_bytes}-{rules}"
    yield from spooled(request.spool, part, etag, request.storage, make)


# Tables of image paths, in the same files, are for `table`.
FORMAT = SourceFormat(
    "Parquet or Arrow files with encoded images in a column (Hugging Face hub): "
    "a file, a wildcard or a folder",
    look,
    list_part,
    rank=25,
)
