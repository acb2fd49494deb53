"""The command `diff`: compare two datasets by schema, classes, splits, records by id, and drift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.errors import StorageError
from shardwright.fail_on import Measured, exceeded, parse_limits
from shardwright.format.manifest import Manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.schema import ExampleSchema
from shardwright.format.versions import read_version
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    add_version,
    command,
    make_parser,
    manifest_of,
    root_of,
    to_json,
)
from shardwright.inspect.describe import table_lines
from shardwright.inspect.drift import number_drift, share_drift
from shardwright.inspect.record_changes import (
    CHANGES,
    CHANGES_SCHEMA,
    EXAMINED,
    NUMBERS,
    DatasetRows,
    RecordChanges,
    can_compare_hashes,
    changed_features,
    compare_rows,
    read_rows,
)
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines, print_safely, say

# The names that --fail-on knows: percentages are of the old records, of "new" and "rejects" of the
# new records and inputs.
LIMITED = ("drift", *CHANGES, "rejects")
PERCENTAGES = LIMITED[1:]
_EXAMPLES = 5
_SHOWN_CLASSES = 10
_Rows = list[tuple[str, ...]]
_EPILOG = """\
examples
  shardwright diff monday/ tuesday/
  shardwright diff s3://bucket/monday s3://bucket/tuesday --fail-on 'drift>0.1,gone>0,changed>1%'
  shardwright diff monday/ tuesday/ --ids changes.csv

A record is the same if its id, split, class, image (by length and checksum) and other features (by
the hash in the index) are; a record without an image is compared by its length, too. Hashes of
further images and of results of --transform are of their inputs: they are compared only between
versions of one dataset. Reads the manifests and indexes, and at most 100 reannotated records, to
name the features that differ. Holds the ids of both in memory.

The drift of classes is half the sum of the differences of their shares (total variation); that of
width, height and image_length the largest difference of their cumulative shares (Kolmogorov-
Smirnov). Both are 0 for equal distributions and 1 for disjoint ones. --fail-on compares the largest
of them, all splits together.

Exit codes: 0 compared, 1 a limit of --fail-on exceeded or an index unreadable, 2 wrong usage or not
a dataset.
"""


class OpenedDataset(NamedTuple):
    """A dataset's folder and manifest."""

    root: Folder
    manifest: Manifest

    @classmethod
    def at(cls, root: Folder) -> OpenedDataset:
        return cls(root, read_version(root))


class Difference(NamedTuple):
    """The differences as `shardwright diff --json` prints them, and the records behind them."""

    summary: dict[str, Any]
    changes: RecordChanges


def compare(old: OpenedDataset, new: OpenedDataset) -> Difference:
    """Compare two datasets; reads their manifests and indexes, and few records.

    Raises:
        StorageError: An index cannot be read.
    """
    before, after = old.manifest, new.manifest
    rows = read_rows(*old), read_rows(*new)
    names = (before.schema.class_names, after.schema.class_names)
    changes = compare_rows(*rows, names, with_features=can_compare_hashes(old, new))
    records = {change: len(found) for change, found in changes.rows.items()}
    known = compare_manifests(old, new)
    summary = {
        "old": known.pop("old"),
        "new": known.pop("new"),
        "records": {"same": changes.num_same, **records},
        "examples": {name: changes.first_ids(name, _EXAMPLES) for name in records if records[name]},
        "features": changed_features(old, new, changes),
        **known,
        "drift": _drift(before, after, *rows),
    }
    return Difference(summary, changes)


def compare_manifests(old: OpenedDataset, new: OpenedDataset) -> dict[str, Any]:
    """Return the part of the summary that needs no index, for datasets of any size."""
    before, after = old.manifest, new.manifest
    there, here = _counts(before), _counts(after)
    drift = share_drift(there, here)
    return {
        "old": _describe(old),
        "new": _describe(new),
        "schema": _compare_schemas(before.schema, after.schema),
        "classes": _compare_names(before.schema.class_names, after.schema.class_names),
        "class_counts": {
            name: [there.get(name, 0), here.get(name, 0)] for name in {**there, **here}
        },
        "splits": {
            name: {
                "records": [_records(before, name), _records(after, name)],
                "class_drift": share_drift(_counts(before, name), _counts(after, name)),
            }
            for name in {**before.splits, **after.splits}
        },
        "rejects": {"old": dict(before.rejects), "new": dict(after.rejects)},
        "drift": {} if drift is None else {"classes": drift},
    }


def measured_values(difference: Difference, new: Manifest) -> dict[str, Measured]:
    """Return the values that `--fail-on` compares with its limits, by name."""
    summary = difference.summary
    wholes = dict.fromkeys(CHANGES, summary["old"]["num_records"]) | {"new": new.num_records}
    return {
        "drift": Measured(max(summary["drift"].values(), default=0.0)),
        **{name: Measured(summary["records"][name], wholes[name]) for name in CHANGES},
        "rejects": Measured(*RejectShare.of(new.rejects, new.num_records)),
    }


def write_ids(changes: RecordChanges, path: str) -> None:
    """Write the ids of all changes to a local CSV file with the columns change, split and id.

    Raises:
        StorageError: The file cannot be written.
    """
    from pyarrow import csv

    try:
        with csv.CSVWriter(local_path(path), CHANGES_SCHEMA) as writer:
            for table in changes.tables():
                writer.write_table(table)
    except OSError as error:
        raise StorageError(f"--ids {path} cannot be written: {error}") from error


