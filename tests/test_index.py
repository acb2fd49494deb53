"""The index: its rows come back as they were written, and a damaged sidecar is neither trusted nor a crash."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError
from shardwright.index import INDEX_SCHEMA, ShardSummary, read_index, read_summary, write_sidecar
from shardwright.naming import ShardName
from shardwright.storage import Folder

NAME = ShardName("zoo", "train", 1, 2)
STATS = {"labels": {"0": 3}, "width": {"min": 1, "max": 2, "sum": 4, "count": 3}}
SUMMARY = ShardSummary(NAME, 3, 90, 2**32 - 1, "d1", {"corrupt": 2}, STATS)
ROWS = pa.Table.from_pylist(
    [
        {
            "id": f"Löwe/{number}.png", "offset": 30 * number, "length": 30, "image_offset": 30 * number + 20, "image_length": 6,
            "crc32c": 2**32 - 1 - number, "label": number or None, "format": "png", "width": 3, "height": None, "uri": None, "etag": "e",
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


def test_what_is_written_is_read(root: Folder) -> None:
    assert read_index(root, NAME).equals(ROWS)
    summary = read_summary(root, NAME)
    assert summary is not None
    assert summary.reused
    assert summary.to_json() == SUMMARY.to_json()
    assert "reused" not in summary.to_json()


@pytest.mark.parametrize("columns", [["id"], ["offset", "length"], ["crc32c", "id"]])
def test_some_columns(root: Folder, columns: list[str]) -> None:
    assert read_index(root, NAME, columns).equals(ROWS.select(columns))


def test_the_same_rows_are_the_same_bytes(root: Folder, tmp_path: Path) -> None:
    chunked = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])
    write_sidecar(Folder(str(tmp_path / "again")), SUMMARY, chunked)
    assert (tmp_path / "again" / NAME.sidecar).read_bytes() == (
        Path(root.path(NAME.sidecar))
    ).read_bytes()


def test_no_rows(tmp_path: Path) -> None:
    write_sidecar(Folder(str(tmp_path)), SUMMARY, ROWS.slice(0, 0))
    assert read_index(Folder(str(tmp_path)), NAME).num_rows == 0


def test_rows_of_other_types_are_cast_or_refused(tmp_path: Path) -> None:
    wide = ROWS.set_column(
        ROWS.schema.get_field_index("width"), "width", ROWS["width"].cast(pa.int64())
    )
    write_sidecar(Folder(str(tmp_path)), SUMMARY, wide)
    assert read_index(Folder(str(tmp_path)), NAME).equals(ROWS)
    with pytest.raises(ValueError, match="schema"):
        write_sidecar(Folder(str(tmp_path)), SUMMARY, ROWS.drop_columns(["id"]))


def test_a_missing_sidecar(tmp_path: Path) -> None:
    assert read_summary(Folder(str(tmp_path)), NAME) is None
    with pytest.raises(
        StorageError,
        match=r"index/train-00001-of-00002.parquet is missing: the index of zoo-train\.tf",
    ):
        read_index(Folder(str(tmp_path)), NAME)


def test_a_sidecar_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / NAME.sidecar
    path.parent.mkdir()
    pq.write_table(pa.table({"a": [1]}), path)
    assert read_summary(Folder(str(tmp_path)), NAME) is None
    with pytest.raises(StorageError, match="cannot be read: its columns are not those of an index"):
        read_index(Folder(str(tmp_path)), NAME)
    with pytest.raises(StorageError, match="cannot be read"):
        read_index(Folder(str(tmp_path)), NAME, ["id"])


@pytest.mark.parametrize(
    "text", ["{}", "[]", "{", '{"name": 3}', "null", '{"name": {"name": "zoo"}}']
)
def test_a_summary_of_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / NAME.sidecar
    path.parent.mkdir()
    pq.write_table(ROWS.replace_schema_metadata({"shardwright": text}), path)
    assert read_summary(Folder(str(tmp_path)), NAME) is None


def test_a_flipped_bit_gives_no_other_rows_and_no_crash(root: Folder) -> None:
    """Parquet's footer has no checksum, so a bit there may be a summary's: its number then does not match the manifest."""
    path = Path(root.path(NAME.sidecar))
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        read_summary(root, NAME)
        try:
            rows = read_index(root, NAME)
        except StorageError:
            refused += 1
        else:
            assert rows.equals(ROWS), position
    assert refused > len(whole) // 3 // 3


@pytest.mark.parametrize("length", [0, 4, 100, -9, -1])
def test_a_cut_sidecar(root: Folder, length: int) -> None:
    path = Path(root.path(NAME.sidecar))
    path.write_bytes(path.read_bytes()[:length])
    assert read_summary(root, NAME) is None
    with pytest.raises(StorageError, match="cannot be read"):
        read_index(root, NAME)
