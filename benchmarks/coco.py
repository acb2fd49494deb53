#!/usr/bin/env python
"""Plan a COCO json of 1 GB made here (`make bench-coco`).

Its boxes, polygons and run lengths are seeded and about as long as those of COCO's own
instances_train2017.json, with 7 annotations an image in the order of no image. The images are hard
links to files of a few bytes, because a plan only looks up their lengths. Prints seconds, CPU and
peak memory of `shardwright plan`. Exit code 1 if it loses an image or exceeds a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from measure import Usage, measure
from page import scratch_folder, work_folder
from systems import shardwright_command

from shardwright.sizes import parse_size

# Of a plan, without the json, and for each of its bytes.
MAX_BYTES, MAX_PER_BYTE = 600 * 10**6, 1.5
_IMAGE_ROWS, _PER_IMAGE, _CLASSES = 1000, 7, 80
BYTES_PER_IMAGE = 3840  # of the json, with its annotations
_SHAPES = 20_000  # different annotations
_WIDTH, _HEIGHT = 640, 480


def make_shapes(rng: np.random.Generator) -> list[str]:
    """Return annotations without their ids: polygons, one in a hundred with run lengths."""
    shapes = []
    for number in range(_SHAPES):
        x, y = rng.integers(0, _WIDTH - 60), rng.integers(0, _HEIGHT - 60)
        points = rng.integers(1, 6000, 2 * int(rng.integers(8, 44))) / 100
        points[::2] += x
        points[1::2] += y
        crowd = int(number % 100 == 0)
        counts = {"counts": rng.integers(1, 900, 150).tolist(), "size": [_HEIGHT, _WIDTH]}
        shape = {
            "segmentation": counts if crowd else [points.round(2).tolist()],
            "area": round(float(rng.uniform(20, 3600)), 4),
            "iscrowd": crowd,
            "bbox": [int(x), int(y), 60.25, 60.5],
            "category_id": int(rng.integers(1, _CLASSES + 1)),
        }
        shapes.append(json.dumps(shape)[:-1])
    return shapes


def json_pieces(num_images: int) -> Iterator[str]:
    """Yield the text of the json in pieces."""
    rng = np.random.default_rng(0)
    shapes = make_shapes(rng)
    sizes = f'"height": {_HEIGHT}, "width": {_WIDTH}'
    yield '{"info": {"year": 2017}, "images": ['
    for row in range(num_images):
        yield f'{", " * (row > 0)}{{"file_name": "{_name(row)}", {sizes}, "id": {row}}}'
    yield '], "annotations": ['
    for start in range(0, num_images * _PER_IMAGE, 100_000):
        rows = range(start, min(start + 100_000, num_images * _PER_IMAGE))
        images, chosen = rng.integers((num_images, _SHAPES), size=(len(rows), 2)).T.tolist()
        yield ", " * (start > 0) + ", ".join(
            f'{shapes[shape]}, "image_id": {image}, "id": {row}}}'
            for row, image, shape in zip(rows, images, chosen, strict=True)
        )
    classes = [{"id": number + 1, "name": f"class {number}"} for number in range(_CLASSES)]
    yield f'], "categories": {json.dumps(classes)}}}'


def _name(row: int) -> str:
    return f"{row // _IMAGE_ROWS:06d}/{row % _IMAGE_ROWS:03d}.jpg"


def make_input(root: Path, num_images: int) -> Path:
    """Make the json and the images below `root`; return the json."""
    path = root / "annotations" / "instances_train.json"
    path.parent.mkdir()
    with path.open("w") as file:
        pieces = json_pieces(num_images)
        while text := "".join(islice(pieces, _IMAGE_ROWS)):
            file.write(text)
    for row in range(num_images):
        image = root / "train" / _name(row)
        if row % _IMAGE_ROWS == 0:  # in a folder of its own: a file has at most 65,000 links
            image.parent.mkdir(parents=True)
            first = image
            first.write_bytes(b"image")
        else:
            os.link(first, image)
    return path


def plan(root: Path, path: Path, num_images: int) -> Usage:
    """Plan a build of the json, and check that no image is lost."""
    words = ["plan", str(path), str(root / "out"), "--split", "train=1", "--json"]
    words += ["--image-root", str(root / "train")]
    usage = measure(shardwright_command(*words), log=root / "log", timeout_s=3600)
    found = json.loads(usage.stdout.read_text())
    assert found["num_records"] == num_images, f"{found['num_records']} of {num_images} images"
    assert set(found["rejects"]) <= {"empty_box"}, found["rejects"]
    return usage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bytes", default="1GB", help="size of the json")
    parser.add_argument("--dir", type=Path, help="work here (default: a tmpfs with room, or /tmp)")
    args = parser.parse_args()
    num_bytes = parse_size(args.bytes, "--bytes")
    num_images = max(1, num_bytes // BYTES_PER_IMAGE)
    with scratch_folder("coco-", work_folder(args.dir, 2 * num_bytes)) as root:
        path = make_input(root, num_images)
        num_bytes = path.stat().st_size
        used = plan(root, path, num_images)
    print(
        f"{num_bytes / 1e9:.2f} GB of json, {num_images:,} images, {num_images * _PER_IMAGE:,} "
        f"annotations: planned in {used.wall_s:.1f} s, CPU {used.cpu_s:.1f} s, "
        f"RSS {used.peak_rss_bytes / 1e6:.0f} MB"
    )
    return 0 if used.peak_rss_bytes <= MAX_BYTES + MAX_PER_BYTE * num_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
