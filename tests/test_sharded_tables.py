"""Tables of several files: what a wildcard or a folder names, one type a column, rows and paths of each, gzip."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.arguments import ROLES
from shardwright.errors import BuildError, UsageError
from tests.buckets import Bucket
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of, run_transform
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.tables.table_files import read_table_schema, table_format
from transforms.inputs.tables.table_references import stems_of
from transforms.inputs.tables.table_source import TableSource
from transforms.list_images import ListImages

NONE = dict.fromkeys(ROLES)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def detect(uri: str | Path, **options: Any) -> TableSource:
    source = detect_source(str(uri), NONE, **options)
    assert isinstance(source, TableSource)
    return source


@pytest.mark.parametrize(
    ("files", "uri", "named"),
    [
        ({"t-0.csv": "", "t-1.csv": "", "u.csv": ""}, "t-*.csv", ("t-0.csv", "t-1.csv")),
        ({"t-0.csv": "", "t-1.csv": "", "notes.txt": ""}, "t-?.csv", ("t-0.csv", "t-1.csv")),
        ({"t-0.csv.gz": "", "t-1.csv": ""}, "t-*", ("t-0.csv.gz", "t-1.csv")),
        ({"a/t.csv": "", "b/t.csv": "", "t.csv": ""}, "*/t.csv", ("a/t.csv", "b/t.csv")),
        ({"b.csv": "", "a.csv": ""}, "", ("a.csv", "b.csv")),
        ({"part-0.csv": "", "_SUCCESS": "", ".part-0.csv.crc": ""}, "", ("part-0.csv",)),
        ({"only.csv": ""}, "o*.csv", ("only.csv",)),
    ],
)
def test_what_is_one_table(
    tmp_path: Path, files: dict[str, str], uri: str, named: tuple[str, ...]
) -> None:
    write(tmp_path, dict.fromkeys(files, "path,label\na.png,cat\n"))
    source = detect(tmp_path / uri)
    assert (source.path, source.files, list(source.parts())) == (str(tmp_path), named, list(named))
    assert (
        f"a csv table of {len(named)} files below {tmp_path}, columns image='path'"
        in source.describe()
    )


def test_a_folder_with_anything_else_is_no_table(tmp_path: Path) -> None:
    make_files(write(tmp_path, {"t.csv": "path\na.png\n"}), "a.png")
    assert isinstance(detect_source(str(tmp_path), NONE), FolderSource)


@pytest.mark.parametrize(
    ("files", "uri", "options", "message"),
    [
        (["t.csv"], "u*.csv", {}, r"u\*.csv names no file whose name is a table's \(.csv, "),
        (
            ["t.csv", "t.jsonl"],
            "t.*",
            {},
            r"names tables of several formats \(csv, jsonl\): name those of one",
        ),
        (
            ["t.csv", "a.png"],
            "*.png",
            {"input_format": "table"},
            r"names no file whose name is a table's",
        ),
    ],
)
def test_wildcards_that_name_no_one_table(
    tmp_path: Path, files: Sequence[str], uri: str, options: dict[str, str], message: str
) -> None:
    write(tmp_path, dict.fromkeys(files, "path\na.png\n"))
    with pytest.raises(UsageError, match=message):
        detect(tmp_path / uri, **options)


def test_rows_ids_and_paths_of_each_file(tmp_path: Path) -> None:
    """Rows are numbered in each file, paths start from its folder, and ids are those below all of them."""
    make_files(
        write(
            tmp_path,
            {
                "a/t.csv": "path,label\n1.png,cat\n2.png,dog\n",
                "b/t.csv": "path,label\n1.png,ant\n,cow\n",
            },
        ),
        "a/1.png",
    )
    make_files(tmp_path, "a/2.png", "b/1.png")
    parts = list(list_source(detect(tmp_path / "*/t.csv")))
    assert [(row["id"], row["uri"], row["row"], row["label"]) for row in rows_of(parts)] == [
        ("a/1.png", f"{tmp_path}/a/1.png", 0, "cat"),
        ("a/2.png", f"{tmp_path}/a/2.png", 1, "dog"),
        ("b/1.png", f"{tmp_path}/b/1.png", 0, "ant"),
    ]
    (reject,) = rejects_of(parts)
    assert reject.detail == "b/t.csv: row 1: the image column 'path' is empty"


def test_an_image_root_of_all_files(tmp_path: Path) -> None:
    make_files(tmp_path / "images", "1.png", "2.png")
    write(tmp_path / "tables", {"a.csv": "path\n1.png\n", "b.csv": "path\n2.png\n"})
    source = detect(tmp_path / "tables", image_root=str(tmp_path / "images"))
    assert [(row["id"], row["uri"]) for row in rows_of(list_source(source))] == [
        (name, f"{tmp_path}/images/{name}") for name in ("1.png", "2.png")
    ]


def test_the_same_rows_whichever_worker_lists_them(tmp_path: Path) -> None:
    make_files(
        write(tmp_path, {f"t-{n}.csv": f"path,n\n{n}.png,{n}\n" for n in range(5)}),
        *(f"{n}.png" for n in range(5)),
    )
    source = detect(tmp_path / "t-*.csv")
    run = run_transform(ListImages(source))
    assert [(row["id"], row["x/n"]) for row in run.rows] == [
        (row["id"], row["x/n"]) for row in rows_of(list_source(source))
    ]
    assert len(run.rows) == 5


CELLS = st.sampled_from(["", "1", "-7", "2.5", "true", "007", "word", "1234567890123456789", "1e3"])


@given(columns=st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_types_of_several_files_are_those_of_one(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    lines = [[f"p,{cell}" for cell in cells] for cells in columns]
    paths = []
    for number, part in enumerate([*lines, list(itertools.chain(*lines))]):
        paths.append(folder / f"{number}.csv")
        paths[-1].write_text("\n".join(["path,c", *part]) + "\n")
    *parts, whole = map(str, paths)
    assert read_table_schema(parts, "csv") == read_table_schema(whole, "csv")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([pa.array([1]), pa.array([0.5])], pa.float64()),
        ([pa.array([1], pa.int8()), pa.array([2])], pa.int64()),
        ([pa.array([None], pa.null()), pa.array(["x"])], pa.string()),
        ([pa.array(["x"]).dictionary_encode(), pa.array(["y"])], pa.string()),
        ([pa.array([[1]]), pa.array([[0.5, 1]])], pa.list_(pa.float64())),
    ],
)
def test_types_that_parquet_files_have_in_common(
    tmp_path: Path, values: list[pa.Array], kind: pa.DataType
) -> None:
    for number, column in enumerate(values):
        pq.write_table(
            pa.table({"path": [f"{number}.png"], "c": column}), tmp_path / f"{number}.parquet"
        )
    source = detect(tmp_path, input_format="table").of_labels()
    assert source.columns.field("c").type == kind
    batches = [part for part in list_source(source) if isinstance(part, pa.RecordBatch)]
    assert [batch.schema.field("x/c").type for batch in batches] == [kind, kind]


def test_columns_in_another_order_are_the_same(tmp_path: Path) -> None:
    write(tmp_path, {"a.csv": "path,label\na.png,cat\n", "b.csv": "label,path\ndog,b.png\n"})
    rows = rows_of(list_source(detect(tmp_path).of_labels()))
    assert [(row["id"], row["label"]) for row in rows] == [("a.png", "cat"), ("b.png", "dog")]


def test_a_json_line_may_lack_a_column_and_so_may_a_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.jsonl": '{"path": "a.png", "t": "w"}\n',
            "b.jsonl": '{"path": "b.png", "label": "x"}\n',
        },
    )
    rows = rows_of(list_source(detect(tmp_path).of_labels()))
    assert [(row["id"], row["label"]) for row in rows] == [("a.png", None), ("b.png", "x")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"a.csv": "path,n\na,1\n", "b.csv": "path\nb\n"},
            r"b.csv has other columns than .*a.csv \(it lacks \['n'\]\)",
        ),
        (
            {"a.csv": "path\na\n", "b.csv": "path,n,m\nb,1,2\n"},
            r"b.csv has other columns than .*a.csv \(it also has \['m', 'n'\]\)",
        ),
        (
            {"a.csv": "path\na\n", "b.csv": "path,path\nb,b\n"},
            r"b.csv has other columns than .*a.csv \(one stands twice\)",
        ),
        (
            {"a.jsonl": '{"path": "a", "n": 1}', "b.jsonl": '{"path": "b", "n": "x"}'},
            "b.jsonl is not of one table with .*a.jsonl: .*Field n",
        ),
        ({"a.csv": "path\na\n", "b.csv": ""}, "the table .*b.csv is empty"),
    ],
)
def test_files_that_are_not_of_one_table(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        detect(write(tmp_path, files))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.tsv.gz", "t.jsonl.gz", "T.CSV.GZ"])
def test_gzipped_tables(tmp_path: Path, name: str) -> None:
    mark = "\t" if ".tsv" in name else ","
    text = '{"path": "a.png", "n": 7}\n' if ".jsonl" in name else f"path{mark}n\na.png{mark}7\n"
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    make_files(tmp_path, "a.png")
    assert [(row["id"], row["x/n"]) for row in rows_of(list_source(detect(tmp_path / name)))] == [
        ("a.png", 7)
    ]


def test_a_gzipped_table_that_is_cut_short(tmp_path: Path) -> None:
    """An end that is missing must not look like the end of the table."""
    whole = gzip.compress(
        b"path,n\n" + b"".join(b"%d.png,%d\n" % (n, n * 7919) for n in range(20_000))
    )
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BuildError, match=r"t\.csv\.gz"):
        detect(tmp_path / "t.csv.gz")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.CSV", "csv"),
        ("a.tab.gz", "tsv"),
        ("a.ndjson.gz", "jsonl"),
        ("a.parquet.gz", None),
        ("a.gz", None),
        ("csv", None),
    ],
)
def test_formats_by_name(name: str, kind: str | None) -> None:
    assert table_format(name) == kind


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("a.png", "a"),
        ("b/c/a.JPEG", "a"),
        ("a.b.png", "a.b"),
        ("0.125", "0.125"),  # no image's extension: part of the name
        (".png", ".png"),
        ("a", "a"),
        ("new\nline.jpg", "new\nline"),
        ("", ""),
    ],
)
def test_stems(path: str, stem: str) -> None:
    assert stems_of(pa.array([path])).to_pylist() == [stem]


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_tables_in_a_store(bucket: Bucket) -> None:
    for number in range(3):
        bucket.put(f"t/part-{number}.csv", b"path,label\n%d.png,cat\n" % number)
        bucket.put(f"t/{number}.png", TINY_PNG)
        bucket.put(f"only/part-{number}.csv", b"path,label\n../t/%d.png,cat\n" % number)
    for uri in (f"{bucket.uri}/t/part-*.csv", f"{bucket.uri}/only"):
        rows = rows_of(list_source(detect(uri, storage=bucket.options())))
        assert [row["uri"] for row in rows] == [
            f"{bucket.uri}/t/{number}.png" for number in range(3)
        ]
    assert isinstance(
        detect_source(f"{bucket.uri}/t", NONE, storage=bucket.options()), FolderSource
    )
