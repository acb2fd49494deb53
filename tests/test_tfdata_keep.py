"""`shardwright.load(keep=...)`: what was read or decoded once is not read or decoded again, and keeps to its room."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import StorageError, UsageError
from shardwright.trainers.tf_kept import (
    KeptImages,
    RecordsInMemory,
    RecordsOnDisk,
    check_room,
    free_ram_bytes,
)
from tests import damage
from tests.cached_datasets import wait_until
from tests.small_datasets import build, write_flat_folder

NUM_IMAGES = 30
SIZE = (8, 10)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keep")
    return Path(
        build(write_flat_folder(folder / "in", NUM_IMAGES), folder / "out", "--shard-count", "3")
    )


@pytest.fixture
def dataset(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "out"))


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return "memory"
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def examples_of(ds: tf.data.Dataset) -> dict[bytes, bytes]:
    """Images by id, one of each."""
    found = [(example["id"], example["image"]) for example in ds.as_numpy_iterator()]
    assert len(found) == len(dict(found))
    return {name: image if isinstance(image, bytes) else image.tobytes() for name, image in found}


@pytest.mark.parametrize("shuffle", [False, True])
def test_records_are_read_once(dataset: Path, place: Any, shuffle: bool) -> None:
    expected = examples_of(sw.load(str(dataset), decode=False))
    ds = sw.load(str(dataset), decode=False, shuffle=shuffle, keep="records", keep_in=place)

    assert examples_of(ds) == expected
    for shard in dataset.glob("*.tfrecord-*"):
        shard.write_bytes(bytes(shard.stat().st_size))
    assert examples_of(ds) == expected
    assert place == "memory" or list(place.iterdir()) == []  # a file without a name


@pytest.mark.parametrize("shuffle", [False, True])
def test_images_are_decoded_once(dataset: Path, place: Any, shuffle: bool) -> None:
    """After the first epoch each record holds another image, its checksum right; what was decoded before is given."""
    expected = examples_of(sw.load(str(dataset), image_size=SIZE))
    ds = sw.load(str(dataset), image_size=SIZE, shuffle=shuffle, keep="images", keep_in=place)
    half = sw.load(str(dataset), image_size=SIZE, keep="images", keep_in=place)
    some = examples_of(half.take(11))

    assert examples_of(ds) == expected
    for name in sw.open(str(dataset)).shard_names("train"):
        rewrite_in_place(dataset / name.shard)
    assert examples_of(ds) == expected
    later = examples_of(half)
    assert len(some) == 11
    assert {name: later[name] for name in some} == some
    assert examples_of(sw.load(str(dataset), image_size=SIZE)).keys() == expected.keys()
    assert (
        examples_of(sw.load(str(dataset), image_size=SIZE)) != expected
    )  # what the records hold now


@pytest.mark.parametrize("keep", ["records", "images"])
def test_what_is_kept_goes_with_the_dataset(dataset: Path, tmp_path: Path, keep: str) -> None:
    """TensorFlow itself keeps what a pipeline's Python functions refer to; files and memory are given back all the same."""

    def opened() -> list[str]:
        gc.collect()
        targets = [
            os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
        ]
        return [target for target in targets if target.startswith(str(tmp_path))]

    ds = sw.load(str(dataset), image_size=SIZE, keep=keep, keep_in=tmp_path)
    mapped = ds.map(lambda example: example["id"])
    del ds
    assert len(list(mapped)) == NUM_IMAGES
    iterator = iter(mapped)
    del mapped
    next(iterator)
    assert len(opened()) >= 3  # the shards, and what keeps
    del iterator
    # Of records an empty file is left, for a thread that may be writing still.
    wait_until(lambda: len(opened()) == (keep == "records"))
    assert all(path.endswith("(deleted)") for path in opened())


