"""Verify a dataset: all files against the manifest, and every checksum.

`verify --quick` reads no shards, but compares file lengths and the store's checksums. GCS keeps the
CRC32C of every object, S3 only of objects that were uploaded with one. S3 checked the content at
upload, and an object's etag does not change unless its content does or it is copied; so an etag
equal to the one of the upload proves the content, too.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

import numpy as np

from shardwright.errors import LinkError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.example import parse_example
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import read_record
from shardwright.format.schema import Source
from shardwright.format.splits import ShardInfo
from shardwright.format.superseded import companion_content
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    command,
    make_parser,
    root_of,
    show_progress,
    to_json,
)
from shardwright.inspect.companion_check import check_companions, find_strays, find_unchecked
from shardwright.inspect.example_check import one_value
from shardwright.inspect.faults import DatasetFault, Verification, limit_faults
from shardwright.inspect.shard_check import ShardCheck, ShardChecker
from shardwright.inspect.version_check import verify_versions
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.terminal import print_safely

DEFAULT_THREADS = 2
_Place = tuple[str, int, int]  # file, record, offset
_BY_CHECKSUMS, _BY_LENGTHS = "the store's checksums", "lengths alone"
_EPILOG = """\
Checks the length and checksum of every shard; the frame, example, features, label and id of every
record; every row of the index; that ids are unique; and the class names, statistics, rejects,
features.json and dataset_info.json. Of a dataset that has grown, all of its versions are checked,
with their generations and files, and the pins; --newest checks the newest one alone. Prints each
fault as

  FILE: record N at byte OFFSET: WHAT

A note is not a fault: for example, a shard file that is not in the manifest.

Exit codes: 0 sound, 1 faults found, 2 not a dataset.
"""


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
    checker, shards = ShardChecker(root, manifest), manifest.named_shards()
    checks = []
    with ThreadPoolExecutor(threads, thread_name_prefix="shardwright-verify") as pool:
        for check in pool.map(lambda shard: checker.check(*shard), shards):
            checks.append(check)
            if progress is not None:
                progress(len(checks), len(shards))
    faults += [fault for check in checks for fault in check.faults]
    faults += _label_count_faults(manifest, checks)
    # After all shards, because the same id may be in two of them.
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


def _label_count_faults(manifest: Manifest, checks: Sequence[ShardCheck]) -> Iterator[DatasetFault]:
    """Yield wrong label statistics of the manifest, only for splits without other faults."""
    for split in manifest.splits.values():
        mine = [check for check in checks if check.name.split == split.name]
        if "labels" not in split.stats or any(check.faults for check in mine):
            continue
        counts: Counter[int] = sum((check.labels for check in mine), Counter())
        stated = Counter({int(label): number for label, number in split.stats["labels"].items()})
        labels = [label for label in sorted({*stated, *counts}) if stated[label] != counts[label]]
        if labels:
            differing = ", ".join(
                f"{stated[label]} instead of {counts[label]} of label {label}"
                for label in labels[:3]
            )
            what = f"the label statistics of split {split.name!r} differ from its records: "
            yield DatasetFault.of_file(naming.MANIFEST, what + differing)


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


def verify_quickly(dataset: Folder, *, threads: int = DEFAULT_THREADS) -> Verification:
    """Compare the lengths and checksums that the disk or store reports with the manifest.

    Args:
        dataset: The dataset's folder.
        threads: Number of concurrent requests for checksums that a store does not list.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: The folder cannot be listed.
    """
    started = monotonic()
    manifest = read_manifest(dataset)
    root = dataset.below(manifest.folder)
    stated = root.files(crc32c=True)
    unknown: list[str] = []
    shards = manifest.named_shards()

    def check(shard: tuple[ShardName, ShardInfo]) -> list[DatasetFault]:
        name, info = shard
        return list(_listed_shard_faults(root, name, info, stated.get(name.shard), unknown))

    faults = [fault for found in map_reads(check, shards, threads) for fault in found]
    faults += _faults_beside_shards(root, manifest, stated)
    return Verification(
        dataset=dataset.uri,
        num_shards=len(shards),
        num_records=0,
        num_bytes=0,
        seconds=monotonic() - started,
        faults=tuple(faults),
        notes=tuple(_notes(root, sorted(unknown), len(shards))),
        by=_BY_LENGTHS if len(unknown) == len(shards) else _BY_CHECKSUMS,
    )


def listed_faults(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Yield the faults of all files that listings show: their lengths, and checksums if listed.

    Raises:
        StorageError: The folder cannot be listed.
    """
    shards = {name.shard: info.content for name, info in manifest.named_shards()}
    whole = replace(manifest, files={**manifest.files, **shards})
    return _faults_beside_shards(root, whole, root.files(crc32c=True))


