"""Check a manifest as JSON: types, ranges and names.

A dataset may come from a stranger. Its names become paths, and its numbers sizes of arrays.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwright.format import naming
from shardwright.format.records import FRAME_BYTES

MAX_SHARDS = 500_000  # of all splits, so that a manifest can be read in a few seconds
_STOP = 2**63  # of counts, which are added as int64
_FIELDS = {
    "name": str,
    "version": str,
    "schema": dict,
    "splits": dict,
    "rejects": dict,
    "num_inputs": int,
    "settings": dict,
    "fingerprint": str,
    "provenance": dict,
}
_SHARD = {"index": int, "num_records": int, "num_bytes": int, "crc32c": int, "digest": str}
_OPTIONAL = {
    "etag": str, "sidecar_bytes": int, "sidecar_crc32c": int, "folder": str, "count": int,
    "removed": str,
}  # fmt: skip
_CONTENT = {"num_bytes": int, "crc32c": int}
_RANGES = ("image_length", "width", "height")
_COUNTS = ("labels", "formats")
_LABEL = re.compile(r"[0-9]{1,18}")


def check_manifest(record: Mapping[str, Any]) -> None:
    """Check the JSON of `Manifest.to_json`, the schema excepted.

    Raises:
        KeyError: A field is missing.
        ValueError: A field has a wrong type, or is out of range; a name is not one that builds
            make; or there are more than `MAX_SHARDS` shards.
    """
    _check(record, _FIELDS, "")
    if not naming.is_dataset_name(record["name"]):
        raise ValueError(f"name {record['name']!r:.80} is not a dataset's name")
    _check_counts(record["rejects"], "rejects")
    for split, content in record["splits"].items():
        if not naming.is_split_name(split):
            raise ValueError(f"{split!r:.80} is not a split's name")
        _check({split: content}, {split: dict}, "split ")
        _check_split(content, f"split {split!r}: ")
    shards = [shard for split in record["splits"].values() for shard in split["shards"]]
    if len(shards) > MAX_SHARDS:
        raise ValueError(f"it has {len(shards):,} shards, more than the {MAX_SHARDS:,} allowed")
    if sum(shard["num_bytes"] for shard in shards) >= _STOP:
        raise ValueError("its shards have more bytes together than can be counted")
    if record.get("folder", naming.NEXT_DIR) != naming.NEXT_DIR:
        raise ValueError(f"folder is {record['folder']!r:.80}, expected {naming.NEXT_DIR!r}")
    later = {"files": dict, "history": dict, "erased": list}
    _check({**{name: kind() for name, kind in later.items()}, **record}, later, "")
    for name, content in record.get("files", {}).items():
        if not naming.is_companion(name):
            raise ValueError(f"{name!r:.80} is not the name of a file beside the shards")
        _check({name: content}, {name: dict}, "file ")
        _check(content, _CONTENT, f"file {name!r}: ")


def _check_split(split: Mapping[str, Any], where: str) -> None:
    _check(split, {"shards": list, "stats": dict}, where)
    for shard in split["shards"]:
        if type(shard) is not dict:
            raise ValueError(f"{where}a shard is {shard!r:.80}, not an object")
        _check(shard, _SHARD, where)
        _check(shard, {key: kind for key, kind in _OPTIONAL.items() if key in shard}, where)
        if shard["num_records"] * FRAME_BYTES > shard["num_bytes"]:
            raise ValueError(
                f"{where}{shard['num_records']} records do not fit in {shard['num_bytes']} bytes"
            )
        _check_version_of_shard(shard, where)
    stats = split["stats"]
    _check(stats, {key: dict for key in (*_RANGES, *_COUNTS) if key in stats}, f"{where}stats ")
    for key in _RANGES:
        if key in stats:
            ends = dict.fromkeys(("min", "max", "sum", "count"), int)
            _check(stats[key], ends, f"{where}stats {key} ")
    for key in _COUNTS:
        _check_counts(stats.get(key, {}), f"{where}stats {key}")
    if not all(_LABEL.fullmatch(label) for label in stats.get("labels", {})):
        raise ValueError(f"{where}stats labels has keys that are not label numbers")


def _check_version_of_shard(shard: Mapping[str, Any], where: str) -> None:
    """Check the fields that only the shards of a dataset with several versions have."""
    if "folder" in shard and not naming.is_generation_folder(shard["folder"]):
        raise ValueError(f"{where}folder is {shard['folder']!r:.80}, not that of a generation")
    if "count" in shard and not shard["index"] < shard["count"]:
        raise ValueError(f"{where}shard {shard['index']} of {shard['count']}")
    if "removed" in shard:
        rows = np.frombuffer(b64decode(shard["removed"], validate=True), "<u4").astype(np.int64)
        if not (np.diff(rows, prepend=-1, append=shard["num_records"]) > 0).all():
            raise ValueError(f"{where}removed rows do not ascend below {shard['num_records']}")


def _check_counts(counts: Mapping[str, Any], where: str) -> None:
    _check(counts, dict.fromkeys(counts, int), f"{where} ")


def _check(record: Mapping[str, Any], kinds: Mapping[str, type], where: str) -> None:
    """Check types, of which `bool` is not an `int`, and that numbers are not negative."""
    for key, kind in kinds.items():
        value = record[key]
        if type(value) is not kind:
            raise ValueError(f"{where}{key} is {value!r:.80}, expected {kind.__name__}")
        if isinstance(value, int) and not 0 <= value < (2**32 if key.endswith("crc32c") else _STOP):
            raise ValueError(f"{where}{key} is {value!r:.80}, which is out of range")
