"""Reading table files: types that hold in every row, text as it is written, and invalid files."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.transforms.inputs.formats import table_files
from shardwright.transforms.inputs.formats.table_files import (
    read_table_file,
    read_table_schema,
    table_format,
)
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject
from tests.support.helpers import make_files, rejects_of, rows_of
from tests.support.random_tests import examples

NAN = pytest.approx(float("nan"), nan_ok=True)


def read(path: Path) -> tuple[pa.Schema, list[pa.RecordBatch | Reject]]:
    kind = table_format(str(path))
    assert kind is not None
    schema = read_table_schema([str(path)], kind)
    return schema, list(read_table_file(str(path), kind, schema))


def written(root: Path, content: str | bytes, name: str = "t.csv") -> Path:
    data = content if isinstance(content, bytes) else content.encode()
    return make_files(root, name, data=data) / name


def column_of(tmp_path: Path, values: Sequence[str]) -> tuple[pa.DataType, list[Any]]:
    """Return type and values of a CSV column with these fields, beside one that is never empty."""
    text = "".join(f"{field},x\n" for field in ["v", *values])
    schema, parts = read(written(tmp_path, text))
    return schema.field("v").type, [row["v"] for row in rows_of(parts)]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("by", [";", "\t", "|"])
def test_delimiters(tmp_path: Path, name: str, mark: str, by: str) -> None:
    """The first line shows the delimiter; one within quotes, or in later lines, is text."""
    rows = [f'image{by}"a,b;c|d\te"', f"1.png{by}x", f'2.png{by}"1{by}2"', ""]
    _, parts = read(written(tmp_path, mark + "\n".join(rows), name))
    values = [["1.png", "x"], ["2.png", f"1{by}2"]]
    names = ("image", "a,b;c|d\te")
    assert rows_of(parts) == [dict(zip(names, row, strict=True)) for row in values]


@pytest.mark.parametrize(("name", "content", "rows"), [
    ("t.csv", "a,b\r\n1,x\r\n2,y", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    ("t.csv", b"\xef\xbb\xbfa,b\n1,\xc3\xa9\n", [{"a": 1, "b": "é"}]),
    ("t.csv", 'a,b\n1,"two\nlines, ""q"""\n2,y\n',
     [{"a": 1, "b": 'two\nlines, "q"'}, {"a": 2, "b": "y"}]),
    ("t.csv", 'a,b\n1,"NA"\n2,""\n', [{"a": 1, "b": "NA"}, {"a": 2, "b": ""}]),
    ("t.csv", "\n\na,b\n\n1,x\n\n", [{"a": 1, "b": "x"}]),
    ("t.csv", '"a, b;c",b\n1,cat|dog;x\n', [{"a, b;c": 1, "b": "cat|dog;x"}]),
    ("t.csv", "a\na;b.png\n", [{"a": "a;b.png"}]),  # one column has the usual delimiter
    ("t.csv", "a,b\n", []), ("t.csv", "a,b", []),
    ("t.TAB", "a\tb\n1,5\tx y\n", [{"a": "1,5", "b": "x y"}]),
    ("t.jsonl", '{"a": "' + "[{" * 400 + '"}\n', [{"a": "[{" * 400}]),  # text is not deep
])  # fmt: skip
def test_dialects(tmp_path: Path, name: str, content: str | bytes, rows: list[Any]) -> None:
    assert rows_of(read(written(tmp_path, content, name))[1]) == rows


