"""Verify a dataset: each file has the length and the CRC32C that its manifest states.

The manifest has a checksum of its own, so a changed byte of any file is found. The records of a
shard are read only if its checksum is wrong, to name the broken ones.

`verify --quick` reads no shards, but compares file lengths and the store's checksums. GCS keeps the
CRC32C of every object, S3 only of objects that were uploaded with one. S3 checked the content at
upload, and an object's etag does not change unless its content does or it is copied; so an etag
equal to the one of the upload proves the content, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

from shardwright.errors import LinkError, MissingError, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent, content_of
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
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
from shardwright.inspect.faults import (
    NO_FAULTS_OF_FILES,
    DatasetFault,
    Verification,
    content_fault,
    limit_faults,
)
from shardwright.inspect.shard_check import record_faults
from shardwright.inspect.strays import find_strays
from shardwright.inspect.version_check import verify_versions
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.terminal import print_safely

DEFAULT_THREADS = 2
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
) -> Verification:
    """Check a dataset in bounded memory: the generations and files of all versions, and the pins.

    Args:
        dataset: Its folder.
        threads: Number of files checked at the same time.
        progress: Called after each file with the number of checked files and of all files.
        storage_options: As for `shardwright.open`. A file in a store is downloaded to a temporary
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
    checker, faults = _FileChecker(folder.below(manifest.folder), manifest), list[DatasetFault]()
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


class _FileChecker:
    """A checker of the files of one dataset. Threads may share it."""

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        self._root = root
        shards = manifest.named_shards()
        self._shards = {name.shard: (name, info) for name, info in shards}
        self._indexes = {name.sidecar: (name, info) for name, info in shards}
        self._stated = dict(manifest.files)
        self._stated |= {name.shard: info.content for name, info in shards}
        self._stated |= {name.sidecar: info.sidecar for name, info in shards if info.sidecar}
        self._contents = {content: path for path, content in self._stated.items()}

    def faults(self, path: str) -> list[DatasetFault]:
        """Return the faults of a file that the manifest names; of a shard, also of its records."""
        try:
            return list(limit_faults(self._faults(path)))
        except NO_FAULTS_OF_FILES:
            raise
        except MissingError:
            return [DatasetFault.of_file(path, self._missing(path))]
        except (OSError, StorageError) as error:
            what = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
            return [DatasetFault.of_file(path, what)]

    def _faults(self, path: str) -> Iterator[DatasetFault]:
        stated = self._stated.get(path)
        if stated is None:  # an earlier release wrote it: the index states its shard itself
            read_index_of(self._root, *self._indexes[path])
            return
        if path == naming.DATASET_INFO:
            found: FileContent | None = companion_content(self._root, path)
        else:
            found = content_of(self._root, path)
        if found is None:
            yield DatasetFault.of_file(path, self._missing(path))
            return
        fault = content_fault(found, stated, self._contents)
        if fault is not None:
            yield DatasetFault.of_file(path, fault)
        # Each record of a shard with the content of another one would be a fault.
        if fault is not None and path in self._shards and found not in self._contents:
            yield from record_faults(self._root, *self._shards[path])

    def _missing(self, path: str) -> str:
        if path in self._shards:
            records = counted(self._shards[path][1].num_records, "record")
            return f"the shard is missing, with {records}"
        if path in self._indexes:
            return f"the index of {self._indexes[path][0].shard} is missing"
        return "the file is missing"


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
        help="files checked at the same time (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if args.threads < 1:
        parser.error(f"--threads must be at least 1, got {args.threads}")

    def check(root: Folder) -> Verification:
        if args.quick:
            return verify_quickly(root, threads=args.threads)
        return verify_built(root, args.threads, show_progress)

    result = verify_versions(root_of(args), check, newest=args.newest)
    print_safely(to_json(result.to_json()) if args.json else result.to_text())
    return EXIT_DONE if result.is_sound else EXIT_FAULTS
