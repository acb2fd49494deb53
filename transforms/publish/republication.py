"""Publish a dataset again whose shards were written anew: its manifest is last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from shardwright.errors import BuildError, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary, read_summary
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.splits import SplitInfo
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
from shardwright.transforms.publish.near_duplicates import NEAR_KEYS
from shardwright.transforms.publish.relisted_duplicates import with_relisted
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
