"""Write HTML whose text is always escaped.

Names of files and classes come from users. Everything that is not `Html` is escaped, so no name can
become a tag, a script or an attribute.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from shardwright.terminal import visible

_VOID = frozenset({"br", "img", "input", "meta"})


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
        content: Its content; what is not `Html` is escaped.
        attributes: Its attributes, with `_` for `-`, and `class_` for `class`. True gives one
            without a value; None and False give none.
    """
    written = "".join(map(_attribute, attributes.items()))
    opened = f"<{name}{written}>"
    return Html(opened if name in _VOID else f"{opened}{join(content)}</{name}>")


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


def data_block(content: object, **attributes: object) -> Html:
    """Return JSON in an element that no browser runs; no text in it can end the element."""
    told = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    written = "".join(map(_attribute, {"type": "application/json", **attributes}.items()))
    return Html(f"<script{written}>{told}</script>")
