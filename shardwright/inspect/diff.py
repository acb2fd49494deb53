"""The command `diff`: compare two datasets by schema, classes, splits, records by id, and drift."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

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
from shardwright.inspect.record_changes import (
    CHANGES,
    EXAMINED,
    NUMBERS,
    RecordChanges,
    can_compare_hashes,
    changed_features,
    compare_rows,
    measured,
    number_drift,
    read_rows,
    share_drift,
)
from shardwright.inspect.views import TableView, as_text, names, numbers, sizes, texts
from shardwright.sizes import counted
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines, print_safely, say

# The names that --fail-on knows: percentages are of the old records, of "new" and "rejects" of the
# new records and inputs.
LIMITED = ("drift", *CHANGES, "rejects")
PERCENTAGES = LIMITED[1:]
_EXAMPLES = 5
_DESCRIBED = ("name", "version", "num_records", "num_bytes")
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
    summary = known | {
        "records": {"same": changes.num_same, **records},
        "examples": {
            name: changes.of(name, _EXAMPLES)["id"].to_pylist() for name in records if records[name]
        },
        "features": changed_features(old, new, changes),
        "drift": known["drift"] | _number_drift(*rows),
    }
    return Difference(summary, changes)


def compare_manifests(old: OpenedDataset, new: OpenedDataset) -> dict[str, Any]:
    """Return the part of the summary that needs no index, for datasets of any size."""
    before, after = old.manifest, new.manifest
    there, here = (_counts(manifest, *manifest.splits) for manifest in (before, after))
    drift = share_drift(there, here)
    return {
        "old": _describe(old),
        "new": _describe(new),
        "schema": _compare_schemas(before.schema, after.schema),
        "classes": _compare_names(before.schema.class_names, after.schema.class_names),
        "class_counts": {name: [there[name], here[name]] for name in {**there, **here}},
        "splits": {
            name: {
                "records": [
                    side.splits[name].num_records if name in side.splits else 0
                    for side in (before, after)
                ],
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
        csv.write_csv(pa.concat_tables(map(changes.of, changes.rows)), local_path(path))
    except OSError as error:
        raise StorageError(f"--ids {path} cannot be written: {error}") from error


def _describe(dataset: OpenedDataset) -> dict[str, Any]:
    known = {name: getattr(dataset.manifest, name) for name in _DESCRIBED}
    return {"dataset": dataset.root.uri, **known}


def _compare_schemas(old: ExampleSchema, new: ExampleSchema) -> dict[str, Any]:
    before = {feature.name: feature.to_json() for feature in old.features}
    after = {feature.name: feature.to_json() for feature in new.features}
    return {
        "added": [after[name] for name in after if name not in before],
        "removed": [before[name] for name in before if name not in after],
        "changed": [{"old": one, "new": other} for one, other in _unequal(before, after).values()],
    }


def _compare_names(old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
    before, after = ({name: n for n, name in enumerate(names)} for names in (old, new))
    return {
        "added": [name for name in new if name not in before],
        "removed": [name for name in old if name not in after],
        "renumbered": _unequal(before, after),
    }


def _unequal(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return both values of the keys whose values differ."""
    return {
        name: [value, after[name]]
        for name, value in before.items()
        if name in after and after[name] != value
    }


def _counts(manifest: Manifest, *splits: str) -> Counter[str]:
    """Return the records per class of some splits, by name or, without names, by number."""
    counts: Counter[str] = Counter()
    known = manifest.schema.class_names
    for info in (manifest.splits[name] for name in splits if name in manifest.splits):
        for label, number in info.stats.get("labels", {}).items():
            counts[known[int(label)] if known else label] += number
    return counts


def measure_drift(old: OpenedDataset, new: OpenedDataset) -> dict[str, float]:
    """Return the drift of classes, image sizes and lengths; reads these columns of both indexes.

    Raises:
        StorageError: An index cannot be read.
    """
    rows = (read_rows(*dataset, NUMBERS) for dataset in (old, new))
    return compare_manifests(old, new)["drift"] | _number_drift(*rows)


