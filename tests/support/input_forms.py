"""The same eight pictures in every input format, written by the libraries in common use."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.archive_files import pack_tar, pack_zip
from tests.support.build_helpers import build, png_of
from tests.support.detection_makers import write
from tests.support.tfrecord_makers import example, write_records

CLASSES = ("cat", "dog")
SIDE = 8  # pixels of every picture
Files = Mapping[str, bytes | str]


class Picture(NamedTuple):
    split: str
    label: str
    name: str
    data: bytes

    @property
    def path(self) -> str:
        return f"{self.label}/{self.name}"

    @property
    def stem(self) -> str:
        return self.name.removesuffix(".png")

    @property
    def index(self) -> int:
        return CLASSES.index(self.label)


PICTURES = tuple(
    # Square: the width follows the number.
    Picture(split, CLASSES[number % 2], f"{number}.png", png_of(5 * number, side=SIDE))
    for number, split in enumerate(["train"] * 6 + ["test"] * 2)
)
Pictures = Sequence[Picture]
Make = Callable[[Path, Pictures], Files]


def by_split(pictures: Pictures) -> dict[str, list[Picture]]:
    return {split: [p for p in pictures if p.split == split] for split in ("train", "test")}


@dataclass(frozen=True)
class Form:
    """An input format and its files."""

    name: str
    files: Make  # writes some below a folder, and returns the others
    input: str = "in"  # below that folder
    options: tuple[str, ...] = ()
    states_splits: bool = True
    label: str = "class"  # or "objects", for one object a picture

    def __str__(self) -> str:
        return self.name

    def write(self, root: Path, pictures: Pictures = PICTURES) -> None:
        root.mkdir()
        write(root, self.files(root, pictures))


def images_of(pictures: Pictures) -> Files:
    return {f"in/images/{p.name}": p.data for p in pictures}


def table_rows(pictures: Pictures) -> list[dict[str, str]]:
    return [{"path": f"images/{p.name}", "label": p.label, "split": p.split} for p in pictures]


def members_of(pictures: Pictures) -> dict[str, bytes]:
    return {f"{p.split}/{p.path}": p.data for p in pictures}


def class_folders(_: Path, pictures: Pictures) -> Files:
    return {f"in/{p.path}": p.data for p in pictures}


def split_folders(_: Path, pictures: Pictures) -> Files:
    return {f"in/{p.split.upper()}/{p.label}/{p.stem}.PNG": p.data for p in pictures}


def table_as(name: str, text: Callable[[list[dict[str, str]]], str]) -> Make:
    def make(_: Path, pictures: Pictures) -> Files:
        return {**images_of(pictures), f"in/{name}": text(table_rows(pictures))}

    return make


def json_lines(rows: list[dict[str, str]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def sharded_csv(_: Path, pictures: Pictures) -> Files:
    rows = table_rows(pictures)
    return {**images_of(pictures), "in/t-0.csv": csv_of(rows[:3]), "in/t-1.csv": csv_of(rows[3:])}


def csv_of(rows: Sequence[Mapping[str, object]], delimiter: str = ",") -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def parquet_table(root: Path, pictures: Pictures) -> Files:
    (root / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(table_rows(pictures)), root / "in" / "t.parquet")
    return images_of(pictures)


def labels_beside(_: Path, pictures: Pictures) -> Files:
    """Return a folder without classes, and a table of their labels."""
    rows = [{"path": p.name, "label": p.label, "split": p.split} for p in pictures]
    return {f"in/{p.name}": p.data for p in pictures} | {"labels.csv": csv_of(rows)}


def image_folder_metadata(_: Path, pictures: Pictures) -> Files:
    files: dict[str, bytes | str] = {f"in/{p.split}/{p.name}": p.data for p in pictures}
    for split, here in by_split(pictures).items():
        rows = [{"file_name": p.name, "label": p.label} for p in here]
        files[f"in/{split}/metadata.csv"] = csv_of(rows)
    return files


def tar_with(name: str, mode: str) -> Make:
    def make(root: Path, pictures: Pictures) -> Files:
        pack_tar(root / name, members_of(pictures), mode)
        return {}

    return make


def zip_with(method: int) -> Make:
    def make(root: Path, pictures: Pictures) -> Files:
        pack_zip(root / "in.zip", members_of(pictures), method)
        return {}

    return make


def webdataset(root: Path, pictures: Pictures) -> Files:
    for split, here in by_split(pictures).items():
        files = {}
        for p in here:
            files |= {f"{p.stem}.png": p.data, f"{p.stem}.cls": p.label.encode()}
        pack_tar(root / "in" / f"{split}-000000.tar", files)
    return {}


def tfrecords(root: Path, pictures: Pictures) -> Files:
    """Write TFRecord files as TFDS names and fills them."""
    for split, here in by_split(pictures).items():
        records = [example(image=p.data, label=p.index, id=p.path.encode()) for p in here]
        write_records(root / "in" / f"zoo-{split}.tfrecord-00000-of-00001", records)
    label = {"classLabel": {"numClasses": str(len(CLASSES))}, "pythonClassName": "ClassLabel"}
    content = {"featuresDict": {"features": {"label": label}}, "pythonClassName": "FeaturesDict"}
    return {
        "in/label.labels.txt": "".join(f"{name}\n" for name in CLASSES),
        "in/features.json": json.dumps(content),
    }


def _hub_table(pictures: Pictures) -> pa.Table:
    """Return a table as on the Hugging Face hub: bytes and path, and class names in the schema."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    image = pa.array([{"bytes": p.data, "path": p.name} for p in pictures], kind)
    table = pa.table({"image": image, "label": pa.array([p.index for p in pictures], pa.int64())})
    label = {"names": list(CLASSES), "_type": "ClassLabel"}
    info: dict[str, Any] = {"features": {"image": {"_type": "Image"}, "label": label}}
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": info})})


