"""Parquet files with images in a column as INPUT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind
from shardwright.transforms.inputs.formats.embedded import ROWS_AT_A_TIME
from tests.support.build_helpers import CLASSES, png_of
from tests.support.listing_cases import Case, by_case, pngs
from tests.support.tfrecord_makers import example, read_back

HUB_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def hub_images(*images: bytes | None) -> pa.Array:
    return pa.array([image and {"bytes": image, "path": None} for image in images], HUB_IMAGE)


def with_features(table: pa.Table, **features: Any) -> pa.Table:
    """Add the metadata in which the hub states the types of columns."""
    info = {"info": {"features": features}}
    return table.replace_schema_metadata({"huggingface": json.dumps(info)})


def hub(labels: Any, **more: Any) -> pa.Table:
    """Return a table as on the hub: images as structs, labels as numbers with names in metadata."""
    labels = labels if isinstance(labels, pa.Array) else pa.array(labels)
    images = hub_images(*(png_of(index % 9) for index in range(len(labels))))
    names = {"names": list(CLASSES), "_type": "ClassLabel"}
    table = pa.table({"image": images, "label": labels, **more})
    return with_features(table, image={"_type": "Image"}, label=names)


def test_columns(tmp_path: Path) -> None:
    """Two pictures a row, and numbers that stand for names."""
    sex, part = ({"names": [*names], "_type": "ClassLabel"} for names in ("fm", "xy"))
    columns = {
        "img": pa.array([png_of(0), png_of(1), png_of(2)], pa.large_binary()),
        "mask": hub_images(png_of(50), None, png_of(52)), "class": ["a", " b", None],
        "key": [7, 8, 9], "sex": pa.array([1, -1, 5], pa.int8()), "parts": [[0, 1], [], None],
        "text": ["BM not an image", "", "é"],
    }  # fmt: skip
    parts = {"feature": part, "_type": "Sequence"}
    table = with_features(pa.table(columns), sex=sex, parts=parts)
    found = Case({"x.parquet": table}, "x.parquet", {"id": "key"}, rows={
        "id": ["7", "8", "9"], "label": ["a", "b", None], "x/sex": ["m", None, "5"],
        "x/parts": [["x", "y"], [], None], "x/text": columns["text"],
    }).listed(tmp_path)  # fmt: skip
    assert {f.name: (f.kind, f.shape, f.names) for f in found.source.features} == {
        "mask": (FeatureKind.IMAGE, (), ()),
        "sex": (FeatureKind.CLASS_LABEL, (), ("f", "m")),
        "parts": (FeatureKind.CLASS_LABEL, (None,), ("x", "y")),
        "text": (FeatureKind.BYTES, (), ()),
    }
    masks = [row["x/mask"] for row in found.rows]
    assert (read_back([masks[0], masks[2]]), masks[1]) == ([png_of(50), png_of(52)], None)


PATHS = [  # bytes, path, and the reason of the reject
    (png_of(0), None, ""), (None, "there.png", ""), (None, "gone.png", "missing_file"),
    (b"", "there.png", "empty_file"), (None, None, "bad_value"),
]  # fmt: skip
IMAGES = [{"bytes": data, "path": path} for data, path, _ in PATHS]
ONE = [png_of(1)]


def of_columns(error: str, /, given: dict[str, str] | None = None, **columns: Any) -> Case:
    return Case({"x.parquet": pa.table(columns)}, "x.parquet", given or {}, error=UsageError(error))


CASES = {
    "no records": Case(
        {
            "x.parquet": pa.table({
                "image": pa.array([*IMAGES, None, IMAGES[0]], HUB_IMAGE), "id": [*"abcdef", " "]
            }),
            **pngs("there.png"),
        },
        "x.parquet", rows={"id": ["a", "b"]}, rejects={
            **{name: reason for name, (_, _, reason) in zip("abcde", PATHS, strict=True) if reason},
            "f": "bad_value", "x.parquet#6": "bad_id",
        },
    ),
    "a split column goes first": Case(
        {"train.parquet": hub([0, 1], split=["Val", "test"])}, "train.parquet",
        rows={"split": ["validation", "test"]}, source={"splits_can_be_redrawn": False},
    ),
    "a table of paths": Case(
        {"x.parquet": [{"image": "1.png", "data": b"bytes"}], **pngs("1.png")}, "x.parquet",
        source={"name": "table"},
    ),
    "forced": Case(
        {"x.parquet": [{"image": "1.png", "data": b"bytes"}]}, "x.parquet",
        options={"input_format": "embedded"}, error=UsageError(
            "no column of .*x.parquet holds encoded images .*; it has the columns 'image', 'data'"),
    ),
    "lists of images": of_columns(
        "column 'images' of .* holds lists of images, but a record has one main image",
        images=[[png_of(1), png_of(2)]],
    ),
    "lists of hub images": of_columns(
        "holds lists of images", images=pa.array([[IMAGES[0]]], pa.list_(HUB_IMAGE))
    ),
    "a given list of images": of_columns(
        "column 'more' of .* holds lists of images", {"image": "more"}, image=ONE, more=[ONE]
    ),
    "two images": of_columns(
        "several columns of images, 'one', 'two': choose the main one with --image-column",
        one=ONE, two=ONE,
    ),
    "no such image": of_columns(
        "--image-column 'x' is not in .*, which has the columns 'image'", {"image": "x"}, image=ONE
    ),
    "no such label": of_columns("--label-column 'x' is not in", {"label": "x"}, image=ONE),
    "a size": of_columns("--size-column needs a table", {"size": "n"}, image=ONE, n=[1]),
    "fewer columns": Case(
        {"a.parquet": hub([0], text=["a"]), "b.parquet": hub([0])}, rows={"x/text": ["a", None]}
    ),
    "more columns": Case(
        {"a.parquet": hub([0]), "b.parquet": hub([0], more=["a"])}, error=BuildError(
            "b.parquet has the columns .*, but the first file .*: build from files with the same"),
    ),
    "a broken file": Case(
        {"x.parquet": "no such file"}, "x.parquet", options={"input_format": "embedded"},
        error=BuildError(r"x.parquet cannot be read as a Parquet file"),
    ),
    "a broken table": Case(
        {"x.parquet": "no such file"}, "x.parquet",
        error=BuildError(r"cannot read the table .*x.parquet"),
    ),
    "an empty file": Case(
        {"a.parquet": b"", "b.parquet": hub([0])}, rows={"label": [CLASSES[0]]},
        rejects={"a.parquet": "incomplete"},
    ),
    # As pandas writes a column with a gap, which keeps the names in the metadata.
    **{
        f"labels {number}": Case({"x.parquet": hub(labels)}, "x.parquet", rows={"label": found})
        for number, (labels, found) in enumerate((
            ([0, -1, None], [CLASSES[0], None, None]),
            ([0.0, 2.0, None], [CLASSES[0], CLASSES[2], None]),
            (pa.array([0, 2]).dictionary_encode(), [CLASSES[0], CLASSES[2]]),
        ))
    },
    "a late fraction": Case(
        {"x.parquet": hub([1.0] * ROWS_AT_A_TIME + [1.5])}, "x.parquet",
        rows={"label": [CLASSES[1]] * ROWS_AT_A_TIME},
        rejects={
            f"x.parquet#{ROWS_AT_A_TIME}": f"bad_value: row {ROWS_AT_A_TIME} of x.parquet: the "
            "label 1.5 is not a class, where the first"
        },
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_rejects_have_the_place_of_the_file(tmp_path: Path) -> None:
    rejects = CASES["no records"].listed(tmp_path).rejects
    assert {reject.uri for reject in rejects} == {f"{tmp_path}/in/x.parquet"}


MAGIC = [b"GIF89a", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"]
PNGS = {f"{number}.png": png_of(number) for number in range(3)}
DECLARED = [
    {"id": name, "photo": image, "data": data}
    for (name, image), data in zip(PNGS.items(), MAGIC, strict=True)
]
DAMAGED = [b"damaged", b"damaged too", png_of(2)]
NAMED = [
    {"id": str(number), "photo": data, "thumbnail": png_of(0)}
    for number, data in enumerate(DAMAGED)
]


def as_records(rows: list[dict[str, Any]]) -> list[bytes]:
    return [example(**{**row, "id": row["id"].encode()}) for row in rows]


@by_case({
    # Bytes that begin like images stay bytes where a schema says so.
    **{
        f"declared {name}": Case(
            {**PNGS, name: rows}, name, options={"kinds": {"data": FeatureKind.BYTES}},
            rows={"id": [*PNGS], "x/data": MAGIC},
        )
        for name, rows in {
            "t.parquet": [{"path": name, "data": data}
                          for name, data in zip(PNGS, MAGIC, strict=True)],
            "x.parquet": DECLARED, "x.tfrecord": as_records(DECLARED),
        }.items()
    },
    # A named column of images may begin with damaged ones: a later step rejects them.
    **{
        f"named {name}": Case(
            {name: rows}, name, {"image": "photo"},
            rows={"id": [*"012"], "num_bytes": list(map(len, DAMAGED))},
        )
        for name, rows in {"x.parquet": NAMED, "x.tfrecord": as_records(NAMED)}.items()
    },
})  # fmt: skip
def test_declared_columns(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)
