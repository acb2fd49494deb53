"""Show a sample of the pictures of each split and class."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from math import nan

from shardwright.images.signals import SIGNALS
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, Section, fill, join, more, name_of, note, sheet, tag
from shardwright.report.pictures import Picture, Thumbnail
from shardwright.sizes import counted, show_bytes

_SHOWN, _SHOWN_CLASSES = 9, 60  # pictures of a class, and classes; a click shows the others
_SORTED_BY = ("width", "height", "bytes", *(signal.name for signal in SIGNALS))
_NO_PICTURE = """\
<figure><div class="none">no picture</div><figcaption>{caption}</figcaption></figure>"""
_TOOLS = """\
<div class="tools" hidden>{split}{label}{value}<span class="tools span">\
<label><input type="checkbox" class="by-down"> largest first</label>\
<label>from <input type="number" step="any" class="by-from"></label>\
<label>to <input type="number" step="any" class="by-to"></label></span>\
<label>Filter <input type="search" class="by-text" placeholder="class or id"></label>{over}\
<button type="button" class="more by-all">Select all shown</button>\
<span class="status" role="status"></span></div>"""
_OVER = '<label><input type="checkbox" class="drawn" checked> boxes and masks</label>'
_CHOICE = """\
<label>{title} <select class="{name}" aria-label="{title}">\
<option value="">{first}</option>{options}</select></label>"""
_BOXES = """\
<svg class="boxes" viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">\
{drawn}</svg>"""
_BOX = """\
<rect x="{x:.4f}" y="{y:.4f}" width="{width:.4f}" height="{height:.4f}" \
class="box{color}"></rect>"""


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
        return fill(_NO_PICTURE, caption="" if caption is None else caption)
    row = found.place.row
    size = f"{row['width']} x {row['height']}, " if row["width"] and row["height"] else ""
    told = f"{size}{show_bytes(row['image_length'])}"
    return _figure(
        found.thumbnail,
        join(
            (
                *(tag("img", src=mask.url, alt="", class_="mask") for mask in found.masks),
                _boxes(found),
            )
        ),
        name_of(found.id) if caption is None else caption,
        {**_names_of(found, label), "facts": told, "values": values},
        anchor,
    )


def again(found: Picture, anchor: str, label: str, facts: str, caption: str) -> Html:
    """Return a picture of the contact sheet again; the page's script copies it from there."""
    image = tag("img", alt=f"{found.id}, {label}" if label else found.id)
    return _zoom(image, caption, {**_names_of(found, label), "facts": facts, "of": anchor})


def _names_of(found: Picture, label: str) -> dict[str, str]:
    """Return what a picture is called; `json` is an id that has characters which are escaped."""
    exact = "" if found.id.isprintable() else json.dumps(found.id)
    return {"id": found.id, "json": exact, "label": label, "split": found.split}


def _zoom(
    content: Html, caption: object, told: Mapping[str, str], anchor: str | None = None
) -> Html:
    data = {f"data_{name}": value for name, value in told.items() if value}
    frame = tag("span", content, class_="frame")
    button = tag("button", frame, type="button", class_="zoom", **data)
    return tag("figure", button, tag("figcaption", caption), id=anchor)


def bare_picture(thumbnail: Thumbnail, name: str, facts: str, *, caption: object = None) -> Html:
    """Return a picture that is in no record, such as that of a reject."""
    shown = name_of(name) if caption is None else caption
    return _figure(thumbnail, Html(""), shown, {"id": name, "facts": facts})


