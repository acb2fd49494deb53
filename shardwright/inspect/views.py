"""Tables of a dataset as commands print them and as the report shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from shardwright.sizes import show_bytes, show_number
from shardwright.terminal import one_line

Cell = str | int | float | None


class ColumnKind(StrEnum):
    """The kind of a column's cells."""

    NAME = "name"  # a user's text
    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    SHARE = "share"  # 0 to 1; a bar in the report


class TableColumn(NamedTuple):
    """One column of a table."""

    title: str
    kind: ColumnKind = ColumnKind.TEXT


class TableView(NamedTuple):
    """A table: its title, its columns, and in each row a `Cell` per column."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Any]]


names = partial(TableColumn, kind=ColumnKind.NAME)
texts = partial(TableColumn, kind=ColumnKind.TEXT)
numbers = partial(TableColumn, kind=ColumnKind.NUMBER)
sizes = partial(TableColumn, kind=ColumnKind.BYTES)
shares = partial(TableColumn, kind=ColumnKind.SHARE)


def pairs_view(title: str, values: Mapping[str, object]) -> TableView:
    """Return a table of JSON values by their names; those in objects as `encode / quality`."""
    rows = [[name, show_value(value)] for name, value in _flat(values, "")]
    return TableView(title, (texts("name"), names("value")), rows)


def _flat(values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name} / ")
        else:
            yield f"{prefix}{name}", value


def show_value(value: object) -> str:
    """Return a JSON value in words: no braces, no quotes."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {show_value(found)}" for name, found in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(show_value, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else f"{value:,}"
    return "none" if value in (None, "") else str(value)


def show_cell(kind: ColumnKind, cell: Cell) -> str:
    """Return a cell as people write it; nothing for None."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    if kind is ColumnKind.SHARE:
        return f"{cell:.1%}"
    return show_bytes(cell) if kind is ColumnKind.BYTES else show_number(cell)


def as_text(view: TableView, most: int | None = 20) -> list[str]:
    """Return the title, the header and the first rows as lines; none without rows.

    Args:
        view: The table.
        most: Number of rows that are shown; None for all.
    """
    if not view.rows:
        return []
    shown = view.rows[:most]
    columns = []
    for place, (title, kind) in enumerate(view.columns):
        cells = [title, *(one_line(show_cell(kind, row[place])) for row in shown)]
        side = "<" if kind in (ColumnKind.NAME, ColumnKind.TEXT) else ">"
        width = max(map(len, cells))
        columns.append([f"{cell:{side}{width}}" for cell in cells])
    lines = [f"  {'  '.join(cells)}".rstrip() for cells in zip(*columns, strict=True)]
    left = len(view.rows) - len(shown)
    return [view.title.lower(), *lines, *([f"  ... and {left:,} more"] if left else [])]
