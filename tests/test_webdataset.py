"""WebDataset shards as INPUT: what makes a tar one, and what becomes of samples' members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.schema import Feature, FeatureKind
from shardwright.storage import Folder
from tests.archive_files import pack_tar, png, read_row
from tests.helpers import TINY_PNG, rejects_of, rows_of
from transforms.inputs.archives.tars import TarSource
from transforms.inputs.archives.webdataset import WebDatasetSource
from transforms.inputs.archives.webdataset_samples import fits, infer_fields, split_key
from transforms.inputs.detection import detect_source, list_source
from transforms.references import PICTURE_TYPE

Values = dict[str, Any]


def shard(
    path: Path, samples: Mapping[str, Mapping[str, bytes | str | int | Values]], mode: str = "w"
) -> Path:
    """A shard: key -> suffix -> content; a dict is written as json."""
    files = {}
    for key, members in samples.items():
        for suffix, value in members.items():
            text = (
                value
                if isinstance(value, bytes)
                else (json.dumps(value) if isinstance(value, dict) else str(value)).encode()
            )
            files[f"{key}.{suffix}"] = text
    return pack_tar(path, files, mode)


def opened(
    path: Path | str, columns: Mapping[str, str | None] | None = None, **options: Any
) -> WebDatasetSource:
    source = detect_source(str(path), columns or {}, **options)
    assert isinstance(source, WebDatasetSource)
    return source


def listed(source: WebDatasetSource) -> tuple[list[Values], dict[str, tuple[str, str]]]:
    """Rows, and (reason, detail) by id; every batch has the schema that was told."""
    parts = list(list_source(source))
    assert all(part.schema == source.schema for part in parts if isinstance(part, pa.RecordBatch))
    return rows_of(parts), {
        reject.id: (str(reject.reason), reject.detail) for reject in rejects_of(parts)
    }


SAMPLES: dict[str, dict[str, Any]] = {
    f"{number:06d}": {
        "png": png(number),
        "cls": number % 2,
        "txt": f"ein Löwe {number}",
        "json": {"score": number / 2, "n": number},
    }
    for number in range(4)
}


@pytest.mark.parametrize(("ending", "mode"), [("tar", "w"), ("tar.gz", "w:gz")])
def test_samples_are_rows(tmp_path: Path, ending: str, mode: str) -> None:
    path = shard(tmp_path / f"train-000.{ending}", SAMPLES, mode)
    source = opened(path, spool=Folder(str(tmp_path / "spool")))
    rows, rejects = listed(source)
    assert rejects == {}
    assert [(row["id"], row["label"], row["split"], row["row"]) for row in rows] == [
        (f"train-000/{number:06d}", str(number % 2), "train", number) for number in range(4)
    ]
    assert [(row["x/txt"], row["x/score"], row["x/n"]) for row in rows] == [
        (f"ein Löwe {n}", n / 2, n) for n in range(4)
    ]
    assert [read_row(row) for row in rows] == [png(number) for number in range(4)]
    assert source.has_integer_labels
    assert source.features == (
        Feature("txt", FeatureKind.TEXT),
        Feature("score", FeatureKind.FLOAT32),
        Feature("n", FeatureKind.INT64),
    )
    assert source.describe() == (
        f"a WebDataset shard at {path}, labels from .cls, features txt, score, n, splits by their names"
    )


@pytest.mark.parametrize(
    ("samples", "is_one"),
    [
        ({"a": {"jpg": TINY_PNG, "cls": 1}}, True),
        ({"a": {"cls": 1, "jpg": TINY_PNG}}, True),
        ({"a": {"webp": TINY_PNG, "txt": "x"}}, True),
        ({"d/a": {"PNG": TINY_PNG, "json": {}}}, True),
        ({"a": {"png": TINY_PNG, "__key__": "a"}}, True),
        ({"a": {"png": TINY_PNG}, "b": {"png": TINY_PNG}}, False),
        ({"a": {"png": TINY_PNG, "xml": "x"}}, False),
        ({"a": {"jpg": TINY_PNG, "png": TINY_PNG}}, False),
        ({"a": {"txt": "x", "json": {}}}, False),
        (
            {
                "readme": {"txt": "x", "png": TINY_PNG},
                **{str(n): {"png": TINY_PNG} for n in range(9)},
            },
            False,
        ),
    ],
)
def test_what_makes_a_tar_one(tmp_path: Path, samples: Mapping[str, Any], is_one: bool) -> None:
    source = detect_source(str(shard(tmp_path / "a.tar", samples)), {})
    assert isinstance(source, WebDatasetSource if is_one else TarSource)


def test_it_can_be_forced_either_way(tmp_path: Path) -> None:
    path = str(shard(tmp_path / "a.tar", SAMPLES))
    assert isinstance(detect_source(path, {}, input_format="tar"), TarSource)
    plain = str(shard(tmp_path / "b.tar", {"cat/a": {"png": TINY_PNG}}))
    rows, _ = listed(opened(plain, input_format="webdataset"))
    assert [(row["id"], row["label"]) for row in rows] == [("b/cat/a", "cat")]
    with pytest.raises(UsageError, match=r"has no samples: members named KEY\.SUFFIX"):
        detect_source(
            str(pack_tar(tmp_path / "c.tar", {"a": TINY_PNG})), {}, input_format="webdataset"
        )


def test_ids_are_unique_over_shards_and_the_schema_is_that_of_all(tmp_path: Path) -> None:
    for name, number in (("a-000", 1), ("a-001", 2.5)):
        shard(
            tmp_path / "in" / f"{name}.tar",
            {"k": {"png": TINY_PNG, "cls": 3, "json": {"n": number}}},
        )
    rows, _ = listed(opened(tmp_path / "in"))
    assert [(row["id"], row["x/n"], row["split"]) for row in rows] == [
        ("a-000/k", 1.0, None),
        ("a-001/k", 2.5, None),
    ]


def test_samples_that_can_be_no_record(tmp_path: Path) -> None:
    bad: dict[str, dict[str, Any]] = {
        "no_image": {"cls": 1, "json": {"n": 1}},
        "empty": {"png": b"", "cls": 1},
        "bad_json": {"png": TINY_PNG, "cls": 1, "json": b"{"},
        "no_object": {"png": TINY_PNG, "cls": 1, "json": b"[1]"},
        "bad_text": {"png": TINY_PNG, "cls": 1, "txt": b"\xff"},
    }
    good = {
        f"good{number}": {"png": TINY_PNG, "cls": 1, "txt": "x", "json": {"n": 1}}
        for number in range(3)
    }
    path = shard(tmp_path / "a.tar", good | bad)
    rows, rejects = listed(opened(path, input_format="webdataset"))
    assert [row["id"] for row in rows] == list(map("a/{}".format, good))
    assert {image_id: reason for image_id, (reason, _) in rejects.items()} == {
        "a/no_image": "not_an_image",
        "a/empty": "empty_file",
        "a/bad_json": "bad_value",
        "a/no_object": "bad_value",
        "a/bad_text": "bad_value",
    }
    assert rejects["a/no_image"][1] == "no image among its members (cls, json)"


def test_values_that_the_first_samples_did_not_foretell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transforms.inputs.archives.webdataset._LOOK_SAMPLES", 1)
    later: dict[str, dict[str, Any]] = {
        "first": {"png": TINY_PNG, "cls": "007", "json": {"n": 1, "w": 0.5, "t": ["a"], "b": True}},
        "fine": {
            "png": TINY_PNG,
            "cls": 8,
            "json": {"n": 2, "w": 1, "t": [], "b": None, "more": 1},
        },
        "none": {"png": TINY_PNG, "cls": 9},
        "bad_label": {"png": TINY_PNG, "cls": "cat", "json": {}},
        "bad_int": {"png": TINY_PNG, "cls": 1, "json": {"n": 1.5}},
        "bad_list": {"png": TINY_PNG, "cls": 1, "json": {"t": ["a", 1]}},
        "bad_bool": {"png": TINY_PNG, "cls": 1, "json": {"b": 1}},
        "no_label": {"png": TINY_PNG, "json": {}},
    }
    rows, rejects = listed(opened(shard(tmp_path / "a.tar", later)))
    values = [
        (row["id"][2:], row["label"], row["x/n"], row["x/w"], row["x/t"], row["x/b"])
        for row in rows
    ]
    assert values == [
        ("first", "7", 1, 0.5, ["a"], True),
        ("fine", "8", 2, 1.0, [], None),
        ("none", "9", None, None, None, None),
        ("no_label", None, None, None, None, None),
    ]
    assert {image_id: detail for image_id, (_, detail) in rejects.items()} == {
        "a/bad_label": "the label is 'cat', and others are whole numbers",
        "a/bad_int": "the json's 'n' is 1.5, and others are int64",
        "a/bad_list": "the json's 't' is ['a', 1], and others are list<item: string>",
        "a/bad_bool": "the json's 'b' is 1, and others are bool",
    }


def test_roles_of_json_fields(tmp_path: Path) -> None:
    samples = {
        str(n): {
            "jpg": TINY_PNG,
            "json": {"label": "cat", "kind": n, "split": "Val", "who": "x", "key": f"k{n}"},
        }
        for n in range(2)
    }
    path = shard(tmp_path / "a.tar", samples)
    rows, _ = listed(opened(path))
    assert [(row["id"], row["label"], row["split"], row["x/kind"]) for row in rows] == [
        ("a/0", "cat", "validation", 0),
        ("a/1", "cat", "validation", 1),
    ]
    source = opened(path, {"label": "kind", "group": "who", "id": "key", "image": None})
    rows, _ = listed(source)
    assert [(row["id"], row["label"], row["group"]) for row in rows] == [
        ("k0", "0", "x"),
        ("k1", "1", "x"),
    ]
    assert source.has_integer_labels
    assert source.states_splits
    with pytest.raises(
        UsageError,
        match="--label-column 'nope' is no field of the samples' json, which has label, kind",
    ):
        opened(path, {"label": "nope"})
    with pytest.raises(UsageError, match="--size-column is for a table"):
        opened(path, {"size": "kind"})


def test_what_nothing_is_made_of_is_told(tmp_path: Path) -> None:
    samples = {
        "0": {
            "jpg": TINY_PNG,
            "cls": 1,
            "npy": b"x",
            "json": {"label": 5, "id": 1, "d": {}, "mix": [1, "a"], "none": None, "n": 1},
        }
    }
    source = opened(shard(tmp_path / "a.tar", samples))
    assert [feature.name for feature in source.features] == ["n"]
    assert source.samples.ignored == (
        ".npy",
        "the json's label",
        "the json's id",
        "the json's d",
        "the json's mix",
        "the json's none",
    )


def test_further_pictures_of_a_sample(tmp_path: Path) -> None:
    samples = {
        "0": {"jpg": png(1), "seg.png": png(2), "cls": 1},
        "1": {"jpg": png(3), "cls": 1},
        "2": {"seg.png": png(4), "jpg": png(5), "cls": 1},
    }
    source = opened(shard(tmp_path / "a.tar", samples))
    assert source.features == (Feature("seg", FeatureKind.MASK),)
    assert source.schema.field("x/seg").type == PICTURE_TYPE
    rows, _ = listed(source)
    assert [read_row(row) for row in rows] == [png(1), png(3), png(5)]
    assert [row["x/seg"] and read_row(row["x/seg"]) for row in rows] == [png(2), None, png(4)]


def test_members_of_no_sample_and_keys_that_come_twice(tmp_path: Path) -> None:
    path = pack_tar(
        tmp_path / "a.tar",
        {
            "0.png": png(1),
            "0.cls": b"1",
            ".x.png": TINY_PNG,
            "README": b"text",
            "1.png": png(2),
            "1.cls": b"2",
            "0.PNG": png(3),
        },
    )
    rows, rejects = listed(opened(path))
    assert [row["id"] for row in rows] == ["a/0", "a/1", "a/0"]  # the plan leaves out the second
    assert {image_id: reason for image_id, (reason, _) in rejects.items()} == {
        "a.tar/.x.png": "other_file",
        "a.tar/README": "other_file",
    }


def test_a_cut_shard_gives_the_samples_before_the_cut(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", SAMPLES)
    path.write_bytes(path.read_bytes()[: 3 * 4 * 1024 + 600])
    rows, rejects = listed(opened(path))
    assert [row["id"] for row in rows] == ["a/000000", "a/000001", "a/000002"]
    assert {image_id: reason for image_id, (reason, _) in rejects.items()} == {"a.tar": "truncated"}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.jpg", ("a", "jpg")),
        ("d.e/a.seg.PNG", ("d.e/a", "seg.png")),
        ("d/a", None),
        (".a.jpg", None),
        ("d/.jpg", None),
        ("a.", None),
    ],
)
def test_keys(path: str, found: tuple[str, str] | None) -> None:
    assert split_key(path) == found


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), json_values, max_size=3), max_size=5))
def test_inferred_types_hold_every_value_they_were_inferred_from(records: list[Values]) -> None:
    kinds, others = infer_fields(records)
    assert {*kinds, *others} == {name for record in records for name in record}
    for name, kind in kinds.items():
        values = [record.get(name) for record in records]
        assert all(fits(value, kind) for value in values)
        pa.array(values, kind).validate(full=True)


@given(
    value=json_values,
    kind=st.sampled_from(
        [
            pa.int64(),
            pa.float64(),
            pa.string(),
            pa.bool_(),
            pa.list_(pa.int64()),
            pa.list_(pa.float64()),
        ]
    ),
)
def test_what_fits_is_what_arrow_takes(value: object, kind: pa.DataType) -> None:
    if fits(value, kind):
        assert pa.array([value], kind).to_pylist() == [value]
