"""The content of a published file without what may differ between two runs of the same build."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.build_helpers import files_below

LEFT_OUT = "report.html"  # its page is free to change, and shows times
# Fields of JSON files and of the metadata of Parquet files that are masked, and why.
FIELDS: Mapping[str, str] = {
    "provenance": "time, command, INPUT's path, versions of Python and of libraries",
    "created": "time of a version",
    "digest": "hash of a shard's plan, which has INPUT's path, and of a copy its time",
    "fingerprint": "hash of all digests",
    "checksum": "of a manifest with the fields above",
    "files": "lengths and checksums of files with the fields above; their names are kept",
    "sidecar_bytes": "length of an index, which has INPUT's path",
    "sidecar_crc32c": "checksum of an index",
}
# Patterns in names and in texts, what replaces them, and why.
PATTERNS: Mapping[str, tuple[str, str]] = {
    r"(generations/\d+-)[0-9a-f]{8}x": (r"\1*x", "hash of INPUT's path"),
    r"(generations/\d+-erase)[0-9a-f]{8}": (r"\1*", "salt of the receipt"),
    r"spool/[0-9a-f]{32}": ("spool/*", "hash of INPUT's path and time"),
    r"('spool:[0-9a-f]+-\d+-)[0-9a-f]{16}'": (r"\1*'", "hash of INPUT's path in an etag"),
    r"'1[0-9a-f]{15}'": ("'*'", "an etag: the time of a file, since 2006, in ns"),
}


def state_of(root: Path, place: Path) -> dict[str, str]:
    """Return the hash of each published file of a dataset, by its masked name.

    Args:
        root: The dataset's folder.
        place: A folder that holds the dataset and INPUT; its path is masked.
    """
    found = defaultdict(list)  # names that are equal when masked share a hash
    for name, path in files_below(root).items():
        if path.name != LEFT_OUT:
            found[mask_text(name, place)].append(masked(path, place))
    return {
        name: hashlib.sha256(b"\0".join(sorted(contents))).hexdigest()[:12]
        for name, contents in found.items()
    }


def masked(path: Path, place: Path) -> bytes:
    """Return the content of a file.

    That of a Parquet file is its schema, its metadata and its rows: the bytes differ with pyarrow.
    """
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        metadata = {key: value.decode() for key, value in (table.schema.metadata or {}).items()}
        if b"shardwright" in metadata:
            metadata[b"shardwright"] = str(_without_fields(json.loads(metadata[b"shardwright"])))
        text = "\n".join(map(str, (table.schema.remove_metadata(), metadata, *table.to_pylist())))
    elif path.suffix == ".json":
        text = json.dumps(_without_fields(json.loads(path.read_bytes())))
    else:
        return path.read_bytes()
    return mask_text(text, place).encode()


def mask_text(text: str, place: Path) -> str:
    """Return a text without the path of a folder, and without `PATTERNS`."""
    text = text.replace(str(place), "PLACE")
    for pattern, (replacement, _) in PATTERNS.items():
        text = re.sub(pattern, replacement, text)
    return text


def _without_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_fields(each) if key not in FIELDS else sorted(each) if key == "files" else "*"
        for key, each in value.items()
    }
