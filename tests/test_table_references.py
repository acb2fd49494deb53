"""Table rows as references: paths and ids, files looked at or not, and one reject for each row that can be none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.arguments import ROLES
from shardwright.errors import BuildError
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from transforms.inputs.file_rules import etag_of
from transforms.inputs.tables.table_references import list_table, reference_schema_of, resolve_paths
from transforms.inputs.tables.table_source import TableSource, detect_table
from transforms.references import REFERENCE_SCHEMA
from transforms.rejects import Reject

ROOT = "/data/set"


@pytest.mark.parametrize(
    ("written", "relative", "uri"),
    [
        ("a.png", "a.png", "/data/set/a.png"),
        ("b/a.png", "b/a.png", "/data/set/b/a.png"),
        ("./a.png", "a.png", "/data/set/a.png"),
        ("b/./a.png", "b/a.png", "/data/set/b/a.png"),
        ("b//a.png", "b/a.png", "/data/set/b/a.png"),
        ("b/../a.png", "a.png", "/data/set/a.png"),
        ("../a.png", "../a.png", "/data/a.png"),
        ("../set/a.png", "a.png", "/data/set/a.png"),
        ("../set2/a.png", "../set2/a.png", "/data/set2/a.png"),
        ("..a.png", "..a.png", "/data/set/..a.png"),
        ("./..a.png", "..a.png", "/data/set/..a.png"),
        ("/data/set/a.png", "a.png", "/data/set/a.png"),
        ("/data/set/./b//a.png", "b/a.png", "/data/set/b/a.png"),
        ("/data/set2/a.png", "/data/set2/a.png", "/data/set2/a.png"),
        ("/else/b/../a.png", "/else/a.png", "/else/a.png"),
        ("file:///data/set/a.png", "a.png", "/data/set/a.png"),
        ("file:///else/a.png", "/else/a.png", "/else/a.png"),
        ("~/a.png", "~/a.png", "/home/me/a.png"),
        ("~a.png", "~a.png", "/data/set/~a.png"),
        ("a b%20#?.png", "a b%20#?.png", "/data/set/a b%20#?.png"),
        (" a.png ", " a.png ", "/data/set/ a.png "),
        ("new\nline.png", "new\nline.png", "/data/set/new\nline.png"),
        ("é/🐱.png", "é/🐱.png", "/data/set/é/🐱.png"),
        ("s3://bucket/a.png", "s3://bucket/a.png", "s3://bucket/a.png"),
        ("https://host//a/../b.png", "https://host//a/../b.png", "https://host//a/../b.png"),
        ("", "", ""),
    ],
)
def test_paths(monkeypatch: pytest.MonkeyPatch, written: str, relative: str, uri: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for beside in ([], ["x.png", "./odd.png"]):  # what needs no look takes a faster way
        found = resolve_paths(pa.array([written, *beside]), ROOT)
        assert [column[0].as_py() for column in found] == [relative, uri]


def test_paths_below_the_root_of_all() -> None:
    relative, uris = resolve_paths(pa.array(["a.png", "/b.png", "./c.png"]), "/")
    assert (relative.to_pylist(), uris.to_pylist()) == (
        ["a.png", "b.png", "c.png"],
        ["/a.png", "/b.png", "/c.png"],
    )


def source_of(tmp_path: Path, text: str, **columns: str) -> TableSource:
    (tmp_path / "t.csv").write_text(text)
    return detect_table(str(tmp_path / "t.csv"), {**dict.fromkeys(ROLES), **columns})


def listed(source: TableSource) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows, and id -> reason of the rejects."""
    parts = list(list_table(source))
    return rows_of(parts), {reject.id: str(reject.reason) for reject in rejects_of(parts)}


def test_a_row_holds_what_later_steps_need(tmp_path: Path) -> None:
    make_files(tmp_path, "in/1.png")
    text = "image,label,split,patient,age,note\nin/1.png, cat ,Val,p7,30,x\n"
    ((row,), rejects) = listed(source_of(tmp_path, text, group="patient"))
    assert row == {
        "id": "in/1.png",
        "offset": None,
        "uri": f"{tmp_path}/in/1.png",
        "num_bytes": len(TINY_PNG),
        "etag": etag_of((tmp_path / "in" / "1.png").stat()),
        "row": 0,
        "split": "validation",
        "group": "p7",
        "label": "cat",
        "x/age": 30,
        "x/note": "x",
    }
    assert rejects == {}


def test_batches_have_the_schema_that_was_told(tmp_path: Path) -> None:
    """The encoder is made before any row is read."""
    make_files(tmp_path, "1.png")
    table = {
        "image": ["1.png"],
        "n": pa.array([1], pa.uint8()),
        "s": pa.array([["a"]], pa.large_list(pa.string())),
        "d": pa.nulls(1),
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    source = detect_table(str(tmp_path / "t.parquet"), dict.fromkeys(ROLES))
    (batch,) = list_table(source)
    assert isinstance(batch, pa.RecordBatch)
    assert (batch.schema.names, batch.schema.types) == (
        reference_schema_of(source).names,
        reference_schema_of(source).types,
    )
    assert reference_schema_of(source).names == [*REFERENCE_SCHEMA.names, "x/n", "x/s", "x/d"]


def test_files_that_can_be_no_record(tmp_path: Path) -> None:
    make_files(tmp_path, "good.png", "folder.png/inside.png")
    make_files(tmp_path, "empty.png", data=b"")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "dangling.png").symlink_to("nothing")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "link.png").symlink_to("good.png")
    wanted = {
        "missing.png": "missing_file",
        "folder.png": "unreadable",
        "empty.png": "empty_file",
        "pipe.png": "unreadable",
        "dangling.png": "missing_file",
        "loop.png": "unreadable",
        "good.png/": "missing_file",
        "good.png/below.png": "missing_file",
        "x" * 300: "unreadable",
        "ftp://host/1.png": "bad_value",
        "hdfs://host/1.png": "bad_value",
        ".": "unreadable",
        "nul\0.png": "unreadable",
    }
    rows, rejects = listed(
        source_of(tmp_path, "image\n" + "\n".join(["good.png", "link.png", *wanted]) + "\n")
    )
    assert [row["id"] for row in rows] == ["good.png", "link.png"]
    assert rejects == wanted


