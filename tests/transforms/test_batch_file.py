"""Batches in a temporary file: they come back in any order, and a full disk is an error."""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.transforms.batch_file import BatchFile


def batch_of(texts: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.large_string())})


@given(texts=st.lists(st.lists(st.text(max_size=9))), seed=st.integers(0, 99))
def test_batches_come_back_in_any_order(texts: list[list[str]], seed: int) -> None:
    file = BatchFile()
    places = [file.add(batch_of(some)) for some in texts]
    for number in random.Random(seed).sample(range(len(texts)), len(texts)):
        assert file.read(places[number]) == batch_of(texts[number])


def test_a_full_disk_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_full(**_: object) -> io.RawIOBase:
        return Path("/dev/full").open("wb", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", open_full)
    with pytest.raises(BuildError, match="No space left on device: set TMPDIR to a folder"):
        BatchFile().add(batch_of(["text"]))
