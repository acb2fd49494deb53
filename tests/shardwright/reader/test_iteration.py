"""A reader that is dropped while batches are made ahead."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import BadRecordError
from shardwright.images.decode import StoredImage
from tests.support.build_helpers import wait_for
from tests.support.damage import first_shard, row_offsets
from tests.support.open_files import open_files
from tests.support.readers import ids_of, take

UINT8 = np.dtype(np.uint8)


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Have the collector look at new objects only, and only when it is called.

    With all modules, a collection takes 0.3 s.
    """
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@dataclass(frozen=True)
class CollectingImage:
    """An image whose decoding runs the garbage collector in the reader's own thread."""

    permits: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    collected: ClassVar[list[int]] = []
    shape: tuple[int, int, int] = (1, 1, 3)
    dtype: Any = UINT8

    def apply(self, data: bytes, stored: StoredImage, draw: int, out: Any, show: Any) -> Any:
        del data, stored, draw, show
        assert self.permits.acquire(timeout=120)
        self.collected.append(gc.collect())
        out[:] = 0
        return out


@pytest.mark.usefixtures("small_heap")
def test_a_reader_that_is_dropped_ends_its_thread(zoo: Path) -> None:
    """The collector finds the reader in the reader's own thread, which must not wait for itself."""
    before = set(threading.enumerate())
    reader = sw.Reader(zoo, global_batch_size=4, image=CollectingImage(), threads=1)
    CollectingImage.permits.release(4)
    iterator = iter(reader)
    next(iterator)
    (thread,) = set(threading.enumerate()) - before
    CollectingImage.collected.clear()

    cycle: list[Any] = [reader, iterator]
    cycle.append(cycle)
    del reader, iterator, cycle  # in the middle of the second batch
    CollectingImage.permits.release(100)
    thread.join(120)
    assert not thread.is_alive()
    assert CollectingImage.collected[0] > 0


@pytest.mark.usefixtures("small_heap")
def test_readers_that_are_dropped_leave_no_file_open(dataset: Path) -> None:
    """Reads a copy, of which no reader of another test has a file open."""

    def count_open() -> int:
        gc.collect()
        return len(open_files(dataset))

    kept = sw.Reader(dataset, global_batch_size=4, shuffle=True)
    take(kept, 3)
    assert count_open() > 0  # so what follows can fail
    del kept
    for _ in range(5):
        take(sw.Reader(dataset, global_batch_size=4, shuffle=True), 3)
    wait_for(lambda: count_open() == 0)  # threads that make batches ahead end on their own


def test_after_an_error_the_same_batch_comes_next(zoo: Path, tmp_path: Path) -> None:
    """Batches that were made ahead of it are made again, in their order."""
    dataset = Path(shutil.copytree(zoo, tmp_path / "zoo"))
    shard = dataset / first_shard(dataset).shard
    sound = shard.read_bytes()
    options: dict[str, Any] = {"global_batch_size": 2, "epochs": 1, "shuffle": False}
    with sw.Reader(str(dataset), **options) as reader:
        wanted = ids_of(reader)
    at = row_offsets(dataset, first_shard(dataset))[4] + 30
    shard.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    with sw.Reader(str(dataset), **options) as reader:
        batches = iter(reader)
        found = ids_of([next(batches), next(batches)])
        for _ in range(2):
            with pytest.raises(BadRecordError, match="record 4 at byte"):
                next(batches)
            assert reader.state()["position"] == 4
        shard.write_bytes(sound)
        assert found + ids_of(batches) == wanted


def test_a_closed_reader_has_no_shard_open(dataset: Path) -> None:
    reader = sw.Reader(dataset, global_batch_size=4)
    next(iter(reader))
    assert open_files(dataset) != []
    reader.close()
    assert open_files(dataset) == []
