"""Datasets for the tests of trainers, each built once in a test run, by the pipeline."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

NUM_PICTURES = 61
CLASSES = ("bird", "cat", "fox")
EXAMPLES = Path(__file__).parents[1] / "examples"


def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """61 smooth images of several sizes in 7 shards, one short; with label, caption, count, ratio and the lists boxes and tags."""
    root = tmp_path_factory.getbasetemp() / "pictures"
    return (
        root / "dataset"
        if root.exists()
        else _build(_write_pictures(root / "in"), root / "dataset", "--records-per-shard=9")
    )


def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's handwritten digits, 1,797, with the splits train, validation and test."""
    root = tmp_path_factory.getbasetemp() / "trainer_digits"
    if root.exists():
        return root / "dataset"
    runpy.run_path(str(EXAMPLES / "demo_images.py"))["make_digits"](root / "in")
    return _build(
        root / "in",
        root / "dataset",
        "--split=train=0.8,validation=0.1,test=0.1",
        "--records-per-shard=256",
    )


def _write_pictures(root: Path) -> Path:
    root.mkdir(parents=True)
    rows = []
    for number in range(NUM_PICTURES):
        height, width = 20 + number % 3, 24 + number % 5
        ramp = (
            np.linspace(number, 190 + number, width)[None, :, None]
            * np.linspace(0.5, 1, height)[:, None, None]
        )
        Image.fromarray((ramp * [1, 0.8, 0.6]).astype(np.uint8)).save(root / f"{number:02d}.png")
        rows.append(
            {
                "path": f"{number:02d}.png",
                "label": CLASSES[number % 3],
                "caption": f"Bild {number}: schön",
                "count": 2**40 + number,
                "ratio": number / 4,
                "boxes": [number] * (number % 3),
                "tags": [f"tag{tag}" for tag in range(number % 4)],
            }
        )
    table = root / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def _build(source: Path, output: Path, *options: str) -> Path:
    from pipelines import build_dataset

    assert build_dataset.main([str(source), str(output), *options]) == 0
    return output


def move(dataset: str, folder: Path) -> str:
    """A copy of a dataset in another place."""
    return str(shutil.copytree(dataset, folder / "moved"))
