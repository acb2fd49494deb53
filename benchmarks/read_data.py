"""Make the data for `read.py`: photos as files, as a dataset of shards, and in each peer's format.

It is made once and kept for the next run. All formats hold the unchanged bytes of the JPEG files,
in shards of at most 32 MB if a format has shards. The dataset of many shards has 40,000 tiny
images, 4 per shard.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean

import environments
import numpy as np
from measure import RunFailedError
from photos import HEIGHT, WIDTH, make_photos
from PIL import Image
from read_feeds import labelled
from systems import HERE, shardwright_command

_PHOTO_BYTES, _FEWEST_SHARDS = 80_000, 8  # at least one shard per worker, even with few photos
RECORDS_A_TINY_SHARD = 4
_TINY_CLASSES = 10
# The loaders in read_torch.py; the others are in read_systems.py.
IN_TORCH = ("torch", "webdataset", "streaming", "litdata", "lancedb")
_DATASET = "dataset"  # shardwright's
# System -> the folder that it reads, below the data folder.
FORMATS = {
    **dict.fromkeys(("reader", "reader.whole", "reader.tf_data", "load", "tf.data"), _DATASET),
    **dict.fromkeys(("grain", "grain-simplejpeg", "array_record"), "array_record"),
    "lance": "lance",
    "webdataset": "tars",
    "streaming": "mds",
    "litdata": "litdata",
    "lancedb": "lancedb",
}


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode:
        raise RunFailedError(
            f"exit code {done.returncode}: {' '.join(words)}\n{(done.stdout + done.stderr)[-3000:]}"
        )


def shard_bytes(photos: int) -> int:
    return min(32_000_000, photos * _PHOTO_BYTES // _FEWEST_SHARDS)


def _make_dataset(data: Path, shard_bytes: int) -> None:
    size = ("--shard-size", str(shard_bytes))
    _run(shardwright_command("build", str(data / "photos"), str(data / _DATASET), *size))


def _make_by_peer(system: str, data: Path, shard_bytes: int) -> None:
    script = "read_torch.py" if system in IN_TORCH else "read_systems.py"
    words = ["make", system, "--data", str(data), "--shard-bytes", str(shard_bytes)]
    _run([environments.python_of("read", system), str(HERE / script), *words])


def make_data(
    root: Path, photos: int, systems: list[str], size: tuple[int, int] = (WIDTH, HEIGHT)
) -> Path:
    """Make a folder with photos of this width and height, and the formats of the systems."""
    width, height = size
    data = root / f"read-{photos}-{width}x{height}"
    data.mkdir(parents=True, exist_ok=True)
    made, times = make_photos(root / "photos", photos=photos), width * height // (WIDTH * HEIGHT)
    if size == (WIDTH, HEIGHT):
        if not (data / "photos").exists():
            (data / "photos").symlink_to(made.folder, target_is_directory=True)
    else:
        _once(data, "photos", partial(_write_mosaics, data / "photos", made.folder, size))
    for folder, system in {FORMATS[name]: name for name in systems if name in FORMATS}.items():
        make = _make_dataset if folder == _DATASET else partial(_make_by_peer, system)
        _once(data, folder, partial(make, data, shard_bytes(photos * times)))
    return data


def _mosaic(photos: list[Path], first: int, width: int, height: int) -> Image.Image:
    """Return photos side by side, the last ones cut: as many bytes a pixel as one of them."""
    whole, columns = Image.new("RGB", (width, height)), -(-width // WIDTH)
    for part in range(columns * -(-height // HEIGHT)):
        with Image.open(photos[(first + part) % len(photos)]) as photo:
            whole.paste(photo, (part % columns * WIDTH, part // columns * HEIGHT))
    return whole


def _write_mosaics(folder: Path, source: Path, size: tuple[int, int]) -> None:
    photos = [path for path, _ in labelled(source)]
    for number, path in enumerate(photos):
        file = folder / path.relative_to(source)
        file.parent.mkdir(parents=True, exist_ok=True)
        _mosaic(photos, number, *size).save(file, quality=93)


def make_photos_with_boxes(root: Path, photos: int) -> tuple[Path, float]:
    """Make ROOT/detection-PHOTOS with files, COCO json and dataset; return it and their mean bytes.

    Each photograph is four of photos.py side by side, 1000x750, and has 7 boxes of 10 classes.
    """
    data = root / f"detection-{photos}"
    images = data / "images"
    small = [path for path, _ in labelled(make_photos(root / "photos", photos=photos).folder)]

    def make() -> None:
        images.mkdir(parents=True)
        rng, boxes = np.random.default_rng(0), []
        for number in range(photos):
            whole = _mosaic(small, number, 2 * WIDTH, 2 * HEIGHT)
            whole.save(images / f"{number:06d}.jpg", quality=93)
            sizes = rng.integers(20, (WIDTH, HEIGHT), (7, 2))
            corners = rng.integers(0, (2 * WIDTH, 2 * HEIGHT) - sizes)
            boxes += [(number, box) for box in np.hstack([corners, sizes]).tolist()]
        coco = {
            "images": [
                {"id": number, "file_name": f"{number:06d}.jpg"}
                | {"width": 2 * WIDTH, "height": 2 * HEIGHT}
                for number in range(photos)
            ],
            "annotations": [
                {"id": index, "image_id": number, "category_id": index % 10, "bbox": box}
                for index, (number, box) in enumerate(boxes)
            ],
            "categories": [{"id": label, "name": f"class_{label}"} for label in range(10)],
        }
        table = data / "annotations.json"
        table.write_text(json.dumps(coco))
        size = ["--shard-size", str(4 * shard_bytes(photos))]
        options = ["--image-root", str(images), *size]
        _run(shardwright_command("build", str(table), str(data / "dataset"), *options))

    data.mkdir(parents=True, exist_ok=True)
    _once(data, "images", make)
    return data, mean(path.stat().st_size for path in images.iterdir())


def _once(data: Path, name: str, make: Callable[[], None]) -> None:
    marker = data / f"{name}.made"
    if not marker.exists():
        shutil.rmtree(data / name, ignore_errors=True)
        make()
        marker.touch()


def _write_tiny_images(folder: Path, count: int) -> None:
    """Write JPEGs of 16x16 pixels and less than 1 KB, each in its own color."""
    for label in range(_TINY_CLASSES):
        (folder / f"class_{label:02d}").mkdir(parents=True)
    for number in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", (16, 16), (number % 256, number // 256 % 256, 128)).save(buffer, "JPEG")
        (folder / f"class_{number % _TINY_CLASSES:02d}" / f"{number:06d}.jpg").write_bytes(
            buffer.getvalue()
        )


def make_many_shards(root: Path, shards: int) -> Path:
    """Make a folder with a dataset of this number of shards, each of 4 tiny images."""
    data = root / f"read-shards-{shards}"
    data.mkdir(parents=True, exist_ok=True)

    def make() -> None:
        images = data / "images"
        shutil.rmtree(images, ignore_errors=True)
        _write_tiny_images(images, shards * RECORDS_A_TINY_SHARD)
        size = ["--records-per-shard", str(RECORDS_A_TINY_SHARD)]
        _run(shardwright_command("build", str(images), str(data / "dataset"), *size))
        shutil.rmtree(images)

    _once(data, "dataset", make)
    return data


if __name__ == "__main__":
    sys.exit("read.py makes its data itself: python benchmarks/read.py --help")
