"""Show the sizes of images, of their bytes, and of shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shardwright.report.charts import heatmap, histogram_of
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join
from shardwright.report.sections import Section, charts, note
from shardwright.report.tables import show_number
from shardwright.sizes import counted, show_bytes


def image_sizes(data: ReportData) -> Section | None:
    """Return the section of sizes; None for a dataset without records."""
    tables = [found.rows for found in data.splits if len(found.rows)]
    if not tables:
        return None
    rows = pa.concat_tables(tables)
    found = [*_image_charts(rows), *_shard_charts(data)]
    whole = all(split.is_whole for split in data.splits)
    told = (
        "Of all records."
        if whole
        else f"Of {counted(len(rows), 'record')} of {data.manifest.num_records:,}, from the "
        "indexes of some shards; shard sizes are of all shards."
    )
    return Section("sizes", "Sizes", join((note(told), charts(*found))))


def _image_charts(rows: pa.Table) -> list[Html]:
    sized = rows.select(["width", "height"]).drop_null()
    width, height = (sized[name].to_numpy() for name in ("width", "height"))
    keep = (width > 0) & (height > 0)
    width, height = width[keep], height[keep]
    found = []
    if len(width):
        found = [
            heatmap("Image sizes in pixels", width, height, ("width", "height")),
            histogram_of("Aspect ratio, width / height", np.round(width / height, 4), show_number),
        ]
    lengths = rows["image_length"].to_numpy()
    lengths = lengths[lengths > 0]
    return [*found, histogram_of("Bytes an image", lengths, show_bytes)] if len(lengths) else found


def _shard_charts(data: ReportData) -> list[Html]:
    shards = [shard for split in data.manifest.splits.values() for shard in split.shards]
    if not shards:
        return []
    num_bytes = np.array([shard.num_bytes for shard in shards], np.int64)
    records = np.array([shard.num_records for shard in shards], np.int64)
    return [
        histogram_of("Bytes a shard", num_bytes, show_bytes),
        histogram_of("Records a shard", records, show_number),
    ]