def _number_drift(before: pa.Table, after: pa.Table) -> dict[str, float]:
    """Return the drift of each size and length that both datasets have, all splits together."""
    drift = {name: number_drift(measured(before, name), measured(after, name)) for name in NUMBERS}
    return {name: found for name, found in drift.items() if found is not None}


def format_difference(summary: Mapping[str, Any]) -> str:
    """Return the summary of `compare` as lines of text."""
    rows = [[which, *summary[which].values()] for which in ("old", "new")]
    columns = (texts(""), *map(names, ("dataset", *_DESCRIBED[:2])), numbers("records"))
    views = [TableView("Datasets", (*columns, sizes("bytes")), rows), *difference_views(summary)]
    return "\n\n".join(join_lines(lines) for lines in map(as_text, views) if lines)


def difference_views(summary: Mapping[str, Any]) -> list[TableView]:
    """Return the tables of `compare` or `compare_manifests`; those without changes are empty."""
    old, new = summary["rejects"]["old"], summary["rejects"]["new"]
    rejects = [[reason, old.get(reason, 0), new.get(reason, 0)] for reason in {**old, **new}]
    splits = [
        [name, *each["records"], each["class_drift"]] for name, each in summary["splits"].items()
    ]
    drift = [[name, round(found, 4)] for name, found in summary["drift"].items()]
    both = (numbers("before"), numbers("now"))
    return [
        *_record_views(summary),
        TableView("Drift, from 0 to 1", (texts("property"), numbers("drift")), drift),
        TableView("Splits", (names("split"), *both, numbers("drift of classes")), splits),
        _schema_view(summary["schema"], summary["classes"]),
        _share_view(summary["class_counts"]),
        TableView("Rejects", (texts("reason"), *both), rejects),
    ]


def _record_views(summary: Mapping[str, Any]) -> list[TableView]:
    """Return the tables that only `compare` has: it reads the indexes."""
    if "records" not in summary:
        return []
    counts, examples, features = summary["records"], summary["examples"], summary["features"]
    rows = []
    for change, number in counts.items():
        ids = examples.get(change, [])
        more = ", ..." if ids and number > len(ids) else ""
        rows.append([change, number, ", ".join(ids) + more])
    examined = counted(min(counts["reannotated"], EXAMINED), "reannotated record")
    return [
        TableView("Records", (texts("change"), numbers("records"), names("examples")), rows),
        TableView(
            f"Features that differ in {examined}",
            (names("feature"), numbers("records")),
            list(features.items()),
        ),
    ]


def _schema_view(schema: Mapping[str, Any], classes: Mapping[str, Any]) -> TableView:
    rows = [
        ["feature", change, each["name"], json.dumps(each)]
        for change in ("added", "removed")
        for each in schema[change]
    ]
    for old, new in ((pair["old"], pair["new"]) for pair in schema["changed"]):
        rows.append(["feature", "changed", new["name"], f"{json.dumps(old)} to {json.dumps(new)}"])
    rows += [
        ["class", change, each, ""] for change in ("added", "removed") for each in classes[change]
    ]
    for name, (before, now) in classes["renumbered"].items():
        rows.append(["class", "renumbered", name, f"{before} to {now}"])
    columns = (texts("what"), texts("change"), names("name"), names("details"))
    return TableView("Schema and classes", columns, rows)


def _share_view(counts: Mapping[str, list[int]]) -> TableView:
    """Return the classes whose shares of all records changed, the largest change first."""
    before, after = (max(sum(pair[side] for pair in counts.values()), 1) for side in (0, 1))
    changes = {
        name: new / after - old / before
        for name, (old, new) in counts.items()
        if old * after != new * before
    }
    by_change = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    rows = [[name, *counts[name], round(changes[name], 5)] for name in by_change]
    columns = (names("class"), numbers("before"), numbers("now"), numbers("change of its share"))
    return TableView("Classes whose share changed", columns, rows)


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
