"""Show the differences from another dataset, such as the one that a build replaces."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.inspect.diff import CLASS_SHARES, DRIFT, difference_views
from shardwright.inspect.views import TableView
from shardwright.report.contact_sheet import link_to_pictures, picture
from shardwright.report.data import ReportData
from shardwright.report.markup import (
    SHOWN_ROWS,
    Html,
    Section,
    join,
    name_of,
    note,
    sheet,
    table,
    tag,
)
from shardwright.report.pictures import Picture

_MAX_ROWS = 2000  # of a table


def changes(data: ReportData) -> Section | None:
    """Return the section of differences; None if there is nothing to compare with."""
    found = data.difference
    if found is None:
        return None
    old = found["old"]
    told = f"Compared with {old['name']} {old['version']} ({old['num_records']:,} records)."
    tables = (table(*_with_links(data, view)) for view in difference_views(found) if view.rows)
    parts = (note(told), _pictures(data, found.get("examples", {})), *tables)
    return Section("changes", "Changes", join(parts))


def _with_links(data: ReportData, view: TableView) -> TableView:
    """Return a table of `diff` whose properties and classes lead to their pictures."""
    rows = list(view.rows[:_MAX_ROWS])
    for place, (name, *others) in enumerate(rows[:SHOWN_ROWS]):
        if view.title == CLASS_SHARES:
            rows[place] = [link_to_pictures(data, name, label=name), *others]
        elif view.title == DRIFT and name == "classes":
            rows[place] = [tag("a", name, href="#classes"), *others]
        elif view.title == DRIFT:
            value = "bytes" if name == "image_length" else name
            rows[place] = [link_to_pictures(data, name, sort=value), *others]
    # Other sections have the names of some of these tables.
    return view._replace(title=f"Changes: {view.title}", rows=rows)


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
    return picture(found, data.class_name(found.label))
