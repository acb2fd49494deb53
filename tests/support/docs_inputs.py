"""The inputs that the pages of docs/ name: photos/, labels.csv, coco/, shards/, other/, ..."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.build_helpers import CLASSES as LABELS
from tests.support.build_helpers import build, make_images, png_of
from tests.support.input_forms import CLASSES, FORMS
from tests.support.schema_tables import mask_of

NUM_PHOTOS = 160
# Input form of the tests: what the pages call it.
NAMES: Mapping[str, str] = {
    "split-folders": "imagenet",
    "imagefolder-metadata": "imagefolder",
    "tar": "photos.tar",
    "zip-stored": "photos.zip",
    "webdataset": "shards",
    "hub-parquet": "hub",
    "coco": "coco",
    "voc": "VOC2012",
    "yolo": "yolo",
    "tfrecord": "old",
}


def write(root: Path) -> Path:
    """Write all of them below a new folder; return it."""
    paths = _write_photos(root)
    rows = [{"path": path, "species": path.split("/")[1]} for path in paths]
    _write_csv(root / "labels.csv", rows)
    for part in range(2):
        (root / "parts").mkdir(exist_ok=True)
        _write_csv(
            root / "parts" / f"part-{part}.csv",
            [{"path": f"../{row['path']}", "label": row["species"]} for row in rows[part::2]],
        )
    sides = {"xmin": 1, "ymin": 2, "xmax": 9, "ymax": 10}
    _write_csv(root / "boxes.csv", [
        {"filename": path.removeprefix("photos/"), "class": path.split("/")[1], **sides}
        for path in paths * 2
    ])  # fmt: skip
    patients = [{**row, "patient": f"p{number // 4}"} for number, row in enumerate(rows)]
    _write_csv(root / "patients.csv", patients)
    ids = [path.removeprefix("photos/") for path in paths[:20]]
    (root / "test_ids.txt").write_text("".join(f"{name}\n" for name in ids))
    (root / "withdrawn.txt").write_text("".join(f"{name}\n" for name in ids[:3]))
    _write_people(root)
    for form in FORMS:
        if form.name in NAMES:
            form.write(root / "form")
            made = next(path for path in (root / "form").iterdir() if path.name.startswith("in"))
            shutil.move(made, root / NAMES[form.name])
            shutil.rmtree(root / "form")
    for split in ("train", "test", "extra"):
        make_images(root / "svhn" / split, 12, side=12)
    digits = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)
    np.savez(root / "digits.npz", x_train=digits, y_train=np.arange(40) % 10)
    whole = (root / "photos.tar").read_bytes()
    (root / "half.tar").write_bytes(whole[: len(whole) // 2 + 100])
    (root / "names.txt").write_text("\n".join(CLASSES))
    assert build(root / "photos", root / "other", "--split=train=0.8,validation=0.1,test=0.1") == 0
    return root


def _write_photos(root: Path) -> list[str]:
    """Write `photos/CLASS/NUMBER.jpg`, numbered in each class, and a flat folder `scans/`."""
    paths = []
    (root / "scans").mkdir(parents=True)
    for index in range(NUM_PHOTOS):
        path = root / "photos" / LABELS[index % len(LABELS)] / f"{index // len(LABELS):04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(BytesIO(png_of(index, side=12))) as image:
            image.save(path)
        paths.append(path.relative_to(root).as_posix())
        if index < len(LABELS) * 4:
            shutil.copy(path, root / "scans" / f"{index}.jpg")
    rows = [{"stem": str(index), "species": LABELS[index % 3]} for index in range(len(LABELS) * 4)]
    _write_csv(root / "scans.csv", rows)
    return sorted(paths)


def _write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_people(root: Path) -> None:
    """Write a table for the schema of docs/schemas.md."""
    (root / "masks").mkdir()
    rows = []
    for number in range(6):
        mask = f"masks/{number}.png"
        (root / mask).write_bytes(mask_of(number))
        rows.append(
            {
                "image": f"photos/bird/{number:04d}.jpg",
                "age": 30 + number,
                "tags": ["tall", "old"][: 1 + number % 2],
                "caption": f"a person who has {number} green hats",
                "embedding": [0.5, 1.0, float(number)],
                "mask": mask,
            }
        )
    (root / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
