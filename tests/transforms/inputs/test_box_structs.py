"""Columns of structs with the objects of an image: the same objects as in every other format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.storage.folder import Folder
from tests.support.detection_makers import (
    CLASSES,
    HEIGHT,
    OBJECTS,
    WIDTH,
    expected_boxes,
    listed,
    picture,
    pictures,
    write,
)
from tests.support.listings import Rows


def struct_of(name: str, *, numbers: bool, as_lists: bool) -> Any:
    """Return the objects of an image as the pages of `datasets` write them."""
    items = [
        {"bbox": list(box), "category": CLASSES.index(label) if numbers else label, "area": 7.5}
        for label, *box in OBJECTS[name]
    ]
    if not as_lists:
        return items
    return {key: [item[key] for item in items] for key in ("bbox", "category", "area")}


def check(rows: Rows, labels: Any = lambda label: label) -> None:
    for row, (name, objects) in zip(rows, OBJECTS.items(), strict=True):
        assert row["x/objects/bbox"] == [
            pytest.approx(one, abs=1e-6) for one in expected_boxes(name)
        ]
        assert row["x/objects/label"] == [labels(label) for label, *_ in objects]
        assert row["x/objects/area"] == [7.5] * len(objects)
        assert row["stated_size"] == ([HEIGHT, WIDTH] if objects else None)


@pytest.mark.parametrize(("ending", "as_lists"), [("jsonl", True), ("parquet", False)])
def test_metadata_of_image_folders(tmp_path: Path, ending: str, as_lists: bool) -> None:
    rows = [
        {"file_name": f"{name}.png", "objects": struct_of(name, numbers=False, as_lists=as_lists)}
        for name in OBJECTS
    ]
    path = write(tmp_path, pictures(".")) / f"metadata.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source, found, rejects = listed(tmp_path)
    check(found)
    assert [one.name for one in source.features] == [
        "objects/bbox", "objects/label", "objects/area",
    ]  # fmt: skip
    assert (source.name, rejects) == ("image-folder", [])


@pytest.mark.parametrize(("names", "as_lists"), [(CLASSES, True), ((), False)])
def test_hub_parquet(tmp_path: Path, names: Any, as_lists: bool) -> None:
    rows = [
        {
            "image": {"bytes": picture(), "path": f"{name}.png"},
            "objects": struct_of(name, numbers=True, as_lists=as_lists),
        }
        for name in OBJECTS
    ]
    label = {"names": list(names), "_type": "ClassLabel"} if names else {"dtype": "int64"}
    fields = {"bbox": [{"dtype": "float32"}], "category": label, "area": {"dtype": "float32"}}
    stated = {"feature": fields, "_type": "Sequence"} if as_lists else [fields]
    info = {"info": {"features": {"image": {"_type": "Image"}, "objects": stated}}}
    table = pa.Table.from_pylist(rows)
    table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(table, tmp_path / "t.parquet")
    spool = Folder.at(tmp_path / "spool")
    source, found, rejects = listed(tmp_path / "t.parquet", spool=spool)
    check(found, str if names else CLASSES.index)
    [feature] = [one for one in source.features if one.name == "objects/label"]
    assert (feature.names, rejects) == (tuple(names), [])


@pytest.mark.parametrize(("objects", "told"), [
    ({"bbox": [[4, 2, 8, 10]], "label": []}, "'label' has 0 values, and 'bbox' has 1"),
    ({"bbox": [[4, 2, 8]], "label": ["cat"]}, "bbox is [4, 2, 8], not [x, y, width, height]"),
    ({"bbox": [[0.1, 0.1, 0.5, 0.5]], "label": ["cat"]}, "must be [x, y, width, height] in pixels"),
    ({"bbox": [[4, 2, 8, 10]], "label": [None]}, "objects: label has no class"),
    ({"bbox": [[4, 2, 8, 10]], "label": [" "]}, "objects: label has no class"),
    ({"bbox": [[float("nan")] * 4], "label": ["cat"]}, "box a.png#0 is ymin=nan"),
])  # fmt: skip
def test_bad_objects(tmp_path: Path, objects: Any, told: str) -> None:
    good = {"bbox": [[4, 2, 8, 10]], "label": [" cat"]}
    rows = [{"image": "a.png", "objects": objects}, {"image": "b.png", "objects": good}]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    write(tmp_path, {"t.jsonl": text, "a.png": picture(), "b.png": picture()})
    _, [row], [reject] = listed(tmp_path / "t.jsonl")
    assert (row["id"], row["x/objects/label"], reject.id) == ("b.png", ["cat"], "a.png")
    assert told in reject.detail


@pytest.mark.parametrize(("labels", "found"), [([1.0, 2.0], [[1, 2]]), ([1.5, 2.0], [])])
def test_classes_that_are_numbers(tmp_path: Path, labels: Any, found: Any) -> None:
    row = {"image": "a.png", "objects": {"bbox": [[4, 2, 8, 10]] * 2, "label": labels}}
    write(tmp_path, {"t.jsonl": f"{json.dumps(row)}\n", "a.png": picture()})
    _, rows, rejects = listed(tmp_path / "t.jsonl")
    assert [row["x/objects/label"] for row in rows] == found
    assert len(rejects) == 1 - len(found)
