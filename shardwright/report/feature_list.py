"""Show the features of the records, and the heads of their vocabularies."""

from __future__ import annotations

from shardwright.format.schema import INDEXED, Feature, Source
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join, name_of, tag
from shardwright.report.sections import Section
from shardwright.report.tables import Cell, names, numbers, table, texts
from shardwright.sizes import counted

_SHOWN_NAMES = 200


def feature_list(data: ReportData) -> Section:
    """Return the section of features."""
    schema = data.manifest.schema
    columns = (
        *(names("feature"), texts("kind"), texts("type"), texts("shape"), texts("encoding")),
        *(names("column"), numbers("classes or words")),
    )
    rows: list[list[Cell]] = [
        [
            feature.name,
            str(feature.kind),
            feature.dtype,
            _shape(feature),
            feature.encoding or "",
            feature.column_name if feature.source == Source.COLUMN else f"({feature.source})",
            len(schema.names_of(feature)) if feature.kind in INDEXED else None,
        ]
        for feature in schema.features
    ]
    parts = [table("Features of a record", columns, rows)]
    parts += [
        _head(feature, schema.names_of(feature))
        for feature in schema.features
        if feature.kind in INDEXED and feature.source != Source.LABEL
    ]
    return Section("features", "Features", join(parts))


def _shape(feature: Feature) -> str:
    if not feature.shape:
        return "list" if feature.is_list else "one value"
    return " x ".join("any" if size is None else str(size) for size in feature.shape)


def _head(feature: Feature, words: tuple[str, ...]) -> Html:
    title = tag("h3", counted(len(words), "name"), " of ", name_of(feature.name))
    items = join(tag("li", name_of(word)) for word in words[:_SHOWN_NAMES])
    hidden = len(words) - _SHOWN_NAMES
    more = tag("p", f"... and {hidden:,} more.", class_="note") if hidden > 0 else Html("")
    return join((title, tag("ul", items, class_="words"), more))
