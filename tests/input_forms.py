"""The same eight pictures in every form that INPUT may have, written by the libraries that people make such files with."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq
import tensorflow as tf

from tests.build_helpers import png_of

CLASSES = ("cat", "dog")
SIDE = 8  # pixels of every picture


class Picture(NamedTuple):
    split: str
    label: str
    name: str
    data: bytes

    @property
    def path(self) -> str:
        return f"{self.label}/{self.name}"


PICTURES = tuple(
    Picture(
        split, CLASSES[number % 2], f"{number}.png", png_of(5 * number, side=SIDE)
    )  # square: the width follows the number
    for number, split in enumerate(["train"] * 6 + ["test"] * 2)
)


@dataclass(frozen=True)
class Form:
    """How INPUT is made and named.

    Attributes:
        name: Of the form.
        make: Writes the files below a folder.
        input: INPUT below that folder.
        options: Further ones of the command.
        states_splits: Whether this form says which split a picture is in.
        label: "class" for a class label, "objects" for one object a picture.
        classes: Names of the classes.
    """

    name: str
    make: Callable[[Path], None]
    input: str = "in"
    options: tuple[str, ...] = ()
    states_splits: bool = True
    label: str = "class"
    classes: tuple[str, ...] = CLASSES

    def __str__(self) -> str:
        return self.name


def write(path: Path, data: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def class_folders(root: Path) -> None:
    for picture in PICTURES:
        write(root / "in" / picture.path, picture.data)


def split_folders(root: Path) -> None:
    for picture in PICTURES:
        write(
            root
            / "in"
            / picture.split.upper()
            / picture.label
            / picture.name.replace(".png", ".PNG"),
            picture.data,
        )


def _rows() -> list[dict[str, str]]:
    return [{"path": f"images/{p.name}", "label": p.label, "split": p.split} for p in PICTURES]


def _images(root: Path) -> None:
    for picture in PICTURES:
        write(root / "in" / "images" / picture.name, picture.data)


def _csv_of(rows: list[dict[str, str]], delimiter: str = ",") -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def csv_table(root: Path) -> None:
    _images(root)
    write(root / "in" / "t.csv", _csv_of(_rows()))


def tsv_table(root: Path) -> None:
    _images(root)
    write(root / "in" / "t.tsv", _csv_of(_rows(), "\t"))


def json_lines(root: Path) -> None:
    _images(root)
    write(root / "in" / "t.jsonl", "".join(json.dumps(row) + "\n" for row in _rows()))


def parquet_table(root: Path) -> None:
    _images(root)
    pq.write_table(pa.Table.from_pylist(_rows()), root / "in" / "t.parquet")


def sharded_table(root: Path) -> None:
    _images(root)
    write(root / "in" / "t-0.csv", _csv_of(_rows()[:3]))
    write(root / "in" / "t-1.csv", _csv_of(_rows()[3:]))


def labels_beside(root: Path) -> None:
    """A folder without classes, and their labels in a table of their own."""
    for picture in PICTURES:
        write(root / "in" / picture.name, picture.data)
    rows = [
        {"path": picture.name, "label": picture.label, "split": picture.split}
        for picture in PICTURES
    ]
    write(root / "labels.csv", _csv_of(rows))


def image_folder_metadata(root: Path) -> None:
    for split in ("train", "test"):
        pictures = [picture for picture in PICTURES if picture.split == split]
        write(
            root / "in" / split / "metadata.csv",
            _csv_of([{"file_name": p.name, "label": p.label} for p in pictures]),
        )
        for picture in pictures:
            write(root / "in" / split / picture.name, picture.data)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _tar(path: Path, mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for picture in PICTURES:
            _add(tar, f"{picture.split}/{picture.path}", picture.data)


def plain_tar(root: Path) -> None:
    _tar(root / "in.tar")


def gzipped_tar(root: Path) -> None:
    _tar(root / "in.tar.gz", "w:gz")


def webdataset(root: Path) -> None:
    (root / "in").mkdir(parents=True)
    for split in ("train", "test"):
        with tarfile.open(root / "in" / f"{split}-000000.tar", "w") as tar:
            for picture in PICTURES:
                if picture.split == split:
                    key = picture.name.removesuffix(".png")
                    _add(tar, f"{key}.png", picture.data)
                    _add(tar, f"{key}.cls", str(CLASSES.index(picture.label)).encode())


def zipped(root: Path, method: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / "in.zip", "w", method) as archive:
        for picture in PICTURES:
            archive.writestr(f"{picture.split}/{picture.path}", picture.data)


def stored_zip(root: Path) -> None:
    zipped(root, zipfile.ZIP_STORED)


def deflated_zip(root: Path) -> None:
    zipped(root, zipfile.ZIP_DEFLATED)


def tfrecords(root: Path) -> None:
    """As TFDS names and fills them."""
    (root / "in").mkdir(parents=True)
    for split in ("train", "test"):
        with tf.io.TFRecordWriter(
            str(root / "in" / f"zoo-{split}.tfrecord-00000-of-00001")
        ) as writer:
            for picture in PICTURES:
                if picture.split == split:
                    writer.write(_example(picture))
    write(root / "in" / "label.labels.txt", "".join(f"{name}\n" for name in CLASSES))


def _example(picture: Picture) -> bytes:
    example = tf.train.Example()
    features = example.features.feature
    features["image"].bytes_list.value.append(picture.data)
    features["label"].int64_list.value.append(CLASSES.index(picture.label))
    features["id"].bytes_list.value.append(picture.path.encode())
    data: bytes = example.SerializeToString()
    return data


def _hub_table(split: str) -> pa.Table:
    """As the Hugging Face hub has them: bytes and path, and the classes' names in the schema."""
    pictures = [picture for picture in PICTURES if picture.split == split]
    image = pa.array(
        [{"bytes": p.data, "path": p.name} for p in pictures],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(CLASSES), "_type": "ClassLabel"},
    }
    table = pa.table(
        {"image": image, "label": pa.array([CLASSES.index(p.label) for p in pictures], pa.int64())}
    )
    return table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )


def hub_parquet(root: Path) -> None:
    (root / "in").mkdir(parents=True)
    for split in ("train", "test"):
        pq.write_table(
            _hub_table(split), root / "in" / f"{split}-00000-of-00001.parquet", row_group_size=2
        )


def arrow_files(root: Path) -> None:
    (root / "in").mkdir(parents=True)
    for split in ("train", "test"):
        table = _hub_table(split)
        with (
            pa.OSFile(str(root / "in" / f"{split}-00000-of-00001.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as writer,
        ):
            writer.write_table(table)


def coco(root: Path) -> None:
    categories = [{"id": 10 * number + 1, "name": name} for number, name in enumerate(CLASSES)]
    for split in ("train", "test"):
        pictures = [picture for picture in PICTURES if picture.split == split]
        images = [
            {"id": number, "file_name": p.name, "width": SIDE, "height": SIDE}
            for number, p in enumerate(pictures)
        ]
        annotations = [
            {"id": number, "image_id": number, "category_id": 10 * CLASSES.index(p.label) + 1, "bbox": [0, 0, SIDE, SIDE / 2], "area": 32,
             "iscrowd": 0, "segmentation": []}
            for number, p in enumerate(pictures)
        ]  # fmt: skip
        content = {"images": images, "annotations": annotations, "categories": categories}
        write(root / "in" / "annotations" / f"instances_{split}2017.json", json.dumps(content))
        for picture in pictures:
            write(root / "in" / f"{split}2017" / picture.name, picture.data)


def voc(root: Path) -> None:
    for picture in PICTURES:
        stem = picture.name.removesuffix(".png")
        box = f"<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>{SIDE}</xmax><ymax>4</ymax></bndbox>"
        size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
        item = f"<object><name>{picture.label}</name><difficult>0</difficult>{box}</object>"
        write(
            root / "in" / "Annotations" / f"{stem}.xml",
            f"<annotation><filename>{picture.name}</filename>{size}{item}</annotation>",
        )
        write(root / "in" / "JPEGImages" / picture.name, picture.data)
    for split in ("train", "test"):
        stems = [
            picture.name.removesuffix(".png") for picture in PICTURES if picture.split == split
        ]
        write(root / "in" / "ImageSets" / "Main" / f"{split}.txt", "\n".join(stems) + "\n")


def yolo(root: Path) -> None:
    for picture in PICTURES:
        stem = picture.name.removesuffix(".png")
        write(root / "in" / "images" / picture.split / picture.name, picture.data)
        write(
            root / "in" / "labels" / picture.split / f"{stem}.txt",
            f"{CLASSES.index(picture.label)} 0.5 0.25 1.0 0.5\n",
        )
    write(
        root / "in" / "data.yaml",
        "train: images/train\ntest: images/test\nnames:\n  0: cat\n  1: dog\n",
    )


FORMS = (
    Form("class-folders", class_folders, states_splits=False),
    Form("split-folders", split_folders),
    Form("csv", csv_table, "in/t.csv"),
    Form("tsv", tsv_table, "in/t.tsv"),
    Form("jsonl", json_lines, "in/t.jsonl"),
    Form("parquet", parquet_table, "in/t.parquet"),
    Form("sharded-csv", sharded_table, "in/t-*.csv"),
    Form("labels-beside", labels_beside, options=("--labels", "{root}/labels.csv")),
    Form("imagefolder-metadata", image_folder_metadata),
    Form("tar", plain_tar, "in.tar"),
    Form("tar.gz", gzipped_tar, "in.tar.gz"),
    Form("webdataset", webdataset, classes=("0", "1")),
    Form("zip-stored", stored_zip, "in.zip"),
    Form("zip-deflated", deflated_zip, "in.zip"),
    Form("tfrecord", tfrecords),
    Form("hub-parquet", hub_parquet),
    Form("arrow", arrow_files),
    Form("coco", coco, label="objects"),
    Form("voc", voc, label="objects"),
    Form("yolo", yolo, label="objects"),
)
