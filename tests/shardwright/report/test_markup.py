"""Markup: whatever a name holds, it is the text of its element and nothing else."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.report.markup import Html, data_block, fill, name_of, tag, text
from shardwright.terminal import visible
from tests.support.random_tests import examples

NASTY = st.text(alphabet=st.characters(), max_size=30) | st.text(
    "<>&\"'/!-=\u202e\ud800 a", max_size=30
)


class Parsed(HTMLParser):
    """The elements, attributes and texts that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@examples(100)
@given(NASTY, NASTY)
def test_a_text_is_neither_a_tag_nor_an_attribute(content: str, value: str) -> None:
    html = tag("p", content, title=value, class_="x")
    assert fill('<p title="{value}" class="x">{content}</p>', value=value, content=content) == html
    parsed = Parsed(html)
    assert parsed.tags == ["p"]
    assert parsed.attributes == [("title", visible(value)), ("class", "x")]
    assert "".join(parsed.texts) == visible(content)


@examples(100)
@given(NASTY)
def test_everything_can_be_written_as_utf8_and_seen(content: str) -> None:
    assert visible(content).encode().decode() == visible(content)
    assert not {"\u202e", "\x00", "\x1b"} & set(visible(content))
    assert visible(visible(content)) == visible(content)


@examples(50)
@given(st.lists(NASTY))
def test_a_data_block_holds_its_values_and_cannot_end_early(values: list[str]) -> None:
    seen = [visible(value) for value in values]
    block = data_block(seen)
    start, end = '<script type="application/json">', "</script>"
    assert block.startswith(start)
    assert block.endswith(end)
    inner = block[len(start) : -len(end)]
    assert "<" not in inner
    assert json.loads(inner) == seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\x00b\x1b", "a\\x00b\\x1b"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), "caf\\udce9"),
        ("مرحبا\u200f", "مرحبا\u200f"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_characters_that_cannot_be_seen_are_spelled(value: str, seen: str) -> None:
    assert visible(value) == seen


def test_attributes() -> None:
    assert tag("input", hidden=True, title=None, open=False) == "<input hidden>"
    assert tag("div", 1, Html("<b></b>"), aria_label="x", class_="y") == (
        '<div aria-label="x" class="y">1<b></b></div>'
    )
    assert name_of("<") == "<bdi>&lt;</bdi>"
    assert text(Html("<br>")) == fill("{it}", it=Html("<br>")) == "<br>"
    assert fill("{width:.1f} {number}", width=0.25, number=3) == "0.2 3"
