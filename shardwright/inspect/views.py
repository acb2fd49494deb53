"""Tables of a dataset as commands print them and as the report shows them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from shardwright.sizes import show_bytes, show_number
from shardwright.terminal import one_line

_INDENT = "  "
_SHOWN_ROWS = 20  # in a terminal

Cell = str | int | float | None


class ColumnKind(StrEnum):
    """The kind of a column's cells."""

    NAME = "name"  # a user's text
    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    SHARE = "share"  # 0 to 1, shown as a bar in the report


class TableColumn(NamedTuple):
    """One column of a table."""

    title: str
    kind: ColumnKind = ColumnKind.TEXT


class TableView(NamedTuple):
    """A table: its title, its columns, and a cell per column in each row."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]


def names(title: str) -> TableColumn:
    return TableColumn(title, ColumnKind.NAME)


def numbers(title: str) -> TableColumn:
    return TableColumn(title, ColumnKind.NUMBER)


def sizes(title: str) -> TableColumn:
    return TableColumn(title, ColumnKind.BYTES)


def shares(title: str) -> TableColumn:
    return TableColumn(title, ColumnKind.SHARE)


def texts(title: str) -> TableColumn:
    return TableColumn(title)


def show_cell(kind: ColumnKind, cell: Cell) -> str:
    """Return a cell as people write it; nothing for None."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    return show_bytes(cell) if kind is ColumnKind.BYTES else show_number(cell)


def as_text(view: TableView) -> list[str]:
    """Return the title, the header and the first 20 rows as lines; none without rows."""
    if not view.rows:
        return []
    head = tuple(column.title for column in view.columns)
    rows = [
        tuple(show_cell(column.kind, cell) for column, cell in zip(view.columns, row, strict=True))
        for row in view.rows[:_SHOWN_ROWS]
    ]
    left = len(view.rows) - len(rows)
    more = [f"{_INDENT}... and {left:,} more"] if left else []
    return [view.title.lower(), *table_lines([head, *rows]), *more]


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows in columns as wide as their longest cell, numbers aligned right."""
    rows = [tuple(map(one_line, row)) for row in rows]
    columns = max((len(row) for row in rows), default=0)
    widths = [
        max(len(row[column]) if column < len(row) else 0 for row in rows)
        for column in range(columns)
    ]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if cell.lstrip("-")[:1].isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=False)
        )
        lines.append(f"{_INDENT}{'  '.join(cells)}".rstrip())
    return lines
