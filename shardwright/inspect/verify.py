"""Verify a dataset: all files against the manifest, and every checksum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import numpy as np

from shardwright.format import naming
from shardwright.format.example import parse_example
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.records import read_record
from shardwright.format.schema import Source
from shardwright.format.splits import SplitInfo
from shardwright.inspect.companion_check import check_companions, find_strays, find_unchecked
from shardwright.inspect.example_check import one_value
from shardwright.inspect.faults import DatasetFault, Verification, limit_faults
from shardwright.inspect.shard_check import ShardCheck, ShardChecker
from shardwright.inspect.version_check import verify_versions
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions

DEFAULT_THREADS = 2
_Place = tuple[str, int, int]  # file, record, offset


def verify(
    dataset: str,
    *,
    threads: int = DEFAULT_THREADS,
    progress: Callable[[int, int], None] | None = None,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
    newest: bool = False,
) -> Verification:
    """Check a dataset in bounded memory: the generations and files of all versions, and the pins.

    Takes the memory of a record and an index per thread, and 24 bytes per record for its id.

    Args:
        dataset: Its folder.
        threads: Number of shards checked at the same time.
        progress: Called after each shard with the number of checked shards and of all shards.
        storage_options: As for `shardwright.open`. A shard in a store is downloaded to a temporary
            file.
        newest: Check the generations of the newest version alone.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: The folder cannot be read. A single unreadable file is a fault instead.
    """
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    return verify_versions(
        root, lambda folder: verify_built(folder, threads, progress), newest=newest
    )


def verify_built(
    folder: Folder,
    threads: int = DEFAULT_THREADS,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check a dataset, or a generation of one, against the manifest in its folder.

    Arguments and errors as of `verify`.
    """
    started = monotonic()
    manifest = read_manifest(folder)
    root = folder.below(manifest.folder)
    faults = list(check_companions(root, manifest))
    checks = list(_check_shards(root, manifest, threads, progress))
    faults += [fault for check in checks for fault in check.faults]
    faults += _label_count_faults(manifest, checks)
    faults += limit_faults(_find_duplicates(root, manifest, checks))
    return Verification(
        dataset=folder.uri,
        num_shards=len(checks),
        num_records=sum(check.num_records for check in checks),
        num_bytes=sum(check.num_bytes for check in checks),
        seconds=monotonic() - started,
        faults=tuple(faults),
        notes=(*find_unchecked(manifest), *find_strays(root, manifest)),
    )


def _check_shards(
    root: Folder, manifest: Manifest, threads: int, progress: Callable[[int, int], None] | None
) -> Iterator[ShardCheck]:
    checker = ShardChecker(root, manifest)
    shards = manifest.named_shards()
    with ThreadPoolExecutor(threads, thread_name_prefix="shardwright-verify") as pool:
        for done, check in enumerate(
            pool.map(lambda shard: checker.check(*shard), shards), start=1
        ):
            yield check
            if progress is not None:
                progress(done, len(shards))


def _label_count_faults(manifest: Manifest, checks: Sequence[ShardCheck]) -> Iterator[DatasetFault]:
    """Yield wrong label statistics of the manifest, only for splits without other faults."""
    for split in manifest.splits.values():
        mine = [check for check in checks if check.name.split == split.name]
        if "labels" not in split.stats or any(check.faults for check in mine):
            continue
        counts: Counter[int] = sum((check.labels for check in mine), Counter())
        differing = _differing_labels(split, counts)
        if differing:
            what = (
                f"the label statistics of split {split.name!r} differ from its records: {differing}"
            )
            yield DatasetFault.of_file(naming.MANIFEST, what)


def _differing_labels(split: SplitInfo, counts: Counter[int]) -> str:
    stated = Counter({int(label): number for label, number in split.stats["labels"].items()})
    labels = [label for label in sorted({*stated, *counts}) if stated[label] != counts[label]]
    return ", ".join(
        f"{stated[label]} instead of {counts[label]} of label {label}" for label in labels[:3]
    )


def _find_duplicates(
    root: Folder, manifest: Manifest, checks: Sequence[ShardCheck]
) -> Iterator[DatasetFault]:
    """Yield duplicate ids; rereads the ids with equal hashes, since the hashes may collide."""
    hashes = np.concatenate(
        [np.zeros(0, np.int64), *(np.asarray(check.id_hashes, np.int64) for check in checks)]
    )
    hashes.sort()
    doubled = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    if not len(doubled):
        return
    first: dict[bytes, _Place] = {}
    for check in checks:
        suspects = np.flatnonzero(np.isin(np.asarray(check.id_hashes, np.int64), doubled))
        for example_id, place in _read_ids(root, manifest, check, suspects.tolist()):
            there = first.setdefault(example_id, place)
            if there != place:
                what = (
                    f"the id {example_id.decode('utf-8', 'backslashreplace')!r} is also that of "
                    f"record {there[1]} of {there[0]}"
                )
                yield DatasetFault(*place, what)


def _read_ids(
    root: Folder, manifest: Manifest, check: ShardCheck, positions: Sequence[int]
) -> Iterator[tuple[bytes, _Place]]:
    """Yield id and location of some records, which were parsed without a fault before."""
    if not positions:
        return
    feature = manifest.schema.find(Source.ID)
    with root.local_copy(check.name.shard) as file:
        for position in positions:
            offset = check.id_offsets[position]
            file.seek(offset)
            span = read_record(file, offset)
            example_id = one_value(parse_example(span.data), feature) if span is not None else None
            if isinstance(example_id, bytes):
                yield example_id, (check.name.shard, check.id_records[position], offset)
