"""Warnings about the processes of a training, when a pass begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardwright as sw


@pytest.mark.parametrize(("rank", "world_size"), [("3", "4"), ("0", "1"), ("", ""), ("a", "4")])
def test_processes_of_torchrun_that_read_everything_are_told(
    zoo: Path,
    rank: str,
    world_size: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = sw.Reader(zoo, batch_size=4)
    one = sw.Reader(zoo, global_batch_size=4, host_index=0, host_count=2)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    iter(one)
    assert caplog.messages == []
    iter(reader)
    iter(reader.grain())  # once a reader is enough
    iter(sw.Reader(zoo, batch_size=4).grain())
    told = (
        "this is process 3 of 4, and its reader has all of each batch: unless the others are to "
        'get the same, open it with host_index=int(os.environ["RANK"]), '
        'host_count=int(os.environ["WORLD_SIZE"]), and the same seed'
    )
    assert caplog.messages == [told] * 2 * (rank == "3")


@pytest.mark.parametrize(
    ("batch_size", "host_count", "remainder", "is_told"),
    [(8, 4, "keep", True), (8, 2, "keep", True), (8, 4, "pad", False), (8, 4, "drop", False),
     (5, 5, "keep", False), (8, 1, "keep", False)],
)  # fmt: skip
def test_a_host_that_gets_no_row_is_told(
    zoo: Path,
    batch_size: int,
    host_count: int,
    remainder: str,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last batch has one record, of 25."""
    options: Any = {"global_batch_size": batch_size, "remainder": remainder}
    reader = sw.Reader(zoo, "train[:25]", host_index=0, host_count=host_count, **options)
    iter(reader)
    assert [text[:36] for text in caplog.messages] == [
        "the last batch of each epoch has few"
    ] * is_told
