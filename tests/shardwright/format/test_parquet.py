"""Parquet files of others: read as Arrow reads them, or refused before they take the memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError, TooLargeError
from shardwright.format import parquet
from shardwright.format.parquet import MAX_BYTES, ParquetRows, cut, decoded_bytes, read_rows
from shardwright.storage.folder import Folder
from tests.support.bombs import arrow_memory, packed, repeated, understated

LIMIT = 16_000_000  # of these tests, to which all parts of this are in proportion
LONG = repeated("x" * 60_000, 10_000)
ZEROS = pa.array([b"\0" * 80_000_000])
NUMBERS = pa.ListArray.from_arrays([0, 5_000_000], repeated("", 5_000_000).indices)
PREFIXES = {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}
BOMBS = {
    "dictionary": lambda: packed(pa.table({"id": LONG})),
    "dictionary in a struct": lambda: packed(
        pa.table({"id": pa.StructArray.from_arrays([LONG], ["a"])})
    ),
    "several row groups": lambda: packed(pa.table({"id": LONG}), row_group_size=900),
    "pages of version 2": lambda: packed(pa.table({"id": LONG}), data_page_version="2.0"),
    "prefixes": lambda: packed(pa.table({"id": LONG.cast("string")[:20_000]}), **PREFIXES),
    "numbers of a list": lambda: packed(pa.table({"id": NUMBERS})),
    "a page of zeros": lambda: packed(pa.table({"id": ZEROS}), use_dictionary=False),
    "an understated page": lambda: understated(
        packed(pa.table({"id": ZEROS}), use_dictionary=False)
    ),
    "an understated dictionary": lambda: understated(packed(pa.table({"id": LONG}))),
}
# Their metadata state too little: an error, after they took the memory once.
ONCE = ("numbers of a list", "an understated page", "an understated dictionary")
VALUES = pa.table(
    {
        "text": ["u" * 1000, None, "v" * 2000, ""] * 25,
        "large": pa.array(["u" * 1000] * 100, pa.large_string()),
        "view": pa.array(["u" * 1000] * 100, pa.string_view()),
        "a.b": [b"r" * 1000] * 100,
        "list": [["x" * 300] * 10, []] * 50,
        "struct": [{"c": "q" * 1000, "d": 1}] * 100,
        "map": pa.array([[("k", "v" * 300)]] * 100, pa.map_(pa.string(), pa.string())),
        "names": pa.array(["ape", "bee"] * 50).dictionary_encode(),
        "number": range(100),
        "flag": [True, None] * 50,
        "fixed": pa.array([b"1234"] * 100, pa.binary(4)),
    }
)


def opened(data: bytes) -> ParquetRows:
    return ParquetRows(pa.BufferReader(data), "folder/file.parquet")


@pytest.mark.parametrize("bomb", BOMBS)
def test_rows_out_of_proportion_are_an_error(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_BYTES", LIMIT)
    data = BOMBS[bomb]()
    assert len(data) < 24_000
    message = r"^folder/file\.parquet has [0-9.]+ k?B and decodes to more than 16\.0 MB"
    reads: list[Callable[[ParquetRows], object]] = [
        lambda file: file.read(["id"]),
        lambda file: list(file.batches(10_000)),
    ]
    for read in reads:
        with arrow_memory() as memory, opened(data) as file:
            with pytest.raises(TooLargeError, match=message):
                read(file)
            assert bomb in ONCE or memory.max_memory() < 4 * LIMIT


@pytest.mark.long_but_first
@pytest.mark.parametrize("options", [
    *({}, {"store_schema": True}, {"row_group_size": 7}, {"data_page_version": "2.0"}),
    *({"use_dictionary": False}, {"compression": "gzip"}, {"dictionary_pagesize_limit": 1500}),
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    {"data_page_size": 10, "write_batch_size": 3, "write_page_checksum": True},
])  # fmt: skip
@pytest.mark.parametrize("most", [2_000, 50_000, MAX_BYTES])
def test_other_files_are_read_as_by_arrow(
    options: dict[str, object], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed(VALUES, **options)
    monkeypatch.setattr(parquet, "MAX_BYTES", most)
    monkeypatch.setattr(parquet, "_MAX_RATIO", 1000)
    whole = pq.ParquetFile(pa.BufferReader(data)).read()
    with opened(data) as file:
        assert file.read().equals(whole)
        assert file.read(["struct", "a.b"]).equals(whole.select(["struct", "a.b"]))
        batches = list(file.batches(30))
    assert pa.Table.from_batches(batches).equals(whole)
    assert all(
        batch.num_rows <= 30 and (decoded_bytes(batch) <= most or batch.num_rows == 1)
        for batch in batches
    )


def test_sizes_are_those_of_plain_values() -> None:
    for name in VALUES.column_names:
        column = VALUES[name].combine_chunks()
        plain = column.cast("string") if name in ("view", "names") else column
        for part, same in ((column, plain), (column[3:77], plain[3:77]), (column[:0], plain[:0])):
            assert same.nbytes - 200 <= decoded_bytes(part) <= 2 * same.nbytes + 1800, name
    numbers = pa.array([1, None, 2, 2]).dictionary_encode()
    assert decoded_bytes(numbers) >= 32
    assert decoded_bytes(pa.DictionaryArray.from_arrays(pa.array([None], "int8"), [])) < 20


def test_large_batches_are_cut() -> None:
    batch = pa.record_batch({"id": repeated("x" * 60_000, 20_000), "row": range(20_000)})
    parts = list(cut(batch))
    assert pa.Table.from_batches(parts).equals(pa.table(batch))
    assert len(parts) == 8


def test_damaged_pages(tmp_path: Path) -> None:
    data = packed(pa.table({"id": ["a", "b"] * 100}))
    for damaged in (b"\x1c" * 60, b"\xff" * 60, b"\0" * 60, b"\x15\x07" * 30):
        (tmp_path / "a.parquet").write_bytes(data[:4] + damaged + data[64:])
        with pytest.raises(StorageError, match=r"(?s)a\.parquet cannot be read: .*page"):
            read_rows(Folder(str(tmp_path)), "a.parquet")


def test_a_file_without_rows() -> None:
    with opened(packed(VALUES[:0])) as file:
        assert file.read().num_rows == 0
        assert file.read().column_names == VALUES.column_names
        assert sum(batch.num_rows for batch in file.batches(10)) == 0
