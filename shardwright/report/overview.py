"""Show the figures of the dataset: its splits, sizes, changes, source and settings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardwright.format.reject_counts import RejectShare
from shardwright.inspect.describe import split_view
from shardwright.inspect.diff import difference_views
from shardwright.inspect.stats import image_view
from shardwright.inspect.views import pairs_view
from shardwright.report.charts import histogram_of
from shardwright.report.contact_sheet import picture
from shardwright.report.data import ReportData
from shardwright.report.markup import Section, cards, charts, gallery, join, note, table
from shardwright.sizes import counted, show_bytes, show_number

_MAX_ROWS = 2000  # of a table of changes
_SIZES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("width", "Width in pixels", show_number),
    ("height", "Height in pixels", show_number),
    ("image_length", "Bytes an image", show_bytes),
)


def overview(data: ReportData) -> Section:
    """Return the section of figures."""
    manifest = data.manifest
    rejects, num_inputs = RejectShare.of(manifest.rejects, manifest.num_records)
    share = f" ({rejects / num_inputs:.2%})" if rejects else ""
    values: dict[str, object] = {
        "records": f"{manifest.num_records:,}",
        "bytes": show_bytes(manifest.num_bytes),
        "shards": f"{len(manifest.named_shards()):,}",
        "inputs": f"{manifest.num_inputs:,}",
        "rejects": f"{rejects:,}{share}",
    }
    if no_faults := sum(manifest.rejects.values()) - rejects:
        values["listed, no faults"] = f"{no_faults:,}"
    if names := manifest.schema.main_class_names:
        values["classes"] = f"{len(names):,}"
    return Section("overview", "Overview", cards(values))


def splits(data: ReportData) -> Section:
    """Return the section of splits."""
    # A name of its own: the section is a region called "Splits", too.
    view = split_view(data.manifest)._replace(title="Records and bytes of the splits")
    return Section("splits", "Splits", table(*view))


def image_sizes(data: ReportData) -> Section | None:
    """Return the section of sizes; None for a dataset without images."""
    view = image_view(data.manifest)
    if not view.rows:
        return None
    rows = [found.place.row for found in data.pictures]
    drawn = [
        histogram_of(title, np.array(values), show)
        for name, title, show in _SIZES
        if (values := [row[name] for row in rows if row[name]])
    ]
    told = note(f"Charts are of {counted(len(rows), 'picture')} of the sample.") if drawn else ""
    return Section("sizes", "Sizes", join((told, charts(*drawn), table(*view))))


def changes(data: ReportData) -> Section | None:
    """Return the section of the differences from another dataset, as of `diff`; None without one.

    Pictures are those of records that are there now.
    """
    if data.difference is None:
        return None
    old = data.difference["old"]
    told = f"Compared with {old['name']} {old['version']} ({old['num_records']:,} records)."
    shown = {
        change: [picture(data, data.paired[name]) for name in ids if name in data.paired]
        for change, ids in data.difference.get("examples", {}).items()
    }
    # Other sections have the names of some of these tables.
    tables = [
        table(f"Changes: {title}", columns, rows[:_MAX_ROWS])
        for title, columns, rows in difference_views(data.difference)
        if rows
    ]
    return Section("changes", "Changes", join((note(told), gallery(shown), *tables)))


def provenance(data: ReportData) -> Section:
    """Return the section of the origin and the settings."""
    manifest = data.manifest
    known = {
        **manifest.provenance,
        "fingerprint": manifest.fingerprint,
        "settings": manifest.settings,
    }
    return Section("provenance", "Source and settings", table(*pairs_view("Source", known)))
