"""Small inputs and the datasets built from them, for the tests of readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import build_dataset

FORMATS = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP"}
CLASSES = ("bird of prey", "cat", "Löwe")
RAW_WIDTH, RAW_HEIGHT = 12, 8
FRACTIONS = "train=0.6,validation=0.2,test=0.2"
SIZE = ("--resize", f"{RAW_WIDTH}x{RAW_HEIGHT}")
BUILDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "mixed": ("folders", ("--split", FRACTIONS, "--records-per-shard", "3")),
    "stills": ("stills", ("--split", FRACTIONS, "--records-per-shard", "3")),
    "tabled": ("table", ()),
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


def write_image(
    path: Path, seed: int, *, width: int = 10, height: int = 6, image_format: str = "png"
) -> None:
    """An image of smooth colours and noise, another one for each seed."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 180, width, dtype=np.uint8)[None, :, None]
    pixels = ramp + rng.integers(0, 70, (height, width, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, FORMATS[image_format])


def write_class_folders(
    root: Path, formats: Sequence[str] = tuple(FORMATS), num_per_class: int = 7
) -> Path:
    """Images of these formats and of many sizes; some are called .jpg and are PNGs."""
    for label_index, label in enumerate(CLASSES):
        for number in range(num_per_class):
            image_format = formats[number % len(formats)]
            suffix = "jpg" if (label_index, image_format) == (0, "png") else image_format
            path = root / label / f"{number}.{suffix}"
            write_image(
                path,
                100 * label_index + number,
                width=9 + number,
                height=5 + label_index,
                image_format=image_format,
            )
    return root


def write_flat_folder(root: Path, num_images: int = 6) -> Path:
    for number in range(num_images):
        write_image(root / f"{number}.png", number)
    return root


def write_table(root: Path) -> Path:
    for number, row in enumerate(ROWS):
        write_image(root / str(row["path"]), number)
    table = root / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return table


def build(source: Path, output: Path, *options: str) -> str:
    """Build a dataset in this process, and give its path."""
    code = build_dataset.main([str(source), str(output), *options])
    if code != 0:
        pytest.fail(f"building {output} from {source} ended with exit code {code}")
    return str(output)


def pixels_of(path: Path) -> np.ndarray:
    """RGB pixels: of a lossless format by Pillow, of a lossy one, where decoders differ, by TensorFlow."""
    with Image.open(path) as image:
        if image.format in ("PNG", "BMP", "GIF"):
            return np.asarray(image.convert("RGB"))
    return np.asarray(
        tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False).numpy()
    )


class Datasets:
    """The datasets of `BUILDS`, each built when it is first asked for, once in a test run."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.root = tmp_path_factory.getbasetemp() / "small_datasets"
        self.folders, self.stills = self.root / "folders", self.root / "stills"
        self._inputs = {
            "folders": self.folders,
            "stills": self.stills,
            "table": self.root / "table" / "table.jsonl",
            "flat": self.root / "flat",
        }
        if not self.root.exists():
            write_class_folders(self.folders)
            write_class_folders(self.stills, ("jpeg", "png", "bmp"))
            write_table(self.root / "table")
            write_flat_folder(self.root / "flat")

    def __getitem__(self, name: str) -> str:
        source, options = BUILDS[name]
        output = self.root / "built" / name
        return str(output) if output.exists() else build(self._inputs[source], output, *options)

    def shards(self, name: str, split: str = "*") -> list[str]:
        return sorted(str(path) for path in Path(self[name]).glob(f"{name}-{split}.tfrecord-*"))
