"""Compare two datasets: schema, classes, splits, records by id, and drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shardwright.errors import StorageError
from shardwright.fail_on import Measured
from shardwright.format.manifest import Manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.schema import ExampleSchema
from shardwright.format.versions import read_version
from shardwright.inspect.drift import number_drift, share_drift
from shardwright.inspect.feature_changes import can_compare_hashes, changed_features
from shardwright.inspect.proposed_version import propose_version
from shardwright.inspect.record_changes import (
    CHANGES,
    CHANGES_SCHEMA,
    NUMBERS,
    DatasetRows,
    RecordChanges,
    compare_rows,
    read_rows,
)
from shardwright.inspect.signal_statistics import signal_drift
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder

# The names that --fail-on knows: percentages are of the old records, of "new" and "rejects" of the
# new records and inputs.
LIMITED = ("drift", *CHANGES, "rejects")
PERCENTAGES = LIMITED[1:]
_EXAMPLES = 5


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
        "proposed_version": propose_version(
            before.version, records, known["schema"], known["classes"]
        ),
    }
    return Difference(summary, changes)


def compare_manifests(old: OpenedDataset, new: OpenedDataset) -> dict[str, Any]:
    """Return the part of the summary that needs no index, for datasets of any size."""
    before, after = old.manifest, new.manifest
    drift = share_drift(_counts(before), _counts(after))
    return {
        "old": _describe(old),
        "new": _describe(new),
        "schema": _compare_schemas(before.schema, after.schema),
        "classes": _compare_names(before.schema.class_names, after.schema.class_names),
        "class_counts": _class_counts(before, after),
        "splits": _compare_splits(before, after),
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


def _compare_splits(old: Manifest, new: Manifest) -> dict[str, Any]:
    names = [*old.splits, *(name for name in new.splits if name not in old.splits)]
    return {
        name: {
            "records": [_records(old, name), _records(new, name)],
            "class_drift": share_drift(_counts(old, name), _counts(new, name)),
        }
        for name in names
    }


def _records(manifest: Manifest, split: str) -> int:
    return manifest.splits[split].num_records if split in manifest.splits else 0


def _class_counts(old: Manifest, new: Manifest) -> dict[str, list[int]]:
    """Return the records of each class in both datasets, all splits together."""
    before, after = _counts(old), _counts(new)
    return {name: [before.get(name, 0), after.get(name, 0)] for name in {**before, **after}}


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
        **signal_drift(old, new),
    }
    return {name: drift for name, drift in found.items() if drift is not None}
