"""Tiny detection datasets in each annotation format, with the same objects in all of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.transforms.rejects import Reject
from tests.support.buckets import Bucket
from tests.support.listings import Rows
from tests.support.tfrecord_makers import records_of as records_of

WIDTH, HEIGHT = 40, 20
CLASSES = ("cat", "dog", "zebra")
# Image -> (class, x, y, width, height in pixels).
OBJECTS: Mapping[str, Sequence[tuple[str, int, int, int, int]]] = {
    "a": [("zebra", 4, 2, 8, 10), ("cat", 0, 0, 40, 20)], "b": [], "ü c": [("dog", 20, 10, 10, 5)],
}  # fmt: skip
LABELS = {name: [label for label, *_ in objects] for name, objects in OBJECTS.items()}


def picture(width: int = WIDTH, height: int = HEIGHT, color: int = 90, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (color, 30, 10)).save(file, kind)
    return file.getvalue()


def mask(number: int) -> bytes:
    """Return a mask of one class number, with a palette, as VOC's have it."""
    image = Image.new("P", (WIDTH, HEIGHT), number)
    image.putpalette([value for color in range(256) for value in (color, 255 - color, 7)])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files below `root`, folders included; return `root`."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def upload(root: Path, bucket: Bucket, prefix: str) -> str:
    """Put a folder's files below a prefix; return its address."""
    for path in root.rglob("*"):
        if path.is_file():
            bucket.put(f"{prefix}/{path.relative_to(root)}", path.read_bytes())
    return f"{bucket.uri}/{prefix}"


def pictures(folder: str, names: Sequence[str] = tuple(OBJECTS)) -> dict[str, bytes]:
    return {f"{folder}/{name}.png": picture(color=10 * number) for number, name in enumerate(names)}


def coco(names: Sequence[str] = tuple(OBJECTS), **changes: Any) -> dict[str, Any]:
    """Return a COCO json for these images; `changes` replace its sections."""
    images = [
        {"id": number, "file_name": f"{name}.png", "width": WIDTH, "height": HEIGHT}
        for number, name in enumerate(names)
    ]
    boxes = [(number, *rest) for number, name in enumerate(names) for rest in OBJECTS[name]]
    annotations = [
        {"id": index, "image_id": number, "category_id": 10 * CLASSES.index(label), "bbox": box}
        for index, (number, label, *box) in enumerate(boxes)
    ]
    more = {"area": 7.5, "iscrowd": 0, "segmentation": [[1, 2.5, 3, 4]]}
    return {
        "info": {"year": 2026},
        "images": images,
        "annotations": [annotation | more for annotation in annotations],
        "categories": [{"id": 10 * n, "name": CLASSES[n]} for n in (2, 1, 0)],
        **changes,
    }


IMAGE = {"id": 1, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}
CATEGORY = {"id": 3, "name": "cat"}
GOOD = {"id": 7, "image_id": 1, "category_id": 3, "bbox": [4, 2, 8, 10]}


def coco_json(*annotations: Any, images: Any = (IMAGE,), categories: Any = (CATEGORY,)) -> str:
    """Return the text of a COCO json of these sections."""
    sections = {"images": images, "annotations": annotations, "categories": categories}
    return json.dumps(sections)


def voc_xml(
    objects: Sequence[tuple[str, float, float, float, float]],
    size: str = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>",
    more: str = "",
) -> str:
    parts = (
        f"<object><name>{label}</name>{more}<bndbox><xmin>{x}</xmin><ymin>{y}</ymin>"
        f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
        for label, x, y, w, h in objects
    )
    return f"<annotation><filename>x.png</filename>{size}{''.join(parts)}</annotation>"


def yolo_txt(objects: Sequence[tuple[str, float, float, float, float]]) -> str:
    rows = (
        (CLASSES.index(label), (x + w / 2) / WIDTH, (y + h / 2) / HEIGHT, w / WIDTH, h / HEIGHT)
        for label, x, y, w, h in objects
    )
    return "".join("{} {:.6f} {:.6f} {:.6f} {:.6f}\n".format(*row) for row in rows)


def expected_boxes(name: str) -> list[list[float]]:
    return [
        [y / HEIGHT, x / WIDTH, (y + h) / HEIGHT, (x + w) / WIDTH]
        for _, x, y, w, h in OBJECTS[name]
    ]


def reasons(rejects: Sequence[Reject]) -> list[tuple[str, str]]:
    return [(reject.id, str(reject.reason)) for reject in rejects]


def assert_same_in_store(rows: Rows, local: Rows, uri: str, *differing: str) -> None:
    """Compare rows of a store with those of the same files on disk."""
    for row, same in zip(rows, local, strict=True):
        changed = {name: row[name] for name in ("uri", "etag", *differing)}
        assert row == same | changed
        assert row["uri"] == f"{uri}/{row['id']}"
        assert row["etag"]


def assert_same_objects(rows: Rows, root: Path, *, tolerance: float, **expected: str) -> None:
    """Compare the rows of `OBJECTS`' images with the objects and files that they stand for.

    Args:
        expected: A text that each object of an image has, by feature.
    """
    for row, name in zip(rows, OBJECTS, strict=True):
        boxes = [pytest.approx(box, abs=tolerance) for box in expected_boxes(name)]
        assert row["x/objects/bbox"] == boxes
        assert row["x/objects/label"] == LABELS[name]
        for feature, text in expected.items():
            assert row[f"x/objects/{feature}"] == [text] * len(boxes)
        path = root / row["id"]
        assert (row["uri"], row["num_bytes"]) == (str(path), path.stat().st_size)
