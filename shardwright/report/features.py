"""Show the features of the records: classes, boxes, values, and the heads of vocabularies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.format.schema import INDEXED, Source
from shardwright.format.stats_keys import FEATURES
from shardwright.inspect.describe import class_name, class_view, feature_view
from shardwright.inspect.stats import value_view
from shardwright.inspect.views import names, numbers, shares, texts
from shardwright.report.charts import density, histogram_of, rank_curve
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, Section, cards, charts, join, name_of, note, table, tag
from shardwright.report.pictures import Picture, box_features
from shardwright.sizes import counted, show_number

_CURVE_FROM = 12  # classes; fewer are read off the table
_DRAWN = 60  # features with a chart
_SHOWN_NAMES = 200


def classes(data: ReportData) -> Section | None:
    """Return the section of class counts; None without a label."""
    view = class_view(data.manifest)
    if not view.rows:
        return None
    totals = [int(row[-2] or 0) for row in view.rows]
    parts = [_figures(totals), table(*view)]
    if len(totals) >= _CURVE_FROM and any(totals):
        title = "Records of each class, from the largest to the smallest (logarithmic)"
        parts.insert(1, charts(rank_curve(title, totals)))
    return Section("classes", "Class balance", join(parts))


def _figures(counts: Sequence[int]) -> Html:
    """Return the figures of classes with these records, the most first."""
    values: dict[str, object] = {
        "classes": f"{len(counts):,}",
        "largest class": f"{counts[0]:,}",
        "median class": f"{counts[(len(counts) - 1) // 2]:,}",
        "smallest class": f"{counts[-1]:,}",
    }
    if counts[-1]:
        values["imbalance"] = f"{counts[0] / counts[-1]:,.3g} x"
    else:
        values["empty classes"] = f"{counts.count(0):,}"
    return cards(values)


def objects(data: ReportData) -> Section | None:
    """Return the section of boxes; None for a dataset without any in the sample."""
    pictures = [found for found in data.pictures if found.thumbnail or found.boxes]
    counts = np.array([len(found.boxes) for found in pictures], np.int64)
    if not counts.sum():
        return None
    told = f"Of the boxes in {counted(len(pictures), 'picture')} of the sample."
    values: dict[str, object] = {
        "boxes": f"{counts.sum():,}",
        "boxes an image": f"{counts.mean():.2f}",
        "images without": f"{int((counts == 0).sum()):,}",
    }
    areas = np.array(
        [
            max(box.bottom - box.top, 0) * max(box.right - box.left, 0)
            for found in pictures
            for box in found.boxes
        ]
    )
    drawn = charts(
        histogram_of("Boxes an image", counts, show_number),
        histogram_of("Side of a box, as a share of its image", np.sqrt(areas), "{:.0%}".format),
    )
    return Section(
        "objects", "Boxes", join((note(told), cards(values), drawn, _by_class(data, pictures)))
    )


def _by_class(data: ReportData, pictures: list[Picture]) -> object:
    """Return the table of boxes per class: how many, in how many images, and their median area."""
    features = box_features(data.manifest.schema)
    labels = next((found.labels for found in features if found.labels is not None), None)
    class_names = data.manifest.schema.names_of(labels) if labels is not None else ()
    areas: dict[int | None, list[float]] = defaultdict(list)
    images: Counter[int | None] = Counter()
    for found in pictures:
        images.update({box.label for box in found.boxes})
        for box in found.boxes:
            areas[box.label].append((box.bottom - box.top) * (box.right - box.left))
    most = max(map(len, areas.values()))
    rows = [
        [
            class_name(class_names, label) or "(no class)",
            len(found),
            images[label],
            round(len(found) / images[label], 2),
            f"{float(np.median(found)):.1%}",
            round(len(found) / most, 4),
        ]
        for label, found in sorted(areas.items(), key=lambda item: -len(item[1]))
    ]
    columns = (
        *(names("class"), numbers("boxes"), numbers("images"), numbers("boxes an image")),
        *(texts("median area"), shares("of the most frequent class")),
    )
    return table("Boxes by class", columns, rows)


def feature_values(data: ReportData) -> Section | None:
    """Return the section of values; None if the statistics have none."""
    view = value_view(data.manifest)
    if not view.rows:
        return None
    largest = max(data.manifest.splits.values(), key=lambda split: split.num_records)
    drawn = [
        _chart(name, summary)
        for name, summary in sorted(largest.stats.get(FEATURES, {}).items())
        if "histogram" in summary
    ]
    told = f"Charts show the values of {largest.name}; the area of a bar is its number of values."
    parts = [note(told), charts(*drawn[:_DRAWN])] if drawn else []
    return Section("values", "Values", join([*parts, table(*view)]))


def _chart(name: str, summary: Mapping[str, Any]) -> Html:
    of = summary.get("of", "values")
    title = name if of == "values" else f"{name}: {of}"
    histogram = summary["histogram"]
    ends = summary["min"], summary["max"]
    return density(title, histogram["edges"], histogram["counts"], ends, show_number)


def feature_list(data: ReportData) -> Section:
    """Return the section of features."""
    schema = data.manifest.schema
    view = feature_view(schema)
    parts = [table("Features of a record", view.columns, view.rows)]
    for feature in schema.features:
        if feature.kind in INDEXED and feature.source != Source.LABEL:
            words = schema.names_of(feature)
            title = tag("h3", counted(len(words), "name"), " of ", name_of(feature.name))
            items = join(tag("li", name_of(word)) for word in words[:_SHOWN_NAMES])
            parts += [title, tag("ul", items, class_="words")]
            if (hidden := len(words) - _SHOWN_NAMES) > 0:
                parts.append(note(f"... and {hidden:,} more."))
    return Section("features", "Features", join(parts))