@pytest.mark.parametrize(("values", "kind", "read_as"), [
    (["1", "", "-3"], pa.int64(), [1, None, -3]),
    (["9223372036854775807", "-9223372036854775808"], pa.int64(), [2**63 - 1, -(2**63)]),
    (["1", "2.5", "1e3", "-.5"], pa.float64(), [1.0, 2.5, 1000.0, -0.5]),
    (["1.5", "", "nan"], pa.float64(), [1.5, None, NAN]),
    (["true", "False", "TRUE"], pa.bool_(), [True, False, True]),
    # Whole numbers that a number type would change stay text. Missing values, bools and numbers of
    # other readers are classes here.
    *((values, pa.string(), values) for values in (
        ["007", "008"], ["1", "007"], ["1.5", "007"], ["+49", "1"], ["0x10", "1"],
        ["9223372036854775808", "1"], ["12345678901234567", "1.5"],
        ["NA", "None", "null", "N/A", "#N/A", "NaN"], ["true", "1"], ["tRue", "false"],
        ["yes", "no"], ["1", " 2"], ["2020-01-01", "2020-01-02"], ["", ""], ["a", ""],
    )),
])  # fmt: skip
def test_csv_types(tmp_path: Path, values: list[str], kind: pa.DataType, read_as: Any) -> None:
    assert column_of(tmp_path, values) == (kind, read_as)


CELLS = st.sampled_from(["", "1", "-7", "2.5", "true", "007", "word", "1234567890123456789", "1e3"])


