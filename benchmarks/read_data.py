"""Make the data for `read.py`: photos as files, as a dataset of shards, and in each peer's format.

It is made once and kept for the next run. All formats hold the unchanged bytes of the JPEG files,
in shards of at most 32 MB if a format has shards. The dataset of many shards has 40,000 tiny
images, 4 per shard.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from measure import RunFailedError
from photos import make_photos
from PIL import Image
from systems import HERE, shardwright_command

_PHOTO_BYTES, _FEWEST_SHARDS = 80_000, 8  # at least one shard per worker, even with few photos
RECORDS_A_TINY_SHARD = 4
_TINY_CLASSES = 10
_LABEL_BYTES = 8
Maker = Callable[[Path, int], None]  # writes a format, from (data folder, bytes per shard)


def labelled(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each file of CLASS/NAME with the number of its class."""
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(folder / name)):
            yield folder / name / file, label


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode:
        raise RunFailedError(
            f"exit code {done.returncode}: {' '.join(words)}\n{(done.stdout + done.stderr)[-3000:]}"
        )


def shard_bytes(photos: int) -> int:
    return min(32_000_000, photos * _PHOTO_BYTES // _FEWEST_SHARDS)


def _make_dataset(data: Path, shard_bytes: int) -> None:
    _run(
        shardwright_command(
            "build", str(data / "photos"), str(data / "dataset"), "--shard-size", str(shard_bytes)
        )
    )


def _make_tars(data: Path, shard_bytes: int) -> None:
    from webdataset import ShardWriter

    (data / "tars").mkdir()
    with ShardWriter(
        f"{data}/tars/%06d.tar", maxcount=10**9, maxsize=shard_bytes, verbose=0
    ) as writer:
        # Not in the order of the files, so that no shard holds only one class.
        for number, (path, label) in enumerate(
            sorted(labelled(data / "photos"), key=lambda pair: pair[0].name)
        ):
            writer.write({"__key__": f"{number:08d}", "jpg": path.read_bytes(), "cls": str(label)})


def pack(image: bytes, label: int) -> bytes:
    """Return a record for ArrayRecord: the label in 8 bytes, little-endian, then the JPEG."""
    return label.to_bytes(_LABEL_BYTES, "little") + image


def unpack(record: bytes) -> tuple[bytes, int]:
    return record[_LABEL_BYTES:], int.from_bytes(record[:_LABEL_BYTES], "little")


def _make_array_records(data: Path, shard_bytes: int) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    (data / "array_record").mkdir()
    writer, used, shard = None, 0, 0
    for path, label in labelled(data / "photos"):
        if writer is None or used > shard_bytes:
            if writer is not None:
                writer.close()
            # One record per group, as the format's documentation advises for random access.
            writer = ArrayRecordWriter(
                f"{data}/array_record/photos-{shard:05d}.arrayrecord", "group_size:1"
            )
            used, shard = 0, shard + 1
        record = pack(path.read_bytes(), label)
        writer.write(record)
        used += len(record)
    if writer is not None:
        writer.close()


def _make_by_torch(name: str, torch_python: Path) -> Maker:
    def make(data: Path, shard_bytes: int) -> None:
        words = ["make", name, "--data", str(data), "--shard-bytes", str(shard_bytes)]
        _run([str(torch_python), str(HERE / "read_torch.py"), *words])

    return make


def formats(torch_python: Path) -> dict[str, tuple[str, Maker]]:
    """Return system -> (folder that it reads, below the data folder; function that makes it)."""
    dataset, tars, records = (
        ("dataset", _make_dataset),
        ("tars", _make_tars),
        ("array_record", _make_array_records),
    )
    ours = dict.fromkeys(("reader", "reader.tf_data", "load", "tf.data"), dataset)
    by_torch = {
        "streaming": ("mds", _make_by_torch("streaming", torch_python)),
        "litdata": ("litdata", _make_by_torch("litdata", torch_python)),
    }
    return {**ours, "webdataset": tars, "grain": records, "grain-simplejpeg": records, **by_torch}


def make_data(root: Path, photos: int, systems: list[str], torch_python: Path) -> Path:
    """Make ROOT/read-PHOTOS with the photos and the formats of the systems, unless they exist."""
    data = root / f"read-{photos}"
    data.mkdir(parents=True, exist_ok=True)
    made = make_photos(root / "photos", photos=photos)
    link = data / "photos"
    if not link.exists():
        link.symlink_to(made.folder, target_is_directory=True)
    known = formats(torch_python)
    for folder, make in dict(known[name] for name in systems if name in known).items():
        _once(data, folder, partial(make, data, shard_bytes(photos)))
    return data


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
