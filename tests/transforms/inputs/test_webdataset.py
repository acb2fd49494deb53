"""WebDataset shards as INPUT: detection, roles and types of members, and rejects of samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.formats.webdataset import infer_fields, split_key
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.references import PICTURE_TYPE
from tests.support.archive_files import pack_tar, png, read_row
from tests.support.helpers import TINY_PNG, rejects_of, rows_of
from tests.support.listings import columns_of, detect, list_source

Values = dict[str, Any]
Samples = Mapping[str, Mapping[str, Any]]


def shard(path: Path, samples: Samples, mode: str = "w") -> Path:
    """Write a shard: key -> suffix -> content; a dict is written as json."""
    files = {}
    for key, members in samples.items():
        for suffix, value in members.items():
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            files[f"{key}.{suffix}"] = value if isinstance(value, bytes) else text.encode()
    return pack_tar(path, files, mode)


def opened(
    path: Path | str, columns: Mapping[str, str | None] | None = None, **options: Any
) -> InputSource:
    source = detect(str(path), columns or {}, **options)
    assert source.name == "webdataset"
    return source


def listed(source: InputSource) -> tuple[list[Values], dict[str, str], dict[str, str]]:
    """Return rows, and reasons and details by id; every batch has the source's columns."""
    parts = list(list_source(source))
    schema = source.schema
    for part in parts:
        if isinstance(part, pa.RecordBatch):
            assert (part.schema.names, part.schema.types) == (schema.names, schema.types)
    rejects = rejects_of(parts)
    reasons = {reject.id: str(reject.reason) for reject in rejects}
    return rows_of(parts), reasons, {reject.id: reject.detail for reject in rejects}


SAMPLES: dict[str, dict[str, Any]] = {
    f"{number:06d}": {
        "png": png(number),
        "cls": number % 2,
        "txt": f"ein Löwe {number}",
        "json": {"score": number / 2, "n": number},
    }
    for number in range(4)
}


def test_ids_are_unique_over_shards_and_the_schema_is_that_of_all(tmp_path: Path) -> None:
    for name, number in (("a-000", 1), ("a-001", 2.5)):
        sample = {"png": TINY_PNG, "cls": 3, "json": {"n": number}}
        shard(tmp_path / f"{name}.tar", {"k": sample})
    rows, _, _ = listed(opened(tmp_path))
    assert columns_of(rows, "id", "x/n") == [("a-000/k", 1.0), ("a-001/k", 2.5)]


@pytest.mark.parametrize(("ending", "mode"), [("tar", "w"), ("tar.gz", "w:gz")])
def test_samples_are_rows(tmp_path: Path, ending: str, mode: str) -> None:
    path = shard(tmp_path / f"train-000.{ending}", SAMPLES, mode)
    source = opened(path, spool=Folder(str(tmp_path / "spool")))
    rows, rejects, _ = listed(source)
    assert rejects == {}
    names = ("id", "label", "split", "row", "x/txt", "x/score", "x/n")
    assert columns_of(rows, *names) == [
        (f"train-000/{n:06d}", str(n % 2), "train", n, f"ein Löwe {n}", n / 2, n) for n in range(4)
    ]
    assert [read_row(row) for row in rows] == [png(number) for number in range(4)]
    assert source.features == (
        Feature("txt", FeatureKind.TEXT),
        Feature("score", FeatureKind.FLOAT32),
        Feature("n", FeatureKind.INT64),
    )
    assert source.description == (
        f"a WebDataset shard at {path}, labels from .cls, features txt, score, n, "
        "splits by their names"
    )


