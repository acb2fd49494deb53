"""Format one record as text or JSON, or save its image."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import StorageError, UsageError
from shardwright.format.example import ExampleFault
from shardwright.format.manifest import Manifest
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.format.tensor_features import read_tensor
from shardwright.inspect.example_check import Values, one_value
from shardwright.inspect.record_lookup import FoundRecord
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines

_SHOWN_BYTES = 24
_SHOWN_VALUES = 16
_BINARY = PICTURES | {FeatureKind.TENSOR}  # never shown as text, even if the bytes are valid text


def record_json(manifest: Manifest, found: FoundRecord) -> dict[str, Any]:
    """Return the record as JSON; bytes that are not text appear as their number."""
    features = {}
    for name, values in found.features.items():
        shown = [_json_value(manifest, name, value) for value in values]
        features[name] = shown[0] if len(shown) == 1 and not _is_list(manifest, name) else shown
    label = one_value(found.features, manifest.schema.label)
    return {
        "split": found.name.split,
        "number": found.number,
        "shard": found.name.shard,
        **found.row,
        "class_name": manifest.schema.class_names[label] if _is_class(manifest, label) else None,
        "features": features,
    }


def _is_list(manifest: Manifest, name: str) -> bool:
    return any(
        stored.shape
        for feature in manifest.schema.features
        for stored in feature.stored
        if stored.key == name
    )


def _is_class(manifest: Manifest, label: Any) -> bool:
    return isinstance(label, int) and 0 <= label < len(manifest.schema.class_names)


def _json_value(manifest: Manifest, name: str, value: bytes | int | float) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, bytes):
        return value
    binary = any(
        feature.name == name and feature.kind in _BINARY for feature in manifest.schema.features
    )
    text = None if binary else _as_text(value)
    return {"num_bytes": len(value)} if text is None else text


def format_record(manifest: Manifest, found: FoundRecord) -> str:
    """Return the record as lines of text: its location, its image, and every feature."""
    row, name = found.row, found.name
    lines = [
        ("id", str(row["id"])),
        (
            "record",
            f"{found.number} of split {name.split!r} "
            f"({counted(manifest.splits[name.split].num_records, 'record')})",
        ),
        ("shard", f"{name.shard}, {counted(row['length'], 'byte')} at byte {row['offset']:,}"),
        ("image", _image_text(row)),
        ("source", " ".join(str(row[key]) for key in ("uri", "etag") if row[key]) or "unknown"),
    ]
    shown = [*lines, ("", ""), ("features", ""), *_feature_lines(manifest, found.features)]
    width = max(len(key) for key, _ in shown)
    return join_lines(f"{key.ljust(width)}  {value}".rstrip() for key, value in shown)


def _image_text(row: Mapping[str, Any]) -> str:
    if not row["image_length"]:
        return "none"
    size = (
        f"{row['width']}x{row['height']}" if row["width"] and row["height"] else "of unknown size"
    )
    return (
        f"{row['format'] or 'unknown format'}, {size}, {show_bytes(row['image_length'])} "
        f"({counted(row['image_length'], 'byte')} at byte {row['image_offset']:,}), "
        f"crc32c {row['crc32c']:#010x}"
    )


def _feature_lines(manifest: Manifest, features: Mapping[str, Values]) -> Iterator[tuple[str, str]]:
    known = {
        stored.key: feature for feature in manifest.schema.features for stored in feature.stored
    }
    for name in [*known, *sorted(features.keys() - known.keys())]:
        values = features.get(name)
        yield (
            f"  {name}",
            "missing" if values is None else _values_text(manifest, known.get(name), values),
        )


def _values_text(manifest: Manifest, feature: Feature | None, values: Values) -> str:
    kind = feature.kind if feature is not None else None
    texts = [_value_text(value, kind) for value in values[:_SHOWN_VALUES]]
    names = manifest.schema.names_of(feature) if feature is not None else ()
    texts = [
        f"{text} ({names[value]})" if isinstance(value, int) and 0 <= value < len(names) else text
        for text, value in zip(texts, values, strict=False)
    ]
    more = f", ... {counted(len(values), 'value')}" if len(values) > _SHOWN_VALUES else ""
    is_list = bool(feature.stored_shape) if feature is not None else len(values) != 1
    return f"[{', '.join(texts)}{more}]" if is_list or len(values) != 1 else texts[0]


def _value_text(value: bytes | int | float, kind: FeatureKind | None) -> str:
    if not isinstance(value, bytes):
        return f"{value:g}" if isinstance(value, float) else str(value)
    text = None if kind in _BINARY else _as_text(value)
    if text is not None:
        return repr(text)
    more = "..." if len(value) > _SHOWN_BYTES else ""
    return f"{value[:_SHOWN_BYTES].hex(' ')}{more} ({counted(len(value), 'byte')})"


def _as_text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return (
        text
        if all(character.isprintable() or character in "\n\t\r" for character in text)
        else None
    )


def save_image(manifest: Manifest, found: FoundRecord, path: str) -> str:
    """Write the record's image to a file, raw pixels as a NumPy array; return a description.

    Raises:
        UsageError: The record has no image, or one of raw pixels and `path` does not end in `.npy`.
        StorageError: The record is damaged, or the file cannot be written.
    """
    feature = manifest.schema.image
    image = one_value(found.features, feature)
    if feature is None or (feature.is_optional and not image):
        raise UsageError(f"--save {path}: record {found.row['id']!r} has no image")
    if not isinstance(image, bytes):
        raise StorageError(f"{found.name.shard}: the record has no image: run `shardwright verify`")
    folder, filename = os.path.split(local_path(path))
    target = Folder(folder)
    if feature.encoding not in ("raw", "tensor"):
        target.write_bytes(filename, image)
        return f"{path}: {counted(len(image), 'byte')} of {found.row['format'] or 'unknown format'}"
    if not path.endswith(".npy"):
        raise UsageError(
            f"--save {path}: the image is raw pixels; use a file name that ends in .npy"
        )
    buffer = BytesIO()
    pixels = _pixels(found, feature, image)
    np.save(buffer, pixels)
    target.write_bytes(filename, buffer.getvalue())
    return f"{path}: a {pixels.dtype} array of shape {pixels.shape}"


def _pixels(found: FoundRecord, feature: Feature, image: bytes) -> npt.NDArray[Any]:
    if feature.encoding == "tensor":
        try:
            return read_tensor(feature, image)
        except ExampleFault as fault:
            raise StorageError(f"{found.name.shard}: {fault}") from fault
    shape = tuple(size or 0 for size in feature.shape)
    dtype = np.dtype(feature.dtype or "uint8").newbyteorder("<")
    if len(image) != math.prod(shape) * dtype.itemsize:
        raise StorageError(
            f"{found.name.shard}: the image has {counted(len(image), 'byte')}, "
            f"but shape {shape} needs {math.prod(shape) * dtype.itemsize}"
        )
    return np.frombuffer(image, dtype).reshape(shape)
