"""Spool bytes that cannot be read in place until their shards are written.

Such are the members of a compressed archive.

    OUTPUT/spool/<hash>.bin        the images of one input part, end to end; removed at publishing
    OUTPUT/spool/<hash>.parquet    its listing: references into that file, and rejects; kept

The hash is of the part's address and etag, so a changed input gets a new spool. Both files are
atomic, and a listing is put in place after its bytes: while it exists, its part is not read again.

"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.format import naming
from shardwright.format.index import read_summary
from shardwright.format.json_files import parse_json
from shardwright.format.manifest import read_manifest
from shardwright.format.parquet import ParquetRows
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder, Sink
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.hashing import content_hash
from shardwright.transforms.inputs.file_rules import SPOOL_ETAG
from shardwright.transforms.inputs.input_files import FileState, InputFile, state_of
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.references import BATCH_ROWS, ImagePlace
from shardwright.transforms.rejects import Reject, RejectReason

_LOG = logging.getLogger("shardwright.inputs")
_REJECTS = b"rejects"
# An upload has at most 10,000 parts of 5 MiB (`shardwright.storage.uploads`).
MAX_REMOTE_BYTES = 45 << 30
Write = Callable[[Sequence[bytes]], None]
_WRITE_BYTES = 4 << 20  # buffered: images may be small, and a write may be a request


@dataclass(frozen=True, slots=True)
class UnwrittenFolder(Folder):
    """The spool of a plan: existing listings are read, and nothing is written.

    Attributes:
        bytes_wanted: The plan would examine images; a warning says where it cannot.
    """

    bytes_wanted: bool = False


class SpoolWriter:
    """A writer that appends images to a spool file.

    Attributes:
        uri: The spool file, for references.
        etag: Its etag, derived from the input's; None to derive each image's from its bytes.

    Args:
        write: Writes bytes to the file; None to write nothing.
    """

    def __init__(self, uri: str, etag: str | None, write: Write | None) -> None:
        self.uri = uri
        self.etag = etag
        self._write = write
        self._pieces: list[bytes] = []
        self._waiting = self._num_bytes = 0

    def add(self, data: bytes) -> int:
        """Append an image and return its offset in bytes.

        Raises:
            BuildError: The spool file would exceed the store's limit.
        """
        offset = self._num_bytes
        # The start of an image, whose own bytes still fit into what is left of the store's limit.
        if offset > MAX_REMOTE_BYTES and is_remote(self.uri):
            raise BuildError(
                f"{self.uri} would exceed {MAX_REMOTE_BYTES} bytes, the limit of one upload: "
                "use a local OUTPUT, split the input, or unpack it"
            )
        self._num_bytes += len(data)
        if self._write is not None:
            self._pieces.append(data)
            self._waiting += len(data)
            if self._waiting >= _WRITE_BYTES:
                self.flush()
        return offset

    def place(self, data: bytes) -> ImagePlace:
        """Append an image and return its place."""
        etag = self.etag or f"{SPOOL_ETAG}{content_hash(data)}"
        return ImagePlace(self.uri, self.add(data), len(data), etag)

    def flush(self) -> None:
        """Write the buffered images."""
        if self._write is not None and self._pieces:
            self._write(self._pieces)
        self._pieces, self._waiting = [], 0


# Of a request, what decides a listing. A listing that was made for another one, such as by a build
# that was stopped, would have the labels of other columns.
_DECIDING = ("columns", "kinds", "shapes", "image", "image_root", "allow_outside", "top_folders")


def spooled_part(
    request: SourceRequest,
    file: InputFile,
    state: FileState,
    make: Callable[[SpoolWriter], Rows],
    **rules: Any,
) -> Rows:
    """Yield what `make` yields for a file of INPUT, by way of the spool. Raises as `spooled`.

    Args:
        request: The request for INPUT.
        file: The file.
        state: Its length and etag.
        make: As for `spooled`.
        rules: What else decides its listing, as values of JSON, besides the request: they, and no
            name in the source, decide names on disk.
    """
    asked = [str(getattr(request, name)) for name in _DECIDING]
    text = json.dumps({"file": file.name, "asked": asked, **rules}, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    etag = f"{state.etag}-{state.num_bytes}-{digest}"
    return spooled(request.spool, file.uri, etag, request.storage, make)


def spooled(
    folder: Folder | None,
    source_uri: str,
    source_etag: str | None,
    storage: StorageOptions,
    make: Callable[[SpoolWriter], Rows],
) -> Rows:
    """Yield references into the spool, then rejects; write the spool first if it does not exist.

    Args:
        folder: `SourceRequest.spool`.
        source_uri: The input part.
        source_etag: Changes with the part's content and whatever else decides what `make` yields;
            None if unknown.
        storage: Options of the part's store.
        make: Reads the part, adds images to the writer, and yields rejects and references, with
            the writer's `uri` and `etag` or to bytes elsewhere. All batches have one schema. Not
            run if the listing exists.

    Raises:
        UsageError: `folder` is None.
        BuildError: The part changed while it was read.
        StorageError: The part cannot be read, or the spool cannot be written.
    """
    if folder is None:
        raise UsageError(
            f"{source_uri} must be unpacked, which needs a folder: pass `spool` to `detect_source`"
        )
    name = spool_name(source_uri, source_etag)
    etag = f"{SPOOL_ETAG}{source_etag or ''}"
    is_plan = isinstance(folder, UnwrittenFolder) and folder.bytes_wanted
    if is_plan and folder.num_bytes_of(f"{name}.bin") is None:
        _LOG.warning(
            "a plan does not unpack %s: only a build finds its duplicates and encoded sizes",
            source_uri,
        )
    # The listing comes last, so its presence means that the bytes are complete.
    if folder.num_bytes_of(f"{name}.parquet") is None:
        if isinstance(folder, UnwrittenFolder):
            yield from make(SpoolWriter(folder.path(f"{name}.bin"), etag, None))
            return
        write_spool(folder, name, etag, lambda to: _unchanged(make(to), source_uri, storage))
    yield from read_listing(folder, name)


def spool_name(source_uri: str, source_etag: str | None) -> str:
    """Return the hash of a part that its spool's files are named after."""
    part = f"{source_uri}\0{source_etag}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(part, digest_size=16).hexdigest()


