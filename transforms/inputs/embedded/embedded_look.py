"""Recognize Parquet and Arrow files with encoded images in a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature
from shardwright.transforms.inputs.embedded.embedded_files import (
    is_arrow_name,
    is_embedded_name,
    open_rows,
)
from shardwright.transforms.inputs.embedded.embedded_layout import EmbeddedLayout, make_layout
from shardwright.transforms.inputs.input_files import (
    FilesFacts,
    InputFile,
    base_of,
    common_split_names,
    find_files,
    state_of,
)
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.inputs.tables.table_columns import features_or_problem
from shardwright.transforms.inputs.tables.table_roles import column_rule, describe_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFacts(FilesFacts):
    """The facts about files with images in a column.

    Attributes:
        layout: The role of each column.
    """

    layout: EmbeddedLayout

    def parts(self) -> Iterator[str]:
        yield from (file.uri for file in find_files(self.request, is_embedded_name))

    def for_features(self, features: Sequence[Feature]) -> Self:
        layout = self.layout.for_features(features)
        return replace(self, layout=layout, schema=layout.reference_schema)


def look(request: SourceRequest) -> EmbeddedFacts | None:
    """Return the facts about files with images in a column; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and there are no such files, or an option does not fit.
        BuildError: A file that no other format reads is invalid.
        StorageError: A file cannot be read.
    """
    files = find_files(request, is_embedded_name)
    if request.image is None and not request.forced:
        return None  # a Parquet file is a table
    if not files:
        request.refuse_if_forced("holds no Parquet or Arrow files (.parquet, .arrow, .feather)")
        return None
    only_here = request.forced or is_arrow_name(files[0].uri)
    try:
        layout = _layout_of(files, request, forced=only_here)
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
    return _facts_of(request, files, layout)


def _facts_of(
    request: SourceRequest, files: Sequence[InputFile], layout: EmbeddedLayout
) -> EmbeddedFacts:
    features, unstorable = features_or_problem(lambda: tuple(map(layout.feature_of, layout.extras)))
    number = "a file" if len(files) == 1 else f"{len(files)} files"
    columns = describe_columns(layout, layout.extras)
    return EmbeddedFacts(
        f"{number} with images in a column at {request.uri}, columns {columns}",
        layout.reference_schema,
        features,
        unstorable,
        columns=tuple(name for name in layout.columns.names if name != layout.image),
        states_splits=layout.split is not None or common_split_names(files),
        splits_can_be_redrawn=layout.split is None,
        may_have_labels=layout.label is not None,
        labels_from=column_rule(layout.label),
        has_integer_labels=layout.label is not None
        and layout.label not in layout.class_names
        and pa.types.is_integer(layout.columns.field(layout.label).type),
        class_names=layout.class_names.get(layout.label or ""),
        request=request,
        base=base_of(files),
        layout=layout,
    )


def _layout_of(
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
