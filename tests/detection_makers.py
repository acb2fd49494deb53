"""Tiny detection data sets in each of the forms that teams have them in, and the same objects in all of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from shardwright.example import parse_example
from shardwright.records import scan_records
from shardwright.storage import NO_OPTIONS, StorageOptions
from tests.buckets import Bucket
from tests.build_helpers import shards_of
from tests.helpers import rejects_of, rows_of
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.source import InputSource
from transforms.rejects import Reject

WIDTH, HEIGHT = 40, 20
CLASSES = ("cat", "dog", "zebra")
# Image -> (class, x, y, width, height in pixels).
OBJECTS: Mapping[str, Sequence[tuple[str, int, int, int, int]]] = {
    "a": [("zebra", 4, 2, 8, 10), ("cat", 0, 0, 40, 20)],
    "b": [],
    "ü c": [("dog", 20, 10, 10, 5)],
}


def picture(
    width: int = WIDTH, height: int = HEIGHT, color: int = 90, *, kind: str = "PNG"
) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (color, 30, 10)).save(file, kind)
    return file.getvalue()


def mask(number: int) -> bytes:
    """A mask of one class number, with a palette, as VOC's have it."""
    image = Image.new("P", (WIDTH, HEIGHT), number)
    image.putpalette([value for color in range(256) for value in (color, 255 - color, 7)])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files below `root`, folders included; gives `root`."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def upload(root: Path, bucket: Bucket, prefix: str) -> str:
    """Put a folder's files below a prefix; its address."""
    for path in root.rglob("*"):
        if path.is_file():
            bucket.put(f"{prefix}/{path.relative_to(root)}", path.read_bytes())
    return f"{bucket.uri}/{prefix}"


def pictures(folder: str, names: Sequence[str] = tuple(OBJECTS)) -> dict[str, bytes]:
    return {f"{folder}/{name}.png": picture(color=10 * number) for number, name in enumerate(names)}


def coco(names: Sequence[str] = tuple(OBJECTS), **changes: Any) -> dict[str, Any]:
    """A json of COCO's form for these images; `changes` replace its sections."""
    images = [
        {"id": number, "file_name": f"{name}.png", "width": WIDTH, "height": HEIGHT}
        for number, name in enumerate(names)
    ]
    annotations: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        for label, *box in OBJECTS[name]:
            annotation = {
                "id": len(annotations),
                "image_id": number,
                "category_id": 10 * CLASSES.index(label),
                "bbox": box,
            }
            annotations.append(
                {**annotation, "area": 7.5, "iscrowd": 0, "segmentation": [[1, 2.5, 3, 4]]}
            )
    categories = [
        {"id": 10 * number, "name": name} for number, name in reversed([*enumerate(CLASSES)])
    ]
    return {
        "info": {"year": 2026},
        "images": images,
        "annotations": annotations,
        "categories": categories,
        **changes,
    }


def voc_xml(
    objects: Sequence[tuple[str, float, float, float, float]],
    size: str | None = None,
    more: str = "",
) -> str:
    told = (
        f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        if size is None
        else size
    )
    parts = (
        f"<object><name>{label}</name>{more}<bndbox><xmin>{x}</xmin><ymin>{y}</ymin>"
        f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
        for label, x, y, w, h in objects
    )
    return f"<annotation><filename>x.png</filename>{told}{''.join(parts)}</annotation>"


def yolo_txt(objects: Sequence[tuple[str, float, float, float, float]]) -> str:
    return "".join(
        f"{CLASSES.index(label)} {(x + w / 2) / WIDTH:.6f} {(y + h / 2) / HEIGHT:.6f} {w / WIDTH:.6f} {h / HEIGHT:.6f}\n"
        for label, x, y, w, h in objects
    )


def expected_boxes(name: str) -> list[list[float]]:
    return [
        [y / HEIGHT, x / WIDTH, (y + h) / HEIGHT, (x + w) / WIDTH]
        for _, x, y, w, h in OBJECTS[name]
    ]


def listed(
    uri: Path | str, options: StorageOptions = NO_OPTIONS, **forced: Any
) -> tuple[InputSource, list[dict[str, Any]], list[Reject]]:
    """What INPUT is found to be, its rows and its rejects; each batch has the columns that the source promises."""
    source = detect_source(str(uri), {}, storage=options, **forced)
    parts = list(list_source(source))
    for part in parts:
        assert isinstance(part, Reject) or _same_columns(part.schema, source.schema)
    return source, rows_of(parts), rejects_of(parts)


def _same_columns(found: Any, promised: Any) -> bool:
    """Nullability apart, which batches made from arrays do not state."""
    return bool(found.names == promised.names and found.types == promised.types)


def reasons(rejects: Sequence[Reject]) -> list[tuple[str, str]]:
    return [(reject.id, str(reject.reason)) for reject in rejects]


def records_of(dataset: Path) -> dict[str, dict[str, Any]]:
    """Every record of a dataset by its id, as the lists that its tf.Example holds."""
    found: dict[str, dict[str, Any]] = {}
    for shard in shards_of(dataset):
        with shard.open("rb") as file:
            for span in scan_records(file):
                record: dict[str, Any] = dict(parse_example(span.data))
                found[record["id"][0].decode()] = record
    return found
