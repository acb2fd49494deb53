"""Show the figures of the whole dataset, and of each split."""

from __future__ import annotations

from statistics import median

from shardwright.format.reject_counts import RejectShare
from shardwright.format.splits import SplitInfo
from shardwright.format.stats_keys import RECORD_BYTES
from shardwright.report.data import ReportData
from shardwright.report.markup import join
from shardwright.report.sections import Section, cards
from shardwright.report.tables import Cell, names, numbers, sizes, table, texts
from shardwright.sizes import show_bytes


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
    columns = (
        *(names("split"), numbers("records"), texts("share"), sizes("bytes"), numbers("shards")),
        *(texts("records a shard"), sizes("median shard"), texts("width"), texts("height")),
        texts("formats"),
    )
    total = data.manifest.num_records
    rows = [_split_row(split, total) for split in data.manifest.splits.values()]
    return Section(
        "splits",
        "Splits",
        join((table("Records and bytes of the splits", columns, rows), *_estimates(data))),
    )


def _split_row(split: SplitInfo, total: int) -> list[Cell]:
    records = sorted(shard.num_records for shard in split.shards) or [0]
    formats = ", ".join(
        f"{name} {number:,}" for name, number in split.stats.get("formats", {}).items()
    )
    return [
        split.name,
        split.num_records,
        f"{split.num_records / max(total, 1):.1%}",
        split.num_bytes,
        len(split.shards),
        f"{records[0]:,}" if records[0] == records[-1] else f"{records[0]:,} to {records[-1]:,}",
        median([shard.num_bytes for shard in split.shards] or [0]),
        *_sides(split),
        formats,
    ]


def _sides(split: SplitInfo) -> list[str]:
    """Return the widths and heights, apart: the widest image need not be the highest."""
    found = [split.stats.get(side, {}) for side in ("width", "height")]
    # A side that all images share appears once.
    ends = [dict.fromkeys(str(side[end]) for end in ("min", "max") if side) for side in found]
    return [" to ".join(each) for each in ends]


def _estimates(data: ReportData) -> list[object]:
    """Return the table of record sizes that were estimated from a sample, and then written."""
    rows: list[list[Cell]] = []
    for name, split in data.manifest.splits.items():
        found = split.stats.get(RECORD_BYTES)
        if found:
            off = abs(found["estimated"] - found["written"]) / max(found["written"], 1e-9)
            rows.append([name, found["estimated"], found["written"], f"{off:.1%}"])
    title = "Record size: estimated from a sample, and written"
    columns = (names("split"), sizes("estimated"), sizes("written"), texts("error"))
    return [table(title, columns, rows)] if rows else []
