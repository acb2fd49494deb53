"""The facts about records: their columns, the roles of these, and their features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from shardwright.transforms.inputs.embedded.embedded_layout import (
    EmbeddedLayout,
    layout_with,
    make_layout,
)
from shardwright.transforms.inputs.embedded.embedded_look import EmbeddedFacts
from shardwright.transforms.inputs.image_values import said_kinds
from shardwright.transforms.inputs.records.record_columns import (
    Record,
    RecordColumns,
    infer_columns,
)
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.inputs.tables.table_columns import features_or_problem
from shardwright.transforms.inputs.tables.table_roles import column_rule, describe_columns

_ID = "id"
_PLACE = "the records"
F = TypeVar("F", bound="RecordFacts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts(EmbeddedFacts):
    """The facts about Python records.

    Attributes:
        records: Their columns.
        maker: A pickled function that makes the records of a shard from its number; b"" if the
            records are in the spool before the build lists them.
        shards: Number of shards; each is a part.
    """

    records: RecordColumns
    maker: bytes = b""
    shards: int = 1

    def parts(self) -> Iterator[str]:
        yield from map(str, range(self.shards))


def facts_of(sample: Sequence[Record], request: SourceRequest, what: str, kind: type[F]) -> F:
    """Return the facts about records.

    Args:
        sample: The first records.
        request: The request for INPUT.
        what: The start of the log line, such as "Python records".
        kind: The class of the facts.

    Raises:
        UsageError: As `open_records`.
    """
    if not sample:
        raise UsageError(f"{what}: there are no records, so there is nothing to write")
    said = said_kinds(request.columns, request.kinds)
    find_images = request.image is not None
    columns = infer_columns(sample, said, shapes=request.shapes, find_images=find_images)
    columns, layout = _with_ids(columns, _layout_of(columns, request))
    features, unstorable = features_or_problem(
        lambda: tuple(
            columns.tensors.get(name) or layout.feature_of(name) for name in layout.extras
        )
    )
    label = None if layout.label is None else columns.schema.field(layout.label).type
    shown = ", ".join(
        f"{feature.name} {feature.kind}{list(feature.shape) or ''}" for feature in features
    )
    return kind(
        description=f"{what}: {describe_columns(layout, ())}"
        + (f"; features {shown}" if shown else ""),
        schema=layout.reference_schema,
        features=features,
        unstorable=unstorable,
        columns=tuple(
            name for name in columns.schema.names if name not in (layout.image, columns.numbered)
        ),
        states_splits=layout.split is not None,
        splits_can_be_redrawn=layout.split is None,
        may_have_labels=label is not None,
        labels_from=column_rule(layout.label),
        has_integer_labels=label is not None and pa.types.is_integer(label),
        request=request,
        base="",
        layout=layout,
        records=columns,
    )


def _layout_of(columns: RecordColumns, request: SourceRequest) -> EmbeddedLayout:
    if request.image is None:
        return layout_with(
            None, columns.pictures, columns.schema, request.columns, _PLACE, declared=request.kinds
        )
    kinds = {**request.kinds, **dict.fromkeys(columns.pictures, FeatureKind.IMAGE)}
    layout = make_layout(
        pa.RecordBatch.from_pylist([], columns.schema),
        columns.schema,
        request.columns,
        _PLACE,
        kinds=kinds,
        forced=True,
    )
    assert layout is not None  # forced
    return layout


def _with_ids(
    columns: RecordColumns, layout: EmbeddedLayout
) -> tuple[RecordColumns, EmbeddedLayout]:
    """Return both with a column of numbers for records without ids."""
    if layout.id is not None:
        return replace(columns, id=layout.id), layout
    if _ID in columns.schema.names:
        raise UsageError(
            f"key {_ID!r} holds {columns.schema.field(_ID).type}: an id must be a text or a whole "
            "number"
        )
    schema = columns.schema.append(pa.field(_ID, pa.string()))
    return replace(columns, schema=schema, numbered=_ID), replace(layout, columns=schema, id=_ID)