def _describe(dataset: OpenedDataset) -> dict[str, Any]:
    manifest = dataset.manifest
    return {
        "dataset": dataset.root.uri,
        "name": manifest.name,
        "version": manifest.version,
        "num_records": manifest.num_records,
        "num_bytes": manifest.num_bytes,
    }


def _compare_schemas(old: ExampleSchema, new: ExampleSchema) -> dict[str, Any]:
    before = {feature.name: feature.to_json() for feature in old.features}
    after = {feature.name: feature.to_json() for feature in new.features}
    return {
        "added": [after[name] for name in after if name not in before],
        "removed": [before[name] for name in before if name not in after],
        "changed": [
            {"old": before[name], "new": after[name]}
            for name in before
            if name in after and before[name] != after[name]
        ],
    }


def _compare_names(old: tuple[str, ...], new: tuple[str, ...]) -> dict[str, Any]:
    before = {name: number for number, name in enumerate(old)}
    after = {name: number for number, name in enumerate(new)}
    return {
        "added": [name for name in new if name not in before],
        "removed": [name for name in old if name not in after],
        "renumbered": {
            name: [before[name], after[name]]
            for name in old
            if name in after and before[name] != after[name]
        },
    }


def _records(manifest: Manifest, split: str) -> int:
    return manifest.splits[split].num_records if split in manifest.splits else 0


def _counts(manifest: Manifest, split: str | None = None) -> dict[str, int]:
    """Return the records per class, by name or, without names, by number."""
    counts: dict[str, int] = {}
    for name, info in manifest.splits.items():
        if split in (None, name):
            for label, number in info.stats.get("labels", {}).items():
                known = manifest.schema.class_names
                key = known[int(label)] if known else label
                counts[key] = counts.get(key, 0) + number
    return counts


def measure_drift(old: OpenedDataset, new: OpenedDataset) -> dict[str, float]:
    """Return the drift of classes, image sizes and lengths; reads these columns of both indexes.

    Raises:
        StorageError: An index cannot be read.
    """
    rows = (read_rows(*dataset, NUMBERS) for dataset in (old, new))
    return _drift(old.manifest, new.manifest, *rows)


def _drift(
    old: Manifest, new: Manifest, before: DatasetRows, after: DatasetRows
) -> dict[str, float]:
    """Return the drift of each property that both datasets have, all splits together."""
    found: Mapping[str, float | None] = {
        "classes": share_drift(_counts(old), _counts(new)),
        **{name: number_drift(before.measured(name), after.measured(name)) for name in NUMBERS},
    }
    return {name: drift for name, drift in found.items() if drift is not None}


def format_difference(summary: Mapping[str, Any]) -> str:
    """Return the summary of `compare` as lines of text."""
    drift: _Rows = [(name, f"{found:.4f}") for name, found in summary["drift"].items()]
    classes: _Rows = [
        (kind, f"{len(found):,}", ", ".join(list(found)[:_SHOWN_CLASSES]))
        for kind, found in summary["classes"].items()
        if found
    ]
    examined = counted(min(summary["records"]["reannotated"], EXAMINED), "reannotated record")
    features: _Rows = [(name, f"{number:,}") for name, number in summary["features"].items()]
    old, new = summary["rejects"]["old"], summary["rejects"]["new"]
    rejects: _Rows = [
        (reason, f"{old.get(reason, 0):,} to {new.get(reason, 0):,}") for reason in {**old, **new}
    ]
    parts = [
        table_lines([_dataset_row("old", summary), _dataset_row("new", summary)]),
        ["records", *table_lines(_record_rows(summary))],
        [f"features that differ in {examined}", *table_lines(features)] if features else [],
        ["splits", *table_lines(_split_rows(summary["splits"]))],
        ["schema", *table_lines(_schema_rows(summary["schema"]))],
        ["classes", *table_lines(classes or [("same", "")])],
        _share_lines(summary["class_counts"]),
        ["rejects", *table_lines(rejects or [("none", "")])],
        ["drift, from 0 (none) to 1", *table_lines(drift or [("not measured", "")])],
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


@command
def diff_command(argv: Sequence[str]) -> int:
    """Run `shardwright diff` and return its exit code."""
    parser = make_parser(
        "diff", "Compare a dataset with a newer one: records, classes, schema, drift.", _EPILOG
    )
    parser.add_argument("newer", metavar="NEWER", help="the newer dataset's folder")
    add_version(parser)
    parser.add_argument(
        "--fail-on",
        metavar="LIMITS",
        help=f"exit with 1 above a limit, such as 'drift>0.1,gone>1%%'; names: "
        f"{', '.join(LIMITED)}",
    )
    parser.add_argument(
        "--ids", metavar="FILE", help="write the ids of all changes to a CSV file: change,split,id"
    )
    args = parser.parse_args(argv)
    limits = parse_limits(args.fail_on or "", LIMITED, PERCENTAGES)
    old = OpenedDataset(root_of(args), manifest_of(args))
    new = OpenedDataset.at(root_of(args, args.newer))
    found = compare(old, new)
    print_safely(to_json(found.summary) if args.json else format_difference(found.summary))
    if args.ids is not None:
        write_ids(found.changes, args.ids)
    above = exceeded(limits, measured_values(found, new.manifest))
    for line in above:
        say(f"--fail-on {line}")
    return EXIT_FAULTS if above else EXIT_DONE