def _figure(
    thumbnail: Thumbnail,
    over: Html,
    caption: object,
    told: Mapping[str, str],
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
    return _zoom(join((image, over)), caption, told, anchor)


def _boxes(found: Picture) -> Html:
    if not found.boxes:
        return Html("")
    drawn = (
        fill(
            _BOX,
            x=box.left,
            y=box.top,
            width=max(box.right - box.left, 0),
            height=max(box.bottom - box.top, 0),
            color=(box.label or 0) % 7,
        )
        for box in found.boxes
    )
    return fill(_BOXES, drawn=join(drawn))


def contact_sheet(data: ReportData) -> Section | None:
    """Return the section of pictures; None for a dataset without images."""
    manifest = data.manifest
    if manifest.schema.image is None:
        return None
    if not data.can_decode:
        told = "No pictures, because Pillow is not installed: pip install 'shardwright[reader]'."
        return Section("pictures", "Pictures", note(told))
    shown = [found for found in data.pictures if found.thumbnail is not None]
    if not shown:
        return None
    lost = len(data.pictures) - len(shown)
    missing = (
        f" {counted(lost, 'picture')} more cannot be decoded or would not fit." if lost else ""
    )
    told = (
        f"{counted(len(shown), 'picture')} of {counted(manifest.num_records, 'record')}, chosen by "
        f"a hash of the id, with every class if there are enough.{missing}"
    )
    flat = tag("div", class_="sheet sorted")
    groups = [_split(data, name, shown) for name in manifest.splits]
    parts = [note(told), _tools(data), flat, *groups]
    return Section("pictures", "Pictures", tag("div", join(parts), class_="pictures"))


def _tools(data: ReportData) -> Html:
    """Return the filters, which the page's script shows, and fills with classes."""
    drawn = any(found.boxes or found.masks for found in data.pictures)
    return fill(
        _TOOLS,
        split=_choice("Split", "by-split", "all splits", tuple(data.manifest.splits)),
        label=_choice("Class", "by-label", "all classes", ()),
        value=_choice("Sort by", "by-value", "split and class", _SORTED_BY),
        over=Html(_OVER if drawn else ""),
    )


def _choice(title: str, name: str, first: str, others: tuple[str, ...]) -> Html:
    options = join(tag("option", one, value=one) for one in others)
    return fill(_CHOICE, title=title, name=name, first=first, options=options)


def link_to_pictures(data: ReportData, told: str, *, sort: str = "", label: str = "") -> Html | str:
    """Return a text as a link to the pictures sorted by a value, or of a class; "" for all.

    Without such pictures it is the text alone.
    """
    labels = {data.class_name(one.label) for one in data.pictures if one.thumbnail}
    if not labels or (label and label not in labels) or (sort and sort not in _SORTED_BY):
        return told
    return tag("a", told, href="#pictures", data_sort=sort, data_label=label, class_="show")


def _values(found: Picture) -> str:
    """Return the numbers of `_SORTED_BY`."""
    row, signals = found.place.row, found.signals
    sides = [row["width"] or nan, row["height"] or nan, row["image_length"] or nan]
    quality = signals if signals else [nan] * len(SIGNALS)
    return " ".join(f"{value:.7g}" for value in (*sides, *quality))


def anchor_of(found: Picture) -> str:
    """Return the id in the page of a picture of the contact sheet."""
    # The whole path: generations have shards of the same split and number.
    return f"{found.place.shard.shard}:{found.place.row['offset']}"


def _split(data: ReportData, split: str, shown: list[Picture]) -> Html:
    groups: dict[int | None, list[Picture]] = defaultdict(list)
    for found in shown:
        if found.split == split:
            groups[found.label].append(found)
    if not groups:
        return Html("")
    title = tag("h3", name_of(split))
    ordered = sorted(groups, key=lambda label: -1 if label is None else label)
    sheets = [_group(data, split, label, groups[label]) for label in ordered]
    parts = [title, tag("div", *sheets[:_SHOWN_CLASSES], class_="groups")]
    if len(sheets) > _SHOWN_CLASSES:
        rest = tag("div", *sheets[_SHOWN_CLASSES:], class_="groups")
        parts.append(more(counted(len(sheets) - _SHOWN_CLASSES, "more class"), rest))
    return tag("div", *parts, data_split=split)


def _group(data: ReportData, split: str, label: int | None, found: list[Picture]) -> Html:
    name = data.class_name(label)
    figures = [picture(one, name, anchor=anchor_of(one), values=_values(one)) for one in found]
    shown = sheet(figures[:_SHOWN])
    if len(figures) > _SHOWN:
        rest = more(f"{len(figures) - _SHOWN:,} more", sheet(figures[_SHOWN:]))
        shown = join((shown, rest))
    if not name:
        return tag("div", shown, class_="group")
    counts = data.manifest.splits[split].stats.get("labels", {})
    number = tag("small", f" {len(found):,} of {counts.get(str(label), 0):,}")
    return tag("div", tag("h4", name_of(name), number), shown, class_="group", data_class=name)
