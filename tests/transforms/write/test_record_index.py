"""Indexing written shards: the rows of the planned writer, and faults with their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, read_index
from shardwright.format.naming import ShardName
from shardwright.pipelines.job.schema import as_encoded
from shardwright.schemas.image_classification import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.references import LABEL_INDEX
from shardwright.transforms.write.record_index import ORIGIN_SCHEMA, index_shard
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from tests.support.damage import example, frame
from tests.support.helpers import references
from tests.support.image_makers import picture, saved

NAME = ShardName("pets", "train", 0, 1)
UNLABELED = image_classification().with_class_names(())


def write_file(root: Path, *records: bytes) -> bytes:
    content = b"".join(map(frame, records))
    (root / NAME.shard).write_bytes(content)
    return content


def index(root: Path, *ids: str) -> tuple[ShardSummary, pa.Table]:
    """Index the shard of an unlabeled dataset with these ids."""
    return index_shard(Folder(str(root)), NAME, UNLABELED, origins(*ids))


def origins(*ids: str) -> pa.Table:
    rows = [
        {"id": one, "format": "png", "width": n, "height": n + 1, "uri": f"/in/{n}", "etag": None}
        for n, one in enumerate(ids)
    ]
    return pa.Table.from_pylist(rows, schema=ORIGIN_SCHEMA)


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


@pytest.mark.parametrize(("feature_names", "encode"), [
    ("tfds", EncodeOptions()),
    ("model-garden", EncodeOptions("jpeg", (6, 4))),
    ("tfds", EncodeOptions("raw", (6, 4))),
])  # fmt: skip
def test_a_planned_shard(tmp_path: Path, feature_names: str, encode: EncodeOptions) -> None:
    plain = image_classification(feature_names=feature_names)
    schema = as_encoded(plain, encode).with_class_names(("a", "b"))
    out = Folder(str(tmp_path / "out"))
    summary, _ = write_shard(
        make_plan(tmp_path, 70), WriteJob(out, schema, StoredRecords("header", encode), 2)
    )
    wanted = read_index(out, NAME).replace_schema_metadata(None)
    origin = wanted.select(ORIGIN_SCHEMA.names).cast(ORIGIN_SCHEMA)
    found, rows = index_shard(out, NAME, schema, origin.take(pa.array(range(69, -1, -1))))
    assert rows.to_pylist() == wanted.to_pylist()
    assert rows.schema == INDEX_SCHEMA
    assert found == replace(summary, digest="", sidecar=None)


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(IDS, st.binary(max_size=300), max_size=8))
def test_image_offsets(tmp_path_factory: pytest.TempPathFactory, records: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("shard")
    examples = [example({"id": [key.encode()], "image": [image]}) for key, image in records.items()]
    content = write_file(root, *examples)
    summary, rows = index(root, "another", *records)
    assert rows["id"].to_pylist() == list(records)
    for row, image, data in zip(rows.to_pylist(), records.values(), examples, strict=True):
        start = row["image_offset"]
        assert content[start : start + row["image_length"]] == image
        assert content[row["offset"] : row["offset"] + row["length"]] == frame(data)
        assert row["crc32c"] == google_crc32c.value(image)
        assert (row["label"], row["format"], row["etag"]) == (None, "png", None)
    crc32c = google_crc32c.value(content)
    assert summary == ShardSummary(NAME, len(records), len(content), crc32c, "", {}, summary.stats)


def test_an_empty_shard_has_no_rows(tmp_path: Path) -> None:
    write_file(tmp_path)
    summary, rows = index(tmp_path)
    assert (rows.num_rows, rows.schema) == (0, INDEX_SCHEMA)
    assert (summary.num_records, summary.num_bytes, summary.crc32c) == (0, 0, 0)


GOOD = example({"id": [b"a"], "image": [b"pixels"]})
BAD_RECORDS = {
    "not an example": (b"\xff\xff", "not a tf.Example"),
    "no image": (example({"id": [b"b"]}), "feature 'image' has 0 values, expected 1"),
    "no id": (example({"image": [b"x"]}), "feature 'id' has 0 values"),
    "two ids": (example({"id": [b"b", b"c"], "image": [b"x"]}), "feature 'id' has 2 values"),
    "image not last": (example({"image": [b"x"], "id": [b"b"]}),
     "the image is not the record's last"),
    "id not text": (example({"id": [b"\xff"], "image": [b"x"]}), r"the id b'\xff' is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize(("record", "message"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_that_does_not_fit_the_schema(tmp_path: Path, record: bytes, message: str) -> None:
    write_file(tmp_path, GOOD, record)
    place = f"{tmp_path}/{NAME.shard} cannot be indexed: record at byte {len(frame(GOOD))}: "
    with pytest.raises(StorageError) as caught:
        index(tmp_path, "a", "b")
    assert place in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(("keep", "message"), [
    (-1, "the file ends inside the record"),
    (5, "the file ends inside the record's header, after 5 of 12 bytes"),
])  # fmt: skip
def test_a_cut_file(tmp_path: Path, keep: int, message: str) -> None:
    content = write_file(tmp_path, GOOD)
    (tmp_path / NAME.shard).write_bytes(content[:keep])
    with pytest.raises(StorageError, match=f"record at byte 0: {message}"):
        index(tmp_path, "a")


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    content = write_file(tmp_path, GOOD)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / NAME.shard).write_bytes(damaged)
        with pytest.raises(StorageError, match="record at byte 0"):
            index(tmp_path, "a")


def test_an_id_of_another_build(tmp_path: Path) -> None:
    write_file(tmp_path, GOOD)
    with pytest.raises(StorageError, match="holds the id 'a', which was not written by this build"):
        index(tmp_path, "b")


def test_a_missing_file_and_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"{NAME.shard} was not written: run the build again"):
        index(tmp_path)
    (tmp_path / NAME.shard).mkdir()
    with pytest.raises(StorageError, match=r"cannot be indexed: .*Is a directory"):
        index(tmp_path)
