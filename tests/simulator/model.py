"""The records that each version of a dataset must hold, and no others."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shardwright.format.example import parse_example
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FRAME_BYTES
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder


class Image(NamedTuple):
    """An image of INPUT: the input that has it, and a number that decides its bytes."""

    source: str
    seed: int


Images = Mapping[str, Image]
"""The images by id, `CLASS/NUMBER.png`."""


def bytes_of(name: str, image: Image) -> bytes:
    """Return a PNG of one pixel that no other id or number has."""
    text = f"of\0{name} {image.seed} of {image.source}".encode()
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"tEXt", text),
        (b"IDAT", zlib.compress(bytes([0, image.seed % 256]))),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@dataclass
class Model:
    """The versions of a dataset.

    Attributes:
        versions: Number -> its records, as committed.
        folders: Number -> the generations that it names.
        erased: Ids that are erased, or may be.
        pinned: The versions that pins keep.
    """

    versions: dict[int, Images] = field(default_factory=dict)
    folders: dict[int, tuple[str, ...]] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    pinned: set[int] = field(default_factory=set)

    @property
    def newest(self) -> int:
        return max(self.versions, default=0)

    def copy(self) -> Model:
        parts = (dict(self.versions), dict(self.folders), set(self.erased), set(self.pinned))
        return Model(*parts)

    def records(self, number: int) -> dict[str, bytes]:
        """Return what a version must hold, as long as nothing is erased."""
        return {name: bytes_of(name, image) for name, image in self.versions[number].items()}

    def check_read(self, number: int, found: Mapping[str, bytes]) -> None:
        """Check what a reader has found while others worked: what is erased may be there."""
        wanted = self.records(number)
        for name, image in found.items():
            assert wanted.get(name) == image, f"version {number} has another {name}"
        missing = wanted.keys() - found.keys() - self.erased
        assert not missing, f"version {number} lacks {sorted(missing)}"

    def check_version(self, root: Folder, version: Manifest, number: int) -> None:
        """Check a version once all tasks have ended."""
        found: dict[str, bytes] = {}
        for name, info in version.named_shards():
            for each, image, label in read_shard(root, name, info):
                assert each not in found, f"version {number} has {each} twice"
                classes = version.schema.class_names
                assert classes[label] == each.partition("/")[0], f"{each} has another class"
                found[each] = image
        wanted = {
            name: image for name, image in self.records(number).items() if name not in self.erased
        }
        assert found.keys() == wanted.keys(), (
            f"version {number} lacks {sorted(wanted.keys() - found.keys())} and has "
            f"{sorted(found.keys() - wanted.keys())} more"
        )
        assert found == wanted, f"version {number} has other bytes"
        assert version.num_records == len(found), f"version {number} states another number"


def read_shard(root: Folder, name: ShardName, info: ShardInfo) -> list[tuple[str, bytes, int]]:
    """Return id, image and label of the live records of a shard."""
    data = root.read_bytes(name.shard)
    assert len(data) == info.num_bytes, f"{name.shard} has {len(data)} bytes"
    rows = read_live_rows(root, name, info, ["id", "offset", "length"]).to_pylist()
    found = []
    for row in rows:
        start, length = row["offset"], row["length"]
        example = parse_example(data[start + 12 : start + length - (FRAME_BYTES - 12)])
        image, label = example["image"][0], int(example["label"][0])
        found.append((row["id"], bytes(image), label))
    return found
