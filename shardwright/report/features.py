"""Show the features of the records: classes, boxes and values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from shardwright.format.stats_keys import FEATURES
from shardwright.inspect.describe import class_name, class_view, feature_view
from shardwright.inspect.stats import value_view
from shardwright.inspect.views import names, numbers, shares, texts
from shardwright.report.charts import histogram, histogram_of
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, Section, cards, charts, join, note, table
from shardwright.report.pictures import box_features
from shardwright.sizes import counted, show_number

_DRAWN = 60  # features with a chart


def classes(data: ReportData) -> Section | None:
    """Return the section of class counts; None without a label."""
    view = class_view(data.manifest)
    if not view.rows:
        return None
    totals = [int(row[-2] or 0) for row in view.rows]
    return Section("classes", "Class balance", join((_figures(totals), table(*view))))


def _figures(counts: Sequence[int]) -> Html:
    """Return the figures of classes with these records, the most first."""
    values = {
        "largest class": counts[0],
        "median class": counts[(len(counts) - 1) // 2],
        "smallest class": counts[-1],
        "empty classes": counts.count(0),
    }
    return cards({name: f"{number:,}" for name, number in values.items()})


def objects(data: ReportData) -> Section | None:
    """Return the section of boxes; None for a dataset without any in the sample."""
    boxes = [found.boxes for found in data.pictures if found.thumbnail or found.boxes]
    counts = np.array(list(map(len, boxes)), np.int64)
    if not counts.sum():
        return None
    areas: dict[int | None, list[float]] = defaultdict(list)
    for box in (box for some in boxes for box in some):
        area = max(box.bottom - box.top, 0) * max(box.right - box.left, 0)
        areas[box.label].append(area)
    labels = next((labels for _, labels in box_features(data.manifest.schema) if labels), None)
    known = data.manifest.schema.names_of(labels) if labels else ()
    most = max(map(len, areas.values()))
    rows = [
        [
            *(class_name(known, label) or "(no class)", len(found)),
            *(f"{float(np.median(found)):.1%}", round(len(found) / most, 4)),
        ]
        for label, found in sorted(areas.items(), key=lambda item: -len(item[1]))
    ]
    columns = (names("class"), numbers("boxes"), texts("median area"))
    sides = np.sqrt([area for found in areas.values() for area in found])
    parts = (
        note(f"Of the {counts.sum():,} boxes in {counted(len(boxes), 'picture')} of the sample."),
        charts(
            histogram_of("Boxes an image", counts, show_number),
            histogram_of("Side of a box, as a share of its image", sides, "{:.0%}".format),
        ),
        table("Boxes by class", (*columns, shares("of the most frequent class")), rows),
    )
    return Section("objects", "Boxes", join(parts))


def feature_values(data: ReportData) -> Section | None:
    """Return the section of values; None if the statistics have none."""
    view = value_view(data.manifest)
    if not view.rows:
        return None
    largest = max(data.manifest.splits.values(), key=lambda split: split.num_records)
    drawn = [
        histogram(
            f"{name}: {summary.get('of', 'values')}",
            summary["histogram"]["edges"],
            summary["histogram"]["counts"],
            show_number,
        )
        for name, summary in sorted(largest.stats.get(FEATURES, {}).items())
        if "histogram" in summary
    ]
    told = f"Charts show the values of {largest.name}, in bins that grow with the values."
    parts = [note(told), charts(*drawn[:_DRAWN])] if drawn else []
    return Section("values", "Values", join([*parts, table(*view)]))


def feature_list(data: ReportData) -> Section:
    """Return the section of features."""
    view = feature_view(data.manifest.schema)._replace(title="Features of a record")
    return Section("features", "Features", table(*view))
