"""Table rows as references: paths, ids and sizes, and one reject for each row that can be none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.file_rules import etag_of
from shardwright.transforms.inputs.formats.tables import (
    TableLayout,
    TableSource,
    list_table,
    table_of,
)
from shardwright.transforms.inputs.image_paths import resolve_paths
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.references import REFERENCE_SCHEMA
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import Rows, columns_of

NONE = dict.fromkeys(ROLE_COLUMNS)


@pytest.mark.parametrize(("relative", "uri", "forms"), [
    ("a.png", "/data/set/a.png", ["a.png", "./a.png", "b/../a.png", "../set/a.png",
     "/data/set/a.png", "file:///data/set/a.png"]),
    ("b/a.png", "/data/set/b/a.png", ["b/a.png", "b/./a.png", "b//a.png", "/data/set/./b//a.png"]),
    ("../a.png", "/data/a.png", ["../a.png"]),
    ("../set2/a.png", "/data/set2/a.png", ["../set2/a.png"]),
    ("..a.png", "/data/set/..a.png", ["..a.png", "./..a.png"]),
    ("/data/set2/a.png", "/data/set2/a.png", ["/data/set2/a.png"]),
    ("/else/a.png", "/else/a.png", ["/else/b/../a.png", "file:///else/a.png"]),
    ("~/a.png", "/home/me/a.png", ["~/a.png"]),
    ("~a.png", "/data/set/~a.png", ["~a.png"]),
    ("a b%20#?.png", "/data/set/a b%20#?.png", ["a b%20#?.png"]),
    (" a.png ", "/data/set/ a.png ", [" a.png "]),
    ("new\nline.png", "/data/set/new\nline.png", ["new\nline.png"]),
    ("é/🐱.png", "/data/set/é/🐱.png", ["é/🐱.png"]),
    *((uri, uri, [uri]) for uri in ("s3://bucket/a.png", "https://host//a/../b.png", "")),
])  # fmt: skip
def test_paths(monkeypatch: pytest.MonkeyPatch, relative: str, uri: str, forms: list[str]) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for path in forms:
        # Columns of plain paths take a faster way.
        for beside in ([], ["x.png", "./odd.png"], ["s3://bucket/key.png"]):
            found = resolve_paths(pa.array([path, *beside]), "/data/set")
            assert [column[0].as_py() for column in found] == [relative, uri], path


def test_paths_below_the_root_of_all() -> None:
    found = resolve_paths(pa.array(["a.png", "/b.png", "./c.png"]), "/")
    assert [column.to_pylist() for column in found] == [
        ["a.png", "b.png", "c.png"],
        ["/a.png", "/b.png", "/c.png"],
    ]


def table_at(path: Path, **columns: str) -> TableLayout:
    return table_of(SourceRequest(str(path), columns={**NONE, **columns}), str(path))


def source_of(tmp_path: Path, text: str, **columns: str) -> TableLayout:
    (tmp_path / "t.csv").write_text(text)
    return table_at(tmp_path / "t.csv", **columns)


def listed(source: TableLayout) -> tuple[Rows, dict[str, str]]:
    """Return rows, and id -> reason of the rejects."""
    parts = list(list_table(source))
    return rows_of(parts), {reject.id: str(reject.reason) for reject in rejects_of(parts)}


def test_a_row_holds_what_later_steps_need(tmp_path: Path) -> None:
    make_files(tmp_path, "in/1.png")
    text = "image,label,split,patient,age,note\nin/1.png, cat ,Val,p7,30,x\n"
    etag = etag_of((tmp_path / "in" / "1.png").stat())
    row = {
        "id": "in/1.png", "uri": f"{tmp_path}/in/1.png", "offset": None, "num_bytes": len(TINY_PNG),
        "etag": etag, "row": 0, "split": "validation", "group": "p7", "label": "cat",
        "x/age": 30, "x/note": "x",
    }  # fmt: skip
    assert listed(source_of(tmp_path, text, group="patient")) == ([row], {})


def test_batches_have_the_stated_schema(tmp_path: Path) -> None:
    """The encoder is made before any row is read."""
    make_files(tmp_path, "1.png")
    numbers, texts = pa.array([1], pa.uint8()), pa.array([["a"]], pa.large_list(pa.string()))
    table = pa.table({"image": ["1.png"], "n": numbers, "s": texts, "d": pa.nulls(1)})
    pq.write_table(table, tmp_path / "t.parquet")
    table = table_at(tmp_path / "t.parquet")
    (batch,) = list_table(table)
    assert isinstance(batch, pa.RecordBatch)
    schema = table.as_source(TableSource).schema
    assert (batch.schema.names, batch.schema.types) == (schema.names, schema.types)
    assert schema.names == [*REFERENCE_SCHEMA.names, "x/n", "x/s", "x/d"]


def test_files_that_can_be_no_record(tmp_path: Path) -> None:
    make_files(tmp_path, "good.png", "folder.png/inside.png")
    make_files(tmp_path, "empty.png", data=b"")
    os.mkfifo(tmp_path / "pipe.png")
    for name, target in (("dangling", "nothing"), ("loop", "loop.png"), ("link", "good.png")):
        (tmp_path / f"{name}.png").symlink_to(target)
    wanted = {
        "missing.png": "missing_file", "folder.png": "unreadable", "empty.png": "empty_file",
        "pipe.png": "unreadable", "dangling.png": "missing_file", "loop.png": "unreadable",
        "good.png/": "missing_file", "good.png/below.png": "missing_file", "x" * 300: "unreadable",
        "ftp://host/1.png": "bad_value", "hdfs://host/1.png": "bad_value", ".": "unreadable",
        "nul\0.png": "unreadable",
    }  # fmt: skip
    lines = ["image", "good.png", "link.png", *wanted]
    rows, rejects = listed(source_of(tmp_path, "\n".join(lines) + "\n"))
    assert ([row["id"] for row in rows], rejects) == (["good.png", "link.png"], wanted)


def test_details_state_the_row(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    lines = [",a,1", "1.png,,1", "1.png,c,", "ftp://b/1.png,d,1", "no.png,e,1", "1.png,f,1"]
    source = source_of(tmp_path, "image,key,n\n" + "\n".join(lines) + "\n", id="key")
    parts = list(list_table(source))
    stores = "s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH, "
    stores += "without a password"
    assert [(reject.id, str(reject.reason), reject.detail) for reject in rejects_of(parts)] == [
        ("a", "bad_value", "row 0: the image column 'image' is empty"),
        ("", "bad_id", "row 1: the id is empty"),
        ("d", "bad_value", f"row 3: ftp://b/1.png is not an object's address ({stores})"),
        (
            "e",
            "missing_file",
            "listed in the table, but there is no such file below "
            f"{tmp_path}/: give --image-root, the folder that relative paths start from",
        ),
    ]
    # The missing n is settled later.
    assert columns_of(rows_of(parts), "id", "row", "x/n") == [("c", 2, None), ("f", 5, 1)]


def test_backslashes_in_paths_are_named(tmp_path: Path) -> None:
    parts = list(list_table(source_of(tmp_path, "image\nphotos\\cat\\1.png\n/nowhere/1.png\n")))
    told = "listed in the table, but there is no such file"
    assert [reject.detail for reject in rejects_of(parts)] == [
        f"{told}: write / in place of the backslashes of its path", told,
    ]  # fmt: skip


@pytest.mark.parametrize("size", [None, "bytes"])
def test_an_address_without_a_bucket_or_a_key_is_a_reject(tmp_path: Path, size: str) -> None:
    """A request for one would fail the whole build: with a size column, within a shard."""
    make_files(tmp_path, "1.png")
    bad = [
        "s3://", "s3:///key", "s3://bucket", "s3://bucket/", "gs://bucket//", "https://host",
        "az:///", "hdfs://a/b",
    ]  # fmt: skip
    text = "image,bytes\n1.png,5\n" + "".join(f"{uri},5\n" for uri in bad)
    rows, rejects = listed(source_of(tmp_path, text, size=size))
    assert ([row["id"] for row in rows], rejects) == (["1.png"], dict.fromkeys(bad, "bad_value"))


def test_empty_cells(tmp_path: Path) -> None:
    """An empty label or group is none; an empty split stays, for the step that rejects it."""
    make_files(tmp_path, "1.png")
    text = "image,label,split,patient,x\n1.png, ,,,\n"
    rows, _ = listed(source_of(tmp_path, text, group="patient"))
    assert columns_of(rows, "label", "split", "group", "x/x") == [(None, "", None, "")]


def test_rows_count_on_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_ROWS", "_ROWS_AT_A_TIME"):
        monkeypatch.setattr(f"shardwright.transforms.inputs.formats.table_files.{name}", 10)
    make_files(tmp_path, "1.png")
    text = "image,id\n" + "".join(f"1.png,{number}\n" for number in range(35))
    parts = list(list_table(source_of(tmp_path, text)))
    assert [part.num_rows for part in parts if isinstance(part, pa.RecordBatch)] == [10, 10, 10, 5]
    assert [row["row"] for row in rows_of(parts)] == list(range(35))


@pytest.mark.parametrize(("lines", "options", "ids", "rejects"), [
    # Files of stated sizes need not exist.
    (["image,bytes", "no.png,5", "b.png,0", "c.png,", "d.png,-1"], {"size": "bytes"}, ["no.png"],
     {"b.png": "empty_file", "c.png": "bad_value", "d.png": "bad_value"}),
    # The plan rejects duplicates.
    (["image", "1.png", "./1.png", "1.png"], {}, ["1.png"] * 3, {}),
    (["image,label"], {}, [], {}),
])  # fmt: skip
def test_rows(
    tmp_path: Path, lines: list[str], options: Any, ids: list[str], rejects: dict[str, str]
) -> None:
    make_files(tmp_path, "1.png")
    rows, found = listed(source_of(tmp_path, "\n".join(lines) + "\n", **options))
    assert ([row["id"] for row in rows], found) == (ids, rejects)
    if options:
        assert columns_of(rows, "num_bytes", "etag") == [(5, None)]


def test_a_table_of_labels_looks_at_no_file(tmp_path: Path) -> None:
    source = source_of(tmp_path, "image,label\n./cat/1.png,cat\ns3://b/2.png,dog\n").of_labels()
    rows, rejects = listed(source)
    assert ([row["id"] for row in rows], rejects) == (["cat/1.png", "s3://b/2.png"], {})


def test_no_empty_batches(tmp_path: Path) -> None:
    (reject,) = list_table(source_of(tmp_path, "image\nno.png\n"))
    assert str(reject.reason) == "missing_file"


def test_a_column_without_a_feature(tmp_path: Path) -> None:
    when = pa.array([1], pa.timestamp("s"))
    pq.write_table(pa.table({"image": ["1.png"], "when": when}), tmp_path / "t.parquet")
    table = table_at(tmp_path / "t.parquet")
    told = r"column 'when' is of type timestamp\[ms\], which tf.Example cannot hold"
    with pytest.raises(BuildError, match=told):
        _ = table.features
    assert re.match(told, table.as_source(TableSource).unstorable)
    assert table.as_source(TableSource).features == ()
