"""Write HTML whose text is always escaped.

Names of files and classes come from users. Everything that is not `Html` is escaped, so no name can
become a tag, a script or an attribute. Parts of the page that are the same for all datasets are
templates; `tag` is for those whose attributes or number vary.

Wide tables scroll in their own box, long ones can be filtered and sorted. Their first rows are in
the page. The others are JSON, which the page's script shows on request, so that 20,000 classes stay
a small page that opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from shardwright.inspect.views import Cell, ColumnKind, TableColumn, show_cell
from shardwright.terminal import visible

_VOID = frozenset({"br", "img", "input", "meta"})
SHOWN_ROWS = 100  # in the page at first
_CARD = '<div class="card"><dt>{name}</dt><dd>{value}</dd></div>'
_TABLE = """\
<div class="scroll" role="region" aria-label="{caption}" tabindex="0">\
<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>\
</div>"""
_TOOLS_FROM = 8  # rows; a shorter table needs no filter


class Html(str):
    """A piece of HTML; other texts are escaped wherever they are put into one."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as HTML: as it is if it is `Html`, else escaped."""
    return value if isinstance(value, Html) else Html(escape(visible(str(value))))


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: Its name.
        content: Text that is not `Html` is escaped.
        attributes: Its attributes, with `_` for `-`, and `class_` for `class`. True gives one
            without a value; None and False give none.
    """
    written = "".join(map(_attribute, attributes.items()))
    opened = f"<{name}{written}>"
    return Html(opened if name in _VOID else f"{opened}{join(content)}</{name}>")


def fill(template: str, **values: object) -> Html:
    """Return HTML with values in the place of their `{names}`.

    Args:
        template: HTML of this package.
        values: Texts are escaped as by `text`; numbers may have a format, such as `{width:.1f}`.
    """
    known = {
        name: value if isinstance(value, (int, float)) else text(value)
        for name, value in values.items()
    }
    return Html(template.format_map(known))


def _attribute(item: tuple[str, object]) -> str:
    name, value = item[0].rstrip("_").replace("_", "-"), item[1]
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(value)}"'


def join(parts: Iterable[object]) -> Html:
    """Return all parts after one another, each escaped unless it is `Html`."""
    return Html("".join(map(text, parts)))


def name_of(value: object) -> Html:
    """Return a user's name: right-to-left letters in it do not turn the text around it."""
    return tag("bdi", value)


def data_block(content: object) -> Html:
    """Return JSON in an element that no browser runs; no text in it can end the element."""
    told = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json">{told}</script>')


class Section(NamedTuple):
    """A section of the page: its anchor, its heading, and its content."""

    anchor: str
    title: str
    content: Html


def note(*content: object) -> Html:
    """Return a short explanation below a heading."""
    return tag("p", *content, class_="note")


def warning(told: str) -> Html:
    """Return a text about a part of the page that cannot be shown, nothing for ""."""
    return tag("p", told, class_="note warning", role="alert") if told else Html("")


def cards(values: Mapping[str, object]) -> Html:
    """Return figures in boxes: a value over its name."""
    items = (fill(_CARD, name=name, value=value) for name, value in values.items())
    return tag("dl", *items, class_="cards")


def charts(*found: Html) -> Html:
    """Return charts beside one another."""
    return tag("div", *found, class_="charts")


def more(summary: object, *content: object) -> Html:
    """Return content behind a click."""
    return tag("details", tag("summary", summary), *content)


def sheet(figures: Iterable[Html]) -> Html:
    """Return pictures beside one another."""
    return tag("div", join(figures), class_="sheet")


def gallery(groups: Mapping[str, Sequence[Html]]) -> Html:
    """Return the pictures of each group below its name, nothing without any."""
    shown = [
        tag("div", tag("h3", name), sheet(figures), class_="group")
        for name, figures in groups.items()
        if figures
    ]
    return tag("div", *shown, class_="groups") if shown else Html("")


def table(caption: str, columns: Sequence[TableColumn], rows: Iterable[Sequence[Any]]) -> Html:
    """Return a table with a row header in its first column.

    Args:
        caption: Names it, for screen readers.
        columns: Its columns.
        rows: A cell per column. Rows after the first `SHOWN_ROWS` may not hold `Html`.
    """
    known = list(rows)
    shown, rest = known[:SHOWN_ROWS], known[SHOWN_ROWS:]
    head = join(tag("th", column.title, scope="col", class_=column.kind) for column in columns)
    body = (
        tag(
            "tr",
            *(
                _cell(column.kind, cell, header=number == 0)
                for number, (column, cell) in enumerate(zip(columns, row, strict=True))
            ),
        )
        for row in shown
    )
    parts = [fill(_TABLE, caption=caption, head=head, body=join(body))]
    if rest:
        told = f"{len(rest):,} more rows need JavaScript."
        plain = [[visible(cell) if isinstance(cell, str) else cell for cell in row] for row in rest]
        parts += [tag("p", told, class_="note more-note"), data_block(plain)]
    return tag("div", *parts, class_="table", data_tools=len(known) >= _TOOLS_FROM)


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
    return text(show_cell(kind, cell))


def bar(share: float) -> Html:
    """Return a horizontal bar for a share from 0 to 1."""
    return fill(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{width:.1f}" height="10" class="fill"></rect></svg>',
        width=100 * min(max(share, 0.0), 1.0),
    )
