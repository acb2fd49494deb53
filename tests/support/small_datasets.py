"""Small inputs and the datasets built from them, for the tests of readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import shardwright as sw
from shardwright.pipelines.commands import build as build_command

FORMATS = ("jpeg", "png", "gif", "bmp", "webp")
CLASSES = ("bird of prey", "cat", "Löwe")
RAW_WIDTH, RAW_HEIGHT = 12, 8
SIZE = ("--resize", f"{RAW_WIDTH}x{RAW_HEIGHT}")
SPLITS = ("--split", "train=0.6,validation=0.2,test=0.2", "--records-per-shard", "3")
BUILDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "mixed": ("folders", SPLITS),
    "stills": ("stills", SPLITS),
    "tabled": ("table/table.jsonl", ()),
    "garden": ("stills", ("--feature-names", "model-garden")),
    "unlabeled": ("flat", ()),
    "raw": ("folders", ("--encode", "raw", *SIZE, "--shard-count", "4")),
    "jpeg": ("folders", ("--encode", "jpeg", *SIZE)),
    "png": ("folders", ("--encode", "png")),
    "lossless": ("folders", ("--encode", "png", *SIZE)),
}
NUM_IMAGES = 21  # in "folders" and "stills"
ROWS = [
    {
        "path": f"images/{number}.png",
        "label": CLASSES[number % 3],
        "split": "train" if number < 5 else "test",
        "count": 2**40 + number,
        "good": number % 2 == 0,
        "ratio": number / 4,
        "caption": f"Bild {number}: schön",
        "boxes": [number] * (number % 3),
        "scores": [0.5 * number] * (number % 2),
        "tags": [f"tag{index}" for index in range(number % 4)],
    }
    for number in range(7)
]
ROWS_BY_ID = {str(row["path"]): row for row in ROWS}


def write_image(
    path: Path, seed: int, *, width: int = 10, height: int = 6, image_format: str = "png"
) -> None:
    """Write an image of smooth colors and noise, a different one for each seed."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 180, width, dtype=np.uint8)[None, :, None]
    pixels = ramp + rng.integers(0, 70, (height, width, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, image_format.upper())


def write_class_folders(root: Path, formats: Sequence[str] = FORMATS) -> None:
    """Write images of these formats and of many sizes; some are called .jpg and are PNGs."""
    for label_index, label in enumerate(CLASSES):
        for number in range(NUM_IMAGES // len(CLASSES)):
            kind = formats[number % len(formats)]
            suffix = "jpg" if (label_index, kind) == (0, "png") else kind
            path, seed = root / label / f"{number}.{suffix}", 100 * label_index + number
            write_image(path, seed, width=9 + number, height=5 + label_index, image_format=kind)


def write_flat_folder(root: Path, num_images: int = 6) -> Path:
    for number in range(num_images):
        write_image(root / f"{number}.png", number)
    return root


def write_table(root: Path) -> None:
    for number, row in enumerate(ROWS):
        write_image(root / str(row["path"]), number)
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")


def build(source: Path, output: Path, *options: str) -> str:
    """Build a dataset in this process and return its path."""
    code = build_command.main([str(source), str(output), *options])
    assert code == 0, f"building {output} from {source} ended with exit code {code}"
    return str(output)


def pixels_of(path: Path) -> np.ndarray:
    """Return RGB pixels: of lossless formats by Pillow; of the others by TensorFlow."""
    with Image.open(path) as image:
        if image.format in ("PNG", "BMP", "GIF"):
            return np.asarray(image.convert("RGB"))
    return tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False).numpy()


def tensor_ids(dataset: tf.data.Dataset) -> list[str]:
    """Return the ids of a dataset's examples, or of its batches' rows."""
    ids = [np.atleast_1d(element["id"]) for element in dataset.as_numpy_iterator()]
    return [name.decode() for names in ids for name in names]


class Datasets:
    """The datasets of `BUILDS`, each built at its first use, once in a test run."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.root = tmp_path_factory.getbasetemp() / "small_datasets"
        self.folders, self.stills = self.root / "folders", self.root / "stills"
        if not self.root.exists():
            write_class_folders(self.folders)
            write_class_folders(self.stills, ("jpeg", "png", "bmp"))
            write_table(self.root / "table")
            write_flat_folder(self.root / "flat")

    def __getitem__(self, name: str) -> str:
        source, options = BUILDS[name]
        output = self.root / "built" / name
        return str(output) if output.exists() else build(self.root / source, output, *options)

    def read(self, name: str = "mixed", **options: Any) -> sw.Reader:
        """Open a reader of all records in batches of 4, unless options say otherwise."""
        return sw.Reader(self[name], **{"split": "all", "global_batch_size": 4, **options})

    def shards(self, name: str, split: str = "*") -> list[str]:
        return sorted(str(path) for path in Path(self[name]).glob(f"{name}-{split}.tfrecord-*"))


@pytest.fixture(scope="session", name="datasets")
def datasets_fixture(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)
