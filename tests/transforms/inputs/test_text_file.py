"""Texts in a temporary file: they come back in any order, and memory holds only their places."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.storage.options import NO_OPTIONS
from transforms.inputs.annotations.coco_table import CocoReader
from transforms.inputs.annotations.text_file import TextFile


@given(parts=st.lists(st.lists(st.text(max_size=9)), max_size=4), seed=st.integers(0, 99))
def test_texts_come_back_in_any_order(parts: list[list[str]], seed: int) -> None:
    file = TextFile()
    places = [tuple(file.add(part)) for part in parts]
    starts, lengths = (
        pa.array([value for place in places for value in place[side].to_pylist()], pa.int64())
        for side in (0, 1)
    )
    texts = [text for part in parts for text in part]
    order = random.Random(seed).sample(range(len(texts)), len(texts))
    taken = pa.array(order, pa.int64())
    found = file.read(starts.take(taken), lengths.take(taken))
    assert found.type == pa.large_string()
    assert found.to_pylist() == [texts[place] for place in order]


def test_a_full_disk_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "transforms.inputs.annotations.text_file.tempfile.TemporaryFile",
        partial(open, "/dev/full", "wb", buffering=0),
    )
    with pytest.raises(BuildError, match="No space left on device: set TMPDIR to a folder"):
        TextFile().add(["text"])


def test_polygons_of_coco_are_not_in_memory(tmp_path: Path) -> None:
    polygon = [[number / 8 for number in range(1000)]]
    item = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": polygon}
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [item] * 1000,
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    before = pa.total_allocated_bytes()
    reader = CocoReader(NO_OPTIONS)
    reader.read(str(tmp_path / "coco.json"))
    table = reader.finish()
    assert sum(batch.num_rows for batch in table.objects) == 1000
    assert pa.total_allocated_bytes() - before < 200_000, "of 6 MB of polygons"
