"""Show the boxes of the sampled pictures: their classes, their sizes, and how many an image has."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from shardwright.report.charts import histogram_of
from shardwright.report.data import ReportData
from shardwright.report.markup import join
from shardwright.report.pictures import Picture, box_features
from shardwright.report.sections import Section, cards, charts, class_name, note
from shardwright.report.tables import Cell, names, numbers, shares, show_number, table, texts
from shardwright.sizes import counted


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
        histogram_of("Side of a box, as a share of its image", np.sqrt(areas), _percent),
    )
    return Section(
        "objects", "Boxes", join((note(told), cards(values), drawn, _by_class(data, pictures)))
    )


def _percent(share: float) -> str:
    return f"{share:.0%}"


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
    rows: list[list[Cell]] = [
        [
            class_name(class_names, label) or "(no class)",
            len(found),
            images[label],
            round(len(found) / images[label], 2),
            f"{float(np.median(found)):.1%}",
            round(len(found) / most, 4),
        ]
        for label, found in areas.items()
    ]
    rows.sort(key=lambda row: (-int(row[1] or 0), str(row[0])))
    columns = (
        *(names("class"), numbers("boxes"), numbers("images"), numbers("boxes an image")),
        *(texts("median area"), shares("of the most frequent class")),
    )
    return table("Boxes by class", columns, rows)
