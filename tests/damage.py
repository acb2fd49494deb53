"""Building a small dataset without TensorFlow, and changing one so that only what a test is about is wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from pipelines import build_dataset
from shardwright.example import ExampleFault, parse_example, varint
from shardwright.faults import Fault
from shardwright.index import INDEX_SCHEMA, read_index, read_summary, write_sidecar
from shardwright.manifest import read_manifest
from shardwright.naming import ShardName
from shardwright.records import HEADER_BYTES, crc32c_of, frame_footer, frame_header, scan_records
from shardwright.storage import Folder
from shardwright.verify import verify

CLASSES = ("ape", "bee", "Löwe")
Values = Sequence[bytes] | Sequence[int] | Sequence[float]
Features = dict[str, Values]


def write_images(root: Path, per_class: int = 12, classes: Sequence[str] = CLASSES) -> Path:
    """PNG files of noise in class folders, each one different."""
    rng = np.random.default_rng(7)
    for label in classes:
        (root / label).mkdir(parents=True)
        for number in range(per_class):
            Image.fromarray(rng.integers(0, 255, (6 + number, 9, 3), np.uint8)).save(
                root / label / f"{number}.png"
            )
    return root


def build(source: Path, output: Path, *options: str) -> Path:
    """A dataset built in this process."""
    code = build_dataset.main([str(source), str(output), *options])
    assert code == 0, f"building {output} ended with exit code {code}"
    return output


def first_shard(dataset: Path, split: str = "train") -> ShardName:
    return read_manifest(Folder(str(dataset))).shard_names(split)[0]


def row_offsets(dataset: Path, name: ShardName) -> list[int]:
    """Where a shard's records begin."""
    offsets: list[int] = read_index(Folder(str(dataset)), name)["offset"].to_pylist()
    return offsets


def assert_fault(dataset: Path, wanted: Fault) -> None:
    """`verify` tells such a fault; `what` need only be part of its text."""
    found = verify(str(dataset)).faults
    alike = [
        fault
        for fault in found
        if (fault.file, fault.record, fault.offset) == (wanted.file, wanted.record, wanted.offset)
    ]
    assert any(wanted.what in fault.what for fault in alike), (
        "\n".join(map(str, found)) or "no faults"
    )


def entry(name: str, values: Values) -> bytes:
    """One Features map entry, written by hand from `feature.proto`."""
    if values and isinstance(values[0], bytes):
        kind, body = (
            1,
            b"".join(
                b"\x0a" + varint(len(value)) + value for value in values if isinstance(value, bytes)
            ),
        )
    elif values and isinstance(values[0], float):
        packed = struct.pack(f"<{len(values)}f", *values)
        kind, body = 2, b"\x0a" + varint(len(packed)) + packed
    else:
        packed = b"".join(varint(int(value) % 2**64) for value in values)
        kind, body = 3, b"\x0a" + varint(len(packed)) + packed
    feature = bytes([kind << 3 | 2]) + varint(len(body)) + body
    inner = (
        b"\x0a"
        + varint(len(name.encode()))
        + name.encode()
        + b"\x12"
        + varint(len(feature))
        + feature
    )
    return b"\x0a" + varint(len(inner)) + inner


def example(features: Mapping[str, Values]) -> bytes:
    """A serialized tf.Example."""
    body = b"".join(entry(name, values) for name, values in features.items())
    return b"\x0a" + varint(len(body)) + body


def frame(data: bytes) -> bytes:
    """A TFRecord frame."""
    return frame_header(len(data)) + data + frame_footer(crc32c_of([data]))


def read_features(dataset: Path, name: ShardName) -> list[Features]:
    with open(dataset / name.shard, "rb") as file:
        return [dict(parse_example(span.data)) for span in scan_records(file)]


def forge_shard(dataset: Path, name: ShardName, edit: Callable[[list[Features]], object]) -> None:
    """Change a shard's examples, and make file checksums, index and manifest agree with the change."""
    features = read_features(dataset, name)
    edit(features)
    forge_records(dataset, name, [example(one) for one in features])


def forge_records(dataset: Path, name: ShardName, records: Sequence[bytes]) -> None:
    """Put other records in a shard; rows of records that still hold an image and an id are made anew."""
    content, rows = b"", read_index(Folder(str(dataset)), name).to_pylist()
    for row, data in zip(rows, records, strict=True):
        row |= {"offset": len(content), "length": len(frame(data))} | _row_of(
            data, len(content), row
        )
        content += frame(data)
    (dataset / name.shard).write_bytes(content)
    sums = {"num_bytes": len(content), "crc32c": crc32c_of([content])}
    summary = read_summary(Folder(str(dataset)), name)
    assert summary is not None
    write_sidecar(
        Folder(str(dataset)),
        replace(summary, num_bytes=sums["num_bytes"], crc32c=sums["crc32c"]),
        pa.Table.from_pylist(rows, INDEX_SCHEMA),
    )

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
    except (
        ExampleFault,
        KeyError,
        IndexError,
    ):  # what makes it no whole example is what the test is about
        return {}
    if not (isinstance(image, bytes) and isinstance(example_id, bytes)):
        return {}
    label = features.get("label", [row["label"]])
    return {
        "id": example_id.decode(),
        "image_offset": offset + HEADER_BYTES + data.index(image),
        "image_length": len(image),
        "crc32c": crc32c_of([image]),
        "label": label[0] if len(label) == 1 and isinstance(label[0], int) else None,
    }


def edit_rows(
    dataset: Path, name: ShardName, edit: Callable[[list[dict[str, Any]]], object]
) -> None:
    """Change the rows of a shard's index."""
    summary, rows = (
        read_summary(Folder(str(dataset)), name),
        read_index(Folder(str(dataset)), name).to_pylist(),
    )
    assert summary is not None
    edit(rows)
    write_sidecar(Folder(str(dataset)), summary, pa.Table.from_pylist(rows, INDEX_SCHEMA))


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_bytes())
    edit(content)
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def edit_bytes(path: Path, edit: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)
