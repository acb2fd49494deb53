"""Indexing shards that Beam wrote: the rows of the planned writer, and faults with their place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shardwright.errors import StorageError
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, read_index
from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.references import LABEL_INDEX
from shardwright.transforms.write.record_index import index_shard, moved_rows
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from tests.support.damage import example, frame
from tests.support.helpers import references
from tests.support.image_makers import picture, saved

NAME = ShardName("pets", "train", 0, 1)
SCHEMA = image_classification().with_class_names(("a", "b"))
ID = SCHEMA.features[1]


def make_plan(folder: Path, num_images: int) -> ShardPlan:
    paths = [folder / f"{number}.png" for number in range(num_images)]
    for number, path in enumerate(paths):
        path.write_bytes(saved(picture(size=(8 + number, 5)), "png"))
    batch = references(
        [f"schön/{path.name}" for path in paths],
        extras={LABEL_INDEX: [number % 2 for number in range(num_images)]},
        uri=[str(path) for path in paths],
        num_bytes=[path.stat().st_size for path in paths],
        etag=None,
        split="train",
        label="b",
    )
    return ShardPlan(NAME, "digest", batch)


def write(root: Path, num_images: int) -> tuple[ShardSummary, pa.Table]:
    """Write a shard; return its summary, and its rows in another order, with offsets from 0."""
    job = WriteJob(Folder(str(root)), SCHEMA, StoredRecords("header", EncodeOptions()), 2)
    summary, _ = write_shard(make_plan(root, num_images), job)
    rows = read_index(job.root, NAME).replace_schema_metadata(None)
    return summary, moved_rows(rows, pc.negate(rows["offset"])).take(
        pa.array(range(num_images - 1, -1, -1), pa.int64())
    )


@pytest.mark.parametrize("num_images", [70, 0])
def test_a_planned_shard(tmp_path: Path, num_images: int) -> None:
    summary, known = write(tmp_path, num_images)
    root = Folder(str(tmp_path))
    found, rows = index_shard(root, NAME, ID, known)
    assert rows.to_pylist() == read_index(root, NAME).to_pylist()
    assert rows.schema == INDEX_SCHEMA
    assert (found.num_records, found.num_bytes, found.crc32c) == (
        summary.num_records, summary.num_bytes, summary.crc32c
    )  # fmt: skip
    assert found.stats.keys() == summary.stats.keys()


GOOD = example({"id": [b"a"], "image": [b"pixels"]})
BAD_RECORDS = {
    "not an example": (b"\xff\xff", "record at byte .*: it has no id .*not a tf.Example"),
    "no id": (example({"image": [b"x"]}), "it has no id"),
    "two ids": (example({"id": [b"b", b"c"], "image": [b"x"]}), "it has no id"),
    "id not text": (example({"id": [b"\xff"], "image": [b"x"]}), "it has no id"),
    "unknown id": (example({"id": [b"b"], "image": [b"x"]}),
     "holds a record with the id 'b' that was not written by this build: run the build again"),
    "another record": (example({"id": ["schön/1.png".encode()], "image": [b"x"]}),
     "holds a record with the id 'schön/1.png' that was not written by this build"),
}  # fmt: skip


@pytest.mark.parametrize(("record", "message"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_of_others(tmp_path: Path, record: bytes, message: str) -> None:
    _, known = write(tmp_path, 3)
    with (tmp_path / NAME.shard).open("ab") as file:
        file.write(frame(record))
    with pytest.raises(StorageError, match=message):
        index_shard(Folder(str(tmp_path)), NAME, ID, known)


@pytest.mark.parametrize(("keep", "message"), [
    (-1, "the file ends inside the record"),
    (5, "the file ends inside the record's header, after 5 of 12 bytes"),
])  # fmt: skip
def test_a_cut_file(tmp_path: Path, keep: int, message: str) -> None:
    (tmp_path / NAME.shard).write_bytes(frame(GOOD)[:keep])
    with pytest.raises(StorageError, match=f"cannot be indexed: record at byte 0: {message}"):
        index_shard(Folder(str(tmp_path)), NAME, ID, INDEX_SCHEMA.empty_table())


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="was not written: run the build again"):
        index_shard(Folder(str(tmp_path)), NAME, ID, INDEX_SCHEMA.empty_table())
