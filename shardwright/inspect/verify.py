"""Verify a dataset: each file has the length and the CRC32C that its manifest states.

The manifest has a checksum of its own, so a changed byte of any file is found. The records of a
shard are read only if its checksum is wrong, to name the broken ones.

`verify --quick` reads no shards, but compares file lengths and the store's checksums. GCS keeps the
CRC32C of every object, S3 only of objects that were uploaded with one. S3 checked the content at
upload, and an object's etag does not change unless its content does or it is copied; so an etag
equal to the one of the upload proves the content, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from time import monotonic

from shardwright.errors import MissingError, RecordFault, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent, content_of
from shardwright.format.index import CHECKED, check_record, read_index_of
from shardwright.format.listed_files import DatasetFault, DatasetFiles, listed_faults
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.superseded import companion_content
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    command,
    make_parser,
    show_progress,
    to_json,
)
from shardwright.inspect.faults import (
    NO_FAULTS_OF_FILES,
    Verification,
    limit_faults,
)
from shardwright.inspect.strays import find_strays
from shardwright.inspect.version_check import verify_versions
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.terminal import print_safely

DEFAULT_THREADS = 2
_ROWS = 4096  # of an index, at a time
_BY_CHECKSUMS, _BY_LENGTHS = "the store's checksums", "lengths alone"
_EPILOG = """\
Reads every file, and compares its length and CRC32C with the manifest, and the manifest with its
own checksum. The records of a shard that differs are compared with its index. Of a dataset that has
grown, all of its versions are checked, with their generations and files, and the pins; --newest
checks the newest one alone. Prints each fault as

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
    quick: bool = False,
) -> Verification:
    """Check a dataset in bounded memory: the generations and files of all versions, and the pins.

    Args:
        dataset: Its folder.
        threads: Number of files checked at the same time.
        progress: Called after each file with the number of checked files and of all files.
        storage_options: As for `shardwright.open`. A file in a store is downloaded to a temporary
            file.
        newest: Check the generations of the newest version alone.
        quick: Compare lengths and the checksums that the store keeps; read no shard.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: The folder cannot be read. A single unreadable file is a fault instead.
    """

    def check(folder: Folder) -> Verification:
        if quick:
            return verify_quickly(folder, threads=threads)
        return verify_built(folder, threads, progress)

    root = Folder.at(dataset, StorageOptions.of(storage_options))
    return verify_versions(root, check, newest=newest)


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
    checker, faults = _Checker(folder.below(manifest.folder), manifest), list[DatasetFault]()
    paths = sorted(manifest.file_names())
    # Not the pool of `map_reads`, whose threads a download takes.
    with ThreadPoolExecutor(threads, thread_name_prefix="shardwright-verify") as pool:
        for number, found in enumerate(pool.map(checker.faults, paths), 1):
            faults += found
            if progress is not None:
                progress(number, len(paths))
    return Verification(
        dataset=folder.uri,
        num_shards=len(manifest.named_shards()),
        num_records=manifest.num_records,
        num_bytes=manifest.num_bytes,
        seconds=monotonic() - started,
        faults=tuple(faults),
        notes=tuple(find_strays(folder.below(manifest.folder), manifest)),
    )


class _Checker(DatasetFiles):
    """Reads the files. Threads may share it."""

    def faults(self, path: str) -> list[DatasetFault]:
        """Return the faults of a file that the manifest names; of a shard, also of its records."""
        try:
            return list(limit_faults(self._faults(path)))
        except NO_FAULTS_OF_FILES:
            raise
        except MissingError:
            return [DatasetFault.of_file(path, self.missing(path))]
        except (OSError, StorageError) as error:
            what = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
            return [DatasetFault.of_file(path, what)]

    def _faults(self, path: str) -> Iterator[DatasetFault]:
        stated = self._stated[path]
        if path == naming.DATASET_INFO:
            found: FileContent | None = companion_content(self._root, path)
        else:
            found = content_of(self._root, path)
        if found is None:
            yield DatasetFault.of_file(path, self.missing(path))
            return
        if found == stated:
            return
        if found in self._contents:  # each record of a shard would be a fault
            what = (
                f"the file has the content of {self._contents[found]} (swapped or copied); "
                "its records are not compared"
            )
            yield DatasetFault.of_file(path, what)
            return
        yield DatasetFault.of_file(path, found.fault(stated) or "")
        if path in self._shards:
            yield from _record_faults(self._root, *self._shards[path])


def _record_faults(root: Folder, name: ShardName, info: ShardInfo) -> Iterator[DatasetFault]:
    """Yield the records of a shard that are not those of its index, in the memory of some rows."""
    try:
        rows = read_index_of(root, name, info, [*CHECKED])
    except StorageError:  # a fault of another file: no record is named
        return
    some = (batch.to_pylist() for batch in rows.to_batches(max_chunksize=_ROWS))
    with root.local_copy(name.shard) as copy:
        num_bytes = os.fstat(copy.fileno()).st_size
        for number, row in enumerate(chain.from_iterable(some)):
            # Before memory is taken for it.
            if not 0 <= row["offset"] <= num_bytes - row["length"]:
                what = f"its last {counted(info.num_records - number, 'record')} are cut off"
                yield DatasetFault.of_file(name.shard, what)
                return
            try:
                check_record(row, os.pread(copy.fileno(), row["length"], row["offset"]))
            except RecordFault as fault:
                yield DatasetFault(name.shard, number, fault.offset, fault.what)


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
    root, num_shards = dataset.below(manifest.folder), len(manifest.named_shards())
    unknown: list[str] = []
    faults = tuple(listed_faults(root, manifest, unknown, threads))
    return Verification(
        dataset=dataset.uri,
        num_shards=num_shards,
        num_records=0,
        num_bytes=0,
        seconds=monotonic() - started,
        faults=faults,
        notes=tuple(_notes(root, sorted(unknown), num_shards)),
        by=_BY_LENGTHS if len(unknown) == num_shards else _BY_CHECKSUMS,
    )


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
        help="files checked at the same time (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if args.threads < 1:
        parser.error(f"--threads must be at least 1, got {args.threads}")
    result = verify(
        args.dataset,
        threads=args.threads,
        progress=show_progress,
        storage_options=StorageOptions.parse(args.storage_option),
        newest=args.newest,
        quick=args.quick,
    )
    print_safely(to_json(result.to_json()) if args.json else result.to_text())
    return EXIT_DONE if result.is_sound else EXIT_FAULTS
