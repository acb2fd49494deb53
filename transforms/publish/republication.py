"""Publish a dataset again whose shards were written anew: its manifest is last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.index import read_summary
from shardwright.format.manifest import Manifest
from shardwright.format.splits import SplitInfo
from shardwright.format.stats_keys import NEAR_KEYS, RECORD_BYTES
from shardwright.storage.folder import Folder
from shardwright.transforms.promotion import with_stated_etags
from shardwright.transforms.publish.companions import companion_files, write_companions
from shardwright.transforms.publish.found_statistics import (
    sample_of,
    with_found,
    with_label_deviations,
    without_found,
)
from shardwright.transforms.publish.near_duplicates import with_relisted
from shardwright.transforms.publish.report_file import report_bytes
from shardwright.transforms.publish.written_shards import WrittenShards


def republish(root: Folder, manifest: Manifest, shards: Collection[str]) -> None:
    """Write the companions and the manifest of a dataset with these new shards in place.

    Args:
        root: The dataset's folder.
        manifest: Its manifest, which still states the old shards, but the files beside them.
        shards: The file names of the new shards.

    Raises:
        StorageError: An index is missing or damaged, or a file cannot be written.
    """
    splits = {name: _split_of(root, manifest, name, shards) for name in manifest.splits}
    manifest = with_label_deviations(replace(manifest, splits=splits))
    num_inputs = manifest.num_records + sum(manifest.rejects.values())
    manifest = with_stated_etags(root, replace(manifest, num_inputs=num_inputs), shards)
    pictures = sample_of(root, manifest)
    manifest = with_relisted(root, with_found(root, manifest, pictures))
    companions = companion_files(manifest)
    companions[naming.REPORT] = report_bytes(root, manifest, None, pictures)
    files = {**manifest.files, **write_companions(root, companions)}
    # Last, because it states all others.
    root.write_if_new(naming.MANIFEST, replace(manifest, files=files).to_bytes())


def _split_of(root: Folder, manifest: Manifest, split: str, changed: Collection[str]) -> SplitInfo:
    """Return a split with its new shards; what is found by reading them is still missing."""
    before, named = manifest.splits[split], manifest.named_shards(split)
    # What does not follow from the shards stays.
    kept = {key: before.stats[key] for key in (RECORD_BYTES, *NEAR_KEYS) if key in before.stats}
    # A split without new shards keeps its statistics: its indexes need not be read.
    if not any(name.shard in changed for name, _ in named):
        return replace(before, stats={**without_found(before.stats), **kept})
    written = WrittenShards()
    for name, _ in named:
        summary = read_summary(root, name)
        if summary is None:
            raise StorageError(f"{root.path(name.sidecar)} is missing or damaged")
        written.add(summary)
    # The etag of another shard may be that of a copy, which its index does not have.
    shards = tuple(
        new if name.shard in changed else old
        for (name, old), new in zip(named, written.infos[split], strict=True)
    )
    found = SplitInfo(split, shards, {**written.stats[split].to_json(), **kept})
    if RECORD_BYTES not in kept:
        return found
    size = {"written": round(found.num_bytes / max(found.num_records, 1), 1)}
    return replace(found, stats={**found.stats, RECORD_BYTES: {**kept[RECORD_BYTES], **size}})
