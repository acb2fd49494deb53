"""Tables: the same rows as text and as HTML, whatever the names in them."""

from __future__ import annotations

from shardwright.inspect.views import TableView, as_text, names, numbers, sizes
from shardwright.report.markup import table

HOSTILE = "<b>\n\x1b[31m"


def test_a_view_is_the_same_as_text_and_as_html() -> None:
    columns = (names("class"), numbers("change"), sizes("bytes"))
    view = TableView("Largest Classes", columns, [[HOSTILE, -0.25, 2000], ["ape", 1024, None]])
    assert as_text(view) == [
        "largest classes",
        f"  {'class':15}  change   bytes",
        r"  <b>\x0a\x1b[31m   -0.25  2.0 kB",
        f"  {'ape':15}   1,024",
    ]
    html = table(*view)
    assert "<bdi>&lt;b&gt;\n\\x1b[31m</bdi>" in html
    assert "<b>" not in html
    assert all(cell in html for cell in (">-0.25<", ">2.0 kB<", ">1,024<"))


def test_text_has_the_first_rows_and_says_how_many_more() -> None:
    columns = (numbers("number"),)
    lines = as_text(TableView("x", columns, [[number] for number in range(1500)]))
    assert lines[-2:] == ["      19", "  ... and 1,480 more"]
    assert as_text(TableView("x", columns, [])) == []
