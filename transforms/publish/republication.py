"""Publish a dataset again whose shards were written anew: its manifest is last.

Near-duplicates that have left the dataset stay listed, and their split becomes null. The groups
stay: they are of the images that the build found in INPUT. The statistics of the splits are counted
again, and examples of shared groups stay as long as both images are in the dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import BuildError, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary, read_index, read_summary
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.parquet import read_rows
from shardwright.format.splits import SplitInfo
from shardwright.format.stats_keys import Leak
from shardwright.format.superseded import as_stored
from shardwright.storage.folder import Folder
from shardwright.transforms.plan.size_errors import RECORD_BYTES
from shardwright.transforms.promotion import with_stated_etags
from shardwright.transforms.publish.companions import companion_files
from shardwright.transforms.publish.found_statistics import (
    sample_of,
    with_found,
    with_stats,
    without_found,
)
from shardwright.transforms.publish.near_duplicates import NEAR_KEYS, NEAR_LEAKS, NEAR_RECORDS
from shardwright.transforms.publish.report_file import report_bytes
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.splits.balance import label_deviations
from shardwright.transforms.staged_files import (
    Change,
    discard_staged,
    read_change,
    staged_folder,
)


def finish_change(root: Folder) -> bool:
    """Make a noted change of a dataset to its end, and discard any other staged files.

    Every step can be repeated, so a crash at any of them is made good by the next call.

    Args:
        root: The dataset's folder.

    Returns:
        True if there was a change.

    Raises:
        BuildError: Files of the dataset are in `next/`.
        NotADatasetError: The folder has no finished dataset.
        StorageError: A file cannot be read or written.
    """
    change = read_change(root)
    if change is not None:
        manifest = read_manifest(root)
        if manifest.folder:
            raise BuildError(
                f"a build is replacing the dataset at {root}: run its command again first"
            )
        for name in change.files:
            staged_folder(root).copy(name, root)
        root.remove_all(change.removed)
        republish(root, _with_change(root, manifest, change), change.shards, change.rejects)
    discard_staged(root)
    return change is not None


def _with_change(root: Folder, manifest: Manifest, change: Change) -> Manifest:
    """Return the manifest without what the change takes out, and with changed lists."""
    gone = {*change.removed, *(name for name in change.files if name in manifest.files)}
    files = {name: content for name, content in manifest.files.items() if name not in gone}
    for name in gone.difference(change.removed):
        files[name] = FileContent.of(root.read_bytes(name))
    schema = manifest.schema.without_names(change.names) if change.names else manifest.schema
    erased = (*manifest.erased, *change.erased)
    return replace(manifest, schema=schema, files=files, erased=erased)


def republish(
    root: Folder, manifest: Manifest, shards: Collection[str], rejects: Mapping[str, int]
) -> Manifest:
    """Write the companions and the manifest of a dataset with these new shards in place.

    Args:
        root: The dataset's folder.
        manifest: Its manifest, which still states the old shards.
        shards: The file names of the new shards.
        rejects: Number of rejects of the whole dataset by reason.

    Raises:
        StorageError: An index is missing or damaged, or a file cannot be written.
    """
    manifest = _with_shards(root, manifest, set(shards), rejects)
    manifest = with_stated_etags(root, manifest, shards)
    pictures = sample_of(root, manifest)
    manifest = with_relisted(root, with_found(root, manifest, pictures))
    companions = companion_files(manifest)
    companions[naming.REPORT] = report_bytes(root, manifest, None, pictures)
    for name, data in companions.items():
        root.write_if_new(name, as_stored(root, name, data))
    contents = {name: FileContent.of(data) for name, data in companions.items()}
    manifest = replace(manifest, files={**manifest.files, **contents})
    root.write_if_new(naming.MANIFEST, manifest.to_bytes())
    return manifest


def _with_shards(
    root: Folder, manifest: Manifest, changed: set[str], rejects: Mapping[str, int]
) -> Manifest:
    """Return the manifest with new shards; what is found by reading them is still missing."""
    files = dict(manifest.files)
    splits = {name: _split_of(root, manifest, name, changed, files) for name in manifest.splits}
    if manifest.settings.get("stratify"):
        labels = {name: split.stats["labels"] for name, split in splits.items()}
        splits = with_stats(splits, "label_deviation", label_deviations(labels))
    num_records = sum(split.num_records for split in splits.values())
    return replace(
        manifest,
        splits=splits,
        files=files,
        rejects=dict(sorted(rejects.items())),
        num_inputs=num_records + sum(rejects.values()),
    )


def _split_of(
    root: Folder, manifest: Manifest, split: str, changed: set[str], files: dict[str, FileContent]
) -> SplitInfo:
    """Return a split with its new shards; update the contents of their files."""
    before = manifest.splits[split]
    named = manifest.named_shards(split)
    if changed.isdisjoint(name.shard for name, _ in named):
        return replace(before, stats={**without_found(before.stats), **_kept(before)})
    written, infos = WrittenShards(), []
    for name, info in named:
        summary = read_summary(root, name)
        if summary is None:
            raise StorageError(f"{root.path(name.sidecar)} is missing or damaged")
        written.add(summary)
        if name.shard in changed:
            infos.append(written.infos[split][-1])
            _state_files(root, summary, files)
        else:
            infos.append(info)  # its etag may be that of a copy, which its index does not have
    stats = {**written.stats[split].to_json(), **_kept(before)}
    if RECORD_BYTES in stats:
        records, num_bytes = sum(i.num_records for i in infos), sum(i.num_bytes for i in infos)
        told = {"written": round(num_bytes / max(records, 1), 1)}
        stats[RECORD_BYTES] = {**stats[RECORD_BYTES], **told}
    return SplitInfo(split, tuple(infos), stats)


def _state_files(root: Folder, summary: ShardSummary, files: dict[str, FileContent]) -> None:
    """Update the contents of the files of rejects and signals of a new shard."""
    name = summary.name
    files.pop(name.rejects, None)
    files.pop(name.signals, None)
    if summary.rejects:
        files[name.rejects] = FileContent.of(root.read_bytes(name.rejects))
    if summary.signals_file is not None:
        files[name.signals] = summary.signals_file


def _kept(split: SplitInfo) -> dict[str, Any]:
    """Return the statistics of a split that do not follow from its shards."""
    keys = (RECORD_BYTES, *NEAR_KEYS)
    return {key: split.stats[key] for key in keys if key in split.stats}


def with_relisted(root: Folder, manifest: Manifest) -> Manifest:
    """Write the list of near-duplicates, if there is one, and return the manifest that states it.

    Args:
        root: The dataset's folder, with all shards in place.
        manifest: Its manifest; its statistics may be those from before records have left.

    Raises:
        StorageError: The list or an index cannot be read.
    """
    if naming.NEAR_DUPLICATES not in manifest.files:
        return manifest
    rows = _with_splits(root, manifest, read_rows(root, naming.NEAR_DUPLICATES))
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd")
    data = buffer.getvalue().to_pybytes()
    root.write_if_new(naming.NEAR_DUPLICATES, data)
    found = _statistics(manifest, rows)
    splits = {}
    for name, split in manifest.splits.items():
        others = {key: value for key, value in split.stats.items() if key not in NEAR_KEYS}
        splits[name] = replace(split, stats={**others, **found[name]})
    files = {**manifest.files, naming.NEAR_DUPLICATES: FileContent.of(data)}
    return replace(manifest, splits=splits, files=files)


def _with_splits(root: Folder, manifest: Manifest, rows: pa.Table) -> pa.Table:
    """Return the list without the split of images that are not in the dataset any more."""
    listed = rows["id"].combine_chunks()
    stored = pa.array([], pa.string())
    for name, _ in manifest.named_shards():
        ids = read_index(root, name, ["id"])["id"].combine_chunks()
        stored = pa.concat_arrays([stored, ids.filter(pc.is_in(ids, value_set=listed))])
    gone = pc.invert(pc.is_in(rows["id"], value_set=stored))
    splits = pc.if_else(gone, pa.scalar(None, pa.string()), rows["split"])
    place = rows.schema.get_field_index("split")
    return rows.set_column(place, rows.schema.field("split"), splits)


def _statistics(manifest: Manifest, rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the keys of each split's statistics, as a build counts them."""
    names = list(manifest.splits)
    numbers = pc.index_in(rows["split"], value_set=pa.array(names, pa.string()))
    numbers = numbers.fill_null(-1).to_numpy()
    groups = rows["group"].to_numpy()
    num_groups = int(groups.max()) + 1 if len(groups) else 0
    places = (groups * len(names) + numbers)[numbers >= 0]
    counts = np.bincount(places, minlength=num_groups * len(names)).reshape(-1, len(names))
    shared = counts.T @ (counts > 0)
    there = set(rows["id"].filter(pc.is_valid(rows["split"])).to_pylist())
    found: dict[str, dict[str, Any]] = {}
    for here, name in enumerate(names):
        old = manifest.splits[name].stats.get(NEAR_LEAKS, {})
        leaks = {
            other: Leak(int(shared[here, number]), 0, _examples(old.get(other, {}), there))
            for number, other in enumerate(names)
            if number != here and shared[here, number]
        }
        found[name] = {NEAR_RECORDS: int(counts[:, here].sum())}
        if leaks:
            found[name][NEAR_LEAKS] = {other: leak.to_json() for other, leak in leaks.items()}
    return found


def _examples(leak: dict[str, Any], there: set[str]) -> tuple[tuple[str, str], ...]:
    pairs = (tuple(pair) for pair in leak.get("examples", ()))
    return tuple((mine, other) for mine, other in pairs if mine in there and other in there)
