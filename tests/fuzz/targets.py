"""Everything that parses bytes which this project did not write, each with bytes that it reads.

A target may raise the errors that its callers expect, and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shardwright.errors import ImageFault, ShardwrightError
from shardwright.format import naming
from shardwright.format.example import parse_example, split_example
from shardwright.format.index import read_index, read_summary
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.inspect.build_scan import scan_build
from shardwright.inspect.verify import verify
from shardwright.reader.state import ReaderState
from shardwright.sizes import parse_size
from shardwright.storage.addresses import absolute, key_problem
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import store_image
from shardwright.transforms.inputs.formats.archives import normal_path, path_problem
from shardwright.transforms.inputs.formats.arrays import records_in
from shardwright.transforms.output_state import OutputRequest, check_output
from shardwright.transforms.splits.split_rules import parse_split
from tests.fuzz import jpeg_part
from tests.support import damage, input_forms
from tests.support.listings import detect, list_source
from tests.support.tfrecord_makers import example

EXPECTED = (ShardwrightError, ImageFault)


@dataclass(frozen=True)
class Target:
    """A parser and bytes that it reads."""

    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]

    def run(self, data: bytes) -> None:
        """Parse the bytes; raise only what the parser's callers do not expect."""
        with contextlib.suppress(*EXPECTED):
            self.parse(data)


def _records(data: bytes) -> None:
    deque(scan_records(io.BytesIO(data)), maxlen=0)


def _example(data: bytes) -> None:
    parse_example(data)
    split_example(data)


def _image(data: bytes) -> None:
    for options in (EncodeOptions(), EncodeOptions(strip_metadata=True)):
        for check in ("none", "header"):
            try:
                store_image(data, options, check=check, name="x.png")
            except ImageFault:
                check_image(data or b"x", "none")


def _jpeg_part(data: bytes) -> None:
    with contextlib.suppress(ValueError):  # then the whole image is decoded
        jpeg_part.parse(data)


def _arrays(data: bytes) -> None:
    for name in ("x.npy", "x.npz"):
        with contextlib.suppress(ShardwrightError):
            deque(records_in(io.BytesIO(data), name), maxlen=0)


def _array_files() -> list[bytes]:
    images, labels = np.zeros((3, 4, 5), np.uint8), np.arange(3)
    made = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x_train=images, y_train=labels)
        made.append(file.getvalue())
    alone = io.BytesIO()
    np.save(alone, images)
    return [*made, alone.getvalue()]