@pytest.mark.parametrize(("samples", "is_one"), [
    ({"a": {"jpg": TINY_PNG, "cls": 1}}, True),
    ({"a": {"cls": 1, "jpg": TINY_PNG}}, True),
    ({"a": {"webp": TINY_PNG, "txt": "x"}}, True),
    ({"d/a": {"PNG": TINY_PNG, "json": {}}}, True),
    ({"a": {"png": TINY_PNG, "__key__": "a"}}, True),
    ({"a": {"png": TINY_PNG}, "b": {"png": TINY_PNG}}, False),
    ({"a": {"png": TINY_PNG, "xml": "x"}}, False),
    ({"a": {"jpg": TINY_PNG, "png": TINY_PNG}}, False),
    ({"a": {"txt": "x", "json": {}}}, False),
    ({"readme": {"txt": "x", "png": TINY_PNG}, **{str(n): {"png": TINY_PNG} for n in range(9)}},
     False),
])  # fmt: skip
def test_detection(tmp_path: Path, samples: Samples, is_one: bool) -> None:
    source = detect(str(shard(tmp_path / "a.tar", samples)), {})
    assert source.name == ("webdataset" if is_one else "tar")


def test_it_can_be_forced_either_way(tmp_path: Path) -> None:
    path = str(shard(tmp_path / "a.tar", SAMPLES))
    assert detect(path, {}, input_format="tar").name == "tar"
    plain = shard(tmp_path / "b.tar", {"cat/a": {"png": TINY_PNG}})
    rows, _, _ = listed(opened(plain, input_format="webdataset"))
    assert columns_of(rows, "id", "label") == [("b/cat/a", "cat")]
    other = str(pack_tar(tmp_path / "c.tar", {"a": TINY_PNG}))
    with pytest.raises(UsageError, match=r"has no samples: expected members KEY\.SUFFIX"):
        detect(other, {}, input_format="webdataset")


def test_samples_that_can_be_no_record(tmp_path: Path) -> None:
    image = {"png": TINY_PNG, "cls": 1}
    bad: dict[str, dict[str, Any]] = {
        "no_image": {"cls": 1, "json": {"n": 1}},
        "empty": {"png": b"", "cls": 1},
        "bad_json": {**image, "json": b"{"},
        "no_object": {**image, "json": b"[1]"},
        "half_a_character": {**image, "json": b'{"n": "\\ud800"}'},
        "half_a_name": {**image, "json": b'{"\xed\xa0\x80": 1}'},
        "bad_text": {**image, "txt": b"\xff"},
    }
    good = {f"good{number}": {**image, "txt": "x", "json": {"n": 1}} for number in range(3)}
    source = opened(shard(tmp_path / "a.tar", good | bad), input_format="webdataset")
    rows, reasons, details = listed(source)
    assert [row["id"] for row in rows] == list(map("a/{}".format, good))
    assert reasons == {
        "a/no_image": "not_an_image", "a/empty": "empty_file", "a/bad_json": "bad_value",
        "a/no_object": "bad_value", "a/half_a_character": "bad_value",
        "a/half_a_name": "bad_value", "a/bad_text": "bad_value",
    }  # fmt: skip
    assert details["a/no_image"] == "no image among its members (cls, json)"


def test_values_unlike_the_first_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.transforms.inputs.formats.webdataset._LOOK_SAMPLES", 1)
    labels_and_fields: dict[str, tuple[object, Values | None]] = {
        "first": ("007", {"n": 1, "w": 0.5, "t": ["a"], "b": True}),
        "fine": (8, {"n": 2, "w": 1, "t": [], "b": None, "more": None}), "none": (9, None),
        "more": (9, {"more": 1}),
        "name": ("cat", {}), "bad_int": (1, {"n": 1.5}), "bad_list": (1, {"t": ["a", 1]}),
        "bad_bool": (1, {"b": 1}), "no_float": (1, {"w": 2**53 + 1}), "no_label": (None, {}),
    }  # fmt: skip
    samples = {}
    for name, (label, fields) in labels_and_fields.items():
        members = {"png": TINY_PNG, "cls": label, "json": fields}
        samples[name] = {key: value for key, value in members.items() if value is not None}
    rows, _, details = listed(opened(shard(tmp_path / "a.tar", samples)))
    assert columns_of(rows, "id", "label", "x/n", "x/w", "x/t", "x/b") == [
        ("a/first", "7", 1, 0.5, ["a"], True), ("a/fine", "8", 2, 1.0, [], None),
        ("a/none", "9", None, None, None, None), ("a/name", "cat", None, None, None, None),
        ("a/no_label", None, None, None, None, None),
    ]  # fmt: skip
    assert details == {
        "a/bad_int": "row 5 of a.tar: 'n' is 1.5, but others are int64",
        "a/bad_list": "row 6 of a.tar: 't' is ['a', 1], but others are list<item: string>",
        "a/bad_bool": "row 7 of a.tar: 'b' is 1, but others are bool",
        "a/no_float": "row 8 of a.tar: 'w' is 9007199254740993, but others are double",
        "a/more": "it has the json's more, which the first samples lack",
    }


