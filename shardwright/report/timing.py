"""Show how long the build took, and how the written records grew with time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.report.charts import growth
from shardwright.report.data import ReportData
from shardwright.report.markup import join
from shardwright.report.sections import Section, cards, charts, note
from shardwright.sizes import counted, show_bytes, show_seconds


def timing(data: ReportData) -> Section | None:
    """Return the section of times; None for a dataset whose build did not record them."""
    found = data.manifest.provenance.get("timing")
    return None if found is None else _section(found)


def _section(found: Mapping[str, Any]) -> Section:
    written: Sequence[Sequence[float]] = found["written"]
    seconds = found["writing_s"]
    values: dict[str, object] = {"planning": show_seconds(found["planning_s"])}
    told = ["Planning is the time until the plan was written, with the start of workers."]
    if written:
        _, records, num_bytes = written[-1]
        values["writing"] = show_seconds(seconds)
        if seconds >= 1:
            values["records a second"] = f"{records / seconds:,.0f}"
            values["bytes a second"] = show_bytes(num_bytes / seconds)
    if found["reused_shards"]:
        earlier = counted(found["reused_shards"], "shard")
        told.append(f"{earlier} of an earlier, interrupted run are not counted.")
    drawn = []
    if len(written) > 1 and seconds:
        points = [(0.0, 0.0), *((point[0], point[1]) for point in written)]
        drawn = [growth("Records written", points, "records", show_seconds)]
    return Section("time", "Time", join((note(" ".join(told)), cards(values), charts(*drawn))))
