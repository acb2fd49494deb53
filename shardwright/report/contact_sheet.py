"""Show a sample of the pictures of each split and class."""

from __future__ import annotations

from collections import defaultdict

from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join, name_of, tag
from shardwright.report.pictures import Picture
from shardwright.report.sections import Section, class_name, note, picture
from shardwright.sizes import counted

_SHOWN, _SHOWN_CLASSES = 9, 60  # pictures of a class, and classes; a click shows the others


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
    parts = [note(told), _tools(data), *(_split(data, name, shown) for name in manifest.splits)]
    return Section("pictures", "Pictures", tag("div", join(parts), class_="pictures"))


def _tools(data: ReportData) -> Html:
    """Return the filters, which the page's script shows."""
    options = [tag("option", "all splits", value="")]
    options += [tag("option", name, value=name) for name in data.manifest.splits]
    split = tag("label", "Split ", tag("select", join(options), class_="by-split"))
    entered = tag("input", type="search", class_="by-text", placeholder="class or id")
    drawn = any(found.boxes or found.masks for found in data.pictures)
    check = tag("input", type="checkbox", class_="drawn", checked=True)
    over = tag("label", check, " boxes and masks") if drawn else Html("")
    status = tag("span", class_="status", role="status")
    parts = (split, tag("label", "Filter ", entered), over, status)
    return tag("div", *parts, class_="tools", hidden=True)


def anchor_of(data: ReportData, found: Picture) -> str:
    """Return the id in the page of a picture of the contact sheet."""
    split = list(data.manifest.splits).index(found.split)
    return f"p{split}-{found.place.shard.index}-{found.place.row['offset']}"


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
        summary = tag("summary", counted(len(sheets) - _SHOWN_CLASSES, "more class"))
        rest = tag("div", *sheets[_SHOWN_CLASSES:], class_="groups")
        parts.append(tag("details", summary, rest))
    return tag("div", *parts, data_split=split)


def _group(data: ReportData, split: str, label: int | None, found: list[Picture]) -> Html:
    name = class_name(data.manifest.schema.class_names, label)
    figures = [picture(one, name, anchor=anchor_of(data, one)) for one in found]
    sheet = tag("div", *figures[:_SHOWN], class_="sheet")
    if len(figures) > _SHOWN:
        summary = tag("summary", f"{len(figures) - _SHOWN:,} more")
        rest = tag("details", summary, tag("div", *figures[_SHOWN:], class_="sheet"))
        sheet = join((sheet, rest))
    if not name:
        return tag("div", sheet, class_="group")
    counts = data.manifest.splits[split].stats.get("labels", {})
    number = tag("small", f" {len(found):,} of {counts.get(str(label), 0):,}")
    return tag("div", tag("h4", name_of(name), number), sheet, class_="group", data_class=name)
