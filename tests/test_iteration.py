"""A reading under way: what becomes of the batches that are made ahead when nobody wants them any more."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import shardwright as sw
from shardwright.images import StoredImage
from tests import trainer_datasets

UINT8 = np.dtype(np.uint8)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainer_datasets.pictures(tmp_path_factory)


@dataclass(frozen=True)
class CollectingImage:
    """Decodes nothing, and has the garbage collector run in the reader's own threads, as it may at any time."""

    permits: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    collected: ClassVar[list[int]] = []
    shape: tuple[int, int, int] = (1, 1, 3)
    dtype: Any = UINT8
    is_random: bool = False

    def apply(self, data: bytes | memoryview, stored: StoredImage, draw: int, out: Any) -> Any:
        del data, stored, draw
        assert self.permits.acquire(timeout=20)
        self.collected.append(gc.collect())
        out[:] = 0
        return out


def test_a_reader_that_is_dropped_ends_its_thread(pictures: Path) -> None:
    """The collector finds the reader in its own thread, which must not wait for what it is doing itself."""
    before = set(threading.enumerate())
    reader = sw.Reader(pictures, global_batch_size=4, image=CollectingImage(), threads=1)
    CollectingImage.permits.release(4)
    next(iter(reader))
    (thread,) = set(threading.enumerate()) - before
    CollectingImage.collected.clear()

    del reader  # in the middle of the second batch
    CollectingImage.permits.release(100)
    thread.join(20)

    assert not thread.is_alive()
    assert CollectingImage.collected[0] > 0
