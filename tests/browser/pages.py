"""Make the pages that the browser tests open: `python -m tests.browser.pages FOLDER`.

The browser's environment has no shardwright, so this runs in the project's.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from shardwright.format.manifest import read_manifest
from shardwright.format.splits import SplitInfo
from shardwright.report.data import ReportData
from shardwright.report.page import report_html
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build

SHAPES = ("circle", "square", "triangle")
FRACTIONS = ("--split", "train=0.7,validation=0.15,test=0.15")
# Each would run a script, end an element, or turn the text, if it were not escaped.
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(2)>',
    "<!--",
    "' onmouseover='alert(3)",
    "\u202egnp.exe",
    "مرحبا بالعالم",
    "a" * 300,
    "{{7*7}} ${7*7} \\u003cscript>",
)


def draw_shape(path: Path, number: int) -> tuple[int, int, list[int]]:
    """Draw a shape on a gradient; return width, height and its box [x, y, width, height]."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(120, 420, 2))
    ramp = np.linspace(40, 200, width, dtype=np.uint8)
    pixels = np.repeat(np.broadcast_to(ramp, (height, width))[..., None], 3, axis=2).copy()
    pixels[..., number % 3] //= 2
    image = Image.fromarray(pixels)
    side = int(min(width, height) * rng.uniform(0.3, 0.7))
    left, top = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
    box = (left, top, left + side, top + side)
    drawn = ImageDraw.Draw(image)
    color = tuple(int(part) for part in rng.integers(120, 256, 3))
    shape = SHAPES[number % 3]
    if shape == "circle":
        drawn.ellipse(box, fill=color)
    elif shape == "square":
        drawn.rectangle(box, fill=color)
    else:
        drawn.polygon([(left, box[3]), (box[2], box[3]), ((left + box[2]) // 2, top)], fill=color)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=85)
    return width, height, [left, top, side, side]


def made(*args: str | Path) -> None:
    """Build a dataset, which must succeed."""
    assert build(*args, "--max-reject-fraction", "1") == 0, args


def shapes(root: Path) -> Path:
    """Build folders of classes with rejects, fixes, and images that are in two splits."""
    for number in range(90):
        draw_shape(root / "in" / SHAPES[number % 3] / f"{number:03d}.jpg", number)
    folder = root / "in" / "circle"
    for number in (1, 2):
        shutil.copy(
            root / "in" / SHAPES[number % 3] / f"{number:03d}.jpg", folder / f"z{number}.jpg"
        )
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "cut.jpg").write_bytes((folder / "000.jpg").read_bytes()[:3000])
    (folder / "notes.txt").write_text("not an image")
    Image.new("CMYK", (200, 120), (120, 40, 0, 0)).save(folder / "print.jpg")
    Image.new("RGBA", (90, 60), (20, 160, 90, 120)).save(folder / "clear.png")
    (root / "test.txt").write_text("".join(f"circle/z{number}.jpg\n" for number in (1, 2)))
    policy = ("--on", "alpha=fix", "--on", "cmyk=reject", "--check", "decode")
    made(
        root / "in",
        root / "out",
        "--split",
        "train",
        "--split-ids",
        f"test={root}/test.txt",
        *policy,
    )
    return root / "out"


def boxes(root: Path) -> Path:
    """Build a detection set from COCO."""
    images, annotations = [], []
    for number in range(40):
        name = f"{number:03d}.jpg"
        width, height, box = draw_shape(root / "in" / "images" / name, number)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for place in range(number % 4):
            moved = [box[0], box[1], box[2] / (place + 1), box[3] / (place + 1)]
            annotations.append(
                {
                    "id": 10 * number + place,
                    "image_id": number,
                    "category_id": (number + place) % 3 + 1,
                    "bbox": moved,
                    "area": moved[2] * moved[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": place + 1, "name": name} for place, name in enumerate(SHAPES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "in" / "annotations").mkdir(parents=True)
    (root / "in" / "annotations" / "instances.json").write_text(json.dumps(content))
    made(
        root / "in" / "annotations" / "instances.json",
        root / "out",
        "--image-root",
        root / "in" / "images",
        *FRACTIONS,
    )
    return root / "out"


def masks(root: Path) -> Path:
    """Build a segmentation set from a table."""
    rows = []
    for number in range(12):
        width, height, (left, top, side, _) = draw_shape(root / "in" / f"{number}.jpg", number)
        mask = np.zeros((height, width), np.uint8)
        mask[top : top + side, left : left + side] = number % 3 + 1
        Image.fromarray(mask).save(root / "in" / f"{number}.mask.png")
        rows.append((f"{number}.jpg", f"{number}.mask.png"))
    write_table(root / "in" / "images.csv", ("image", "mask"), rows)
    made(root / "in" / "images.csv", root / "out", "--schema", "segmentation")
    return root / "out"


def table(root: Path) -> Path:
    """Build a table without images."""
    rng = np.random.default_rng(0)
    rows = [
        (f"r{number}", float(rng.normal()), int(rng.integers(0, 90)), "yes" if number % 3 else "no")
        for number in range(200)
    ]
    write_table(root / "in.csv", ("id", "height", "age", "label"), rows)
    made(root / "in.csv", root / "out", "--schema", "records", *FRACTIONS)
    return root / "out"


def single(root: Path) -> Path:
    """Build a dataset of one image."""
    draw_shape(root / "in" / "circle" / "000.jpg", 0)
    made(root / "in", root / "out")
    return root / "out"


def hostile(root: Path) -> Path:
    """Build a dataset whose names of classes and files are hostile."""
    rows = []
    for number, name in enumerate(HOSTILE * 3):
        file = f"{number} {name[:40].replace('/', '-')}.jpg"
        draw_shape(root / "in" / file, number)
        rows.append((file, name))
    write_table(root / "in" / "images.csv", ("image", "label"), rows)
    (root / "in" / "bad <img src=x onerror=alert(4)>.jpg").write_bytes(b"GIF89a<script>")
    write_table(
        root / "in" / "images.csv",
        ("image", "label"),
        [*rows, ("bad <img src=x onerror=alert(4)>.jpg", HOSTILE[0])],
    )
    made(root / "in" / "images.csv", root / "out", *FRACTIONS)
    return root / "out"


def near(root: Path) -> Path:
    """Build folders with near-duplicates, of which some are dropped, and ids with line breaks."""
    for number in range(12):
        path = root / "in" / SHAPES[number % 3] / f"{number:03d}.jpg"
        draw_shape(path, number)
        if number < 3:
            with Image.open(path) as image:
                image.save(path.with_name(f"again{number}.jpg"), quality=60)
    draw_shape(root / "in" / "circle" / "two\nlines \u202egpj.jpg", 99)
    made(root / "in", root / "out", "--near-duplicates", "drop", "--signals")
    return root / "out"


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


def many_classes(dataset: Path) -> str:
    """Return the page of a manifest with 20,000 classes."""
    manifest = read_manifest(Folder(str(dataset)))
    names = tuple(f"class {number:05d}" for number in range(20_000))
    counts = {str(number): 1 + 40_000 // (number + 1) for number in range(20_000)}
    splits = {
        name: SplitInfo(name, split.shards, {**split.stats, "labels": counts})
        for name, split in manifest.splits.items()
    }
    schema = manifest.schema.with_class_names(names)
    return report_html(ReportData(replace(manifest, schema=schema, splits=splits)))


def changes(root: Path) -> Path:
    """Build a dataset in the place of an older one."""
    for number in range(30):
        draw_shape(root / "in" / SHAPES[number % 3] / f"{number:03d}.jpg", number)
    made(root / "in", root / "out", *FRACTIONS, "--signals")
    for number in (0, 3, 6):
        (root / "in" / SHAPES[0] / f"{number:03d}.jpg").unlink()
        draw_shape(root / "in" / "star" / f"{number:03d}.jpg", number)
    draw_shape(root / "in" / SHAPES[1] / "001.jpg", 100)
    made(root / "in", root / "out", *FRACTIONS, "--signals", "--if-exists", "overwrite")
    return root / "out"


DATASETS = {
    make.__name__: make for make in (shapes, boxes, masks, table, single, hostile, changes, near)
}


def main(argv: Sequence[str]) -> int:
    """Write all pages, NAME.html, into a folder."""
    (folder,) = map(Path, argv)
    for name, make in DATASETS.items():
        shutil.copy(make(folder / name) / "report.html", folder / f"{name}.html")
    page = many_classes(folder / "shapes" / "out")
    (folder / "many.html").write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
