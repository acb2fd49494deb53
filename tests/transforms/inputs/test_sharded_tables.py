"""Tables of several files: wildcards and folders, a type for each column, rows and paths, gzip."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.sizes import counted
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.formats.table_files import read_table_schema, table_format
from shardwright.transforms.inputs.formats.tables import TableLayout, TableSource
from shardwright.transforms.inputs.image_paths import stems_of
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.labels.label_table import LabelRules
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import columns_of, detect, list_source
from tests.support.random_tests import examples

NONE = dict.fromkeys(ROLE_COLUMNS)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        data = text.encode()
        make_files(folder, name, data=gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def table_at(uri: str | Path, **options: Any) -> InputSource:
    source = detect(str(uri), NONE, **options)
    assert source.name == "table"
    return source


def layout_of(source: InputSource) -> TableLayout:
    assert isinstance(source, TableSource)
    return source.layout


def as_labels(source: InputSource) -> InputSource:
    return layout_of(source).of_labels().as_source(TableSource)


def found_in(source: InputSource, *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of the source's rows."""
    return columns_of(rows_of(list_source(source)), *names)


@pytest.mark.parametrize(("others", "uri", "named"), [
    (["u.csv"], "t-*.csv", ("t-0.csv", "t-1.csv")),
    (["notes.txt"], "t-?.csv", ("t-0.csv", "t-1.csv")),
    ([], "t-*", ("t-0.csv.gz", "t-1.csv")),
    (["t.csv"], "*/t.csv", ("a/t.csv", "b/t.csv")),
    ([], "", ("a.csv", "b.csv")),
    (["_SUCCESS", ".part-0.csv.crc"], "", ("part-0.csv",)),
    ([], "o*.csv", ("only.csv",)),
])  # fmt: skip
def test_one_table(tmp_path: Path, others: list[str], uri: str, named: tuple[str, ...]) -> None:
    write(tmp_path, dict.fromkeys([*others, *reversed(named)], "path,label\na.png,cat\n"))
    source = table_at(tmp_path / uri)
    assert (layout_of(source).path, layout_of(source).files, list(source.parts())) == (
        str(tmp_path),
        named,
        list(named),
    )
    files = counted(len(named), "file")
    told = f"a csv table of {files} below {tmp_path}, columns image='path'"
    assert told in source.description


def test_a_folder_with_anything_else_is_no_table(tmp_path: Path) -> None:
    make_files(write(tmp_path, {"t.csv": "path\na.png\n"}), "a.png")
    assert detect(str(tmp_path), NONE).name == "folder"


@pytest.mark.parametrize(("other", "uri", "options", "message"), [
    ("t.tsv", "u*.csv", {}, r"u\*.csv holds no table; a table's name ends in .csv, "),
    ("t.jsonl", "t.*", {},
     r"matches tables of several formats \(csv, jsonl\): choose one"),
    ("a.png", "*.png", {"input_format": "table"}, "holds no table; a table's name ends in"),
])  # fmt: skip
def test_wildcards_that_name_no_one_table(
    tmp_path: Path, other: str, uri: str, options: dict[str, str], message: str
) -> None:
    write(tmp_path, {"t.csv": "path\na.png\n", other: "path\na.png\n"})
    with pytest.raises(UsageError, match=message):
        table_at(tmp_path / uri, **options)


def test_rows_ids_and_paths_of_each_file(tmp_path: Path) -> None:
    """Rows count within a file, paths start from its folder, and ids from that of all files."""
    write(tmp_path, {"a/t.csv": "path,label\n1.png,cat\n2.png,dog\n"})
    write(tmp_path, {"b/t.csv": "path,label\n1.png,ant\n,cow\n"})
    make_files(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    parts = list(list_source(table_at(tmp_path / "*/t.csv")))
    assert columns_of(rows_of(parts), "id", "uri", "row", "label") == [
        ("a/1.png", f"{tmp_path}/a/1.png", 0, "cat"),
        ("a/2.png", f"{tmp_path}/a/2.png", 1, "dog"),
        ("b/1.png", f"{tmp_path}/b/1.png", 0, "ant"),
    ]
    (reject,) = rejects_of(parts)
    assert reject.detail == "b/t.csv: row 1: the image column 'path' is empty"


def test_names_of_files_state_splits(tmp_path: Path) -> None:
    """As those of Parquet files with images; a column of splits comes first."""
    texts = {f"{name}.csv": f"path,label\n{name}.png,cat\n" for name in ("test", "my_train")}
    make_files(tmp_path, "test.png", "my_train.png", data=TINY_PNG)
    source = table_at(f"{write(tmp_path, texts)}/*.csv")
    assert sorted(found_in(source, "id", "split")) == [
        ("my_train.png", "train"), ("test.png", "test"),
    ]  # fmt: skip
    assert (source.states_splits, as_labels(source).states_splits) == (True, True)
    assert LabelRules.of(layout_of(source)).columns == ("label", "split")
    write(tmp_path, {"extra.csv": "path,label\ntest.png,dog\n"})
    with pytest.raises(UsageError, match=r"test.csv, whose names state splits, beside extra.csv"):
        table_at(f"{tmp_path}/*.csv")
    write(tmp_path, {name: f"path,split\n{name}.png,val\n" for name in ("test.csv", "train.csv")})
    assert found_in(table_at(f"{tmp_path}/t*.csv"), "split") == []
    assert not layout_of(table_at(f"{tmp_path}/t*.csv")).names_split


@pytest.mark.parametrize(("values", "warns"), [
    ("train test", True), ("Train VAL", True), ("train train", False), ("train extra", False),
])  # fmt: skip
def test_a_column_with_names_of_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, values: str, warns: bool
) -> None:
    rows = (f"{number}.png,{value}\n" for number, value in enumerate(values.split()))
    table_at(write(tmp_path, {"t.csv": f"path,in set\n{''.join(rows)}"}) / "t.csv")
    assert ("give --split-column 'in set'" in caplog.text) == warns


