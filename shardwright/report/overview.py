"""Show the figures of the dataset and its splits: records, sizes, times, source and settings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shardwright.format.reject_counts import RejectShare
from shardwright.inspect.describe import split_view
from shardwright.inspect.views import pairs_view
from shardwright.report.charts import heatmap, histogram_of
from shardwright.report.data import ReportData
from shardwright.report.markup import (
    Html,
    Section,
    cards,
    charts,
    join,
    more,
    note,
    table,
)
from shardwright.sizes import counted, show_bytes, show_number


def overview(data: ReportData) -> Section:
    """Return the section of figures."""
    manifest = data.manifest
    shards = sum(len(split.shards) for split in manifest.splits.values())
    rejects, num_inputs = RejectShare.of(manifest.rejects, manifest.num_records)
    share = f" ({rejects / num_inputs:.2%})" if rejects else ""
    no_faults = sum(manifest.rejects.values()) - rejects
    values: dict[str, object] = {
        "records": f"{manifest.num_records:,}",
        "bytes": show_bytes(manifest.num_bytes),
        "shards": f"{shards:,}",
        "inputs": f"{manifest.num_inputs:,}",
        "rejects": f"{rejects:,}{share}",
    }
    if no_faults:
        values["listed, no faults"] = f"{no_faults:,}"
    if manifest.schema.main_class_names:
        values["classes"] = f"{len(manifest.schema.main_class_names):,}"
    return Section("overview", "Overview", cards(values))


def splits(data: ReportData) -> Section:
    """Return the section of splits."""
    # A name of its own: the section is a region called "Splits", too.
    view = split_view(data.manifest)._replace(title="Records and bytes of the splits")
    return Section("splits", "Splits", table(*view))


def image_sizes(data: ReportData) -> Section | None:
    """Return the section of sizes; None for a dataset without records."""
    tables = [found.rows for found in data.splits if len(found.rows)]
    if not tables:
        return None
    rows = pa.concat_tables(tables)
    shards = [shard for split in data.manifest.splits.values() for shard in split.shards]
    num_bytes = np.array([shard.num_bytes for shard in shards], np.int64)
    records = np.array([shard.num_records for shard in shards], np.int64)
    found = [
        *_image_charts(rows),
        histogram_of("Bytes a shard", num_bytes, show_bytes),
        histogram_of("Records a shard", records, show_number),
    ]
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


def provenance(data: ReportData) -> Section:
    """Return the section of the origin and the settings."""
    manifest = data.manifest
    known = dict(manifest.provenance)
    packages = known.pop("packages", {})
    origin = {**known, "fingerprint": manifest.fingerprint}
    parts = [
        table(*pairs_view("Source", origin)),
        more("Settings", table(*pairs_view("Settings", manifest.settings))),
    ]
    if packages:
        parts.append(more("Versions", table(*pairs_view("Versions", packages))))
    return Section("provenance", "Source and settings", join(parts))