def _unchanged(rows: Rows, source_uri: str, storage: StorageOptions) -> Rows:
    """Yield the rows of a part; raise `BuildError` at their end if the part has changed."""
    # Looked at before and after: a file that is replaced in between would be listed half and half.
    before = state_of(source_uri, storage)
    yield from rows
    if state_of(source_uri, storage) != before:
        raise BuildError(f"{source_uri} changed while it was read: run the build again")


def write_spool(
    folder: Folder, name: str, etag: str | None, make: Callable[[SpoolWriter], Rows]
) -> None:
    """Write the images of a part and their listing, or replace those of the same name.

    Args:
        folder, make: As in `spooled`.
        name: Name of both files, without extension.
        etag: As in `SpoolWriter`.

    Raises:
        StorageError: The spool cannot be written.
    """
    # Sinks close in reverse order, so the bytes are in place before their listing. What has no etag
    # is read again by every build: a power failure may take it.
    open_sink = partial(folder.open_sink, sync=etag is not None)
    with (
        open_sink(f"{name}.parquet") as rows_sink,
        open_sink(f"{name}.bin") as sink,
        _in_background(sink) as write,
    ):
        writer = SpoolWriter(folder.path(f"{name}.bin"), etag, write)
        _write_listing(rows_sink, make(writer))
        writer.flush()


