"""Batches by position, made ahead: the same in any order, few at a time, again after a fault."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import StorageError
from shardwright.reader.iteration import LookAhead
from tests.support.damage import first_shard
from tests.support.readers import take


def make_reader(dataset: Path, **options: Any) -> sw.Reader:
    defaults = {"global_batch_size": 4, "features": ["id"], "shuffle": True, "prefetch": 3}
    return sw.Reader(str(dataset), **{**defaults, **options})


def chain(batches: LookAhead, position: int, count: int, name: str = "id") -> list[Any]:
    found = []
    for _ in range(count):
        position, batch = batches.take(position)
        found.append(batch[name].tolist())
    return found


def test_positions_lead_from_batch_to_batch(zoo: Path) -> None:
    expected = [batch["id"].tolist() for batch in take(make_reader(zoo), 20)]
    reader = make_reader(zoo)
    batches = reader._look_ahead()
    assert chain(batches, 0, 20) == expected
    assert chain(batches, reader.steps.skip(0, 6), 3) == expected[6:9]
    assert chain(batches, 4, 3) == expected[1:4]
    assert reader.position == 0


def test_readings_from_several_threads(zoo: Path) -> None:
    reader = make_reader(zoo, image=sw.TrainImage(8), features=["image"])
    batches = reader._look_ahead()

    def read(start: int) -> list[Any]:
        return chain(batches, reader.steps.skip(0, start), 15, "image")

    starts = (0, 1, 7, 15)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, starts))
    expected = [batch["image"] for batch in take(reader, 30)]
    for start, images in zip(starts, found, strict=True):
        np.testing.assert_array_equal(images, expected[start : start + 15])


def test_batches_of_readings_that_were_left_are_not_kept(zoo: Path) -> None:
    """However often readings are begun and left, no more batches wait than of two readings."""
    reader = make_reader(zoo)
    batches, waiting, begin = reader._look_ahead(), [], reader.engine.begin

    def remember(step: Any) -> Any:
        waiting.append(begin(step))
        return waiting[-1]

    reader.engine.begin = remember  # type: ignore[method-assign]
    for start in (0, 9, 3, 30, 17):
        chain(batches, reader.steps.skip(0, start), 2)
    assert len(batches._pending) == 8
    assert len(waiting) > 20
    batches.clear()
    assert not batches._pending
    assert all(task.done() for pending in waiting for task in pending.tasks)


def test_after_a_fault_all_batches_are_made_again(dataset: Path) -> None:
    shard = dataset / first_shard(dataset).shard
    reader = make_reader(dataset, shuffle=False, epochs=1)
    data = shard.read_bytes()
    shard.unlink()
    batches = reader._look_ahead()
    with pytest.raises(StorageError, match=f"{shard.name} is missing"):
        batches.take(0)
    shard.write_bytes(data)
    assert chain(batches, 0, len(reader)) == [batch["id"].tolist() for batch in reader]


def test_batches_of_the_next_pass_are_not_made_ahead(zoo: Path) -> None:
    reader = make_reader(zoo, shuffle=False, epochs=1)
    begun, begin = [], reader.engine.begin
    reader.engine.begin = lambda step: begun.append(step.position) or begin(step)  # type: ignore
    batches, position = reader._look_ahead(), reader.steps.skip(0, len(reader) - 1)
    following, batch = batches.take(position)
    assert (following, len(batch["id"])) == (reader.num_records, reader.num_records - position)
    assert begun == [position]
    assert chain(batches, following, 1) == chain(batches, 0, 1)