def test_an_image_root_of_all_files(tmp_path: Path) -> None:
    images = make_files(tmp_path / "images", "1.png", "2.png")
    write(tmp_path / "tables", {"a.csv": "path\n1.png\n", "b.csv": "path\n2.png\n"})
    source = table_at(tmp_path / "tables", image_root=str(images))
    expected = [(name, f"{images}/{name}") for name in ("1.png", "2.png")]
    assert found_in(source, "id", "uri") == expected


CELLS = st.sampled_from(["", "1", "-7", "2.5", "true", "007", "word", "1234567890123456789", "1e3"])


@examples(25)
@given(columns=st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_types_of_several_files_are_those_of_one(columns: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = ["".join(f"p,{cell}\n" for cell in cells) for cells in columns]
        files = {f"{number}.csv": f"path,c\n{text}" for number, text in enumerate(texts)}
        write(Path(folder), {**files, "whole.csv": f"path,c\n{''.join(texts)}"})
        parts = read_table_schema([f"{folder}/{name}" for name in files], "csv")
        assert parts == read_table_schema([f"{folder}/whole.csv"], "csv")


@pytest.mark.parametrize(("values", "kind"), [
    ([pa.array([1]), pa.array([0.5])], pa.float64()),
    ([pa.array([1], pa.int8()), pa.array([2])], pa.int64()),
    ([pa.array([None], pa.null()), pa.array(["x"])], pa.string()),
    ([pa.array(["x"]).dictionary_encode(), pa.array(["y"])], pa.string()),
    ([pa.array([[1]]), pa.array([[0.5, 1]])], pa.list_(pa.float64())),
])  # fmt: skip
def test_common_types_of_parquet(tmp_path: Path, values: list[pa.Array], kind: pa.DataType) -> None:
    for number, column in enumerate(values):
        table = pa.table({"path": [f"{number}.png"], "c": column})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    source = as_labels(table_at(tmp_path, input_format="table"))
    assert layout_of(source).columns.field("c").type == kind
    batches = [part for part in list_source(source) if isinstance(part, pa.RecordBatch)]
    assert [batch.schema.field("x/c").type for batch in batches] == [kind, kind]


@pytest.mark.parametrize(("files", "labels"), [
    ({"a.csv": "path,label\na.png,cat\n", "b.csv": "label,path\ndog,b.png\n"}, ("cat", "dog")),
    ({"a.jsonl": '{"path": "a.png", "t": "w"}\n', "b.jsonl": '{"path": "b.png", "label": "x"}\n'},
     (None, "x")),
])  # fmt: skip
def test_columns_that_differ(
    tmp_path: Path, files: dict[str, str], labels: tuple[Any, str]
) -> None:
    source = as_labels(table_at(write(tmp_path, files)))
    assert found_in(source, "id", "label") == [("a.png", labels[0]), ("b.png", labels[1])]


@pytest.mark.parametrize(("files", "message"), [
    ({"a.csv": "path,n\na,1\n", "b.csv": "path\nb\n"},
     r"b.csv has other columns than .*a.csv \(it lacks \['n'\], it also has \[\]\)"),
    ({"a.csv": "path\na\n", "b.csv": "path,n,m\nb,1,2\n"},
     r"b.csv has other columns than .*a.csv \(it lacks \[\], it also has \['m', 'n'\]\)"),
    ({"a.jsonl": '{"path": "a", "n": 1}', "b.jsonl": '{"path": "b", "n": "x"}'},
     "b.jsonl and the rows before it are not one table: .*Field n"),
    ({"a.csv": "path\na\n", "b.csv": ""}, "the table .*b.csv is empty"),
])  # fmt: skip
def test_files_of_several_tables(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        table_at(write(tmp_path, files))


@pytest.mark.parametrize(("name", "text"), [
    ("t.csv.gz", "path,n\na.png,7\n"), ("t.tsv.gz", "path\tn\na.png\t7\n"),
    ("t.jsonl.gz", '{"path": "a.png", "n": 7}\n'), ("T.CSV.GZ", "path,n\na.png,7\n"),
])  # fmt: skip
def test_gzipped_tables(tmp_path: Path, name: str, text: str) -> None:
    make_files(tmp_path, name, data=gzip.compress(text.encode()))
    make_files(tmp_path, "a.png")
    assert found_in(table_at(tmp_path / name), "id", "x/n") == [("a.png", 7)]


def test_a_gzipped_table_that_is_cut_short(tmp_path: Path) -> None:
    """A missing end must not look like the end of the table."""
    lines = [b"path,n\n", *(b"%d.png,%d\n" % (n, n * 7919) for n in range(20_000))]
    whole = gzip.compress(b"".join(lines))
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BuildError, match=r"t\.csv\.gz"):
        table_at(tmp_path / "t.csv.gz")


def test_formats_by_name() -> None:
    formats = {"a.CSV": "csv", "a.tab.gz": "tsv", "a.ndjson.gz": "jsonl"}
    formats |= dict.fromkeys(("a.parquet.gz", "a.gz", "csv"))
    assert {name: table_format(name) for name in formats} == formats


def test_stems() -> None:
    stems = {
        "a.png": "a", "b/c/a.JPEG": "a", "a.b.png": "a.b", ".png": ".png", "a": "a", "": "",
        "new\nline.jpg": "new\nline", "0.125": "0.125",  # no image's extension: part of the name
    }  # fmt: skip
    assert stems_of(pa.array(list(stems))).to_pylist() == list(stems.values())
