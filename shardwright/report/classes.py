"""Show the classes of the label: their counts in each split, and their balance."""

from __future__ import annotations

from shardwright.format.stats_keys import LABEL_DEVIATION
from shardwright.report.charts import rank_curve
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join
from shardwright.report.sections import Section, cards, charts, class_name
from shardwright.report.tables import Cell, names, numbers, shares, table, texts

_CURVE_FROM = 12  # classes; fewer are read off the table


def classes(data: ReportData) -> Section | None:
    """Return the section of class counts; None without a label."""
    manifest = data.manifest
    known = manifest.schema.class_names
    by_split = {
        name: {int(label): number for label, number in split.stats.get("labels", {}).items()}
        for name, split in manifest.splits.items()
    }
    labels = sorted({*range(len(known)), *(one for found in by_split.values() for one in found)})
    if not labels:
        return None
    totals = {one: sum(found.get(one, 0) for found in by_split.values()) for one in labels}
    most = max(max(totals.values()), 1)
    rows: list[list[Cell]] = [
        [
            class_name(known, one),
            one,
            *(found.get(one, 0) for found in by_split.values()),
            totals[one],
            round(totals[one] / most, 4),
        ]
        for one in labels
    ]
    rows.sort(key=lambda row: -int(row[-2] or 0))
    columns = (
        *(names("class"), numbers("label"), *map(numbers, by_split)),
        *(numbers("all"), shares("of the largest class")),
    )
    parts = [_figures(totals), _curve(totals), table("Classes", columns, rows), *_deviations(data)]
    return Section("classes", "Class balance", join(parts))


def _figures(totals: dict[int, int]) -> Html:
    counts = sorted(totals.values())
    values: dict[str, object] = {
        "classes": f"{len(counts):,}",
        "largest class": f"{counts[-1]:,}",
        "median class": f"{counts[len(counts) // 2]:,}",
        "smallest class": f"{counts[0]:,}",
    }
    if counts[0]:
        values["imbalance"] = f"{counts[-1] / counts[0]:,.3g} x"
    else:
        values["empty classes"] = f"{counts.count(0):,}"
    return cards(values)


def _curve(totals: dict[int, int]) -> Html:
    if len(totals) < _CURVE_FROM or not any(totals.values()):
        return Html("")
    title = "Records of each class, from the largest to the smallest (logarithmic)"
    return charts(rank_curve(title, list(totals.values())))


def _deviations(data: ReportData) -> list[Html]:
    known = data.manifest.schema.class_names
    rows: list[list[Cell]] = [
        [name, f"{off['mean']:.4%}", f"{off['max']:.4%}", class_name(known, off["label"])]
        for name, split in data.manifest.splits.items()
        if (off := split.stats.get(LABEL_DEVIATION))
    ]
    title = "Class fractions of the splits, compared with the whole dataset"
    columns = (names("split"), texts("mean deviation"), texts("largest deviation"))
    return [table(title, (*columns, names("of class")), rows)] if rows else []
