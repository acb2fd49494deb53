"""Roles of a table's columns, and errors where they cannot be detected."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.formats.table_files import read_table_file, read_table_schema
from shardwright.transforms.inputs.formats.tables import TableLayout, table_of
from shardwright.transforms.inputs.source import SourceRequest


def detect(path: Path, **columns: str) -> TableLayout:
    request = SourceRequest(str(path), columns={**dict.fromkeys(ROLE_COLUMNS), **columns})
    return table_of(request, str(path))


def csv(tmp_path: Path, *lines: str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def parquet(tmp_path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def roles_of(source: TableLayout) -> dict[str, str]:
    return {
        role: getattr(source, role) for role in ROLE_COLUMNS if getattr(source, role) is not None
    }


GROUP_AND_SIZE = {"group": "patient", "size": "bytes"}
ALL_A = {"image": "a", "id": "a", "group": "a"}


@pytest.mark.parametrize(("header", "given", "roles", "extras"), [
    ("image,label", {}, {"image": "image", "label": "label"}, []),
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
])  # fmt: skip
def test_roles(
    tmp_path: Path, header: str, given: dict[str, str], roles: dict[str, str], extras: list[str]
) -> None:
    source = detect(csv(tmp_path, header, ",".join("1" for _ in header.split(","))), **given)
    assert (roles_of(source), list(source.extras)) == (roles, extras)
    assert source.root == str(tmp_path)


@pytest.mark.parametrize(("header", "given", "message"), [
    ("img_name,label", {}, "t.csv has the columns 'img_name', 'label': "
     "set --image-column to the one with the image paths"),
    ("image:label", {}, "t.csv has the columns 'image:label': set --image-column"),
    ("cat/1.png,cat", {}, "t.csv has no line of column names: its first line has 'cat/1.png'. Add"),
    ("1.png,1.png,cat", {}, "t.csv has no line of column names: its first line has '1.png'. Add"),
    ("5,0,0,12", {}, "t.csv has no line of column names: its first line has '5'. Add a line above "
     "it, such as image,label. Pixels are read from Python"),
    ("cat,0,0,12", {}, "t.csv has no line of column names: its first line has '0'"),
    ("5.1,3.5,0.2", {}, "t.csv has no line of column names: its first line has '5.1'"),
    ("sep=;", {}, "t.csv begins with the line 'sep=;', which is for Excel alone: remove it"),
    ("image,label", {"label": "klass"},
     "--label-column 'klass' is not in .*t.csv, which has the columns 'image', 'label'"),
    ("image,label", {"image": "Image"}, "--image-column 'Image' is not in"),
    ("image,label,label", {}, "t.csv has two columns called 'label': rename one"),
    (",image,label", {}, "column 1 of .*t.csv has no name: "
     r"name it, or leave it out \(pandas: to_csv\(index=False\)\)"),
])  # fmt: skip
def test_invalid_columns(tmp_path: Path, header: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        detect(csv(tmp_path, header, ",".join("1" for _ in header.split(","))), **given)


def test_one_of_two_tables_without_a_header(tmp_path: Path) -> None:
    paths = [csv(tmp_path, "image,label", "1.png,a", name="1.csv")]
    paths.append(csv(tmp_path, "2.png,b", "3.png,a", name="2.csv"))
    with pytest.raises(UsageError, match=r"2.csv has no line of column names: .* has '2.png'"):
        read_table_schema([*map(str, paths)], "csv")


def test_numbers_that_count_columns_are_names(tmp_path: Path) -> None:
    assert detect(csv(tmp_path, "0,1", "a.png,cat"), image="0").label is None


@pytest.mark.parametrize("name", ["t.txt", "t", "t.gz", "t.parquet.gz", "photo.png"])
def test_files_that_are_no_tables(tmp_path: Path, name: str) -> None:
    message = r"a file without a table's extension \(.csv, .jsonl, .*\); give a folder or a table"
    with pytest.raises(UsageError, match=message):
        detect(csv(tmp_path, "image", "a", name=name))


@pytest.mark.parametrize("column", ["image", "id", "split", "group"])
@pytest.mark.parametrize("values", [["1.5", "2"], ["true", "false"], ["007", "8"], [2, 10], ["x"]])
def test_types_of_roles_of_a_csv(tmp_path: Path, column: str, values: list[str | int]) -> None:
    """Read an id "1.5" or "true" as text, though a feature column of them is not."""
    others = {} if column == "image" else {"image": "i"}
    first = ["a.png,"] * len(others)
    lines = ["".join([*first, f"{value},{value}"]) for value in values]
    path = csv(tmp_path, ",".join([*others.values(), "c", "d"]), *lines)
    source = detect(path, **others, **{column: "c"})
    assert source.columns.field("c").type == pa.string()
    (batch,) = read_table_file(source.path, source.format, source.columns)
    assert batch["c"].to_pylist() == list(map(str, values))  # type: ignore[union-attr]


@pytest.mark.parametrize(("role", "column", "message"), [
    ("label", pa.array([2.0, 0.5]), "column 'c' holds 0.5, and labels are classes: leave "
     "--label-column out"),
    ("id", pa.array([0.5]), "column 'c' is of type double; "
     "ids, paths, labels and splits must be text or whole numbers"),
    ("id", pa.array([[1]]), "column 'c' is of type list<element: int64>; ids"),
    ("group", pa.array([1], pa.timestamp("ms")), "column 'c' is of type timestamp"),
    ("image", pa.array([b"x"]), "column 'c' is of type binary"),
    ("size", pa.array([1.5]),
     "--size-column 'c' is of type double; it must hold bytes as whole numbers"),
    ("size", pa.array(["5k"]), "--size-column 'c' is of type string"),
])  # fmt: skip
def test_unsuitable_types(tmp_path: Path, role: str, column: pa.Array, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        detect(parquet(tmp_path, image=["a"] * len(column), c=column), **{role: "c"})


def test_categories_suit_a_role(tmp_path: Path) -> None:
    """Detect columns that pandas wrote from categories."""
    path = parquet(tmp_path, image=["a"], label=pa.array(["cat"]).dictionary_encode())
    assert roles_of(detect(path)) == {"image": "image", "label": "label"}
