"""Images that are in two splits of a dataset: found by the index, and made sure of by their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.naming import ShardName
from shardwright.storage import Folder
from transforms.publishing import leaks
from transforms.publishing.leaks import Leak, find_leaks

Splits = Mapping[str, Sequence[ShardName]]


def write_dataset(
    root: Path,
    splits: Mapping[str, Sequence[Sequence[bytes]]],
    crcs: Mapping[bytes, int] | None = None,
) -> Splits:
    """Shards that hold images only, one list of images a shard, and their sidecars; the id of an image says where it is."""
    names = {}
    for split, shards in splits.items():
        names[split] = [
            ShardName("pets", split, index, len(shards)) for index in range(len(shards))
        ]
        for name, images in zip(names[split], shards, strict=True):
            write_one(root, name, images, crcs or {})
    return names


def write_one(
    root: Path, name: ShardName, images: Sequence[bytes], crcs: Mapping[bytes, int]
) -> None:
    lengths = [len(image) for image in images]
    offsets = [sum(lengths[:row]) for row in range(len(images))]
    rows = {
        "id": [f"{name.split}/{name.index}/{row}" for row in range(len(images))],
        "offset": offsets,
        "length": lengths,
        "image_offset": offsets,
        "image_length": lengths,
        "crc32c": [crcs.get(image, google_crc32c.value(image)) for image in images],
    }
    nulls = {field.name: [None] * len(images) for field in INDEX_SCHEMA if field.name not in rows}
    (root / name.shard).write_bytes(b"".join(images))
    table = pa.table({**rows, **nulls}).select(INDEX_SCHEMA.names).cast(INDEX_SCHEMA)
    write_sidecar(Folder(str(root)), ShardSummary(name, len(images), sum(lengths), 0, ""), table)


def test_images_of_two_and_three_splits(tmp_path: Path) -> None:
    splits = write_dataset(
        tmp_path,
        {
            "test": [[b"own", b"in train", b"in all"]],
            "validation": [[b"in all"], [b"not here", b"in all"]],
            "train": [[b"x", b"in train", b"y"], [b"z", b"in train", b"z"], [b"in all"]],
        },
    )
    assert find_leaks(Folder(str(tmp_path)), splits) == {
        "test": {
            "train": Leak(2, 0, (("test/0/2", "train/2/0"), ("test/0/1", "train/0/1"))),
            "validation": Leak(1, 0, (("test/0/2", "validation/0/0"),)),
        },
        "validation": {
            "test": Leak(2, 0, (("validation/0/0", "test/0/2"),)),
            "train": Leak(2, 0, (("validation/0/0", "train/2/0"),)),
        },
        "train": {
            "test": Leak(3, 0, (("train/2/0", "test/0/2"), ("train/0/1", "test/0/1"))),
            "validation": Leak(1, 0, (("train/2/0", "validation/0/0"),)),
        },
    }


@pytest.mark.parametrize(
    "splits", [{}, {"train": [[b"a", b"a"]]}, {"test": [[b"a"]], "train": [[b"b", b"c", b"c"]]}]
)
def test_no_leak(tmp_path: Path, splits: dict[str, list[list[bytes]]]) -> None:
    assert find_leaks(Folder(str(tmp_path)), write_dataset(tmp_path, splits)) == {}


def test_one_split_needs_no_index(tmp_path: Path) -> None:
    assert find_leaks(Folder(str(tmp_path)), {"train": [ShardName("pets", "train", 0, 1)]}) == {}


def test_a_checksum_alone_proves_nothing(tmp_path: Path) -> None:
    """Two images of one length and one CRC32C, as two in 4 billion have."""
    splits = write_dataset(
        tmp_path, {"test": [[b"one"]], "train": [[b"two"]]}, {b"one": 7, b"two": 7}
    )
    assert find_leaks(Folder(str(tmp_path)), splits) == {}


def test_so_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "MAX_CHECKED", 3)
    images = [bytes([number]) * (number + 1) for number in range(10)]
    splits = write_dataset(tmp_path, {"test": [images], "train": [[*images, *images]]})
    found = find_leaks(Folder(str(tmp_path)), splits)
    assert (found["test"]["train"].records, found["test"]["train"].unchecked) == (3, 7)
    assert (found["train"]["test"].records, found["train"]["test"].unchecked) == (6, 14)


def test_a_missing_sidecar_is_told(tmp_path: Path) -> None:
    splits = write_dataset(tmp_path, {"test": [[b"a"]], "train": [[b"a"]]})
    (tmp_path / splits["train"][0].sidecar).unlink()
    with pytest.raises(StorageError, match="pets-train"):
        find_leaks(Folder(str(tmp_path)), splits)


@settings(max_examples=40, deadline=None)
@given(
    shards=st.lists(
        st.lists(st.sampled_from([b"a", b"b", b"cc", b"dd", b"e"]), max_size=4),
        min_size=3,
        max_size=6,
    )
)
def test_counts_are_those_of_a_plain_comparison(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[bytes]]
) -> None:
    root = tmp_path_factory.mktemp("dataset")
    splits = {"a": shards[:1], "b": shards[1:2], "c": shards[2:]}
    found = find_leaks(Folder(str(root)), write_dataset(root, splits))
    images = {name: [image for shard in given for image in shard] for name, given in splits.items()}
    wanted = {
        (name, other): number
        for name in images
        for other in images
        if name != other and (number := sum(image in images[other] for image in images[name]))
    }
    assert {
        (name, other): leak.records
        for name, others in found.items()
        for other, leak in others.items()
    } == wanted
