"""The command `show`: find one record by its id or number, format it, or save its image."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import (
    NotFoundError,
    RecordFault,
    StorageError,
    UsageError,
)
from shardwright.format.example import Values, one_value, parse_example
from shardwright.format.index import check_record, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import PICTURES, Feature, FeatureKind, Source
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    manifest_of,
    root_of,
    to_json,
)
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines, print_safely, say

_SHOWN_BYTES = 24
_SHOWN_VALUES = 16
_SPACES = str.maketrans("\n\t\r", "   ")
_BINARY = PICTURES | {FeatureKind.TENSOR}  # never shown as text, even if the bytes are valid text
_EPILOG = """\
examples
  shardwright show dataset/ cats/0001.jpg
  shardwright show dataset/ 17 --split validation
  shardwright show dataset/ cats/0001.jpg --save cat.jpg

ID is looked up in every split. N counts from 0 in file order, in `train` or the only split.
--split selects another split for either. If ids are numbers, an id takes precedence over a record
number; --by number overrides this. Reads only the index and that one record.

Exit codes: 0 shown, 1 record missing or unreadable, 2 wrong usage or not a dataset.
"""


class FoundRecord(NamedTuple):
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
        raise NotFoundError(f"unknown split {split!r}; the splits are {', '.join(manifest.splits)}")
    is_number = key.isascii() and key.isdigit()
    if by == "number" and not is_number:
        raise UsageError(f"a record number must be a whole number of at least 0, got {key!r}")
    if by != "number":
        for name in [split] if split else manifest.splits:
            start = 0
            for shard, info in manifest.named_shards(name):
                ids = read_live_rows(root, shard, info, ["id"])["id"]
                row = pc.index(ids, pa.scalar(key, pa.string())).as_py()
                if row >= 0:
                    return read_record(root, manifest, start + row, name)
                start += info.num_live
    splits = ", ".join(manifest.splits)
    if by == "id" or not is_number:
        where = f"split {split!r}" if split else "any split"
        raise NotFoundError(f"no record in {where} has the id {key!r}; the splits are {splits}")
    if split is None and "train" not in manifest.splits and len(manifest.splits) != 1:
        raise NotFoundError(f"a record number needs a split: give --split, one of {splits}")
    usual = split or ("train" if "train" in manifest.splits else next(iter(manifest.splits)))
    count = manifest.splits[usual].num_records
    if int(key) >= count:
        last = f"its records are 0 to {count - 1}" if count else "it has no records"
        raise NotFoundError(
            f"split {usual!r} has no record {int(key)}, and no record has that id: {last}"
        )
    return read_record(root, manifest, int(key), usual)


def read_record(
    root: Folder, manifest: Manifest, number: int, split: str | None = None
) -> FoundRecord:
    """Return a record by its number in a split, or in all of them, from 0 in file order.

    Reads the index of its shard, and only its bytes of the shard.

    Raises:
        StorageError: The index or the record cannot be read.
    """
    shards = manifest.named_shards(split)
    ends = np.cumsum([info.num_live for _, info in shards])
    place = int(np.searchsorted(ends, number, side="right"))
    name, info = shards[place]
    row_number = number - int(ends[place]) + info.num_live
    [row] = read_live_rows(root, name, info).slice(row_number, 1).to_pylist()
    # Before memory is taken for it.
    if not (row["offset"] >= 0 and 0 <= row["length"] <= info.num_bytes - row["offset"]):
        raise StorageError(
            f"{name.sidecar} states a record outside of its shard (row {row_number}): "
            "run `shardwright verify`"
        )
    data = root.read_range(name.shard, row["offset"], row["length"])
    try:
        check_record(row, data)
    except RecordFault as fault:
        raise StorageError(
            f"{name.shard}: {fault}; `shardwright verify` lists all faults"
        ) from fault
    features = parse_example(data[HEADER_BYTES:-FOOTER_BYTES])
    id_feature = manifest.schema.find(Source.ID)
    if id_feature is not None and one_value(features, id_feature) != row["id"].encode():
        raise StorageError(f"{name.shard} and its index do not match: run `shardwright verify`")
    return FoundRecord(name, number, row, features)


def record_json(manifest: Manifest, found: FoundRecord) -> dict[str, Any]:
    """Return the record as JSON; bytes that are not text appear as their number."""
    features, by_key = {}, _by_key(manifest)
    for key, values in found.features.items():
        feature = by_key.get(key)
        shown = [_json_value(value, feature) for value in values]
        features[key] = shown if _is_list(feature, values) else shown[0]
    label, known = one_value(found.features, manifest.schema.label), manifest.schema.class_names
    is_class = isinstance(label, int) and 0 <= label < len(known)
    return {
        "split": found.name.split,
        "number": found.number,
        "shard": found.name.shard,
        **found.row,
        "class_name": known[label] if is_class else None,
        "features": features,
    }


def _by_key(manifest: Manifest) -> dict[str, Feature]:
    """Return the features by the keys that store them."""
    return {
        stored.key: feature for feature in manifest.schema.features for stored in feature.stored
    }


def _is_list(feature: Feature | None, values: Values) -> bool:
    return len(values) != 1 or bool(feature and feature.stored_shape)


def _json_value(value: bytes | int | float, feature: Feature | None) -> Any:
    if isinstance(value, bytes):
        text = _as_text(value, feature)
        return {"num_bytes": len(value)} if text is None else text
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def format_record(manifest: Manifest, found: FoundRecord) -> str:
    """Return the record as lines of text: its location, its image, and every feature."""
    row, name = found.row, found.name
    image = "none"
    if row["image_length"]:
        is_sized = row["width"] and row["height"]
        size = f"{row['width']}x{row['height']}" if is_sized else "of unknown size"
        image = (
            f"{row['format'] or 'unknown format'}, {size}, {show_bytes(row['image_length'])} "
            f"({counted(row['image_length'], 'byte')} at byte {row['image_offset']:,}), "
            f"crc32c {row['crc32c']:#010x}"
        )
    lines = [
        ("id", str(row["id"])),
        (
            "record",
            f"{found.number} of split {name.split!r} "
            f"({counted(manifest.splits[name.split].num_records, 'record')})",
        ),
        ("shard", f"{name.shard}, {counted(row['length'], 'byte')} at byte {row['offset']:,}"),
        ("image", image),
        ("source", " ".join(str(row[key]) for key in ("uri", "etag") if row[key]) or "unknown"),
    ]
    lines += [("", ""), ("features", "")]
    known = _by_key(manifest)
    for key in [*known, *sorted(found.features.keys() - known.keys())]:
        values = found.features.get(key)
        text = "missing" if values is None else _values_text(manifest, known.get(key), values)
        lines.append((f"  {key}", text))
    width = max(len(key) for key, _ in lines)
    return join_lines(f"{key.ljust(width)}  {value}".rstrip() for key, value in lines)


def _values_text(manifest: Manifest, feature: Feature | None, values: Values) -> str:
    known = manifest.schema.names_of(feature) if feature is not None else ()
    shown = ", ".join(_value_text(value, feature, known) for value in values[:_SHOWN_VALUES])
    more = f", ... {counted(len(values), 'value')}" if len(values) > _SHOWN_VALUES else ""
    return f"[{shown}{more}]" if _is_list(feature, values) else shown


def _value_text(value: bytes | int | float, feature: Feature | None, known: Sequence[str]) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value} ({known[value]})" if 0 <= value < len(known) else str(value)
    text = _as_text(value, feature)
    if text is not None:
        return repr(text)
    more = "..." if len(value) > _SHOWN_BYTES else ""
    return f"{value[:_SHOWN_BYTES].hex(' ')}{more} ({counted(len(value), 'byte')})"


def _as_text(value: bytes, feature: Feature | None) -> str | None:
    if feature is not None and feature.kind in _BINARY:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_SPACES).isprintable() else None


def save_image(manifest: Manifest, found: FoundRecord, path: str) -> str:
    """Write the bytes of the record's image to a file; return a description.

    Raises:
        UsageError: The record has no image.
        StorageError: The record is damaged, or the file cannot be written.
    """
    feature = manifest.schema.image
    image = one_value(found.features, feature)
    if feature is None or (feature.is_optional and not image):
        raise UsageError(f"--save {path}: record {found.row['id']!r} has no image")
    if not isinstance(image, bytes):
        raise StorageError(f"{found.name.shard}: the record has no image: run `shardwright verify`")
    folder, filename = os.path.split(local_path(path))
    Folder(folder).write_bytes(filename, image)
    kind = found.row["format"] or "unknown format"
    if feature.encoding == "raw":
        kind = f"raw pixels, uint8 of shape {feature.shape}"
    return f"{path}: {counted(len(image), 'byte')} of {kind}"


@command
def show_command(argv: Sequence[str]) -> int:
    """Run `shardwright show` and return its exit code."""
    parser = make_parser("show", "Show one record: its place, its image and its features.", _EPILOG)
    parser.add_argument("record", metavar="ID|N", help="a record's id, or its number in the split")
    parser.add_argument("--split", metavar="S", help="the split to search")
    parser.add_argument("--by", choices=("id", "number"), help="treat ID|N as this only")
    parser.add_argument("--save", metavar="FILE", help="write the image's bytes to FILE")
    add_version(parser)
    args = parser.parse_args(argv)
    manifest = manifest_of(args)
    found = find_record(
        root_of(args).below(manifest.folder),
        manifest,
        args.record,
        split=args.split,
        by=args.by,
    )
    print_safely(
        to_json(record_json(manifest, found)) if args.json else format_record(manifest, found)
    )
    if args.save is not None:
        say(f"saved {save_image(manifest, found, args.save)}")
    return EXIT_DONE
