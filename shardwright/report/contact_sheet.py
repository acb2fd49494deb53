"""Show a sample of the pictures of each split and class."""

from __future__ import annotations

import json
from collections import defaultdict

from shardwright.report.data import ReportData
from shardwright.report.markup import Html, Section, fill, join, more, name_of, note, sheet, tag
from shardwright.report.pictures import Picture, Thumbnail, can_decode
from shardwright.sizes import counted, show_bytes

_SHOWN, _SHOWN_CLASSES = 9, 60  # pictures of a class, and classes; a click shows the others
_NO_PICTURE = """\
<figure><div class="none">no picture</div><figcaption>{caption}</figcaption></figure>"""
# The page's script shows the filters, and fills in the classes.
_TOOLS = """\
<div class="tools" hidden><label>Split <select class="by-split" aria-label="Split">\
<option value="">all splits</option>{splits}</select></label>\
<label>Class <select class="by-label" aria-label="Class"><option value="">all classes</option>\
</select></label><label>Filter <input type="search" class="by-text" placeholder="class or id">\
</label>{over}<button type="button" class="more by-all">Select all shown</button>\
<span class="status" role="status"></span></div>"""
_OVER = '<label><input type="checkbox" class="drawn" checked> boxes and masks</label>'
_BOXES = """\
<svg class="boxes" viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">\
{drawn}</svg>"""
_BOX = """\
<rect x="{x:.4f}" y="{y:.4f}" width="{width:.4f}" height="{height:.4f}" \
class="box{color}"></rect>"""


def figure(
    image: Thumbnail | None,
    name: str,
    facts: str,
    *,
    caption: object = None,
    over: object = "",
    anchor: str | None = None,
    **told: str,
) -> Html:
    """Return a picture, which a click enlarges.

    Args:
        image: The picture; None for that of the figure `of`, which the page's script copies.
        name: Its id.
        facts: Shown below the enlarged picture.
        caption: Its caption; None for the id.
        over: Drawn over it.
        anchor: Its id in the page.
        told: More for the page's script: its `label` and `split`, with which it can be selected.
    """
    sides: dict[str, object] = {}
    if image is not None:
        sides = {"src": image.url, "width": image.width, "height": image.height}
    label = told.get("label")
    shown = tag("img", alt=f"{name}, {label}" if label else name, **sides)
    # An id has characters that are escaped: as JSON it is exact.
    exact = "" if name.isprintable() else json.dumps(name)
    known = {"id": name, "json": exact, "facts": facts, **told}
    data = {f"data_{key}": value for key, value in known.items() if value}
    frame = tag("span", shown, over, class_="frame")
    button = tag("button", frame, type="button", class_="zoom", **data)
    below = tag("figcaption", name_of(name) if caption is None else caption)
    return tag("figure", button, below, id=anchor)


def picture(
    data: ReportData, found: Picture | None, *, caption: object = None, anchor: str | None = None
) -> Html:
    """Return the picture of a record; None if it is not known."""
    if found is None or found.thumbnail is None:
        return fill(_NO_PICTURE, caption="" if caption is None else caption)
    row = found.place.row
    size = f"{row['width']} x {row['height']}, " if row["width"] and row["height"] else ""
    masks = [tag("img", src=mask.url, alt="", class_="mask") for mask in found.masks]
    return figure(
        found.thumbnail,
        found.id,
        f"{size}{show_bytes(row['image_length'])}",
        caption=caption,
        over=join((*masks, _boxes(found))),
        anchor=anchor,
        label=data.class_name(found.label),
        split=found.split,
    )


def _boxes(found: Picture) -> Html:
    drawn = [
        fill(
            _BOX,
            x=box.left,
            y=box.top,
            width=max(box.right - box.left, 0),
            height=max(box.bottom - box.top, 0),
            color=(box.label or 0) % 7,
        )
        for box in found.boxes
    ]
    return fill(_BOXES, drawn=join(drawn)) if drawn else Html("")


def contact_sheet(data: ReportData) -> Section | None:
    """Return the section of pictures; None for a dataset without images."""
    manifest = data.manifest
    if manifest.schema.image is None:
        return None
    if not can_decode():
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
    has_drawings = any(found.boxes or found.masks for found in shown)
    splits = join(tag("option", name, value=name) for name in manifest.splits)
    tools = fill(_TOOLS, splits=splits, over=Html(_OVER if has_drawings else ""))
    groups = [_split(data, name, shown) for name in manifest.splits]
    return Section(
        "pictures", "Pictures", tag("div", note(told), tools, *groups, class_="pictures")
    )


def anchor_of(found: Picture) -> str:
    """Return the id in the page of a picture of the contact sheet."""
    # The whole path: generations have shards of the same split and number.
    return f"{found.place.shard.shard}:{found.place.row['offset']}"


def _split(data: ReportData, split: str, shown: list[Picture]) -> Html:
    groups: dict[int, list[Picture]] = defaultdict(list)
    for found in shown:
        if found.split == split:
            groups[-1 if found.label is None else found.label].append(found)
    if not groups:
        return Html("")
    sheets = [_group(data, groups[label]) for label in sorted(groups)]
    parts = [tag("h3", name_of(split)), tag("div", *sheets[:_SHOWN_CLASSES], class_="groups")]
    if len(sheets) > _SHOWN_CLASSES:
        rest = tag("div", *sheets[_SHOWN_CLASSES:], class_="groups")
        parts.append(more(counted(len(sheets) - _SHOWN_CLASSES, "more class"), rest))
    return tag("div", *parts, data_split=split)


def _group(data: ReportData, found: list[Picture]) -> Html:
    """Return the pictures of one class."""
    split, label = found[0].split, found[0].label
    figures = [picture(data, one, anchor=anchor_of(one)) for one in found]
    shown = sheet(figures[:_SHOWN])
    if len(figures) > _SHOWN:
        rest = more(f"{len(figures) - _SHOWN:,} more", sheet(figures[_SHOWN:]))
        shown = join((shown, rest))
    if label is None:
        return tag("div", shown, class_="group")
    counts = data.manifest.splits[split].stats.get("labels", {})
    number = tag("small", f" {len(found):,} of {counts.get(str(label), 0):,}")
    return tag("div", tag("h4", name_of(data.class_name(label)), number), shown, class_="group")
