"""Texts in a temporary file: they come back in any order, and memory holds only their places."""

from __future__ import annotations

import io
import json
import random
import tempfile
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.storage.options import NO_OPTIONS
from transforms.inputs.annotations.coco_table import CocoReader
from transforms.inputs.annotations.text_file import TextFile


@given(texts=st.lists(st.text(max_size=9)), seed=st.integers(0, 99))
def test_texts_come_back_in_any_order(texts: list[str], seed: int) -> None:
    file = TextFile()
    places = [file.add(text) for text in texts]
    starts, lengths = (pa.array([place[side] for place in places], pa.int64()) for side in (0, 1))
    order = random.Random(seed).sample(range(len(texts)), len(texts))
    taken = pa.array(order, pa.int64())
    found = file.read(starts.take(taken), lengths.take(taken))
    assert found.type == pa.large_string()
    assert found.to_pylist() == [texts[place] for place in order]


def test_a_full_disk_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_full(**_: object) -> io.RawIOBase:
        return Path("/dev/full").open("wb", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", open_full)
    with pytest.raises(BuildError, match="No space left on device: set TMPDIR to a folder"):
        TextFile().add("text")


def test_polygons_of_coco_are_not_in_memory(tmp_path: Path) -> None:
    polygon = [[number / 8 for number in range(1000)]]
    item = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": polygon}
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [item] * 1000,
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    reader = CocoReader(NO_OPTIONS)
    tracemalloc.start()
    reader.read(str(tmp_path / "coco.json"))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(reader.table.objects["image"]) == 1000
    assert held < 2_000_000, "of 6 MB of polygons"
