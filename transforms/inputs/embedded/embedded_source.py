"""Parquet and Arrow files with encoded images in a column as input, as on the Hugging Face hub.

The images lie in compressed pages and cannot be read by offset, so they go through the spool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from transforms.inputs.embedded.embedded_files import is_embedded_name, open_rows
from transforms.inputs.embedded.embedded_look import EmbeddedFacts, look
from transforms.inputs.embedded.embedded_references import list_rows
from transforms.inputs.input_files import InputFile, find_files, state_of
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.rejects import Reject, RejectReason


@dataclass(frozen=True, slots=True)
class EmbeddedSource(InputSource):
    """A source of files with images in a column."""

    facts: EmbeddedFacts

    def parts(self) -> Iterator[str]:
        for file in find_files(self.facts.request, is_embedded_name):
            yield file.uri

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        file = InputFile(part, part.removeprefix(self.facts.base))
        storage = self.facts.request.storage
        state = state_of(part, storage)
        if not state.num_bytes:
            yield Reject(file.name, part, RejectReason.EMPTY_FILE, "the file has no bytes")
            return

        def make(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
            root = self.facts.request.image_root or os.path.dirname(part)
            with open_rows(part, storage) as (_, batches):
                yield from list_rows(
                    batches, file, self.facts.layout, writer, root=root, storage=storage
                )

        rules = rules_digest(file, self.facts.layout, self.facts.request.image_root)
        yield from spooled(
            self.facts.request.spool, part, f"{state.etag}-{state.num_bytes}-{rules}", storage, make
        )


class EmbeddedFormat(SourceFormat):
    """Parquet and Arrow files with a column of images; tables of image paths are for `table`."""

    name: ClassVar[str] = "embedded"
    summary: ClassVar[str] = (
        "Parquet or Arrow files with encoded images in a column (Hugging Face hub): "
        "a file, a wildcard or a folder"
    )
    rank: ClassVar[int] = 25

    def open(self, request: SourceRequest, *, forced: bool) -> EmbeddedSource | None:
        facts = look(request, forced=forced)
        return None if facts is None else EmbeddedSource(facts)
