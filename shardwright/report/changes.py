"""Show the differences from another dataset, such as the one that a build replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.report.contact_sheet import link_to_pictures, picture
from shardwright.report.data import ReportData, class_name
from shardwright.report.markup import (
    SHOWN_ROWS,
    Cell,
    Html,
    Section,
    cards,
    join,
    name_of,
    names,
    note,
    numbers,
    shares,
    sheet,
    table,
    tag,
    texts,
)
from shardwright.report.pictures import Picture

_SHOWN_CLASSES = 2000


def changes(data: ReportData) -> Section | None:
    """Return the section of differences; None if there is nothing to compare with."""
    found = data.difference
    if found is None:
        return None
    old = found["old"]
    told = f"Compared with {old['name']} {old['version']} ({old['num_records']:,} records)."
    examples: Mapping[str, list[str]] = found.get("examples", {})
    shown: list[list[Cell]] = [[kind, name] for kind, ids in examples.items() for name in ids]
    splits: list[list[Cell]] = [
        [name, *each["records"], each["class_drift"]] for name, each in found["splits"].items()
    ]
    columns = (names("split"), numbers("before"), numbers("now"), numbers("drift of classes"))
    before, now = found["rejects"]["old"], found["rejects"]["new"]
    rejects: list[list[Cell]] = [
        [reason, before.get(reason, 0), now.get(reason, 0)] for reason in {**before, **now}
    ]
    parts = [
        note(told),
        cards({name: f"{number:,}" for name, number in found.get("records", {}).items()}),
        _pictures(data, examples),
        _drift(data, found["drift"]),
        table("Records of the splits", columns, splits),
        *_class_shares(data, found["class_counts"]),
        *_schema(found["schema"], found["classes"]),
        table("Rejects", (texts("reason"), *columns[1:3]), rejects) if rejects else "",
        table("Examples", (texts("change"), names("id")), shown) if shown else "",
    ]
    return Section("changes", "Changes", join(parts))


def _pictures(data: ReportData, examples: Mapping[str, list[str]]) -> Html:
    """Return pictures of new, gone and changed records; of changed ones as they were, too."""
    groups = []
    for change, ids in examples.items():
        now = {} if change == "gone" else data.paired
        before = data.replaced if change in ("gone", "changed") else {}
        figures = [
            _picture(data, known[name], "" if known is now else change)
            for name in ids
            for known in (before, now)
            if name in known
        ]
        if figures:
            groups.append(tag("div", tag("h3", change), sheet(figures), class_="group"))
    return tag("div", *groups, class_="groups")


def _picture(data: ReportData, found: Picture, was: str) -> Html:
    """Return a picture; one that `was` changed or gone is in no split: it cannot be selected."""
    if was:
        caption = join(("before: " if was == "changed" else "", name_of(found.id)))
        return picture(found._replace(split=""), "", caption=caption)
    return picture(found, class_name(data.manifest.schema.class_names, found.label))


def _drift(data: ReportData, drift: Mapping[str, float]) -> Html:
    sorts = {name: "bytes" if name == "image_length" else name for name in drift}
    rows: list[list[Cell]] = [
        [
            tag("a", name, href="#classes")
            if name == "classes"
            else link_to_pictures(data, name, sort=sorts[name]),
            round(found, 4),
            min(found, 1.0),
        ]
        for name, found in drift.items()
    ]
    columns = (texts("property"), numbers("drift, 0 to 1"), shares("drift"))
    return table("Drift", columns, rows) if rows else Html("")


def _class_shares(data: ReportData, counts: Mapping[str, list[int]]) -> list[Html]:
    before, after = (max(sum(pair[side] for pair in counts.values()), 1) for side in (0, 1))
    rows: list[list[Cell]] = [
        [name, old, new, round(new / after - old / before, 5)]
        for name, (old, new) in counts.items()
        if old * after != new * before
    ]
    rows.sort(key=lambda row: (-abs(float(row[3] or 0)), str(row[0])))
    for row in rows[:SHOWN_ROWS]:
        row[0] = link_to_pictures(data, str(row[0]), label=str(row[0]))
    columns = (names("class"), numbers("before"), numbers("now"), numbers("change of its share"))
    title = "Classes whose share changed"
    return [table(title, columns, rows[:_SHOWN_CLASSES])] if rows else []


def _schema(schema: Mapping[str, Any], classes: Mapping[str, Any]) -> list[Html]:
    rows: list[list[Cell]] = [
        *(["feature", "added", feature["name"]] for feature in schema["added"]),
        *(["feature", "removed", feature["name"]] for feature in schema["removed"]),
        *(["feature", "changed", pair["new"]["name"]] for pair in schema["changed"]),
        *(["class", kind, name] for kind, found in classes.items() for name in found),
    ]
    columns = (texts("what"), texts("change"), names("name"))
    return [table("Schema and classes", columns, rows[:_SHOWN_CLASSES])] if rows else []