class SinkFile:
    """A sink as a file that Arrow writes to."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.write([bytes(data)])
        return len(data)

    def tell(self) -> int:
        return self._sink.num_bytes

    def flush(self) -> None:
        """Do nothing: writes are not buffered here."""

    def close(self) -> None:
        """Do nothing: the opener closes the sink."""


def _write_listing(sink: Sink, rows: Iterable[pa.RecordBatch | Reject]) -> None:
    """Write a row group for each batch, and the rejects, which are few, into the metadata."""
    rejects: list[Reject] = []
    writer: pq.ParquetWriter | None = None
    with pa.PythonFile(SinkFile(sink), mode="w") as file, ExitStack() as stack:
        for part in rows:
            if isinstance(part, Reject):
                rejects.append(part)
                continue
            writer = writer or stack.enter_context(
                pq.ParquetWriter(file, part.schema, compression="zstd")
            )
            writer.write_batch(part, row_group_size=max(part.num_rows, 1))
        writer = writer or stack.enter_context(pq.ParquetWriter(file, pa.schema([])))
        writer.add_key_value_metadata(
            {_REJECTS: json.dumps([asdict(reject) for reject in rejects]).encode()}
        )


def read_listing(folder: Folder, name: str) -> Rows:
    """Yield the references, then the rejects, of a listing in the spool."""
    folder.own_path(f"{name}.bin")  # which is read by its path
    path = folder.path(f"{name}.parquet")
    with folder.open_input(f"{name}.parquet") as source, ParquetRows(source, path) as file:
        yield from file.batches(BATCH_ROWS)
        yield from _rejects_of(file, path)


def _rejects_of(file: ParquetRows, path: str) -> list[Reject]:
    data = (file.metadata.metadata or {}).get(_REJECTS, b"")
    return parse_json(data, list[Reject], path, "remove it, and build again", error=BuildError)


def _is_incomplete(folder: Folder, listing: str) -> bool:
    """Return whether a part was not read to its end, maybe by a fault of its disk."""
    try:
        with folder.open_input(listing) as source, ParquetRows(source, listing) as file:
            return any(
                reject.reason == RejectReason.INCOMPLETE for reject in _rejects_of(file, listing)
            )
    except (pa.ArrowException, BuildError):  # damaged, or of others
        return True


def forget_lost_spools(root: Folder, *, finished_may_stay: bool) -> None:
    """Remove listings that are incomplete, or whose bytes are gone, before a build that needs them.

    Args:
        root: The dataset's folder.
        finished_may_stay: Do not replace a finished dataset in `root`: if all its shards are in
            place, none is written and no bytes are needed.
    """
    spool = root.below(naming.SPOOL_DIR)
    there = set(spool.names())
    listings = [name for name in there if name.endswith(".parquet")]
    looks = map_reads(lambda name: _is_incomplete(spool, name), listings)
    lost = [
        name
        for name, is_incomplete in zip(listings, looks, strict=True)
        if is_incomplete or f"{name.removesuffix('.parquet')}.bin" not in there
    ]
    # If all shards are in place, reading INPUT again would cost hours and change nothing.
    if lost and not (finished_may_stay and _is_whole(root)):
        root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in sorted(lost)])


def _is_whole(root: Folder) -> bool:
    with suppress(ShardwrightError):  # no dataset, or a damaged one
        manifest = read_manifest(root)
        root = root.below(manifest.folder)
        names = [name for split in manifest.splits for name in manifest.shard_names(split)]
        summaries = [(name, read_summary(root, name)) for name in names]
        return all(
            summary is not None and root.num_bytes_of(name.shard) == summary.num_bytes
            for name, summary in summaries
        )
    return False


@contextmanager
def _in_background(sink: Sink) -> Iterator[Write]:
    """Yield a function that writes in a thread; when the block ends, everything is written.

    At most one write is under way; the next one waits for it and raises its error.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="shardwright-spool") as thread:
        writing = thread.submit(sink.write, ())

        def write(pieces: Sequence[bytes]) -> None:
            nonlocal writing
            # The last write first: the store takes the bytes in their order, and its error must not
            # be lost.
            writing.result()
            writing = thread.submit(sink.write, pieces)

        yield write
        # Before the sink closes, which would put a file in place that lacks the last write.
        writing.result()
