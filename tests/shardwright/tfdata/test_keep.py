"""`sw.load(keep=...)`: records are read or decoded once, and keep to their room."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import StorageError, UsageError
from shardwright.tfdata import kept as tf_kept
from tests.support.cached_datasets import wait_until
from tests.support.open_files import open_files
from tests.support.small_datasets import build, write_flat_folder

NUM_IMAGES = 30
SIZE = (8, 10)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("keep")
    images = write_flat_folder(folder / "in", NUM_IMAGES)
    return build(images, folder / "out", "--shard-count", "3")


@pytest.fixture
def dataset(sound: str, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "out"))


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return "memory" if request.param == "memory" else tmp_path_factory.mktemp("kept")


def images_of(ds: tf.data.Dataset) -> dict[bytes, bytes]:
    found = [(example["id"], example["image"].tobytes()) for example in ds.as_numpy_iterator()]
    assert len(found) == len(dict(found))
    return dict(found)


@pytest.mark.long
def test_records_are_read_once(dataset: Path, place: Any) -> None:
    """After the first epoch each record is gone."""

    def load(**options: Any) -> tf.data.Dataset:
        return sw.load(str(dataset), image_size=SIZE, keep="records", keep_in=place, **options)

    expected = images_of(sw.load(str(dataset), image_size=SIZE))
    kept, half = load(shuffle=place == "memory"), load()
    some = images_of(half.take(11))

    assert images_of(kept) == expected
    for shard in dataset.glob("*.tfrecord-*"):
        shard.write_bytes(bytes(shard.stat().st_size))
    assert images_of(kept) == expected
    assert images_of(half.take(11)) == some
    with pytest.raises(tf.errors.DataLossError, match="record 0 at byte"):
        images_of(load())
    assert place == "memory" or list(place.iterdir()) == []  # a file without a name


@pytest.mark.long
def test_images_are_decoded_once(sound: str, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = tf.io.decode_image

    def note(image: bytes) -> bytes:
        decoded.append(image)
        return image

    def noted(image: Any, *args: Any, **more: Any) -> Any:
        image = tf.ensure_shape(tf.numpy_function(note, [image], tf.string), ())
        return decode(image, *args, **more)

    monkeypatch.setattr(tf.io, "decode_image", noted)
    kept = sw.load(sound, image_size=SIZE, keep="images", keep_in=place, shuffle=place == "memory")
    expected = images_of(kept)
    assert len(decoded) == NUM_IMAGES
    assert images_of(kept) == expected
    assert len(decoded) == NUM_IMAGES
    assert place == "memory" or list(place.iterdir()) == []  # a file without a name


@pytest.mark.long
@pytest.mark.parametrize("keep", ["records", "images"])
def test_room_is_given_back_with_the_dataset(dataset: Path, tmp_path: Path, keep: str) -> None:
    """TensorFlow keeps what a pipeline's Python functions refer to; files are closed anyway."""

    def opened() -> list[str]:
        gc.collect()
        return open_files(tmp_path)

    ds = sw.load(str(dataset), image_size=SIZE, keep=keep, keep_in=tmp_path)
    mapped = ds.map(lambda example: example["id"])
    del ds
    assert len(list(mapped)) == NUM_IMAGES
    iterator = iter(mapped)
    del mapped
    next(iterator)
    assert len(opened()) >= 3  # the shards and the file that keeps
    del iterator
    # Of records an empty file is left, for a thread that may be writing still.
    wait_until(lambda: len(opened()) == (keep == "records"))
    assert all(path.endswith("(deleted)") for path in opened())


def test_forgotten_records_stay_forgotten(tmp_path: Path) -> None:
    for records in (tf_kept.RecordsInMemory(3), tf_kept.RecordsOnDisk(3, str(tmp_path))):
        assert [records.get(slot) for slot in range(3)] == [None] * 3
        records.put(1, b"one")
        records.put(0, b"zero")
        assert [records.get(slot) for slot in range(3)] == [b"zero", b"one", None]
        records.forget()
        records.put(1, b"one")
        assert [records.get(slot) for slot in range(3)] == [None] * 3


def test_forgotten_images_stay_forgotten(place: Any) -> None:
    images, image = tf_kept.KeptImages(2, (1, 1, 3), str(place)), np.array([[[1, 2, 3]]], np.uint8)
    assert not images.has(1)
    assert images.put(1, image, np.bool_(True)) is image
    images.put(0, image, np.bool_(False))
    assert (images.has(0), images.has(1)) == (False, True)
    assert images.get(1).tolist() == image.tolist()
    images.forget()
    assert images.put(1, image, np.bool_(True)) is image
    assert not images.has(1)
    with pytest.raises(StorageError, match="image 1 was dropped"):
        images.get(1)


def test_too_little_room_is_refused_with_the_numbers(sound: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"image_size": (224, 224), "keep": "images"}
    num_bytes = NUM_IMAGES * 224 * 224 * 3
    message = "keep='images' needs 4.5 MB of memory, more than ram_bytes=4.5 MB: raise ram_bytes="
    with pytest.raises(UsageError, match=message):
        sw.load(sound, **options, ram_bytes=num_bytes - 1)
    sw.load(sound, **options, ram_bytes=num_bytes)
    sw.load(sound, **options, ram_bytes="1KB", keep_in=tmp_path)
    message = r"keep='records' needs [\d.]+ kB of memory, more than ram_bytes=100 B"
    with pytest.raises(UsageError, match=message):
        sw.load(sound, keep="records", ram_bytes=100)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("memory", "memory, more than half of the free memory, "),
        ("/tmp", "disk, but /tmp has .* free"),
    ],
)
def test_room_without_a_budget_is_that_of_the_machine(place: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"keep='images' needs 1000000.0 TB of {message}"):
        tf_kept.check_room("images", 10**18, place, None)
    assert 1 << 20 < tf_kept.free_ram_bytes() < 1 << 50


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    message = f"cannot write to keep_in='{gone}': No such file or directory: choose another disk"
    with pytest.raises(StorageError, match=message):
        tf_kept.RecordsOnDisk(3, gone)
    with pytest.raises(StorageError, match=message):
        tf_kept.KeptImages(3, (2, 2, 3), gone)


def test_ram_and_thread_budgets_reach_tf_data(sound: str) -> None:
    room = {"ram_bytes": 100_000, "threads": 3}
    options = sw.load(sound, image_size=SIZE, keep="images", **room).options()
    assert options.autotune.ram_budget == 100_000 - NUM_IMAGES * 8 * 10 * 3
    assert options.threading.private_threadpool_size == options.autotune.cpu_budget == 3
    unset = sw.load(sound).options()
    assert unset.autotune.ram_budget is None
    assert unset.threading.private_threadpool_size is None
    assert unset.experimental_symbolic_checkpoint
    assert unset.experimental_warm_start
