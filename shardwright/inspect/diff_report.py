"""Show the difference of two datasets as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardwright.inspect.describe import table_lines
from shardwright.inspect.feature_changes import EXAMINED
from shardwright.inspect.proposed_version import format_proposal
from shardwright.inspect.record_changes import CHANGES
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines

_SHOWN_CLASSES = 10
_Rows = list[tuple[str, ...]]


def format_difference(summary: Mapping[str, Any]) -> str:
    """Return the summary of `diff.compare` as lines of text."""
    parts = [
        table_lines([_dataset_row("old", summary), _dataset_row("new", summary)]),
        ["records", *table_lines(_record_rows(summary))],
        _feature_lines(summary),
        ["splits", *table_lines(_split_rows(summary["splits"]))],
        ["schema", *table_lines(_schema_rows(summary["schema"]))],
        ["classes", *table_lines(_class_rows(summary["classes"]))],
        _share_lines(summary["class_counts"]),
        ["rejects", *table_lines(_reject_rows(summary["rejects"]))],
        ["drift, from 0 (none) to 1", *table_lines(_drift_rows(summary["drift"]))],
        [format_proposal(summary["proposed_version"])],
    ]
    return "\n\n".join(join_lines(lines) for lines in parts if lines)


def _dataset_row(which: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    found = summary[which]
    records = f"{counted(found['num_records'], 'record')}, {show_bytes(found['num_bytes'])}"
    return (which, found["dataset"], f"{found['name']} {found['version']}", records)


def _record_rows(summary: Mapping[str, Any]) -> _Rows:
    counts, examples = summary["records"], summary["examples"]
    rows: _Rows = [("same", f"{counts['same']:,}", "")]
    for change in CHANGES:
        ids = examples.get(change, [])
        more = ", ..." if counts[change] > len(ids) else ""
        rows.append((change, f"{counts[change]:,}", ", ".join(ids) + more))
    return rows


def _feature_lines(summary: Mapping[str, Any]) -> list[str]:
    if not summary["features"]:
        return []
    examined = min(summary["records"]["reannotated"], EXAMINED)
    rows: _Rows = [(name, f"{number:,}") for name, number in summary["features"].items()]
    told = counted(examined, "reannotated record")
    return [f"features that differ in {told}", *table_lines(rows)]


def _split_rows(splits: Mapping[str, Any]) -> _Rows:
    rows: _Rows = [("", "records before", "now", "drift of classes")]
    for name, found in splits.items():
        before, after = found["records"]
        drift = found["class_drift"]
        rows.append((name, f"{before:,}", f"{after:,}", "-" if drift is None else f"{drift:.4f}"))
    return rows


def _schema_rows(schema: Mapping[str, Any]) -> _Rows:
    rows: _Rows = [("added", json.dumps(feature)) for feature in schema["added"]]
    rows += [("removed", json.dumps(feature)) for feature in schema["removed"]]
    for pair in schema["changed"]:
        rows += [("changed", json.dumps(pair["old"])), ("to", json.dumps(pair["new"]))]
    return rows or [("same", "")]


def _class_rows(names: Mapping[str, Any]) -> _Rows:
    rows: _Rows = [
        (kind, f"{len(found):,}", ", ".join(list(found)[:_SHOWN_CLASSES]))
        for kind, found in names.items()
        if found
    ]
    return rows or [("same", "")]


def _share_lines(counts: Mapping[str, list[int]]) -> list[str]:
    """Return the classes whose shares of all records changed most."""
    before, after = (max(sum(pair[side] for pair in counts.values()), 1) for side in (0, 1))
    shares = {name: (pair[0] / before, pair[1] / after) for name, pair in counts.items()}
    by_change = sorted(shares, key=lambda name: -abs(shares[name][0] - shares[name][1]))
    rows: _Rows = [
        (
            name,
            f"{counts[name][0]:,} to {counts[name][1]:,}",
            f"{shares[name][0]:.2%} to {shares[name][1]:.2%}",
        )
        for name in by_change[:_SHOWN_CLASSES]
        if shares[name][0] != shares[name][1]
    ]
    return ["largest changes of class shares", *table_lines(rows)] if rows else []


def _reject_rows(rejects: Mapping[str, Any]) -> _Rows:
    old, new = rejects["old"], rejects["new"]
    rows: _Rows = [
        (reason, f"{old.get(reason, 0):,} to {new.get(reason, 0):,}") for reason in {**old, **new}
    ]
    return rows or [("none", "")]


def _drift_rows(drift: Mapping[str, float]) -> _Rows:
    return [(name, f"{found:.4f}") for name, found in drift.items()] or [("not measured", "")]
