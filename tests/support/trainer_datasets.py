"""Datasets for the tests of trainers, each built once in a test run, by the pipeline."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shardwright as sw
from tests import ROOT

NUM_PICTURES = 61
NUM_SCENES = 40
CLASSES, CHANNELS = ("bird", "cat", "fox"), ("red", "green", "blue")
EXAMPLES = ROOT / "examples"


def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 61 smooth images of several sizes: 7 shards, a column of each type."""
    root = tmp_path_factory.getbasetemp() / "pictures"
    if not root.exists():
        _build(_write_pictures(root / "in"), root / "dataset", "--records-per-shard=9")
    return root / "dataset"


def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the demo's 1,797 handwritten digits, with the splits train, validation and test."""
    root = tmp_path_factory.getbasetemp() / "trainer_digits"
    if not root.exists():
        runpy.run_path(str(EXAMPLES / "demo_images.py"))["make_digits"](root / "in")
        options = ("--split=train=0.8,validation=0.1,test=0.1", "--records-per-shard=256")
        _build(root / "in", root / "dataset", *options)
    return root / "dataset"


def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 40 images with up to 3 boxes, in 4 shards.

    A box of the class "red", "green" or "blue" is painted in that channel of its image.
    """
    root = tmp_path_factory.getbasetemp() / "scenes"
    if not root.exists():
        sw.write(map(_scene, range(NUM_SCENES)), root, schema="detection", records_per_shard=10)
    return root


def _scene(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    height, width = (int(side) for side in rng.integers(40, 90, 2))
    image = np.zeros((height, width, 3), np.uint8)
    boxes, labels = [], []
    for channel in rng.permutation(3)[: number % 4]:
        (top, bottom), (left, right) = (
            (start := int(rng.integers(0, length - 12)), int(rng.integers(start + 12, length + 1)))
            for length in (height, width)
        )
        image[top:bottom, left:right, channel] = 255
        boxes.append([top / height, left / width, bottom / height, right / width])
        labels.append(CHANNELS[channel])
    return {"id": f"{number:02d}", "image": image, "objects/bbox": boxes, "objects/label": labels}


@pytest.fixture(scope="session", name="scenes")
def scenes_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(scenes(tmp_path_factory))


@pytest.fixture(scope="session", name="pictures")
def pictures_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(pictures(tmp_path_factory))


@pytest.fixture(scope="session", name="digits")
def digits_fixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(digits(tmp_path_factory))


def _write_pictures(root: Path) -> Path:
    root.mkdir(parents=True)
    table = root / "table.jsonl"
    with table.open("w") as file:
        for number in range(NUM_PICTURES):
            height, width = 20 + number % 3, 24 + number % 5
            across = np.linspace(number, 190 + number, width)[None, :, None]
            down = np.linspace(0.5, 1, height)[:, None, None]
            pixels = (across * down * [1, 0.8, 0.6]).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"{number:02d}.png")
            row = {
                "path": f"{number:02d}.png",
                "label": CLASSES[number % 3],
                "caption": f"Bild {number}: schön",
                "count": 2**40 + number,
                "ratio": number / 4,
                "boxes": [number] * (number % 3),
                "tags": [f"tag{tag}" for tag in range(number % 4)],
            }
            file.write(json.dumps(row) + "\n")
    return table


def _build(source: Path, output: Path, *options: str) -> None:
    from shardwright.pipelines.commands import build

    assert build.main([str(source), str(output), *options]) == 0


def read(dataset: str, **options: Any) -> sw.Reader:
    """Open a reader of small pictures in batches of 8, unless options say otherwise."""
    defaults = {"image": sw.TrainImage(8), "features": ["image", "label", "id"]}
    return sw.Reader(dataset, **{"global_batch_size": 8, **defaults, **options})


def rows_of(dataset: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a reader that does not shuffle."""
    return [
        {name: column[row] for name, column in batch.items()}
        for batch in read(dataset, epochs=1, **options)
        for row in range(len(batch["id"]))
    ]


def move(dataset: str, folder: Path) -> str:
    """Copy a dataset to another place."""
    return str(shutil.copytree(dataset, folder / "moved"))