def _listed_shard_faults(
    root: Folder, name: ShardName, info: ShardInfo, found: FileInfo | None, unknown: list[str]
) -> Iterator[DatasetFault]:
    """Yield a shard's faults; append its name to `unknown` if the store has no checksum of it."""
    if found is None:
        what = f"the shard is missing, with {counted(info.num_records, 'record')}"
        yield DatasetFault.of_file(name.shard, _why_not_listed(root, name.shard, what))
        return
    if found.num_bytes != info.num_bytes:
        length = counted(found.num_bytes, "byte")
        yield DatasetFault.of_file(
            name.shard, f"the file has {length}, the manifest says {info.num_bytes:,}"
        )
        return
    # No request is needed for the checksum: an etag changes with the content.
    if info.etag is not None and found.etag == info.etag:
        return
    crc = found.crc32c if found.crc32c is not None else root.stated_crc32c(name.shard)
    if crc is not None and crc != info.crc32c:
        yield DatasetFault.of_file(
            name.shard, f"the store states crc32c {crc:#010x}, the manifest {info.crc32c:#010x}"
        )
    elif crc is None and info.etag is not None:
        what = (
            f"its etag is {found.etag}, but was {info.etag} when it was written: changed or copied "
            "since; run without --quick to read it"
        )
        yield DatasetFault.of_file(name.shard, what)
    elif crc is None:
        unknown.append(name.shard)


def _faults_beside_shards(
    root: Folder, manifest: Manifest, stated: Mapping[str, FileInfo]
) -> Iterator[DatasetFault]:
    """Yield the faults of the other files, by their lengths and listed checksums."""
    there = dict(stated)
    for folder in naming.SHARD_DIRS:
        there |= {
            f"{folder}/{name}": found for name, found in root.files(folder, crc32c=True).items()
        }
    wanted: dict[str, FileContent | None] = dict(manifest.files)
    wanted |= {name.sidecar: info.sidecar for name, info in manifest.named_shards()}
    shard_of = {name.sidecar: name.shard for name, _ in manifest.named_shards()}
    for filename, content in wanted.items():
        found = there.get(filename)
        if found is None:
            what = f"the index of {shard_of[filename]}" if filename in shard_of else "the file"
            what = _why_not_listed(root, filename, f"{what} is missing")
            yield DatasetFault.of_file(filename, what)
        elif content is not None:
            crc = content.crc32c if found.crc32c is None else found.crc32c
            fault = FileContent(found.num_bytes, crc).fault(content)
            if fault is not None and filename == naming.DATASET_INFO:
                # A dataset that has grown has a notice for TFDS in this file; the manifest states
                # it without.
                fault = companion_content(root, filename).fault(content)
            if fault is not None:
                yield DatasetFault.of_file(filename, fault)


def _why_not_listed(root: Folder, filename: str, missing: str) -> str:
    """Return why a listing lacks a file: it is missing, or a link."""
    try:
        root.own_path(filename)
    except LinkError as error:
        return str(error)
    return missing


def _notes(root: Folder, unknown: list[str], num_shards: int) -> Iterator[DatasetFault]:
    if not unknown:
        return
    where = "the store" if root.is_remote else "a disk"
    keeps = (
        "does not keep checksums for any shard"
        if len(unknown) == num_shards
        else f"keeps no checksum for {len(unknown)} of {num_shards} shards, such as {unknown[0]},"
    )
    yield DatasetFault.of_file(
        naming.MANIFEST,
        f"{where} {keeps}: only lengths were compared; run without --quick to read all",
    )


@command
def verify_command(argv: Sequence[str]) -> int:
    """Run `shardwright verify` and return its exit code."""
    parser = make_parser("verify", "Check a dataset against its manifest, byte by byte.", _EPILOG)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compare only lengths and the checksums that the store keeps; reads no shard",
    )
    parser.add_argument(
        "--newest",
        action="store_true",
        help="of a dataset that has grown, the newest version alone",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=DEFAULT_THREADS,
        metavar="N",
        help="shards checked at the same time (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if args.threads < 1:
        parser.error(f"--threads must be at least 1, got {args.threads}")
    progress = show_progress if sys.stderr.isatty() else None

    def check(root: Folder) -> Verification:
        if args.quick:
            return verify_quickly(root, threads=args.threads)
        return verify_built(root, args.threads, progress)

    result = verify_versions(root_of(args), check, newest=args.newest)
    print_safely(to_json(result.to_json()) if args.json else result.to_text())
    return EXIT_DONE if result.is_sound else EXIT_FAULTS