@examples(25)
@given(columns=st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_types_do_not_depend_on_batches_and_files(columns: list[list[str]]) -> None:
    """A type holds for late values, too."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        whole = column_of(Path(folder), [cell for cells in columns for cell in cells])
        patch.setattr(table_files, "_ROWS_AT_A_TIME", 1)
        patch.setattr(table_files, "BATCH_ROWS", 2)
        assert column_of(Path(folder), [cell for cells in columns for cell in cells]) == whole
        paths = [
            written(Path(folder), "v,w\n" + "".join(f"{cell},x\n" for cell in cells), f"{n}.csv")
            for n, cells in enumerate(columns)
        ]
        assert read_table_schema(list(map(str, paths)), "csv").field("v").type == whole[0]


def test_lines_with_other_numbers_of_fields_are_rejects(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1\n2,x\n3,y,z\n" + "4," + "w" * 300 + ",\n5,v\n")
    schema, parts = read(path)
    assert schema.field("a").type == pa.int64()
    assert rows_of(parts) == [{"a": 2, "b": "x"}, {"a": 5, "b": "v"}]
    rejects = rejects_of(parts)
    assert {(reject.id, reject.uri, str(reject.reason)) for reject in rejects} == {
        ("", str(path), "bad_value")
    }
    assert [reject.detail for reject in rejects] == [
        f"a line of {path} has 1 fields where 2 are expected: '1'",
        f"a line of {path} has 3 fields where 2 are expected: '3,y,z'",
        f"a line of {path} has 3 fields where 2 are expected: {'4,' + 'w' * 198!r}",
    ]


def test_batches_are_not_larger_than_a_batch(tmp_path: Path) -> None:
    number = 2 * BATCH_ROWS + 1
    csv = written(tmp_path, "a\n" + "".join(f"{row}\n" for row in range(number)))
    lines = "".join(f'{{"a": {row}}}\n' for row in range(number))
    pq.write_table(pa.table({"a": list(range(number))}), tmp_path / "t.parquet")
    for path in (csv, written(tmp_path, lines, "t.jsonl"), tmp_path / "t.parquet"):
        parts = read(path)[1]
        assert max(part.num_rows for part in parts) <= BATCH_ROWS  # type: ignore[union-attr]
        assert [row["a"] for row in rows_of(parts)] == list(range(number))


DATES = ["2020-01-01", "2020-01-02 10:00:00"]


@pytest.mark.parametrize(("values", "kind"), [
    ([1, 2.5], pa.float64()), ([1, None, None], pa.int64()), (DATES, pa.string()),
    ([DATES[:1]], pa.list_(pa.string())),
    ([[1, 2], []], pa.list_(pa.int64())), ([True], pa.bool_()),
])  # fmt: skip
def test_json_types(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    lines = [json.dumps({"v": value}) for value in values]
    schema, parts = read(written(tmp_path, "\n".join(lines) + "\n", "t.jsonl"))
    assert (schema.field("v").type, [row["v"] for row in rows_of(parts)]) == (kind, values)


def test_json_types_hold_for_late_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_ROWS_AT_A_TIME", 10)
    monkeypatch.setattr(table_files, "BATCH_ROWS", 20)
    late = '{"v": 2.5, "d": "some day", "w": 7}'
    lines = ['{"v": 1, "d": "2020-01-01"}'] * 50 + [late] * 50
    schema, parts = read(written(tmp_path, "\n".join(lines), "t.ndjson"))
    assert schema.types == [pa.float64(), pa.string(), pa.int64()]
    first, last = {"v": 1.0, "d": "2020-01-01", "w": None}, {"v": 2.5, "d": "some day", "w": 7}
    assert rows_of(parts) == [first] * 50 + [last] * 50


EMPTY = "is empty: it has no rows"
LONG = '"' + "x" * (3 * table_files.MAX_ROW_BYTES) + '"'


@pytest.mark.parametrize(("name", "content", "message"), [
    *((name, content, f"the table .*{name} {EMPTY}") for name in ("t.csv", "t.jsonl")
      for content in ("", "\n\n")),
    ("t.csv", b"a,b\n1,caf\xe9\n",
     r"the table .*t.csv is not UTF-8: save it as UTF-8 \('utf-8' codec can't decode byte 0xe9"),
    ("t.csv", "a,b\n1,x\n".encode("utf-16-le"), "save it as UTF-8 .it begins with NUL"),
    ("t.tsv", 'a\tb\n1\t2\n3\t"4', "unexpected end of data, in the row that ends in line 3: close"),
    ("t.csv", 'a;b\n"1"2;3\n4;5\n', "';' expected after '\"', in the row that ends in line 2"),
    ("t.csv", f"a,b\n1,2\n3,{LONG}\n5,6\n", r"a line is longer than 8\.4 MB: shorten it"),
    ("t.csv", 'a,b\n1,"2\n' + f"{'x' * 99}\n" * 90_000, "larger than field limit .*: close its"),
    ("t.jsonl", f'{{"a": 1}}\n{{"a": {LONG}}}\n', r"a line is longer than 8\.4 MB"),
    ("t.jsonl", '{"a": [[1]]}\n{"a": ' + "[" * 999 + "]" * 999 + "}", "more than 100 levels deep"),
    ("t.jsonl", b'{"a": "caf\xe9"}\n', "is not UTF-8"),
    ("t.jsonl", '{"a": 1}\n{"a": "x"}\n',
     "cannot read the table .*: column 'a': Could not convert 'x' with type str"),
    ("t.jsonl", "[1, 2]\n", r"Expected `object`, got `array`, in a row .* object: '\[1, 2\]"),
    ("t.jsonl", '{"a": 1, "a": 2}\n', "the key 'a' comes twice"),
    ("t.jsonl", '{"a": NaN, "b": {"c": 1, "c": 2}}\n', "the key 'c' comes twice"),
    ("t.jsonl", '{"a": \n', "Input data was truncated"),
    ("t.jsonl", f'{{"a": {2**63}}}\n', "column 'a': Python int too large"),
    ("t.parquet", "not parquet", "cannot read the table .*Parquet"),
])  # fmt: skip
def test_unreadable_tables(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, content: Any, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        read(written(tmp_path, content, name))
    assert capfd.readouterr().err == ""


def test_a_parquet_file_that_is_damaged_or_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([b"caf\xe9"]).cast(pa.string(), safe=False)}), path)
    with pytest.raises(BuildError, match="Invalid UTF8"):
        read(path)
    pq.write_table(pa.table({"a": list(range(10_000))}), path)
    schema = read_table_schema([str(path)], "parquet")
    whole = bytearray(path.read_bytes())
    whole[4:2000] = b"\xff" * 1996
    path.write_bytes(whole)
    with pytest.raises(BuildError, match="cannot read the table"):
        list(read_table_file(str(path), "parquet", schema))


def test_a_table_that_goes_away(tmp_path: Path) -> None:
    path = str(tmp_path / "t.csv")
    with pytest.raises(BuildError, match=rf"^the table {re.escape(path)}: there is no such file$"):
        list(read_table_file(path, "csv", pa.schema([("a", pa.int64())])))
