"""Annotations on disk: they come back by image and in order, and memory holds few of them."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.annotations import coco, coco_files
from shardwright.transforms.inputs.annotations.coco_files import (
    IMAGE,
    TEXT,
    AnnotationRows,
    CocoReader,
)
from tests.support.detection_makers import coco_json, listed, picture, write

_NUM_IMAGES = 7


@given(
    added=st.lists(st.tuples(st.integers(0, _NUM_IMAGES - 1), st.integers(-3, 3)), max_size=40),
    numbers=st.permutations(range(-2, _NUM_IMAGES - 2)),
    range_rows=st.integers(1, 6),
    chunk_bytes=st.sampled_from([1, 2000, 1 << 20]),
)
def test_rows_come_back_by_image_and_order(
    added: list[tuple[int, int]], numbers: list[int], range_rows: int, chunk_bytes: int
) -> None:
    rows = AnnotationRows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coco_files, "_CHUNK_BYTES", chunk_bytes)
        for place, (image, order) in enumerate(added):
            rows.add(f"text {place}", image, order)
        rows.flush()
    row_of = np.array(numbers)  # two images have no row
    by_image = rows.by_image(row_of, range_rows)
    ordered = sorted((numbers[image], order, at) for at, (image, order) in enumerate(added))
    for start in range(0, _NUM_IMAGES - 2, range_rows):
        wanted = np.arange(start, min(start + range_rows, _NUM_IMAGES - 2))[::2]
        places, found = by_image.of(wanted)
        expected = [(row, f"text {at}") for row, _, at in ordered if row in wanted]
        assert list(zip(wanted[places], found.column(TEXT).to_pylist(), strict=True)) == expected
        assert found.column(IMAGE).to_pylist() == [row for row, _ in expected]


def test_small_chunks_and_batches_list_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.png" for number in range(9)]
    images = [
        {"id": number, "file_name": name, "width": 40, "height": 20}
        for number, name in enumerate(names)
    ]
    boxes = [
        {"id": 99 - number, "image_id": number * 5 % 11, "category_id": 3 + (number == 7),
         "bbox": [number, 2, 8, 10], "segmentation": [[number, 0.5] * 3]}
        for number in range(40)
    ]  # fmt: skip
    bad = {"id": 7, "image_id": 4, "category_id": 3, "bbox": [1]}
    text = coco_json(*boxes[:20], bad, *boxes[20:], images=images)
    write(tmp_path, {**dict.fromkeys(names, picture()), "x.json": text})
    whole = listed(tmp_path / "x.json")[1:]
    monkeypatch.setattr(coco_files, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(coco, "_BATCH_BYTES", 700)
    assert listed(tmp_path / "x.json")[1:] == whole
    assert [row["id"] for row in whole[0]] == [f"{number}.png" for number in (0, 1, 3, 5, 6, 7, 8)]
    told = [(reject.id, str(reject.reason)) for reject in whole[1]]
    assert told[:2] == [("10", "bad_id"), ("9", "bad_id")]
    assert sorted(told[2:]) == [("2.png", "unknown_label"), ("4.png", "bad_value")]


@pytest.mark.long
def test_annotations_of_coco_are_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coco_files, "_CHUNK_BYTES", 250_000)
    polygon = [[number / 8 for number in range(1000)]]
    item = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": polygon}
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [item] * 500,
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    reader = CocoReader(NO_OPTIONS, frozenset())
    tracemalloc.start()
    assert list(reader.read(str(tmp_path / "coco.json"))) == []
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(reader.objects) == 500
    assert held < 1_000_000, "of 3 MB of polygons"


def test_no_temporary_file_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = AnnotationRows()
    rows.add("text", 0, 0)
    rows.flush()
    assert rows.by_image(np.array([0]), 1).of(np.array([0]))[1].column(TEXT).to_pylist() == ["text"]
    assert list(tmp_path.iterdir()) == []
