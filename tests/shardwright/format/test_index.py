"""The index: its rows come back as written, and damaged sidecars are reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError
from shardwright.format.contents import FileContent
from shardwright.format.index import (
    INDEX_SCHEMA,
    ShardSummary,
    read_index,
    read_index_of,
    read_summary,
    write_sidecar,
)
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder

NAME = ShardName("zoo", "train", 1, 2)
STATS = {"labels": {"0": 3}, "width": {"min": 1, "max": 2, "sum": 4, "count": 3}}
SUMMARY = ShardSummary(NAME, 3, 90, 2**32 - 1, "d1", {"corrupt": 2}, STATS)
ROWS = pa.Table.from_pylist(
    [
        {
            "id": f"Löwe/{number}.png", "offset": 30 * number, "length": 30,
            "image_offset": 30 * number + 20, "image_length": 6, "crc32c": 2**32 - 1 - number,
            "label": number or None, "format": "png", "width": 3, "height": None, "uri": None,
            "etag": "e", "record_crc32c": number,
        }
        for number in range(3)
    ],
    INDEX_SCHEMA,
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    folder = Folder(str(tmp_path))
    write_sidecar(folder, SUMMARY, ROWS)
    return folder


def sidecar(root: Folder) -> Path:
    return Path(root.path(NAME.sidecar))


def test_rows_and_summary_come_back(root: Folder) -> None:
    assert read_index(root, NAME).equals(ROWS)
    summary = read_summary(root, NAME)
    assert summary is not None
    assert summary.to_json() == SUMMARY.to_json()


@pytest.mark.parametrize("columns", [["id"], ["offset", "length"], ["crc32c", "id"]])
def test_some_columns(root: Folder, columns: list[str]) -> None:
    assert read_index(root, NAME, columns).equals(ROWS.select(columns))


def test_a_hash_of_features_takes_eight_bytes_a_record(root: Folder) -> None:
    rows = pa.concat_tables([ROWS] * 7_000)
    write_sidecar(root, SUMMARY, rows)
    before = sidecar(root).stat().st_size
    hashes = np.random.default_rng(1).integers(0, 2**64, rows.num_rows, np.uint64)
    place = INDEX_SCHEMA.get_field_index("features")
    hashed = rows.set_column(place, INDEX_SCHEMA.field("features"), pa.array(hashes))
    write_sidecar(root, SUMMARY, hashed)
    assert 0 < sidecar(root).stat().st_size - before < 8.1 * rows.num_rows


def test_the_same_rows_are_the_same_bytes(root: Folder, tmp_path: Path) -> None:
    chunked = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])
    write_sidecar(Folder(str(tmp_path / "again")), SUMMARY, chunked)
    assert (tmp_path / "again" / NAME.sidecar).read_bytes() == sidecar(root).read_bytes()


def test_no_rows(root: Folder) -> None:
    write_sidecar(root, SUMMARY, ROWS.slice(0, 0))
    assert read_index(root, NAME).num_rows == 0


def test_rows_of_other_types_are_cast_or_rejected(root: Folder) -> None:
    column = ROWS.schema.get_field_index("width")
    write_sidecar(root, SUMMARY, ROWS.set_column(column, "width", ROWS["width"].cast(pa.int64())))
    assert read_index(root, NAME).equals(ROWS)
    with pytest.raises(ValueError, match="schema"):
        write_sidecar(root, SUMMARY, ROWS.drop_columns(["id"]))


def test_a_missing_sidecar(tmp_path: Path) -> None:
    assert read_summary(Folder(str(tmp_path)), NAME) is None
    what = r"index/train-00001-of-00002.parquet is missing: the index of zoo-train\.tf"
    with pytest.raises(StorageError, match=what):
        read_index(Folder(str(tmp_path)), NAME)


def test_a_sidecar_with_other_columns(root: Folder) -> None:
    pq.write_table(pa.table({"a": [1]}), sidecar(root))
    assert read_summary(root, NAME) is None
    with pytest.raises(StorageError, match="cannot be read: its columns are not those of an index"):
        read_index(root, NAME)
    with pytest.raises(StorageError, match="cannot be read"):
        read_index(root, NAME, ["id"])


def test_columns_that_builds_once_left_out_are_nulls(root: Folder) -> None:
    wanted = read_index(root, NAME)
    table = wanted.drop_columns(["features", "suffix"])
    table = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    pq.write_table(table, sidecar(root))
    found = read_index(root, NAME)
    assert found.schema.equals(wanted.schema)
    assert found.drop_columns(["features", "suffix"]) == wanted.drop_columns(["features", "suffix"])
    assert (found["features"].null_count, found["suffix"].null_count) == (len(found), len(found))
    checksums = pa.nulls(len(table), pa.uint32())
    place = table.schema.get_field_index("record_crc32c")
    pq.write_table(table.set_column(place, "record_crc32c", checksums), sidecar(root))
    with pytest.raises(StorageError, match=r"cannot be read: .*null"):
        read_index(root, NAME)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "{", '{"name": 3}', "null", '{"name": {"name": "zoo"}}']
)
def test_an_invalid_summary(root: Folder, text: str) -> None:
    pq.write_table(ROWS.replace_schema_metadata({"shardwright": text}), sidecar(root))
    assert read_summary(root, NAME) is None


@pytest.mark.parametrize("step", [29, pytest.param(3, marks=pytest.mark.long)])
def test_a_flipped_bit_gives_no_other_rows_and_no_crash(root: Folder, step: int) -> None:
    """Parquet's footer has no checksum: a bit there may change the summary, but not the rows."""
    path = sidecar(root)
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        read_summary(root, NAME)
        try:
            rows = read_index(root, NAME)
        except StorageError:
            refused += 1
        else:
            # Hashes are stored without a dictionary, so that a header's bit may change them: to
            # checksums that no record has.
            found, wanted = (
                each.drop_columns(["record_crc32c", "features"]) for each in (rows, ROWS)
            )
            assert found.equals(wanted), position
    assert refused > len(whole) // step // 3


@pytest.mark.parametrize("length", [0, 4, 100, -9, -1])
def test_a_cut_sidecar(root: Folder, length: int) -> None:
    sidecar(root).write_bytes(sidecar(root).read_bytes()[:length])
    assert read_summary(root, NAME) is None
    with pytest.raises(StorageError, match="cannot be read"):
        read_index(root, NAME)


def test_ids_that_are_not_utf8(root: Folder) -> None:
    """Such text would end a later step, or be another id."""
    data = b"a\xffb" * 3
    offsets = pa.py_buffer(np.arange(0, 12, 3, dtype=np.int32).tobytes())
    ids = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(data)])
    metadata = pq.read_schema(sidecar(root)).metadata
    rows = ROWS.set_column(0, INDEX_SCHEMA.field("id"), ids).replace_schema_metadata(metadata)
    pq.write_table(rows, sidecar(root))
    with pytest.raises(StorageError, match=r"cannot be read: .*UTF8"):
        read_index(root, NAME)


def test_the_index_of_another_shard(root: Folder) -> None:
    own = FileContent.of(sidecar(root).read_bytes())
    info = ShardInfo(1, 3, 90, 2**32 - 1, "d1", *own)
    assert read_index_of(root, NAME, info).equals(ROWS)
    for others, what in (
        ({"sidecar_crc32c": 1}, "is damaged, or of another build"),
        ({"num_records": 2}, "has 3 rows, but the manifest says 2"),
    ):
        with pytest.raises(StorageError, match=what):
            read_index_of(root, NAME, dataclasses.replace(info, **others))
