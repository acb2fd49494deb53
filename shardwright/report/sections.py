"""Declare a section of the page, and the parts that sections share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shardwright.report.markup import Html, join, name_of, tag
from shardwright.report.pictures import Picture
from shardwright.report.thumbnails import Thumbnail
from shardwright.sizes import show_bytes


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
    items = (
        tag("div", tag("dt", name), tag("dd", value), class_="card")
        for name, value in values.items()
    )
    return tag("dl", join(items), class_="cards")


def charts(*found: Html) -> Html:
    """Return charts beside one another."""
    return tag("div", *found, class_="charts")


def more(summary: object, *content: object, is_open: bool = False) -> Html:
    """Return content behind a click."""
    return tag("details", tag("summary", summary), *content, open=is_open)


def sheet(figures: Iterable[Html]) -> Html:
    """Return pictures beside one another."""
    return tag("div", join(figures), class_="sheet")


def picture(
    found: Picture | None,
    label: str,
    *,
    caption: object = None,
    anchor: str | None = None,
    values: str = "",
) -> Html:
    """Return a picture with its id, which a click enlarges, and which can be selected in a split.

    Args:
        found: The picture; None if it is not known.
        label: The name of its class, or "".
        caption: Its caption; None for the id.
        anchor: Its id in the page, by which `again` finds it.
        values: The numbers by which the page's script sorts it.
    """
    if found is None or found.thumbnail is None:
        shown = "" if caption is None else caption
        return tag("figure", tag("div", "no picture", class_="none"), tag("figcaption", shown))
    row = found.place.row
    size = f"{row['width']} x {row['height']}, " if row["width"] and row["height"] else ""
    told = f"{size}{show_bytes(row['image_length'])}"
    return _figure(
        found.thumbnail,
        join((*map(_mask, found.masks), _boxes(found))),
        name_of(found.id) if caption is None else caption,
        {**_names_of(found, label), "facts": told, "values": values},
        anchor=anchor,
    )


def again(found: Picture, anchor: str, label: str, facts: str, caption: str) -> Html:
    """Return a picture of the contact sheet again; the page's script copies it from there."""
    image = tag("img", alt=f"{found.id}, {label}" if label else found.id)
    frame = tag("span", image, class_="frame")
    data = _data({**_names_of(found, label), "facts": facts, "of": anchor})
    button = tag("button", frame, type="button", class_="zoom", **data)
    return tag("figure", button, tag("figcaption", caption))


def _names_of(found: Picture, label: str) -> dict[str, str]:
    """Return what a picture is called; `json` is an id that has characters which are escaped."""
    exact = "" if found.id.isprintable() else json.dumps(found.id)
    return {"id": found.id, "json": exact, "label": label, "split": found.split}


def _data(values: Mapping[str, str]) -> dict[str, str]:
    return {f"data_{name}": value for name, value in values.items() if value}


def bare_picture(thumbnail: Thumbnail, name: str, facts: str, *, caption: object = None) -> Html:
    """Return a picture that is in no record, such as that of a reject."""
    shown = name_of(name) if caption is None else caption
    return _figure(thumbnail, Html(""), shown, {"id": name, "facts": facts})


def _figure(
    thumbnail: Thumbnail,
    over: Html,
    caption: object,
    told: Mapping[str, str],
    *,
    anchor: str | None = None,
) -> Html:
    alt = ", ".join(value for name, value in told.items() if name in ("id", "label") and value)
    tiny = max(thumbnail.width, thumbnail.height) <= 48
    image = tag(
        "img",
        src=thumbnail.url,
        alt=alt,
        width=thumbnail.width,
        height=thumbnail.height,
        class_="tiny" if tiny else None,
    )
    frame = tag("span", image, over, class_="frame")
    button = tag("button", frame, type="button", class_="zoom", **_data(told))
    return tag("figure", button, tag("figcaption", caption), id=anchor)


def _mask(mask: Thumbnail) -> Html:
    return tag("img", src=mask.url, alt="", class_="mask")


def _boxes(found: Picture) -> Html:
    if not found.boxes:
        return Html("")
    drawn = (
        tag(
            "rect",
            x=f"{box.left:.4f}",
            y=f"{box.top:.4f}",
            width=f"{max(box.right - box.left, 0):.4f}",
            height=f"{max(box.bottom - box.top, 0):.4f}",
            class_=f"box{(box.label or 0) % 7}",
        )
        for box in found.boxes
    )
    options = {"viewBox": "0 0 1 1", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return tag("svg", *drawn, class_="boxes", **options)


def class_name(class_names: tuple[str, ...], label: int | None) -> str:
    """Return the name of a class, its number if it has no name, "" without a class."""
    if label is None:
        return ""
    return class_names[label] if 0 <= label < len(class_names) else str(label)
