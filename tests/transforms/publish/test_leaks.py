"""Images in two splits of a dataset: found by the index, confirmed by their bytes."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.publish import leaks
from shardwright.transforms.publish.leaks import Leak, find_leaks
from tests.support.random_tests import examples

Images = Mapping[str, Sequence[Sequence[bytes]]]
Leaks = dict[str, dict[str, Leak]]
Splits = dict[str, Sequence[ShardName]]


def write_shard(root: Path, name: ShardName, images: Sequence[bytes], crc: int | None) -> None:
    """Write a shard of images alone, and its sidecar; an image's id is its place."""
    lengths = [len(image) for image in images]
    offsets = [sum(lengths[:row]) for row in range(len(images))]
    rows = {
        "id": [f"{name.split}/{name.index}/{row}" for row in range(len(images))],
        "offset": offsets,
        "length": lengths,
        "image_offset": offsets,
        "image_length": lengths,
        "crc32c": [google_crc32c.value(image) if crc is None else crc for image in images],
    }
    others = {
        field.name: [None if field.nullable else 0] * len(images)
        for field in INDEX_SCHEMA
        if field.name not in rows
    }
    (root / name.shard).write_bytes(b"".join(images))
    table = pa.table({**rows, **others}).select(INDEX_SCHEMA.names).cast(INDEX_SCHEMA)
    write_sidecar(Folder(str(root)), ShardSummary(name, len(images), sum(lengths), 0, ""), table)


def write_dataset(root: Path, images: Images, crc: int | None = None) -> Splits:
    splits: Splits = {}
    for split, shards in images.items():
        names = [ShardName("pets", split, index, len(shards)) for index in range(len(shards))]
        splits[split] = names
        for name, content in zip(names, shards, strict=True):
            write_shard(root, name, content, crc)
    return splits


def leaks_in(root: Path, images: Images, crc: int | None = None) -> Leaks:
    return find_leaks(Folder(str(root)), write_dataset(root, images, crc))


def test_images_of_two_and_three_splits(tmp_path: Path) -> None:
    images = {
        "test": [[b"own", b"in train", b"in all"]],
        "validation": [[b"in all"], [b"not here", b"in all"]],
        "train": [[b"x", b"in train", b"y"], [b"z", b"in train", b"z"], [b"in all"]],
    }
    assert leaks_in(tmp_path, images) == {
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


def test_equal_checksums_prove_nothing(tmp_path: Path) -> None:
    assert leaks_in(tmp_path, {"test": [[b"one"]], "train": [[b"two"]]}, crc=7) == {}


def test_less_than_two_splits_need_no_index(tmp_path: Path) -> None:
    assert find_leaks(Folder(str(tmp_path)), {}) == {}
    assert find_leaks(Folder(str(tmp_path)), {"train": [ShardName("pets", "train", 0, 1)]}) == {}


def test_at_most_max_checked_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "MAX_CHECKED", 3)
    images = [bytes([number]) * (number + 1) for number in range(10)]
    found = leaks_in(tmp_path, {"test": [images], "train": [[*images, *images]]})
    counts = [
        (leak.records, leak.unchecked) for leak in (found["test"]["train"], found["train"]["test"])
    ]
    assert counts == [(3, 7), (6, 14)]


def test_a_missing_sidecar_is_named(tmp_path: Path) -> None:
    splits = write_dataset(tmp_path, {"test": [[b"a"]], "train": [[b"a"]]})
    (tmp_path / splits["train"][0].sidecar).unlink()
    with pytest.raises(StorageError, match="pets-train"):
        find_leaks(Folder(str(tmp_path)), splits)


SHARD = st.lists(st.sampled_from([b"a", b"b", b"cc", b"dd", b"e"]), max_size=4)


@examples(15)
@given(shards=st.lists(SHARD, min_size=3, max_size=6))
def test_counts_are_those_of_a_plain_comparison(shards: list[list[bytes]]) -> None:
    splits = {"a": shards[:1], "b": shards[1:2], "c": shards[2:]}
    with tempfile.TemporaryDirectory() as root:
        found = leaks_in(Path(root), splits)
    images = {name: [image for shard in given for image in shard] for name, given in splits.items()}
    common = {
        (one, other): sum(image in images[other] for image in images[one])
        for one, other in itertools.permutations(images, 2)
    }
    assert {pair: number for pair, number in common.items() if number} == {
        (name, other): leak.records for name in found for other, leak in found[name].items()
    }