def _ids(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert naming.is_dataset_name(naming.dataset_name_for(text)), text
    found = ShardName.parse(text)
    assert found is None or (found.shard == text and "/" not in text), text
    path_problem(normal_path(text))
    key_problem(text)


def _addresses(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    parsers: Sequence[Callable[[str], object]] = (
        absolute,
        lambda given: StorageOptions.parse([given]),
        parse_split,
        lambda given: parse_size(given, "--shard-size"),
    )
    for parse in parsers:
        with contextlib.suppress(ShardwrightError):
            parse(text)


def _state(data: bytes) -> None:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):  # the user's own JSON parser
        return
    ReaderState.from_json(record)


def _pictures() -> list[bytes]:
    pixels = np.random.default_rng(0).integers(0, 255, (9, 11, 3), np.uint8)
    made = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        file = io.BytesIO()
        exif = {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"} if kind in ("JPEG", "WEBP") else {}
        Image.fromarray(pixels).save(file, kind, **exif)
        made.append(file.getvalue())
    return made


_EXAMPLE = example(image=b"x" * 20, label=3, id=b"a/b.png", scores=[0.5, 2.0])
_STATE = ReaderState("d", True, 0, 4, 17, 1)
PARSERS = {
    "records": Target(_records, [damage.frame(b"one") + damage.frame(_EXAMPLE), b""]),
    "example": Target(_example, [_EXAMPLE]),
    "image": Target(_image, _pictures()),
    jpeg_part.NAME: Target(_jpeg_part, jpeg_part.make_seeds()),
    "arrays": Target(_arrays, _array_files()),
    "ids": Target(_ids, [b"x-train.tfrecord-00001-of-00002", b"a/../b", "Löwe/ü.png".encode()]),
    "addresses": Target(
        _addresses,
        [
            *(b"s3://bucket/a/b", b"https://host:1/a%20b?x=1", b"file:///a", b"1.5GiB"),
            *(b"s3://b:endpoint=http://h", b"train=0.8,test=0.2", b"test=5000,train=rest"),
        ],
    ),
    "state": Target(_state, [json.dumps(_STATE.to_json()).encode()]),
}
SHARD = ShardName("small", "train", 0, 1)
DATASET_FILES = {
    "manifest": naming.MANIFEST,
    "features": naming.FEATURES,
    "dataset-info": naming.DATASET_INFO,
    "plan": naming.PLAN,
    "index": SHARD.sidecar,
    "shard": SHARD.shard,
}
_TAR, _PARQUET = "train-000000.tar", "train-00000-of-00001.parquet"
# Form of INPUT, and the file in it that changes.
INPUT_FILES = {
    "csv": ("csv", "in/t.csv"),
    "jsonl": ("jsonl", "in/t.jsonl"),
    "parquet": ("parquet", "in/t.parquet"),
    "hf-metadata": ("imagefolder-metadata", "in/train/metadata.csv"),
    "tar": ("tar", "in.tar"),
    "tar.gz": ("tar.gz", "in.tar.gz"),
    "webdataset": ("webdataset", f"in/{_TAR}"),
    "zip": ("zip-stored", "in.zip"),
    "zip-deflated": ("zip-deflated", "in.zip"),
    "tfrecord": ("tfrecord", "in/zoo-train.tfrecord-00000-of-00001"),
    "hub-parquet": ("hub-parquet", f"in/{_PARQUET}"),
    "coco": ("coco", "in/annotations/instances_train2017.json"),
    "voc": ("voc", "in/Annotations/0.xml"),
    "voc-list": ("voc", "in/ImageSets/Main/train.txt"),
    "yolo": ("yolo", "in/labels/train/0.txt"),
    "yolo-config": ("yolo", "in/data.yaml"),
}
NAMES = (*PARSERS, *DATASET_FILES, *INPUT_FILES)


def make_target(name: str, folder: Path) -> Target:
    """Return a target; the files around the one that changes are made below `folder`."""
    if name in PARSERS:
        return PARSERS[name]
    if name in DATASET_FILES:
        return _dataset_target(DATASET_FILES[name], folder / "dataset")
    form, changing = INPUT_FILES[name]
    return _input_target(form, changing, folder / "input")


def _dataset_target(name: str, folder: Path) -> Target:
    images = damage.write_images(folder / "images", 2)
    root = damage.build(images, folder / "small", "--shard-count", "1")
    whole = (root / name).read_bytes()

    def parse(data: bytes) -> None:
        (root / name).write_bytes(data)
        at = Folder(str(root))
        readers: Sequence[Callable[[], object]] = (
            lambda: read_manifest(at),
            lambda: read_summary(at, SHARD),
            lambda: read_index(at, SHARD),
            lambda: scan_build(at, 0.0),
            lambda: check_output(OutputRequest(at, {}, "resume")),
            lambda: verify(str(root), threads=1),
        )
        for read in readers:
            with contextlib.suppress(ShardwrightError):
                read()

    return Target(parse, [whole])


def _input_target(name: str, changing: str, folder: Path) -> Target:
    form = next(form for form in input_forms.FORMS if form.name == name)
    form.write(folder)
    whole = (folder / changing).read_bytes()

    def parse(data: bytes) -> None:
        (folder / changing).write_bytes(data)
        source = detect(str(folder / form.input), spool=Folder(str(folder / "spool")))
        deque(list_source(source), maxlen=0)

    return Target(parse, [whole])
