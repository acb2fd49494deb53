"""Small datasets built without TensorFlow, and changes to them that leave all else consistent."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from PIL import Image

from shardwright.format.example import ExampleFault, parse_example, varint
from shardwright.format.index import INDEX_SCHEMA, read_index, read_summary, write_sidecar
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import read_manifest, seal
from shardwright.format.naming import ShardName
from shardwright.format.records import (
    HEADER_BYTES,
    frame_footer,
    frame_header,
    scan_records,
)
from shardwright.inspect.faults import Verification
from shardwright.inspect.verify import verify
from shardwright.pipelines.commands import build as build_command
from shardwright.storage.folder import Folder

CLASSES = ("ape", "bee", "Löwe")
Values = Sequence[bytes] | Sequence[int] | Sequence[float]
Features = dict[str, Values]


def write_images(root: Path, per_class: int = 12, classes: Sequence[str] = CLASSES) -> Path:
    """PNG files of noise in class folders, each one different."""
    rng = np.random.default_rng(7)
    for label in classes:
        (root / label).mkdir(parents=True)
        for number in range(per_class):
            pixels = rng.integers(0, 255, (6 + number, 9, 3), np.uint8)
            Image.fromarray(pixels).save(root / label / f"{number}.png")
    return root


def build(source: Path, output: Path, *options: str) -> Path:
    """Build a dataset in this process."""
    code = build_command.main([str(source), str(output), *options])
    assert code == 0, f"building {output} ended with exit code {code}"
    return output


def first_shard(dataset: Path, split: str = "train") -> ShardName:
    return read_manifest(Folder(str(dataset))).shard_names(split)[0]


def row_offsets(dataset: Path, name: ShardName) -> list[int]:
    """Return the offsets of a shard's records in bytes."""
    return list(read_index(Folder(str(dataset)), name)["offset"].to_pylist())


def assert_fault(
    dataset: Path, wanted: DatasetFault, *, check: Callable[[str], Verification] = verify
) -> None:
    """Check that `verify`, or another check, reports this fault; `what` may be a part of it."""
    found = check(str(dataset)).faults
    alike = [fault for fault in found if replace(fault, what=wanted.what) == wanted]
    message = "\n".join(map(str, found)) or "no faults"
    assert any(wanted.what in fault.what for fault in alike), message


def entry(name: str, values: Values) -> bytes:
    """Encode one Features map entry by hand, from `feature.proto`."""
    if values and isinstance(values[0], bytes):
        kind, body = 1, b"".join(_field(1, value) for value in values if isinstance(value, bytes))
    elif values and isinstance(values[0], float):
        kind, body = 2, _field(1, struct.pack(f"<{len(values)}f", *values))
    else:
        kind, body = 3, _field(1, b"".join(varint(int(value) % 2**64) for value in values))
    return _field(1, _field(1, name.encode()) + _field(2, _field(kind, body)))


def _field(number: int, content: bytes) -> bytes:
    """Encode a protocol buffer's field of bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def example(features: Mapping[str, Values]) -> bytes:
    """Serialize a tf.Example."""
    return _field(1, b"".join(entry(name, values) for name, values in features.items()))


def frame(data: bytes) -> bytes:
    """Return a TFRecord frame."""
    return frame_header(len(data)) + data + frame_footer(google_crc32c.value(data))


def read_features(dataset: Path, name: ShardName) -> list[Features]:
    with open(dataset / name.shard, "rb") as file:
        return [dict(parse_example(span.data)) for span in scan_records(file)]


def forge_shard(dataset: Path, name: ShardName, edit: Callable[[list[Features]], object]) -> None:
    """Change a shard's examples, and its checksums, index and manifest accordingly."""
    features = read_features(dataset, name)
    edit(features)
    forge_records(dataset, name, [example(one) for one in features])


def forge_records(dataset: Path, name: ShardName, records: Sequence[bytes]) -> None:
    """Replace a shard's records, and the index rows of those that hold an image and an id."""
    content, rows = b"", read_index(Folder(str(dataset)), name).to_pylist()
    for row, data in zip(rows, records, strict=True):
        row |= {"offset": len(content), "length": len(frame(data))}
        row["record_crc32c"] = google_crc32c.value(data)
        row |= _row_of(data, len(content), row)
        content += frame(data)
    (dataset / name.shard).write_bytes(content)
    sums = {"num_bytes": len(content), "crc32c": google_crc32c.value(bytes(content))}
    _write_rows(dataset, name, rows, **sums)

    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"][name.split]["shards"][name.index].update(sums)
        for split in manifest["splits"].values():
            split["num_bytes"] = sum(shard["num_bytes"] for shard in split["shards"])
        manifest["num_bytes"] = sum(split["num_bytes"] for split in manifest["splits"].values())

    edit_json(dataset / "manifest.json", edit)


def _row_of(data: bytes, offset: int, row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        features = parse_example(data)
        image, example_id = features["image"][0], features["id"][0]
    except (ExampleFault, KeyError, IndexError):  # it is incomplete on purpose
        return {}
    if not (isinstance(image, bytes) and isinstance(example_id, bytes)):
        return {}
    label = features.get("label", [row["label"]])
    return {
        "id": example_id.decode(),
        "image_offset": offset + HEADER_BYTES + data.index(image),
        "image_length": len(image),
        "crc32c": google_crc32c.value(image),
        "label": label[0] if len(label) == 1 and isinstance(label[0], int) else None,
    }


def edit_rows(
    dataset: Path, name: ShardName, edit: Callable[[list[dict[str, Any]]], object]
) -> None:
    """Change the rows of a shard's index."""
    rows = read_index(Folder(str(dataset)), name).to_pylist()
    edit(rows)
    _write_rows(dataset, name, rows)


def _write_rows(dataset: Path, name: ShardName, rows: list[dict[str, Any]], **sums: int) -> None:
    summary = read_summary(Folder(str(dataset)), name)
    assert summary is not None
    table = pa.Table.from_pylist(rows, INDEX_SCHEMA)
    written = write_sidecar(Folder(str(dataset)), replace(summary, **sums), table)
    assert written.sidecar is not None
    facts = {"sidecar_bytes": written.sidecar.num_bytes, "sidecar_crc32c": written.sidecar.crc32c}
    edit_json(
        dataset / "manifest.json",
        lambda manifest: manifest["splits"][name.split]["shards"][name.index].update(facts),
    )


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file. A changed manifest gets its checksum, as if it had been written so."""
    content = json.loads(path.read_bytes())
    if content.pop("checksum", None) is None:
        edit(content)
        path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
        return
    edit(content)
    path.write_bytes(seal(content))


def edit_bytes(path: Path, edit: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)
