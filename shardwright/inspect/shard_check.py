"""Check one shard: the file, its records in order, and its sidecar."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from shardwright.errors import (
    CredentialsError,
    MissingError,
    RecordFault,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from shardwright.format.contents import FileContent, file_crc32c
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import RecordSpan
from shardwright.format.schema import Source
from shardwright.format.splits import ShardInfo
from shardwright.inspect.example_check import ExampleChecker, one_value
from shardwright.inspect.faults import DatasetFault, content_fault, limit_faults
from shardwright.inspect.index_check import IndexRows, RowChecker, check_sidecar
from shardwright.inspect.shard_walk import BLOCK_BYTES, walk_records
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

# Errors of a whole store, which are not faults of a dataset in it.
NO_FAULTS_OF_FILES = (CredentialsError, ThrottledError, TimedOutError, UnreachableError)


@dataclass(slots=True)
class ShardCheck:
    """The result of checking one shard.

    Attributes:
        name: The shard.
        num_records: Number of records found in the file.
        num_bytes: The file's length.
        faults: Faults of the shard and its sidecar.
        id_hashes: 64-bit hash of the id of every record that has one, to find duplicate ids.
        id_records: The numbers of those records.
        id_offsets: The starts of those records, in bytes.
        labels: Number of records per label.
    """

    name: ShardName
    num_records: int = 0
    num_bytes: int = 0
    faults: list[DatasetFault] = field(default_factory=list)
    id_hashes: array[int] = field(default_factory=lambda: array("q"))
    id_records: array[int] = field(default_factory=lambda: array("q"))
    id_offsets: array[int] = field(default_factory=lambda: array("q"))
    labels: Counter[int] = field(default_factory=Counter)


class ShardChecker:
    """A checker of one dataset's shards. Threads may share it: it keeps no state between calls."""

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        self._root = root
        self._examples = ExampleChecker(manifest.schema)
        self._rows = RowChecker(manifest.schema)
        self._id, self._label = manifest.schema.find(Source.ID), manifest.schema.label
        shards = manifest.named_shards()
        self._contents: Mapping[FileContent, str] = {
            info.content: name.shard for name, info in shards
        } | {info.sidecar: name.sidecar for name, info in shards if info.sidecar}

    def check(self, name: ShardName, info: ShardInfo) -> ShardCheck:
        """Check a shard and its sidecar in bounded memory.

        Reads the file twice: once for its checksum, once record by record.
        """
        result = ShardCheck(name)
        rows, faults = check_sidecar(self._root, name, info, self._contents)
        result.faults += faults
        try:
            with (
                self._root.local_copy(name.shard) as copy,
                open(copy.fileno(), "rb", BLOCK_BYTES, closefd=False) as file,
            ):
                result.faults += limit_faults(self._shard_faults(file, info, rows, result))
        except MissingError:
            result.faults.append(
                DatasetFault.of_file(
                    name.shard, f"the shard is missing, with {counted(info.num_records, 'record')}"
                )
            )
        except NO_FAULTS_OF_FILES:
            raise
        except (OSError, StorageError) as error:
            result.faults.append(
                DatasetFault.of_file(
                    name.shard,
                    f"the shard cannot be read: {getattr(error, 'strerror', None) or error}",
                )
            )
        return result

    def _shard_faults(
        self, file: BinaryIO, info: ShardInfo, rows: IndexRows | None, result: ShardCheck
    ) -> Iterator[DatasetFault]:
        crc = file_crc32c(file)
        result.num_bytes = file.tell()
        file.seek(0)
        content = FileContent(result.num_bytes, crc)
        fault = content_fault(content, info.content, self._contents)
        if fault:
            yield DatasetFault.of_file(result.name.shard, fault)
        if fault and content in self._contents:
            rows = None  # the index describes the shard that should be here
        yield from self._record_faults(file, info, rows, result)

    def _record_faults(
        self, file: BinaryIO, info: ShardInfo, rows: IndexRows | None, result: ShardCheck
    ) -> Iterator[DatasetFault]:
        name, last = result.name, None
        offsets = rows.offsets if rows is not None else np.zeros(0, np.int64)
        for number, last in walk_records(file, offsets):
            if isinstance(last, RecordFault):
                # A fault past the last planned record is surplus bytes, not a record.
                result.num_records = max(result.num_records, min(number + 1, info.num_records))
                yield DatasetFault(name.shard, number, last.offset, last.what)
            else:
                result.num_records = number + 1
                yield from self._example_faults(number, last, rows, result)
        if isinstance(last, RecordFault) and result.num_records < info.num_records:
            what = (
                f"its last {counted(info.num_records - result.num_records, 'record')}: cut off, "
                "or after a broken record and not in the index"
            )
            yield DatasetFault.of_file(name.shard, what)
        elif result.num_records != info.num_records:
            what = (
                f"the shard holds {counted(result.num_records, 'record')}, "
                f"the manifest says {info.num_records}"
            )
            yield DatasetFault.of_file(name.shard, what)

    def _example_faults(
        self, number: int, span: RecordSpan, rows: IndexRows | None, result: ShardCheck
    ) -> Iterator[DatasetFault]:
        name = result.name
        try:
            features = parse_example(span.data)
        except ExampleFault as error:
            yield DatasetFault(name.shard, number, span.offset, str(error))
            return
        for what in self._examples.faults(features):
            yield DatasetFault(name.shard, number, span.offset, what)
        row = rows.row(number) if rows is not None else None
        if row is not None:
            for what in self._rows.faults(row, span, features):
                yield DatasetFault(name.sidecar, number, span.offset, what)
        example_id, label = one_value(features, self._id), one_value(features, self._label)
        if example_id is not None:
            # 8 bytes instead of the id. `verify` reads the ids with equal hashes again.
            result.id_hashes.append(hash(example_id))
            result.id_records.append(number)
            result.id_offsets.append(span.offset)
        if label is not None:
            result.labels[label] += 1
