"""Which columns of a table have which role, and the messages where that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.arguments import ROLES
from shardwright.errors import BuildError, UsageError
from transforms.inputs.tables.table_files import read_table_file
from transforms.inputs.tables.table_source import TableSource, detect_table


def detect(path: Path, **columns: str) -> TableSource:
    return detect_table(str(path), {**dict.fromkeys(ROLES), **columns})


def csv(tmp_path: Path, *lines: str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def roles_of(source: TableSource) -> dict[str, str]:
    return {role: getattr(source, role) for role in ROLES if getattr(source, role) is not None}


@pytest.mark.parametrize(
    ("header", "given", "roles", "extras"),
    [
        ("image,label", {}, {"image": "image", "label": "label"}, []),
        ("path,class", {}, {"image": "path", "label": "class"}, []),
        (
            "file_name,category,subset,image_id,w",
            {},
            {"image": "file_name", "label": "category", "split": "subset", "id": "image_id"},
            ["w"],
        ),
        ("Image,LABEL,Split", {}, {"image": "Image", "label": "LABEL", "split": "Split"}, []),
        ("image, label , split", {}, {"image": "image", "label": " label ", "split": " split"}, []),
        (
            "img,path",
            {},
            {"image": "path"},
            ["img"],
        ),  # the first of the usual names, not of the columns
        ("image,patient,bytes", {}, {"image": "image"}, ["patient", "bytes"]),
        (
            "image,patient,bytes",
            {"group": "patient", "size": "bytes"},
            {"image": "image", "group": "patient", "size": "bytes"},
            [],
        ),
        ("a,b,image", {"image": "a", "label": "b"}, {"image": "a", "label": "b"}, ["image"]),
        ("a", {"image": "a", "id": "a", "group": "a"}, {"image": "a", "id": "a", "group": "a"}, []),
    ],
)
def test_roles(
    tmp_path: Path, header: str, given: dict[str, str], roles: dict[str, str], extras: list[str]
) -> None:
    source = detect(csv(tmp_path, header, ",".join("1" for _ in header.split(","))), **given)
    assert (roles_of(source), source.extra_columns) == (roles, extras)
    assert source.root == str(tmp_path)


@pytest.mark.parametrize(
    ("header", "given", "message"),
    [
        (
            "img_name,label",
            {},
            "t.csv has the columns 'img_name', 'label': name the one with the image paths by --image-column",
        ),
        ("image;label", {}, "t.csv has the columns 'image;label': name the one"),
        (
            "image,label",
            {"label": "klass"},
            "--label-column 'klass' is not in .*t.csv, which has the columns 'image', 'label'",
        ),
        ("image,label", {"image": "Image"}, "--image-column 'Image' is not in"),
        ("image,label,label", {}, "t.csv has two columns called 'label': rename one"),
        (
            ",image,label",
            {},
            r"column 1 of .*t.csv has no name: name it, or leave it out \(pandas: to_csv\(index=False\)\)",
        ),
    ],
)
def test_roles_that_cannot_be_told(
    tmp_path: Path, header: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        detect(csv(tmp_path, header, ",".join("1" for _ in header.split(","))), **given)


@pytest.mark.parametrize("name", ["t.txt", "t", "t.gz", "t.parquet.gz", "photo.png"])
def test_files_that_are_no_tables(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"its name is not a table's \(.csv, .jsonl, .*\); give a folder or a table",
    ):
        detect(csv(tmp_path, "image", "a", name=name))


@pytest.mark.parametrize("column", ["image", "label", "id", "split", "group"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1.5", "2"], pa.string()),
        (["true", "false"], pa.string()),
        (["007", "8"], pa.string()),
        (["2", "10"], pa.int64()),
        (["x"], pa.string()),
    ],
)
def test_roles_of_a_csv_are_text_or_whole_numbers(
    tmp_path: Path, column: str, values: list[str], kind: pa.DataType
) -> None:
    """A class "1.5" or an id "true" is text, though a feature column of the same values is not."""
    others = {"image": "i"} if column != "image" else {}
    path = csv(
        tmp_path,
        ",".join([*others.values(), "c", "d"]),
        *(",".join(["a.png" for _ in others] + [value, value]) for value in values),
    )
    source = detect(path, **others, **{column: "c"})
    assert source.columns.field("c").type == kind
    rows = [
        row["c"]
        for batch in read_table_file(source.path, source.format, source.columns)
        for row in batch.to_pylist()
    ]  # type: ignore[union-attr]
    assert rows == ([int(value) for value in values] if kind == pa.int64() else values)


@pytest.mark.parametrize(
    ("labels", "integers"),
    [
        (pa.array([1, 2]), True),
        (pa.array(["1", "2"]), False),
        (pa.array([True, False]), False),
        (pa.array([1, 2], pa.uint8()), True),
    ],
)
def test_integer_labels(tmp_path: Path, labels: pa.Array, integers: bool) -> None:
    pq.write_table(pa.table({"image": ["a", "b"], "label": labels}), tmp_path / "t.parquet")
    assert detect(tmp_path / "t.parquet").has_integer_labels is integers
    pq.write_table(pa.table({"image": ["a", "b"]}), tmp_path / "t.parquet")
    assert detect(tmp_path / "t.parquet").has_integer_labels is False


@pytest.mark.parametrize(
    ("role", "column", "message"),
    [
        (
            "label",
            pa.array([0.5]),
            "column 'c' is of type double; ids, paths, labels and splits are text or whole numbers",
        ),
        ("id", pa.array([[1]]), "column 'c' is of type list<element: int64>; ids"),
        ("group", pa.array([1], pa.timestamp("ms")), "column 'c' is of type timestamp"),
        ("image", pa.array([b"x"]), "column 'c' is of type binary"),
        (
            "size",
            pa.array([1.5]),
            "--size-column 'c' is of type double; it must hold bytes as whole numbers",
        ),
        ("size", pa.array(["5k"]), "--size-column 'c' is of type string"),
    ],
)
def test_types_that_do_not_suit_a_role(
    tmp_path: Path, role: str, column: pa.Array, message: str
) -> None:
    """Told when INPUT is looked at, before any worker starts."""
    pq.write_table(pa.table({"image": ["a"], "c": column}), tmp_path / "t.parquet")
    with pytest.raises(BuildError, match=message):
        detect(tmp_path / "t.parquet", **{role: "c"})


def test_categories_suit_a_role(tmp_path: Path) -> None:
    """What pandas writes for a categorical column."""
    pq.write_table(
        pa.table({"image": ["a"], "label": pa.array(["cat"]).dictionary_encode()}),
        tmp_path / "t.parquet",
    )
    assert roles_of(detect(tmp_path / "t.parquet")) == {"image": "image", "label": "label"}


def test_a_table_of_labels_names_no_files(tmp_path: Path) -> None:
    source = detect(csv(tmp_path, "image,label", "a,b"))
    assert source.names_files
    assert not source.of_labels().names_files