def test_members_that_no_first_sample_has_are_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no column, so labels and captions of later shards would be lost."""
    monkeypatch.setattr("shardwright.transforms.inputs.formats.webdataset._LOOK_SAMPLES", 1)
    image = {"png": TINY_PNG, "json": {"n": 1}}
    more = {"cls": "1", "txt": "1", "seg.png": TINY_PNG, "depth.npy": "1"}
    samples = {"first": image} | {str(n): {**image, one: more[one]} for n, one in enumerate(more)}
    rows, reasons, details = listed(opened(shard(tmp_path / "a.tar", samples)))
    assert [row["id"] for row in rows] == ["a/first"]
    assert set(reasons.values()) == {"bad_value"}
    assert details == {
        f"a/{n}": f"it has .{one}, which the first samples lack" for n, one in enumerate(more)
    }


def test_roles_of_json_fields(tmp_path: Path) -> None:
    fields = {"label": "cat", "split": "Val", "who": "x"}
    samples = {
        str(n): {"jpg": TINY_PNG, "json": {**fields, "kind": n, "key": f"k{n}"}} for n in range(2)
    }
    path = shard(tmp_path / "a.tar", samples)
    rows, _, _ = listed(opened(path))
    expected = [(f"a/{n}", "cat", "validation", n) for n in range(2)]
    assert columns_of(rows, "id", "label", "split", "x/kind") == expected
    source = opened(path, {"label": "kind", "group": "who", "id": "key", "image": None})
    rows, _, _ = listed(source)
    assert columns_of(rows, "id", "label", "group") == [("k0", "0", "x"), ("k1", "1", "x")]
    assert source.states_splits
    told = "--label-column 'nope' is not in the samples' json, which has the columns 'label', "
    with pytest.raises(UsageError, match=told):
        opened(path, {"label": "nope"})
    with pytest.raises(UsageError, match="--size-column needs a table"):
        opened(path, {"size": "kind"})


@pytest.mark.parametrize("cls", ["0", "cat"])
def test_a_label_column_goes_before_the_cls(cls: str, tmp_path: Path) -> None:
    for species in ("ant", 7):
        sample = {"jpg": TINY_PNG, "cls": cls.encode(), "json": {"species": species}}
        source = opened(shard(tmp_path / "a.tar", {"0": sample}), {"label": "species"})
        rows, rejects, _ = listed(source)
        assert (columns_of(rows, "label"), rejects) == ([(str(species),)], {})
        assert "without .cls" in source.description


def test_members_and_fields_without_a_feature(tmp_path: Path) -> None:
    fields = {"label": 5, "id": 1, "d": {}, "mix": [1, "a"], "none": None, "n": 1}
    sample = {"jpg": TINY_PNG, "cls": 1, "npy": b"x", "json": fields}
    source = opened(shard(tmp_path / "a.tar", {"0": sample}))
    assert [feature.name for feature in source.features] == ["n"]
    ignored = (f"the json's {name}" for name in ("label", "id", "d", "mix"))
    assert source.samples.ignored == (".npy", *ignored)


def test_further_pictures_of_a_sample(tmp_path: Path) -> None:
    samples = {
        "0": {"jpg": png(1), "seg.png": png(2), "cls": 1},
        "1": {"jpg": png(3), "cls": 1},
        "2": {"seg.png": png(4), "jpg": png(5), "cls": 1},
    }
    source = opened(shard(tmp_path / "a.tar", samples))
    assert source.features == (Feature("seg", FeatureKind.MASK),)
    assert source.schema.field("x/seg").type == PICTURE_TYPE
    rows, _, _ = listed(source)
    assert [read_row(row) for row in rows] == [png(1), png(3), png(5)]
    assert [row["x/seg"] and read_row(row["x/seg"]) for row in rows] == [png(2), None, png(4)]


def test_members_of_no_sample_and_keys_that_come_twice(tmp_path: Path) -> None:
    files = {
        "0.png": png(1), "0.cls": b"1", ".x.png": TINY_PNG, "README": b"text", "1.png": png(2),
        "1.cls": b"2", "0.PNG": png(3),
    }  # fmt: skip
    rows, reasons, _ = listed(opened(pack_tar(tmp_path / "a.tar", files)))
    assert [row["id"] for row in rows] == ["a/0", "a/1", "a/0"]  # the plan leaves out the second
    assert reasons == {"a.tar/.x.png": "other_file", "a.tar/README": "other_file"}


def test_a_cut_shard_gives_the_samples_before_the_cut(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", SAMPLES)
    path.write_bytes(path.read_bytes()[: 3 * 4 * 1024 + 600])
    rows, reasons, _ = listed(opened(path))
    assert [row["id"] for row in rows] == ["a/000000", "a/000001", "a/000002"]
    assert reasons == {"a.tar": "incomplete"}


def test_keys() -> None:
    keys = {"a.jpg": ("a", "jpg"), "d.e/a.seg.PNG": ("d.e/a", "seg.png")}
    expected = keys | dict.fromkeys(("d/a", ".a.jpg", "d/.jpg", "a."))
    assert {path: split_key(path) for path in expected} == expected


@pytest.mark.parametrize(("members", "labels", "features"), [
    (["im0.v1.png", "im0.v1.cls", "im0.v2.png", "im0.v2.cls"], {"im0.v1": "1", "im0.v2": "3"}, []),
    (["a.png", "a.cls", "b.1.png", "b.1.cls"], {"a": "1", "b.1": "3"}, []),
    (["a.png", "a.cls", "a.seg.png", "b.png", "b.cls"], {"a": "1", "b": "4"}, ["seg"]),
    (["a.png", "a.cls", "a.seg.png", "b.png", "b.cls", "b.seg.jpg"], {"a": "1", "b": "4"}, ["seg"]),
])  # fmt: skip
def test_dots_in_keys_and_in_suffixes(
    tmp_path: Path, members: list[str], labels: dict[str, str], features: list[str]
) -> None:
    """Keys have dots if more images have labels then. Pictures of one name are one feature."""
    values = (str(n).encode() if name.endswith("cls") else png(n) for n, name in enumerate(members))
    source = opened(pack_tar(tmp_path / "a.tar", dict(zip(members, values, strict=True))))
    rows, rejects, _ = listed(source)
    assert {row["id"].removeprefix("a/"): row["label"] for row in rows} == labels
    assert rejects == {}
    assert [feature.name for feature in source.features] == features
    if "b.seg.jpg" in members:
        sizes = [row["x/seg"]["num_bytes"] for row in rows]
        assert sizes == [len(png(members.index(name))) for name in ("a.seg.png", "b.seg.jpg")]


def test_two_pictures_of_one_name_reject_their_sample(tmp_path: Path) -> None:
    pictures = {"png": TINY_PNG, "cls": 1, "seg.png": TINY_PNG}
    samples = {"a": pictures, "b": {**pictures, "seg.jpg": TINY_PNG}}
    _, _, details = listed(opened(shard(tmp_path / "a.tar", samples)))
    assert details == {"a/b": "it has seg.png and seg.jpg, which are both the image 'seg'"}


def test_deep_values_get_no_type() -> None:
    """Arrow's own types for them may be as deep, and its calls with them."""
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    assert infer_fields([{"a": deep, "b": {"c": 1}, "d": 1}]) == ({"d": pa.int64()}, ["a", "b"])
