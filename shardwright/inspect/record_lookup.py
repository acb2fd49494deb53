"""Find one record by its id or number, and read it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import NotFoundError, RecordFault, StorageError, UsageError
from shardwright.format.example import parse_example
from shardwright.format.index import check_record, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import Source
from shardwright.format.splits import ShardInfo
from shardwright.inspect.example_check import Values, one_value
from shardwright.storage.folder import Folder


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record and its location.

    Attributes:
        name: The record's shard.
        number: The record's number in the split, from 0 in file order.
        row: The record's index row.
        features: The features of the record's example.
    """

    name: ShardName
    number: int
    row: Mapping[str, Any]
    features: Mapping[str, Values]


def find_record(
    root: Folder, manifest: Manifest, key: str, *, split: str | None = None, by: str | None = None
) -> FoundRecord:
    """Return the record with id `key`; if there is none, the record with number `key`.

    Args:
        root: The dataset's folder.
        manifest: The dataset's manifest.
        key: An id, or a number from 0 in file order.
        split: The split to search; None searches all splits for an id, and `train` or the only
            split for a number.
        by: "id" or "number" to treat `key` as this only.

    Raises:
        NotFoundError: The split, id or number is unknown; the message lists the choices.
        UsageError: `by` is "number" and `key` is not a number.
        StorageError: The index or the record cannot be read.
    """
    if split is not None and split not in manifest.splits:
        raise NotFoundError(f"unknown split {split!r}; the splits are {_choices(manifest)}")
    is_number = key.isascii() and key.isdigit()
    if by == "number" and not is_number:
        raise UsageError(f"a record number must be a whole number of at least 0, got {key!r}")
    if by != "number":
        found = _find_id(root, manifest, key, [split] if split else list(manifest.splits))
        if found is not None:
            return found
    if by == "id" or not is_number:
        where = f"split {split!r}" if split else "any split"
        raise NotFoundError(
            f"no record in {where} has the id {key!r}; the splits are {_choices(manifest)}"
        )
    return _find_number(root, manifest, int(key), split or _default_split(manifest))


def _choices(manifest: Manifest) -> str:
    return ", ".join(manifest.splits)


def _default_split(manifest: Manifest) -> str:
    if "train" in manifest.splits:
        return "train"
    if len(manifest.splits) == 1:
        return next(iter(manifest.splits))
    raise NotFoundError(f"a record number needs a split: give --split, one of {_choices(manifest)}")


def _find_id(
    root: Folder, manifest: Manifest, key: str, splits: Sequence[str]
) -> FoundRecord | None:
    for split in splits:
        start = 0
        for name, info in manifest.named_shards(split):
            ids = read_live_rows(root, name, info, ["id"])["id"]
            row = pc.index(ids, pa.scalar(key, pa.string())).as_py()
            if row >= 0:
                return _read_found(root, manifest, (name, info), row, start + row)
            start += info.num_live
    return None


def _find_number(root: Folder, manifest: Manifest, number: int, split: str) -> FoundRecord:
    start = 0
    for name, info in manifest.named_shards(split):
        if number < start + info.num_live:
            return _read_found(root, manifest, (name, info), number - start, number)
        start += info.num_live
    last = f"its records are 0 to {start - 1}" if start else "it has no records"
    raise NotFoundError(
        f"split {split!r} has no record {number}, and no record has that id: {last}"
    )


def _read_found(
    root: Folder,
    manifest: Manifest,
    shard: tuple[ShardName, ShardInfo],
    row_number: int,
    number: int,
) -> FoundRecord:
    name, info = shard
    [row] = read_live_rows(root, name, info).slice(row_number, 1).to_pylist()
    # Before memory is taken for it.
    if not (row["offset"] >= 0 and 0 <= row["length"] <= info.num_bytes - row["offset"]):
        raise StorageError(
            f"{name.sidecar} states a record outside of its shard (row {row_number}): "
            "run `shardwright verify`"
        )
    features = read_features(root, name, row)
    id_feature = manifest.schema.find(Source.ID)
    if id_feature is not None and one_value(features, id_feature) != row["id"].encode():
        raise StorageError(f"{name.shard} and its index do not match: run `shardwright verify`")
    return FoundRecord(name, number, row, features)


def read_features(root: Folder, name: ShardName, row: Mapping[str, Any]) -> Mapping[str, Values]:
    """Return the features of the record of an index row, reading only its bytes of the shard."""
    data = root.read_range(name.shard, row["offset"], row["length"])
    try:
        check_record(row, data)
    except RecordFault as fault:
        raise StorageError(
            f"{name.shard}: {fault}; `shardwright verify` lists all faults"
        ) from fault
    return parse_example(data[HEADER_BYTES:-FOOTER_BYTES])