def test_the_details_say_where(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    source = source_of(
        tmp_path,
        "image,key,n\n,a,1\n1.png,,1\n1.png,c,\nftp://b/1.png,d,1\nno.png,e,1\n1.png,f,1\n",
        id="key",
    )
    parts = list(list_table(source))
    assert [(reject.id, str(reject.reason), reject.detail) for reject in rejects_of(parts)] == [
        ("a", "bad_value", "row 0: the image column 'image' is empty"),
        ("", "bad_id", "row 1: the id is empty"),
        (
            "d",
            "bad_value",
            "row 3: ftp://b/1.png is no address of an object (s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH)",
        ),
        ("e", "missing_file", "named in the table, but there is no such file"),
    ]
    assert [(row["id"], row["row"], row["x/n"]) for row in rows_of(parts)] == [
        ("c", 2, None),
        ("f", 5, 1),
    ]  # n is settled later


@pytest.mark.parametrize("size", [None, "bytes"])
def test_an_address_without_a_bucket_or_a_key_is_a_reject_of_its_own(
    tmp_path: Path, size: str | None
) -> None:
    """Asking for one would fail the whole build: with a size column on a worker, in the middle of a shard."""
    make_files(tmp_path, "1.png")
    bad = [
        "s3://",
        "s3:///key",
        "s3://bucket",
        "s3://bucket/",
        "gs://bucket//",
        "https://host",
        "az:///",
        "hdfs://a/b",
    ]
    text = "image,bytes\n1.png,5\n" + "".join(f"{uri},5\n" for uri in bad)
    rows, rejects = listed(source_of(tmp_path, text, size=size))
    assert ([row["id"] for row in rows], rejects) == (["1.png"], dict.fromkeys(bad, "bad_value"))


def test_empty_cells(tmp_path: Path) -> None:
    """No label and no group is nothing; an empty split stays, for the step that rejects it."""
    make_files(tmp_path, "1.png")
    ((row,), _) = listed(
        source_of(tmp_path, "image,label,split,patient,x\n1.png, ,,,\n", group="patient")
    )
    assert (row["label"], row["split"], row["group"], row["x/x"]) == (None, "", None, "")


def test_rows_count_on_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.inputs.tables.table_files.BATCH_ROWS", 10)
    make_files(tmp_path, "1.png")
    text = "image,id\n" + "".join(f"1.png,{number}\n" for number in range(35))
    parts = list(list_table(source_of(tmp_path, text)))
    assert [part.num_rows for part in parts if isinstance(part, pa.RecordBatch)] == [10, 10, 10, 5]
    assert [row["row"] for row in rows_of(parts)] == list(range(35))


def test_stated_sizes_save_the_look(tmp_path: Path) -> None:
    """Nothing is asked of the disk: the files need not be there to plan."""
    rows, rejects = listed(
        source_of(tmp_path, "image,bytes\nno.png,5\nb.png,0\nc.png,\nd.png,-1\n", size="bytes")
    )
    assert [(row["id"], row["num_bytes"], row["etag"]) for row in rows] == [("no.png", 5, None)]
    assert rejects == {"b.png": "empty_file", "c.png": "bad_value", "d.png": "bad_value"}


def test_a_table_of_labels_looks_at_no_file(tmp_path: Path) -> None:
    source = source_of(tmp_path, "image,label\n./cat/1.png,cat\ns3://b/2.png,dog\n").of_labels()
    rows, rejects = listed(source)
    assert ([row["id"] for row in rows], rejects) == (["cat/1.png", "s3://b/2.png"], {})


def test_equal_rows_are_left_to_the_plan(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    rows, rejects = listed(source_of(tmp_path, "image\n1.png\n./1.png\n1.png\n"))
    assert ([row["id"] for row in rows], rejects) == (["1.png"] * 3, {})


def test_nothing_comes_of_nothing(tmp_path: Path) -> None:
    assert listed(source_of(tmp_path, "image,label\n")) == ([], {})
    assert all(
        isinstance(part, Reject) for part in list_table(source_of(tmp_path, "image\nno.png\n"))
    )


def test_a_column_without_a_feature(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"image": ["1.png"], "when": pa.array([1], pa.timestamp("s"))}),
        tmp_path / "t.parquet",
    )
    source = detect_table(str(tmp_path / "t.parquet"), dict.fromkeys(ROLES))
    with pytest.raises(
        BuildError,
        match=r"column 'when' is of type timestamp\[ms\], which no tf.Example feature holds",
    ):
        _ = source.features
