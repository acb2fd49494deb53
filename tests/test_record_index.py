"""Indexing shards that are already written: the same rows as the planned writer's, and every fault named with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.image_classification import image_classification
from shardwright.errors import StorageError
from shardwright.example import bytes_entry_header, varint
from shardwright.index import INDEX_SCHEMA, read_index
from shardwright.naming import ShardName
from shardwright.records import frame_footer, frame_header
from shardwright.storage import Folder
from tests.image_makers import picture, saved
from transforms.images import EncodeOptions
from transforms.planning.shard_plans import ShardPlan
from transforms.references import LABEL_INDEX
from transforms.writing.record_index import ORIGIN_SCHEMA, index_shard
from transforms.writing.shard_writing import write_shard
from transforms.writing.write_job import WriteJob

NAME = ShardName("pets", "train", 0, 1)
UNLABELED = image_classification(
    feature_names="tfds", image_encoding=None, image_shape=(), extras=()
).with_class_names(())
IMAGE_KEY, ID_KEY = b"image", b"id"


def entry(key: bytes, *values: bytes) -> bytes:
    """A Features map entry of a bytes list, put together by hand."""
    if len(values) == 1:
        return bytes_entry_header(key, len(values[0])) + values[0]
    body = b"".join(b"\x0a" + varint(len(value)) + value for value in values)
    feature = b"\x0a" + varint(len(body)) + body
    inner = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(feature)) + feature
    return b"\x0a" + varint(len(inner)) + inner


def example(*entries: bytes) -> bytes:
    features = b"".join(entries)
    return b"\x0a" + varint(len(features)) + features


def frame(data: bytes) -> bytes:
    return frame_header(len(data)) + data + frame_footer(google_crc32c.value(data))


def write_file(root: Path, *records: bytes) -> bytes:
    content = b"".join(map(frame, records))
    (root / NAME.shard).write_bytes(content)
    return content


def origins(*ids: str) -> pa.Table:
    rows = [
        {"id": one, "format": "png", "width": n, "height": n + 1, "uri": f"/in/{n}", "etag": None}
        for n, one in enumerate(ids)
    ]
    return pa.Table.from_pylist(rows, schema=ORIGIN_SCHEMA)


def make_plan(folder: Path, num_images: int) -> ShardPlan:
    rows = []
    for number in range(num_images):
        path = folder / f"{number}.png"
        path.write_bytes(saved(picture(size=(8 + number, 5)), "png"))
        rows.append(
            {
                "id": f"schön/{number}.png",
                "uri": str(path),
                "num_bytes": path.stat().st_size,
                "label": "b",
            }
        )
    references = pa.RecordBatch.from_pylist(rows).append_column(
        "etag", pa.nulls(num_images, pa.string())
    )
    references = references.append_column("offset", pa.nulls(num_images, pa.int64()))
    references = references.append_column("split", pa.array(["train"] * num_images))
    references = references.append_column(
        LABEL_INDEX, pa.array([number % 2 for number in range(num_images)])
    )
    return ShardPlan(NAME, "digest", references)


@pytest.mark.parametrize(
    ("feature_names", "encode"),
    [
        ("tfds", EncodeOptions()),
        ("model-garden", EncodeOptions("jpeg", (6, 4))),
        ("tfds", EncodeOptions("raw", (6, 4))),
    ],
)
def test_the_index_of_a_planned_shard_is_found_again(
    tmp_path: Path, feature_names: str, encode: EncodeOptions
) -> None:
    schema = image_classification(
        feature_names=feature_names,
        image_encoding=None if encode.encode == "keep" else encode.encode,
        image_shape=(4, 6, 3) if encode.resize else (),
        extras=(),
    ).with_class_names(("a", "b"))
    out = tmp_path / "out"
    summary, _ = write_shard(
        make_plan(tmp_path, 70), WriteJob(Folder(str(out)), schema, "header", encode, 2)
    )
    wanted = read_index(Folder(str(out)), NAME).replace_schema_metadata(None)
    origin = wanted.select(ORIGIN_SCHEMA.names).cast(ORIGIN_SCHEMA)
    found, rows = index_shard(
        Folder(str(out)), NAME, schema, origin.take(pa.array(range(69, -1, -1)))
    )
    assert rows.to_pylist() == wanted.to_pylist()
    assert rows.schema == INDEX_SCHEMA
    assert found == replace(summary, digest="")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.binary(max_size=300)
        ),
        max_size=8,
        unique_by=lambda record: record[0],
    )
)
def test_every_image_lies_where_its_row_says(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("shard")
    examples = [
        example(entry(ID_KEY, name.encode()), entry(IMAGE_KEY, image)) for name, image in records
    ]
    content = write_file(root, *examples)
    summary, rows = index_shard(
        Folder(str(root)), NAME, UNLABELED, origins("another", *(name for name, _ in records))
    )
    assert [row["id"] for row in rows.to_pylist()] == [name for name, _ in records]
    for row, (_, image), data in zip(rows.to_pylist(), records, examples, strict=True):
        start = row["image_offset"]
        assert content[start : start + row["image_length"]] == image
        assert content[row["offset"] : row["offset"] + row["length"]] == frame(data)
        assert row["crc32c"] == google_crc32c.value(image)
        assert (row["label"], row["format"], row["etag"]) == (None, "png", None)
    assert (summary.num_records, summary.num_bytes) == (len(records), len(content))
    assert (summary.crc32c, summary.digest, summary.rejects) == (
        google_crc32c.value(content),
        "",
        {},
    )


def test_an_empty_shard_has_no_rows(tmp_path: Path) -> None:
    write_file(tmp_path)
    summary, rows = index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins())
    assert (rows.num_rows, rows.schema) == (0, INDEX_SCHEMA)
    assert (summary.num_records, summary.num_bytes, summary.crc32c) == (0, 0, 0)


GOOD = example(entry(ID_KEY, b"a"), entry(IMAGE_KEY, b"pixels"))
BAD_RECORDS = {
    "not an example": (b"\xff\xff", "not a tf.Example"),
    "no image": (
        example(entry(ID_KEY, b"b")),
        "feature 'image' has 0 values, and the schema says 1",
    ),
    "no id": (example(entry(IMAGE_KEY, b"x")), "feature 'id' has 0 values"),
    "two ids": (
        example(entry(ID_KEY, b"b", b"c"), entry(IMAGE_KEY, b"x")),
        "feature 'id' has 2 values",
    ),
    "image not last": (
        example(entry(IMAGE_KEY, b"x"), entry(ID_KEY, b"b")),
        "the image is not the record's last",
    ),
    "id not text": (
        example(entry(ID_KEY, b"\xff"), entry(IMAGE_KEY, b"x")),
        r"the id b'\xff' is not UTF-8",
    ),
}


@pytest.mark.parametrize(("record", "message"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_that_is_no_example_of_the_schema(
    tmp_path: Path, record: bytes, message: str
) -> None:
    write_file(tmp_path, GOOD, record)
    with pytest.raises(StorageError) as caught:
        index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins("a", "b"))
    assert f"{tmp_path}/{NAME.shard} cannot be indexed: record at byte {len(frame(GOOD))}: " in str(
        caught.value
    )
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (-1, "the file ends inside the record"),
        (5, "the file ends inside the record's header, after 5 of 12 bytes"),
    ],
)
def test_a_cut_file(tmp_path: Path, keep: int, message: str) -> None:
    content = write_file(tmp_path, GOOD)
    (tmp_path / NAME.shard).write_bytes(content[:keep])
    with pytest.raises(StorageError, match=f"record at byte 0: {message}"):
        index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins("a"))


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    content = write_file(tmp_path, GOOD)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / NAME.shard).write_bytes(damaged)
        with pytest.raises(StorageError, match="record at byte 0"):
            index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins("a"))


def test_an_id_of_another_build(tmp_path: Path) -> None:
    write_file(tmp_path, GOOD)
    with pytest.raises(StorageError, match="holds the id 'a', which was not written by this build"):
        index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins("b"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"{NAME.shard} was not written: run the build again"):
        index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins())


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / NAME.shard).mkdir()
    with pytest.raises(StorageError, match=r"cannot be indexed: .*Is a directory"):
        index_shard(Folder(str(tmp_path)), NAME, UNLABELED, origins())
