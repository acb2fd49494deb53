"""Reject files of a dataset: written by each step that rejects inputs, read back for reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, TooManyRejectsError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.parquet import ParquetRows, parquet_bytes, read_rows
from shardwright.format.reject_counts import NO_FAULTS
from shardwright.storage.folder import Folder
from shardwright.terminal import one_line
from shardwright.transforms.rejects import REJECT_SCHEMA, Reject, rejects_in, rejects_to_table

EXAMPLES = 3  # of each reason, in an error
_BATCH_ROWS = 65_536


def write_rejects(root: Folder, filename: str, rejects: Sequence[Reject]) -> FileContent | None:
    """Write a file of reject rows and return its content, or remove it if there are none."""
    if not rejects:
        root.remove(filename)
        return None
    return write_reject_rows(root, filename, [rejects_to_table(rejects)])


def pack_rejects(rows: pa.Table) -> bytes:
    """Return reject rows as Parquet, a third of Arrow's format: ids and addresses begin alike."""
    encoding = dict.fromkeys(("id", "uri"), "DELTA_BYTE_ARRAY")
    return parquet_bytes(rows, use_dictionary=["reason", "detail"], column_encoding=encoding)


def unpack_rejects(packed: bytes) -> pa.Table:
    with ParquetRows(pa.BufferReader(packed), "packed rejects", threads=False) as file:
        return file.read()


def write_reject_rows(root: Folder, filename: str, tables: Iterable[pa.Table]) -> FileContent:
    """Write a file of reject rows, sorted so that the order of arrival does not matter."""
    rows = pa.concat_tables(tables)
    order = [(name, "ascending") for name in REJECT_SCHEMA.names]
    data = parquet_bytes(rows.sort_by(order), compression="snappy")
    # Equal bytes stay in place, with their time: a repeated build changes nothing.
    root.write_if_new(filename, data)
    return FileContent.of(data)


def read_rejects(root: Folder, filename: str) -> list[Reject]:
    """Return the rows of a shard's file of rejects; none if there is no such file."""
    try:
        return rejects_in(read_rows(root, filename))
    except MissingError:
        return []


def first_faults(root: Folder, limit: int) -> list[Reject]:
    """Return the first `limit` rejects of a dataset that count as faults."""
    files = (
        name
        for name in naming.build_outputs(root)
        if name.startswith(f"{naming.REJECTS_DIR}/") and name.endswith(".parquet")
    )
    return list(islice((fault for name in files for fault in _faults_in(root, name)), limit))


def _faults_in(root: Folder, filename: str) -> Iterator[Reject]:
    """Yield the faults of a file, which may have many other rows."""
    others = pa.array(sorted(NO_FAULTS), pa.string())
    for batch in _batches_of(root, [filename]):
        is_other = pc.is_in(batch.column("reason"), value_set=others)
        yield from rejects_in(batch.filter(pc.invert(is_other)))


def _batches_of(root: Folder, filenames: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for filename in filenames:
        path = root.path(filename)
        with root.open_input(filename) as source, ParquetRows(source, path) as file:
            yield from file.batches(_BATCH_ROWS)


@contextmanager
def naming_rejects(root: Folder, filenames: Iterable[str]) -> Iterator[None]:
    """Add the place of the rejects and examples to the error of a block that counts too many.

    Args:
        root: The folder of the files.
        filenames: Files that together have examples of each reason, if there are rejects.

    Raises:
        TooManyRejectsError: As raised in the block.
    """
    try:
        yield
    except TooManyRejectsError as error:
        names = [name for name in filenames if root.num_bytes_of(name)]
        there = f"; {root.path(naming.REJECTS_DIR)}/ lists them" if names else ""
        # From None: it says all that the first one says, which a runner would show in its place.
        raise with_examples(one_line(f"{error}{there}"), _batches_of(root, names)) from None


def with_examples(message: str, rows: Iterable[pa.RecordBatch | pa.Table]) -> TooManyRejectsError:
    """Return the error of too many rejects: the message, then a line for each example.

    These are `EXAMPLES` of each reason that counts as a fault; of all reasons if none does.
    """
    found: defaultdict[str, list[Reject]] = defaultdict(list)
    for batch in rows:
        reasons = batch.column("reason")
        for reason in pc.unique(reasons).to_pylist():
            wanted = batch.filter(pc.equal(reasons, reason))
            found[reason] += rejects_in(wanted.slice(0, EXAMPLES - len(found[reason])))
    shown = sorted(found.keys() - NO_FAULTS) or sorted(found)
    lines = [
        one_line(f"  {each.reason}: {each.id or each.uri}: {each.detail}")
        for reason in shown
        for each in found[reason]
    ]
    return TooManyRejectsError("\n".join([message, *lines]))
