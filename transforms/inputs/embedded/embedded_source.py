"""Parquet and Arrow files with encoded images in a column as input, as on the Hugging Face hub.

The images lie in compressed pages and cannot be read by offset, so they go through the spool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import BuildError, UsageError
from transforms.inputs.embedded.embedded_files import is_arrow_name, is_embedded_name, open_rows
from transforms.inputs.embedded.embedded_layout import EmbeddedLayout, make_layout
from transforms.inputs.embedded.embedded_references import list_rows
from transforms.inputs.input_files import InputFile, common_split_names, find_files, state_of
from transforms.inputs.source import InputSource, SourceFacts, SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.inputs.tables.table_columns import features_or_problem
from transforms.references import reference_schema
from transforms.rejects import Reject, RejectReason

_ROLES = ("image", "label", "id", "split", "group")


@dataclass(frozen=True, slots=True)
class EmbeddedSource(InputSource):
    """A source of files with images in a column.

    Attributes:
        request: The request for INPUT.
        root: The folder that the files' names are relative to.
        layout: The role of each column.
    """

    request: SourceRequest
    root: str
    layout: EmbeddedLayout

    def parts(self) -> Iterator[str]:
        for file in find_files(self.request, is_embedded_name):
            yield file.uri

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        file = InputFile(part, part.removeprefix(f"{self.root}/"))
        storage = self.request.storage
        state = state_of(part, storage)
        if not state.num_bytes:
            yield Reject(file.name, part, RejectReason.EMPTY_FILE, "the file has no bytes")
            return

        def make(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
            root = self.request.image_root or os.path.dirname(part)
            with open_rows(part, storage) as (_, batches):
                yield from list_rows(batches, file, self.layout, writer, root=root, storage=storage)

        rules = rules_digest(file, self.layout, self.request.image_root)
        yield from spooled(
            self.request.spool, part, f"{state.etag}-{state.num_bytes}-{rules}", storage, make
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
        files = find_files(request, is_embedded_name)
        if not files:
            if forced:
                raise UsageError(
                    f"{request.argument} {request.uri} holds no Parquet or Arrow files "
                    "(.parquet, .arrow, .feather)"
                )
            return None
        only_here = forced or is_arrow_name(files[0].uri)
        try:
            layout = _look(files, request, forced=only_here)
        except BuildError:
            if only_here:
                raise
            return None  # it may be a table: `table` reports the error
        if layout is None:
            return None
        if request.columns.get("size") is not None:
            raise UsageError(
                "--size-column is for a table of paths, "
                f"but {request.argument} {request.uri} holds the images themselves"
            )
        root = files[0].uri.removesuffix(files[0].name).rstrip("/")
        return EmbeddedSource(_facts_of(request, files, layout), request, root, layout)


def _look(
    files: tuple[InputFile, ...], request: SourceRequest, *, forced: bool
) -> EmbeddedLayout | None:
    """Return the layout of the first file with rows; None if no column holds images."""
    for file in files:
        if not state_of(file.uri, request.storage).num_bytes:
            continue
        with open_rows(file.uri, request.storage) as (schema, batches):
            rows = next((batch for batch in batches if batch.num_rows), None)
            if rows is not None:
                return make_layout(
                    rows, schema, request.columns, file.uri, kinds=request.kinds, forced=forced
                )
    if forced:
        raise UsageError(f"the files of {request.argument} {request.uri} have no rows")
    return None


def _facts_of(
    request: SourceRequest, files: Sequence[InputFile], layout: EmbeddedLayout
) -> SourceFacts:
    features, unstorable = features_or_problem(lambda: tuple(map(layout.feature_of, layout.extras)))
    return SourceFacts(
        description=_describe(request, files, layout),
        schema=reference_schema((name, layout.type_of(name)) for name in layout.extras),
        features=features,
        unstorable=unstorable,
        states_splits=layout.split is not None or common_split_names(files),
        splits_can_be_redrawn=layout.split is None,
        has_integer_labels=layout.label is not None
        and layout.label not in layout.class_names
        and pa.types.is_integer(layout.columns.field(layout.label).type),
        class_names=layout.class_names.get(layout.label or ""),
    )


def _describe(request: SourceRequest, files: Sequence[InputFile], layout: EmbeddedLayout) -> str:
    roles = ", ".join(f"{role}={column!r}" for role in _ROLES if (column := getattr(layout, role)))
    extras = f"; features from {', '.join(layout.extras)}" if layout.extras else ""
    number = "a file" if len(files) == 1 else f"{len(files)} files"
    return f"{number} with images in a column at {request.uri}, columns {roles}{extras}"
