"""Tables as INPUT: roles of columns, rows as references, several files, and rejects of rows."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.transforms.inputs import columns
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.file_rules import etag_of
from shardwright.transforms.inputs.formats import table_files
from shardwright.transforms.inputs.formats.table_files import table_format
from shardwright.transforms.inputs.formats.tables import TableLayout, TableSource
from shardwright.transforms.inputs.image_paths import resolve_paths, split_queries, stems_of
from shardwright.transforms.labels.label_table import LabelRules
from tests.support.helpers import TINY_PNG
from tests.support.listing_cases import PIPE, Case, Listing, by_case, listing, pngs, write_files
from tests.support.listings import detect, list_source

GROUP_AND_SIZE = {"group": "patient", "size": "bytes"}
ALL_A = {"image": "a", "id": "a", "group": "a"}


def of_text(text: str, *names: str, **expected: Any) -> Case:
    """Return a table t.csv of this text, and images of these names."""
    return Case({"t.csv": text, **pngs(*names)}, "t.csv", **expected)


def layout_of(found: Listing | Path, **columns: str) -> TableLayout:
    source = found.source if isinstance(found, Listing) else detect(str(found), columns)
    assert isinstance(source, TableSource)
    return source.layout


@pytest.mark.parametrize(("header", "given", "roles", "extras"), [
    ("path,class", {}, {"image": "path", "label": "class"}, []),
    ("file_name,category,subset,image_id,w", {},
     {"image": "file_name", "label": "category", "split": "subset", "id": "image_id"}, ["w"]),
    ("Image,LABEL,Split", {}, {"image": "Image", "label": "LABEL", "split": "Split"}, []),
    ("image, label , split", {}, {"image": "image", "label": " label ", "split": " split"}, []),
    ("img,path", {}, {"image": "path"}, ["img"]),  # the first of the usual names, not columns
    ("image,patient,bytes", {}, {"image": "image"}, ["patient", "bytes"]),
    ("image,patient,bytes", GROUP_AND_SIZE, {"image": "image", **GROUP_AND_SIZE}, []),
    ("a,b,image", {"image": "a", "label": "b"}, {"image": "a", "label": "b"}, ["image"]),
    ("a", ALL_A, ALL_A, []),
    ("0,1", {"image": "0"}, {"image": "0"}, ["1"]),  # numbers that count columns are names
])  # fmt: skip
def test_roles(
    tmp_path: Path, header: str, given: dict[str, str], roles: dict[str, str], extras: list[str]
) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    layout = layout_of(tmp_path / "t.csv", **given)
    found = {role: getattr(layout, role) for role in ROLE_COLUMNS if getattr(layout, role)}
    assert (found, list(layout.extras), layout.root) == (roles, extras, str(tmp_path))


NO_HEADER = "t.csv has no line of column names: its first line has"


@pytest.mark.parametrize(("header", "given", "message"), [
    ("img_name,label", {}, "t.csv has the columns 'img_name', 'label': "
     "set --image-column to the one with the image paths"),
    ("cat/1.png,cat", {}, f"{NO_HEADER} 'cat/1.png'. Add"),
    ("1.png,1.png,cat", {}, f"{NO_HEADER} '1.png'. Add"),
    ("5,0,0,12", {}, f"{NO_HEADER} '5'. Add a line above it, such as image,label. Pixels are read "
     "from Python"),
    ("cat,0,0,12", {}, f"{NO_HEADER} '0'"),
    ("5.1,3.5,0.2", {}, f"{NO_HEADER} '5.1'"),
    ("sep=;", {}, "t.csv begins with the line 'sep=;', which is for Excel alone: remove it"),
    ("image,label", {"label": "klass"},
     "--label-column 'klass' is not in .*t.csv, which has the columns 'image', 'label'"),
    (f"image,{','.join(f'c{n}' for n in range(300))}", {"label": "x"},
     "'c97', 'c98' and 201 more$"),
    ("image,label,label", {}, "t.csv has two columns called 'label': rename one"),
    (",image,label", {}, "column 1 of .*t.csv has no name: "
     r"name it, or leave it out \(pandas: to_csv\(index=False\)\)"),
])  # fmt: skip
def test_invalid_columns(tmp_path: Path, header: str, given: dict[str, str], message: str) -> None:
    text = f"{header}\n{','.join('1' for _ in header.split(','))}\n"
    of_text(text, columns=given, error=UsageError(message)).check(tmp_path)


@pytest.mark.parametrize(("role", "column", "message"), [
    ("label", pa.array([2.0, 0.5]), "column 'c' holds 0.5, and labels are classes: leave "
     "--label-column out"),
    ("id", pa.array([0.5]), "column 'c' is of type double; "
     "ids, paths, labels and splits must be text or whole numbers"),
    ("id", pa.array([[1]]), "column 'c' is of type list<element: int64>; ids"),
    ("group", pa.array([1], pa.timestamp("ms")), "column 'c' is of type timestamp"),
    ("size", pa.array([1.5]),
     "--size-column 'c' is of type double; it must hold bytes as whole numbers"),
    ("size", pa.array(["5k"]), "--size-column 'c' is of type string"),
])  # fmt: skip
def test_unsuitable_types(tmp_path: Path, role: str, column: pa.Array, message: str) -> None:
    table = pa.table({"image": ["a"] * len(column), "c": column})
    error = BuildError(message)
    Case({"t.parquet": table}, "t.parquet", {role: "c"}, error=error).check(tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_too_many_columns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_COLUMNS", 15)
    row = {"image": "a.png"} | {f"c{number}": number for number in range(15)}
    rows = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n" if name == "t.csv" else [row]
    error = UsageError(f"FOLDER/{name} has 16 columns, more than the 15 allowed: store")
    Case({name: rows}, name, error=error).check(tmp_path)


@pytest.mark.parametrize("role", ["image", "id", "split", "group"])
@pytest.mark.parametrize("values", [["1.5", "2"], ["true", "false"], ["007", "8"], ["2", "10"]])
def test_types_of_roles_of_a_csv(tmp_path: Path, role: str, values: list[str]) -> None:
    """Read an id "1.5" or "true" as text, though a feature column of them is not."""
    first = {"image": "i"} if role != "image" else {}
    text = "i,c,d\n" + "".join(f"a.png,{value},{value}\n" for value in values)
    (tmp_path / "t.csv").write_text(text)
    layout = layout_of(tmp_path / "t.csv", **first, **{role: "c"})
    assert layout.columns.field("c").type == pa.string()
    (batch,) = table_files.read_table_file(layout.path, layout.format, layout.columns)
    assert batch["c"].to_pylist() == values  # type: ignore[union-attr]


SET, STORE = "/data/set", "s3://bucket/data/set"
WHOLE = ("s3://other/a.png", "https://host//a/../b%20.png", "hdfs://host/a.png", "")


@pytest.mark.parametrize(("root", "relative", "uri", "forms"), [
    (SET, "a.png", f"{SET}/a.png", ["a.png", "./a.png", "b/../a.png", "../set/a.png",
     f"{SET}/a.png", f"file://{SET}/a.png"]),
    (SET, "b/a.png", f"{SET}/b/a.png", ["b/a.png", "b/./a.png", "b//a.png", f"{SET}/./b//a.png"]),
    (SET, "../a.png", "/data/a.png", ["../a.png"]),
    (SET, "../set2/a.png", f"{SET}2/a.png", ["../set2/a.png"]),
    (SET, f"{SET}2/a.png", f"{SET}2/a.png", [f"{SET}2/a.png"]),
    (SET, "..a.png", f"{SET}/..a.png", ["..a.png", "./..a.png"]),
    (SET, "/else/a.png", "/else/a.png", ["/else/b/../a.png", "file:///else/a.png"]),
    (SET, "~/a.png", "/home/me/a.png", ["~/a.png"]),
    *((root, name, f"{root}/{name}", [name]) for root in (SET, STORE)
      for name in ("~a.png", "b/ü #%41?.png", " a.png ", "new\nline.png", "a:b.png")),
    *((root, uri, uri, [uri]) for root in (SET, STORE) for uri in WHOLE),
    ("/", "a.png", "/a.png", ["a.png", "./a.png", "/a.png"]),
    (STORE, "a.png", f"{STORE}/a.png", ["a.png", "./a.png", "b/../a.png", "../set/a.png",
     f"{STORE}/a.png"]),
    (STORE, "b/a.png", f"{STORE}/b/a.png", ["b/./a.png", "b//a.png"]),
    (STORE, "../../a.png", "s3://bucket/a.png", ["../../a.png"]),
    (STORE, "../../../a.png", f"{STORE}/../../../a.png", ["../../../a.png"]),
    (STORE, f"{STORE}2/a.png", f"{STORE}2/a.png", [f"{STORE}2/a.png"]),
    (STORE, "/b/a.png", "/b/a.png", ["/local/../b//a.png", "file:///b/a.png"]),
    (STORE, "~/a.png", f"{STORE}/~/a.png", ["~/a.png"]),
])  # fmt: skip
def test_paths(
    monkeypatch: pytest.MonkeyPatch, root: str, relative: str, uri: str, forms: list[str]
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for path in forms:
        # Columns of plain paths take a faster way.
        for beside in ([], ["x.png", "./odd.png"], ["s3://bucket/key.png"]):
            found = resolve_paths(pa.array([path, *beside]), root)
            assert [column[0].as_py() for column in found] == [relative, uri], path


def test_queries_are_split_off() -> None:
    plain = ["a.png?b=c", "s3://bucket/a.png?b=c", "https://host/a.png", "https://host/a?b", ""]
    assert split_queries(pa.array(plain)) == (pa.array(plain), None)
    signed = ["HTTPS://host/a b.png?X-Amz-Signature=a%2Fb&c=?", "http://host/?a=\n"]
    paths, queries = split_queries(pa.array([*plain, *signed]))
    assert paths.to_pylist() == [*plain, "HTTPS://host/a b.png", "http://host/"]
    assert queries is not None
    assert queries.to_pylist() == [None] * 5 + ["X-Amz-Signature=a%2Fb&c=?", "a=\n"]
    hidden = resolve_paths(pa.array(signed), STORE)[1].to_pylist()
    assert hidden == ["HTTPS://host/a b.png?***", "http://host/?***"]


def test_names() -> None:
    stems = {
        "a.png": "a", "b/c/a.JPEG": "a", "a.b.png": "a.b", ".png": ".png", "a": "a", "": "",
        "new\nline.jpg": "new\nline", "0.125": "0.125",  # no image's extension: part of the name
    }  # fmt: skip
    assert stems_of(pa.array(list(stems))).to_pylist() == list(stems.values())
    formats = {"a.CSV": "csv", "a.tab.gz": "tsv", "a.ndjson.gz": "jsonl"}
    formats |= dict.fromkeys(("a.parquet.gz", "a.gz", "csv"))
    assert {name: table_format(name) for name in formats} == formats


MISSING = "missing_file: listed in the table, but there is no such file"
ROOT_HINT = " below FOLDER/: give --image-root, the folder that relative paths start from"
BAD_PLACES = (
    "s3://", "s3:///key", "s3://bucket", "s3://bucket/", "gs://bucket//", "https://host",
    "az:///", "hdfs://a/b",
)  # fmt: skip
BAD_FILES = {
    "missing.png": "missing_file", "folder.png": "unreadable", "empty.png": "empty_file",
    "pipe.png": "unreadable", "dangling.png": "missing_file", "loop.png": "unreadable",
    "good.png/": "missing_file", "good.png/below.png": "missing_file", "x" * 300: "unreadable",
    "ftp://host/1.png": "bad_value", ".": "unreadable", "nul\0.png": "unreadable",
    **dict.fromkeys(BAD_PLACES, "bad_value"),
}  # fmt: skip
STORES = "s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH, without"
TWO = {"image": ["1.png"], "n": pa.array([1], pa.uint8()), "d": pa.nulls(1)}
TEXTS = pa.array([["a"]], pa.large_list(pa.string()))
CATEGORIES = pa.array(["cat"]).dictionary_encode()
NO_TABLE = UsageError(r"a file without a table's extension \(.csv, .jsonl, .*\); give a folder or")
ONE = {"t.csv": "path\na.png\n"}

LONG_GZIP = gzip.compress(b"path\n" + b"".join(b"%d\n" % (n * n) for n in range(9999)))


def of_files(texts: dict[str, str], at: str = "", **expected: Any) -> Case:
    """Return a table of several files, and the images a.png and b.png."""
    return Case({**texts, **pngs("img/a.png", "img/b.png")}, at, **expected,
                options={"image_root": "FOLDER/img"})  # fmt: skip


CASES = {
    "bad files": Case(
        {"t.csv": "\n".join(["image", "good.png", "link.png", *BAD_FILES, ""]),
         "folder.png/inside.png": "", "good.png": TINY_PNG, "empty.png": b"", "pipe.png": PIPE,
         "dangling.png": Path("nothing"), "loop.png": Path("loop.png"),
         "link.png": Path("good.png")},
        "t.csv", rows={"id": ["good.png", "link.png"]}, rejects=BAD_FILES,
    ),
    "details": of_text(
        "image,key,n\n,a,1\n1.png,,1\n1.png,c,\nftp://b/1.png,d,1\nno.png,e,1\n1.png,f,1\n",
        "1.png", columns={"id": "key"},
        rows={"id": ["c", "f"], "row": [2, 5], "x/n": [None, 1]},  # n is settled later
        rejects={
            "a": "bad_value: row 0: the image column 'image' is empty",
            "": "bad_id: row 1: the id is empty", "e": MISSING + ROOT_HINT,
            "d": f"bad_value: row 3: ftp://b/1.png is not an object's address ({STORES}",
        },
    ),
    "backslashes": of_text(
        "image\nphotos\\cat\\1.png\n", rows={"id": []}, rejects={
            "photos\\cat\\1.png": f"{MISSING}: write / in place of the backslashes of its path"
        },
    ),
    # A request for such an address would fail the whole build.
    "bad addresses with sizes": of_text(
        "image,bytes\n1.png,5\n" + "".join(f"{uri},5\n" for uri in BAD_PLACES), "1.png",
        columns={"size": "bytes"}, rows={"id": ["1.png"]},
        rejects=dict.fromkeys(BAD_PLACES, "bad_value"),
    ),
    # An empty label or group is none; an empty split stays, for the step that rejects it.
    "empty cells": of_text(
        "image,label,split,patient,x\n1.png, ,,,\n", "1.png", columns={"group": "patient"},
        rows={"label": [None], "split": [""], "group": [None], "x/x": [""]},
    ),
    # Files of stated sizes need not exist.
    "sizes": of_text(
        "image,bytes\nno.png,5\nb.png,0\nc.png,\nd.png,-1\n", columns={"size": "bytes"},
        rows={"id": ["no.png"], "num_bytes": [5], "etag": [None]},
        rejects={"b.png": "empty_file", "c.png": "bad_value", "d.png": "bad_value"},
    ),
    "the same image": of_text(  # the plan rejects duplicates
        "image\n1.png\n./1.png\n1.png\n", "1.png", rows={"id": ["1.png"] * 3}
    ),
    "no rows": of_text("image,label\n", rows={"id": []}),
    "types of Parquet": Case(
        {"t.parquet": pa.table({**TWO, "s": TEXTS, "label": CATEGORIES}), **pngs("1.png")},
        "t.parquet", rows={"x/n": [1], "x/d": [None], "x/s": [["a"]], "label": ["cat"]},
    ),
    **{
        f"no table {name}": Case({name: "image\na\n"}, name, error=NO_TABLE)
        for name in ("t.txt", "t", "t.gz", "t.parquet.gz", "photo.png")
    },
    "one of two tables without a header": Case(
        {"1.csv": "image,label\n1.png,a\n", "2.csv": "2.png,b\n3.png,a\n"},
        error=UsageError(r"2.csv has no line of column names: .* has '2.png'"),
    ),
    # Rows count within a file, paths start from its folder, and ids from that of all files.
    "files of folders": Case(
        {"a/t.csv": "path,label\n1.png,cat\n2.png,dog\n",
         "b/t.csv": "path,label\n1.png,ant\n,cow\n", **pngs("a/1.png", "a/2.png", "b/1.png")},
        "*/t.csv", rows={
            "id": ["a/1.png", "a/2.png", "b/1.png"], "row": [0, 1, 0],
            "uri": ["FOLDER/a/1.png", "FOLDER/a/2.png", "FOLDER/b/1.png"],
            "label": ["cat", "dog", "ant"],
        },
        rejects={"": "bad_value: b/t.csv: row 1: the image column 'path' is empty"},
    ),
    "an image root": of_files(
        {"in/a.csv": "path\na.png\n", "in/b.csv": "path\nb.png\n"}, "in",
        rows={"id": ["a.png", "b.png"], "uri": ["FOLDER/img/a.png", "FOLDER/img/b.png"]},
    ),
    "columns in another order": of_files(
        {"in/a.csv": "path,label\na.png,cat\n", "in/b.csv": "label,path\ndog,b.png\n"}, "in",
        rows={"id": ["a.png", "b.png"], "label": ["cat", "dog"]},
    ),
    "keys that differ": of_files(
        {"in/a.jsonl": '{"path": "a.png", "t": "w"}\n',
         "in/b.jsonl": '{"path": "b.png", "label": "x"}\n'}, "in",
        rows={"label": [None, "x"], "x/t": ["w", None]},
    ),
    "a column fewer": Case(
        {"a.csv": "path,n\na,1\n", "b.csv": "path\nb\n"}, error=BuildError(
            r"b.csv has other columns than .*a.csv \(it lacks \['n'\], it also has \[\]\)"),
    ),
    "more columns": Case(
        {"a.csv": "path\na\n", "b.csv": "path,n,m\nb,1,2\n"}, error=BuildError(
            r"b.csv has other columns than .*a.csv \(it lacks \[\], it also has \['m', 'n'\]\)"),
    ),
    "other types": Case(
        {"a.jsonl": '{"path": "a", "n": 1}', "b.jsonl": '{"path": "b", "n": "x"}'},
        error=BuildError("b.jsonl and the rows before it are not one table: .*Field n"),
    ),
    "an empty file": Case(
        {"a.csv": "path\na\n", "b.csv": ""}, error=BuildError("the table .*b.csv is empty")
    ),
    "other files": Case({**ONE, **pngs("a.png")}, source={"name": "folder"}),
    "a wildcard of none": Case(
        ONE, "u*.csv", error=UsageError(r"u\*.csv holds no table; a table's name ends in .csv, ")
    ),
    "a wildcard of images": Case(
        {**ONE, **pngs("a.png")}, "*.png", options={"input_format": "table"},
        error=UsageError("holds no table; a table's name ends in"),
    ),
    "a wildcard of several formats": Case(
        {**ONE, "t.jsonl": "path\na.png\n"}, "t.*", error=UsageError(
            r"matches tables of several formats \(csv, jsonl\): choose one"),
    ),
    **{
        f"gzip {name}": Case(
            {name: gzip.compress(text.encode()), **pngs("a.png")}, name,
            rows={"id": ["a.png"], "x/n": [7]},
        )
        for name, text in (
            ("t.csv.gz", "path,n\na.png,7\n"), ("t.tsv.gz", "path\tn\na.png\t7\n"),
            ("t.jsonl.gz", '{"path": "a.png", "n": 7}\n'), ("T.CSV.GZ", "path,n\na.png,7\n"),
        )
    },
    # A missing end must not look like the end of the table.
    "gzip that is cut short": Case(
        {"t.csv.gz": LONG_GZIP[:9999]},
        "t.csv.gz", error=BuildError(r"t\.csv\.gz"),
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_a_row_holds_what_later_steps_need(tmp_path: Path) -> None:
    text = "image,label,split,patient,age,note\nin/1.png, cat ,Val,p7,30,x\n"
    write_files(tmp_path, {"t.csv": text, **pngs("in/1.png")})
    assert listing(tmp_path / "t.csv", columns={"group": "patient"}).rows == [{
        "id": "in/1.png", "uri": f"{tmp_path}/in/1.png", "offset": None, "num_bytes": len(TINY_PNG),
        "etag": etag_of((tmp_path / "in" / "1.png").stat()), "row": 0, "split": "validation",
        "group": "p7", "label": "cat", "x/age": 30, "x/note": "x",
    }]  # fmt: skip


def test_rows_count_on_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_ROWS", "_ROWS_AT_A_TIME"):
        monkeypatch.setattr(table_files, name, 10)
    text = "image,id\n" + "".join(f"1.png,{number}\n" for number in range(35))
    write_files(tmp_path, {"t.csv": text, **pngs("1.png")})
    parts: list[Any] = list(list_source(detect(f"{tmp_path}/t.csv")))
    assert [part.num_rows for part in parts] == [10, 10, 10, 5]
    assert [row["row"] for part in parts for row in part.to_pylist()] == list(range(35))


def test_a_table_of_labels_looks_at_no_file(tmp_path: Path) -> None:
    write_files(tmp_path, {"t.csv": "image,label\n./cat/1.png,cat\ns3://b/2.png,dog\n"})
    labels = layout_of(tmp_path / "t.csv").of_labels().as_source(TableSource)
    [batch] = list_source(labels)
    assert batch.column("id").to_pylist() == ["cat/1.png", "s3://b/2.png"]  # type: ignore[union-attr]


def test_a_column_without_a_feature(tmp_path: Path) -> None:
    when = pa.array([1], pa.timestamp("s"))
    pq.write_table(pa.table({"image": ["1.png"], "when": when}), tmp_path / "t.parquet")
    layout = layout_of(tmp_path / "t.parquet")
    told = r"column 'when' is of type timestamp\[ms\], which tf.Example cannot hold"
    with pytest.raises(BuildError, match=told):
        _ = layout.features
    source = layout.as_source(TableSource)
    assert re.match(told, source.unstorable)
    assert source.features == ()


@pytest.mark.parametrize(("others", "uri", "named"), [
    (["u.csv"], "t-*.csv", ("t-0.csv", "t-1.csv")),
    ([], "t-*", ("t-0.csv.gz", "t-1.csv")),
    (["t.csv"], "*/t.csv", ("a/t.csv", "b/t.csv")),
    ([], "", ("a.csv", "b.csv")),
    (["_SUCCESS", ".part-0.csv.crc"], "", ("part-0.csv",)),
])  # fmt: skip
def test_files_of_one_table(
    tmp_path: Path, others: list[str], uri: str, named: tuple[str, ...]
) -> None:
    text = b"path,label\na.png,cat\n"
    write_files(tmp_path, {
        name: gzip.compress(text) if name.endswith(".gz") else text
        for name in [*others, *reversed(named)]
    })  # fmt: skip
    source = detect(f"{tmp_path}/{uri}".rstrip("/"))
    assert isinstance(source, TableSource)
    assert (source.layout.path, source.layout.files) == (str(tmp_path), named)
    assert list(source.parts()) == list(named)
    files = f"{len(named)} file{'s' * (len(named) > 1)}"
    assert f"a csv table of {files} below {tmp_path}, columns image='path'" in source.description


def test_names_of_files_state_splits(tmp_path: Path) -> None:
    """As those of Parquet files with images; a column of splits comes first."""
    texts = {f"{name}.csv": f"path,label\n{name}.png,cat\n" for name in ("test", "my_train")}
    write_files(tmp_path, {**texts, **pngs("test.png", "my_train.png")})
    found = listing(f"{tmp_path}/*.csv")
    assert sorted(found.of("id", "split")) == [("my_train.png", "train"), ("test.png", "test")]
    layout = layout_of(found)
    for source in (found.source, layout.of_labels().as_source(TableSource)):
        assert source.states_splits
    assert LabelRules.of(layout).columns == ("label", "split")
    write_files(tmp_path, {"extra.csv": "path,label\ntest.png,dog\n"})
    with pytest.raises(UsageError, match=r"test.csv, whose names state splits, beside extra.csv"):
        detect(f"{tmp_path}/*.csv")
    write_files(
        tmp_path, {f"{name}.csv": "path,split\ntest.png,val\n" for name in ("test", "train")}
    )
    found = listing(f"{tmp_path}/t*.csv")
    assert (found.of("split"), layout_of(found).names_split) == ([("validation",)] * 2, False)


@pytest.mark.parametrize(("values", "warns"), [
    ("Train VAL", True), ("train train", False), ("train extra", False),
])  # fmt: skip
def test_a_column_with_names_of_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, values: str, warns: bool
) -> None:
    rows = "".join(f"{number}.png,{value}\n" for number, value in enumerate(values.split()))
    write_files(tmp_path, {"t.csv": f"path,in set\n{rows}"})
    detect(f"{tmp_path}/t.csv")
    assert ("give --split-column 'in set'" in caplog.text) == warns


@pytest.mark.parametrize(("values", "kind"), [
    ([pa.array([1]), pa.array([0.5])], pa.float64()),
    ([pa.array([1], pa.int8()), pa.array([2])], pa.int64()),
    ([pa.array([None], pa.null()), pa.array(["x"])], pa.string()),
    ([pa.array(["x"]).dictionary_encode(), pa.array(["y"])], pa.string()),
    ([pa.array([[1]]), pa.array([[0.5, 1]])], pa.list_(pa.float64())),
])  # fmt: skip
def test_common_types_of_parquet(tmp_path: Path, values: list[pa.Array], kind: pa.DataType) -> None:
    write_files(tmp_path, {
        f"{number}.parquet": pa.table({"path": ["a.png"], "c": column})
        for number, column in enumerate(values)
    } | pngs("a.png"))  # fmt: skip
    found = listing(f"{tmp_path}/*.parquet", input_format="table")
    assert layout_of(found).columns.field("c").type == kind
    assert found.source.schema.field("x/c").type == kind  # and that of each batch
