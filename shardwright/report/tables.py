"""Write tables: wide ones scroll in their own box, long ones can be filtered and sorted.

The first rows are in the page. The others are JSON, which the page's script shows on request, so
that 20,000 classes stay a small page that opens at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from shardwright.report.charts import bar
from shardwright.report.markup import Html, data_block, join, name_of, tag, text
from shardwright.sizes import show_bytes
from shardwright.terminal import visible

Cell = Html | str | int | float | None
SHOWN_ROWS = 100  # in the page at first
_TOOLS_FROM = 8  # rows; a shorter table needs no filter


class ColumnKind(StrEnum):
    """The kind of a column's cells."""

    NAME = "name"  # a user's text
    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    SHARE = "share"  # 0 to 1, shown as a bar


class TableColumn(NamedTuple):
    """One column of a table."""

    title: str
    kind: ColumnKind = ColumnKind.TEXT


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


def table(caption: str, columns: Sequence[TableColumn], rows: Iterable[Sequence[Cell]]) -> Html:
    """Return a table with a row header in its first column.

    Args:
        caption: Names it, for screen readers.
        columns: Its columns.
        rows: A cell per column. Rows after the first `SHOWN_ROWS` may not hold `Html`.
    """
    known = list(rows)
    shown, rest = known[:SHOWN_ROWS], known[SHOWN_ROWS:]
    head = join(tag("th", column.title, scope="col", class_=column.kind) for column in columns)
    body = join(_row(columns, row) for row in shown)
    inner = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
    )
    scroll = tag("div", inner, class_="scroll", role="region", aria_label=caption, tabindex=0)
    tools = {"data_tools": True} if len(known) >= _TOOLS_FROM else {}
    return tag("div", scroll, _rest(rest), class_="table", **tools)


def _rest(rows: Sequence[Sequence[Cell]]) -> Html:
    if not rows:
        return Html("")
    note = tag("p", f"{len(rows):,} more rows need JavaScript.", class_="note more-note")
    return join((note, data_block([[_plain(cell) for cell in row] for row in rows])))


def _plain(cell: Cell) -> str | int | float | None:
    return visible(cell) if isinstance(cell, str) else cell


def _row(columns: Sequence[TableColumn], row: Sequence[Cell]) -> Html:
    cells = (
        _cell(column.kind, cell, header=number == 0)
        for number, (column, cell) in enumerate(zip(columns, row, strict=True))
    )
    return tag("tr", join(cells))


def _cell(kind: ColumnKind, cell: Cell, *, header: bool) -> Html:
    name, scope = ("th", {"scope": "row"}) if header else ("td", {})
    value = cell if isinstance(cell, (int, float)) else None
    return tag(name, _shown(kind, cell), class_=kind, data_value=value, **scope)


def _shown(kind: ColumnKind, cell: Cell) -> Html:
    if cell is None:
        return Html("")
    if kind is ColumnKind.NAME:
        return name_of(cell)
    if kind is ColumnKind.SHARE and isinstance(cell, (int, float)):
        return bar(cell)
    if kind is ColumnKind.BYTES and isinstance(cell, (int, float)):
        return text(show_bytes(cell))
    return text(show_number(cell) if isinstance(cell, (int, float)) else cell)


def show_number(number: float) -> str:
    """Return a number as people write it: `1,024`, `0.125`, `1.2e-07`."""
    if isinstance(number, int):
        return f"{number:,}"
    if number == int(number) and abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.4g}" if abs(number) < 1e5 else f"{number:,.0f}"


def pairs_table(caption: str, values: Mapping[str, object]) -> Html:
    """Return a table of two columns: the name of a value, and the value as people write it."""
    rows = [[name, show_value(value)] for name, value in values.items()]
    return table(caption, (texts("name"), names("value")), rows)


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