def test_what_is_forgotten_stays_so(tmp_path: Path) -> None:
    for records in (RecordsInMemory(3), RecordsOnDisk(3, str(tmp_path))):
        assert [records.get(slot) for slot in range(3)] == [None] * 3
        records.put(1, b"one")
        records.put(0, b"zero")
        assert [records.get(slot) for slot in range(3)] == [b"zero", b"one", None]
        records.forget()
        records.put(1, b"one")
        assert [records.get(slot) for slot in range(3)] == [None] * 3
    for place in ("memory", str(tmp_path)):
        images, image = KeptImages(2, (1, 1, 3), place), np.array([[[1, 2, 3]]], np.uint8)
        assert not images.has(1)
        assert images.put(1, image, np.bool_(True)) is image
        images.put(0, image, np.bool_(False))
        assert (images.has(0), images.has(1), images.get(1).tolist()) == (
            False,
            True,
            [[[1, 2, 3]]],
        )
        images.forget()
        assert images.put(1, image, np.bool_(True)) is image
        assert not images.has(1)
        with pytest.raises(StorageError, match="image 1 is not kept any more"):
            images.get(1)


def rewrite_in_place(shard: Path) -> None:
    """Every record with the pixels of another PNG, of the same number of bytes."""
    with open(shard, "rb") as file:
        spans = list(damage.scan_records(file))
    records = []
    for span in spans:
        features = damage.parse_example(span.data)
        image = features["image"][0]
        assert isinstance(image, bytes)
        records.append(
            span.data.replace(
                image,
                tf.io.encode_png(np.zeros((6, 10, 3), np.uint8)).numpy().ljust(len(image), b"\0"),
            )
        )
    shard.write_bytes(b"".join(damage.frame(record) for record in records))


def test_what_does_not_fit_is_refused_with_the_numbers(dataset: Path, tmp_path: Path) -> None:
    num_bytes = NUM_IMAGES * 224 * 224 * 3
    with pytest.raises(
        UsageError,
        match=r"keep='images' needs 4.5 MB of memory, more than ram_bytes=4.5 MB: give a larger ram_bytes=",
    ):
        sw.load(str(dataset), image_size=(224, 224), keep="images", ram_bytes=num_bytes - 1)
    sw.load(str(dataset), image_size=(224, 224), keep="images", ram_bytes=num_bytes)
    sw.load(str(dataset), image_size=(224, 224), keep="images", ram_bytes="1KB", keep_in=tmp_path)
    with pytest.raises(
        UsageError, match=r"keep='records' needs [\d.]+ kB of memory, more than ram_bytes=100 B"
    ):
        sw.load(str(dataset), keep="records", ram_bytes=100)
    with pytest.raises(
        UsageError,
        match=r"keep='images' needs 1000000.0 TB of memory, more than half of the memory that is free, ",
    ):
        check_room("images", 10**18, "memory", None)
    with pytest.raises(
        UsageError, match=rf"keep='images' needs 1000000.0 TB of disk, and {tmp_path} has .* free"
    ):
        check_room("images", 10**18, str(tmp_path), None)


def test_free_memory_is_that_of_this_machine() -> None:
    assert 1 << 20 < free_ram_bytes() < 1 << 50


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for make in (lambda: RecordsOnDisk(3, gone), lambda: KeptImages(3, (2, 2, 3), gone)):
        with pytest.raises(
            StorageError,
            match=rf"keep_in='{gone}' cannot be written: No such file or directory: give a folder",
        ):
            make()


def test_ram_and_thread_budgets_reach_tf_data(dataset: Path) -> None:
    kept = NUM_IMAGES * 8 * 10 * 3
    options = sw.load(
        str(dataset), image_size=SIZE, keep="images", ram_bytes=100_000, threads=3
    ).options()
    assert options.autotune.ram_budget == 100_000 - kept
    assert options.threading.private_threadpool_size == options.autotune.cpu_budget == 3

    unset = sw.load(str(dataset)).options()
    assert unset.autotune.ram_budget is None
    assert unset.threading.private_threadpool_size is None
    assert unset.experimental_symbolic_checkpoint
    assert unset.experimental_warm_start
