"""The spool: where bytes go that cannot be read in place, such as members of a compressed archive, until their shards are written.

    OUTPUT/spool/<hash>.bin        the bytes of one input part, one picture after another; removed when the dataset is published
    OUTPUT/spool/<hash>.parquet    its listing: references into that file, and the rejects; it stays

The hash is of the part's address and etag, so a changed input is another spool. A listing is put in place after its bytes, and each
appears whole or not at all: a listing means that the part is done, and nobody reads the input again as long as it is there.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright import naming
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.index import read_summary
from shardwright.manifest import read_manifest
from shardwright.storage import Folder, StorageOptions, is_remote
from shardwright.storage.folder import Sink
from transforms.inputs.file_rules import SPOOL_ETAG
from transforms.inputs.input_files import state_of
from transforms.rejects import Reject, RejectReason

Rows = Iterator[pa.RecordBatch | Reject]
_LOG = logging.getLogger("shardwright.inputs")
_REJECTS = b"rejects"
MAX_REMOTE_BYTES = (
    45 << 30
)  # an upload has up to 10,000 parts of 5 MiB (`shardwright.storage.uploads`)
_WRITE_BYTES = (
    4 << 20
)  # collected before they are written: pictures may be small, and a write may be a request


@dataclass(frozen=True, slots=True)
class UnwrittenFolder(Folder):
    """The spool of a plan: listings that are there are read, and nothing is written.

    Attributes:
        bytes_wanted: The plan would look into pictures, so that it is told where it cannot.
    """

    bytes_wanted: bool = False


class SpoolWriter:
    """Takes pictures one after another.

    Attributes:
        uri: The spool file, for references.
        etag: The same, which follows from the input's and not from when the file was written.
    """

    def __init__(self, uri: str, etag: str, sink: Sink | None) -> None:
        self.uri = uri
        self.etag = etag
        self._sink = sink
        self._pieces: list[bytes] = []
        self._waiting = self._num_bytes = 0

    def add(self, data: bytes) -> int:
        """Append a picture; the offset at which it begins.

        Raises:
            BuildError: A store takes no object as large as the spool file would be.
        """
        offset = self._num_bytes
        if offset > MAX_REMOTE_BYTES and is_remote(self.uri):
            raise BuildError(
                f"{self.uri} would have more than {MAX_REMOTE_BYTES} bytes, which a store does not take by such an upload: "
                "give a local OUTPUT, split the input, or unpack it"
            )
        self._num_bytes += len(data)
        if self._sink is not None:
            self._pieces.append(data)
            self._waiting += len(data)
            if self._waiting >= _WRITE_BYTES:
                self.flush()
        return offset

    def flush(self) -> None:
        """Hand on what has been collected."""
        if self._sink is not None and self._pieces:
            self._sink.write(self._pieces)
        self._pieces, self._waiting = [], 0


def rules_digest(*rules: object) -> str:
    """A short hash of what else decides a part's listing, besides its content: part of `spooled`'s `source_etag`."""
    return hashlib.blake2b(repr(rules).encode(), digest_size=8).hexdigest()


def spooled(
    folder: Folder | None,
    source_uri: str,
    source_etag: str | None,
    storage: StorageOptions,
    make: Callable[[SpoolWriter], Rows],
) -> Rows:
    """References into the spool, which is made where it is not there yet.

    Args:
        folder: `SourceRequest.spool`.
        source_uri: The input part.
        source_etag: What changes with its content, and with whatever else decides what `make` gives; None where nothing tells.
        storage: Options of the store that the part is in.
        make: Reads the part, adds pictures to the writer, and gives references to them (and to bytes elsewhere) and rejects. Their
            `uri` and `etag` are the writer's. All batches have the same schema. It is not run where the listing is there.

    Yields:
        The batches in their order, then the rejects.

    Raises:
        UsageError: There is no folder.
        BuildError: The part changed while it was read.
        StorageError: It cannot be read, or the spool not be written.
    """
    if folder is None:
        raise UsageError(
            f"{source_uri} must be unpacked, and there is no place for it: give `detect_source` a spool folder"
        )
    name = hashlib.blake2b(
        f"{source_uri}\0{source_etag}".encode("utf-8", "surrogateescape"), digest_size=16
    ).hexdigest()
    listing = f"{name}.parquet"
    etag = f"{SPOOL_ETAG}{source_etag or ''}"
    if (
        isinstance(folder, UnwrittenFolder)
        and folder.bytes_wanted
        and folder.num_bytes_of(f"{name}.bin") is None
    ):
        _LOG.warning(
            "a plan does not unpack %s: duplicates in it, and sizes after encoding, are known to a build only",
            source_uri,
        )
    if folder.num_bytes_of(listing) is not None:
        yield from _read_listing(folder, listing)
        return
    if isinstance(folder, UnwrittenFolder):
        yield from make(SpoolWriter(folder.path(f"{name}.bin"), etag, None))
        return
    before = state_of(source_uri, storage)
    with (
        folder.open_sink(listing) as rows_sink,
        folder.open_sink(f"{name}.bin") as sink,
    ):  # the bytes are in place first
        writer = SpoolWriter(folder.path(f"{name}.bin"), etag, sink)
        _write_listing(rows_sink, make(writer))
        writer.flush()
        if state_of(source_uri, storage) != before:
            raise BuildError(f"{source_uri} changed while it was read: run the build again")
    yield from _read_listing(folder, listing)


class _SinkFile:
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
        """Nothing waits here."""

    def close(self) -> None:
        """The sink is closed by who opened it."""


def _write_listing(sink: Sink, rows: Iterable[pa.RecordBatch | Reject]) -> None:
    """A row group for each batch; rejects are few, or the build fails anyway, so they are in the file's metadata."""
    rejects: list[Reject] = []
    writer: pq.ParquetWriter | None = None
    with pa.PythonFile(_SinkFile(sink), mode="w") as file, ExitStack() as stack:
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


def _read_listing(folder: Folder, listing: str) -> Rows:
    with folder.open_input(listing) as source, pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            yield from file.read_row_group(number, use_threads=False).combine_chunks().to_batches()
        rejects = json.loads(file.metadata.metadata[_REJECTS])
    for values in rejects:
        yield Reject(**{**values, "reason": RejectReason(values["reason"])})


def forget_lost_spools(root: Folder, *, finished_may_stay: bool) -> None:
    """Before a build: remove listings whose bytes are gone, unless nothing will ask for the bytes.

    Args:
        root: The dataset's folder.
        finished_may_stay: A finished dataset in `root` is not to be replaced: then, with every shard in place, no shard is written.
    """
    there = set(root.names(naming.SPOOL_DIR))
    lost = [
        name
        for name in there
        if name.endswith(".parquet") and f"{name.removesuffix('.parquet')}.bin" not in there
    ]
    if lost and not (finished_may_stay and _is_whole(root)):
        root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in sorted(lost)])


def _is_whole(root: Folder) -> bool:
    with suppress(ShardwrightError):  # no dataset, or a damaged one
        manifest = read_manifest(root)
        names = [name for split in manifest.splits for name in manifest.shard_names(split)]
        summaries = [(name, read_summary(root, name)) for name in names]
        return all(
            summary is not None and root.num_bytes_of(name.shard) == summary.num_bytes
            for name, summary in summaries
        )
    return False