def hub_parquet(root: Path, pictures: Pictures) -> Files:
    (root / "in").mkdir()
    for split, here in by_split(pictures).items():
        path = root / "in" / f"{split}-00000-of-00001.parquet"
        pq.write_table(_hub_table(here), path, row_group_size=2)
    return {}


def coco(_: Path, pictures: Pictures) -> Files:
    files: dict[str, bytes | str] = {f"in/{p.split}2017/{p.name}": p.data for p in pictures}
    categories = [{"id": 10 * number + 1, "name": name} for number, name in enumerate(CLASSES)]
    shape = {"bbox": [0, 0, SIDE, SIDE / 2], "area": 32, "iscrowd": 0, "segmentation": []}
    for split, here in by_split(pictures).items():
        images = [
            {"id": number, "file_name": p.name, "width": SIDE, "height": SIDE}
            for number, p in enumerate(here)
        ]
        annotations = [
            {"id": number, "image_id": number, "category_id": 10 * p.index + 1, **shape}
            for number, p in enumerate(here)
        ]
        content = {"images": images, "annotations": annotations, "categories": categories}
        files[f"in/annotations/instances_{split}2017.json"] = json.dumps(content)
    return files


def table_of_boxes(_: Path, pictures: Pictures) -> Files:
    box = {"width": SIDE, "height": SIDE, "xmin": 0, "ymin": 0, "xmax": SIDE, "ymax": SIDE // 2}
    rows = [
        {"filename": f"images/{p.name}", "class": p.label, "split": p.split, **box}
        for p in pictures
    ]
    return {**images_of(pictures), "in/t.csv": csv_of(rows)}


def voc(_: Path, pictures: Pictures) -> Files:
    box = f"<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>{SIDE}</xmax><ymax>4</ymax></bndbox>"
    size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
    files: dict[str, bytes | str] = {}
    for p in pictures:
        item = f"<object><name>{p.label}</name><difficult>0</difficult>{box}</object>"
        xml = f"<annotation><filename>{p.name}</filename>{size}{item}</annotation>"
        files |= {f"in/Annotations/{p.stem}.xml": xml, f"in/JPEGImages/{p.name}": p.data}
    for split, here in by_split(pictures).items():
        files[f"in/ImageSets/Main/{split}.txt"] = "".join(f"{p.stem}\n" for p in here)
    return files


def yolo(_: Path, pictures: Pictures) -> Files:
    config = "train: images/train\ntest: images/test\nnames:\n  0: cat\n  1: dog\n"
    files: dict[str, bytes | str] = {"in/data.yaml": config}
    for p in pictures:
        files[f"in/images/{p.split}/{p.name}"] = p.data
        files[f"in/labels/{p.split}/{p.stem}.txt"] = f"{p.index} 0.5 0.25 1.0 0.5\n"
    return files


def finished_dataset(root: Path, pictures: Pictures) -> Files:
    write(root, {f"images/{p.split}/{p.path}": p.data for p in pictures})
    assert build(root / "images", root / "in", "--records-per-shard", "2") == 0
    return {}


FORMS = (
    Form("class-folders", class_folders, states_splits=False),
    Form("split-folders", split_folders),
    Form("csv", table_as("t.csv", csv_of), "in/t.csv"),
    Form("tsv", table_as("t.tsv", partial(csv_of, delimiter="\t")), "in/t.tsv"),
    Form("jsonl", table_as("t.jsonl", json_lines), "in/t.jsonl"),
    Form("parquet", parquet_table, "in/t.parquet"),
    Form("sharded-csv", sharded_csv, "in/t-*.csv"),
    Form("labels-beside", labels_beside, options=("--labels", "{root}/labels.csv")),
    Form("imagefolder-metadata", image_folder_metadata),
    Form("tar", tar_with("in.tar", "w"), "in.tar"),
    Form("tar.gz", tar_with("in.tar.gz", "w:gz"), "in.tar.gz"),
    Form("webdataset", webdataset),
    Form("zip-stored", zip_with(zipfile.ZIP_STORED), "in.zip"),
    Form("zip-deflated", zip_with(zipfile.ZIP_DEFLATED), "in.zip"),
    Form("tfrecord", tfrecords),
    Form("hub-parquet", hub_parquet),
    Form("box-table", table_of_boxes, "in/t.csv", label="objects"),
    Form("coco", coco, label="objects"),
    Form("voc", voc, label="objects"),
    Form("yolo", yolo, label="objects"),
    Form("dataset", finished_dataset),
)
