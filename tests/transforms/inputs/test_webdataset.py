"""WebDataset shards as INPUT: detection, roles and types of members, and rejects of samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.formats import webdataset
from shardwright.transforms.inputs.formats.webdataset import infer_fields, split_key
from shardwright.transforms.references import PICTURE_TYPE
from tests.support.archive_files import png, read_row
from tests.support.helpers import TINY_PNG
from tests.support.listing_cases import Case, by_case, listing, write_files

Samples = Mapping[str, Mapping[str, Any]]
IMAGE = {"png": TINY_PNG, "cls": 1}


def members(samples: Samples) -> dict[str, Any]:
    return {
        f"{key}.{suffix}": value for key, one in samples.items() for suffix, value in one.items()
    }


def shard(samples: Samples, name: str = "a.tar") -> dict[str, Any]:
    return {name: members(samples)}


SAMPLES: dict[str, dict[str, Any]] = {
    f"{n:06d}": {
        "png": png(n), "cls": n % 2, "txt": f"ein Löwe {n}", "json": {"score": n / 2, "n": n}
    }
    for n in range(4)
}  # fmt: skip


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_samples_are_rows(tmp_path: Path, ending: str) -> None:
    write_files(tmp_path, shard(SAMPLES, f"train-000.{ending}"))
    path = tmp_path / f"train-000.{ending}"
    found = listing(path, spool=Folder(str(tmp_path / "spool")))
    names = ("id", "label", "split", "row", "x/txt", "x/score", "x/n")
    assert found.of(*names) == [
        (f"train-000/{n:06d}", str(n % 2), "train", n, f"ein Löwe {n}", n / 2, n) for n in range(4)
    ]
    assert [read_row(row) for row in found.rows] == [png(number) for number in range(4)]
    assert found.rejects == []
    kinds = {"txt": FeatureKind.TEXT, "score": FeatureKind.FLOAT32, "n": FeatureKind.INT64}
    assert found.source.features == tuple(Feature(name, kind) for name, kind in kinds.items())
    assert found.source.description == (
        f"a WebDataset shard at {path}, labels from .cls, features txt, score, n, "
        "splits by their names"
    )
    path.write_bytes(path.read_bytes()[: 3 * 4 * 1024 + 600])
    if ending == "tar":  # the samples before the cut
        cut = listing(path)
        assert (len(cut.rows), cut.reasons) == (3, {path.name: "incomplete"})


MANY = {str(n): {"png": TINY_PNG} for n in range(9)}


@pytest.mark.parametrize(("samples", "is_one"), [
    ({"a": {"cls": 1, "jpg": TINY_PNG}}, True),
    ({"a": {"webp": TINY_PNG, "txt": "x"}}, True),
    ({"d/a": {"PNG": TINY_PNG, "json": {}}}, True),
    ({"a": {"png": TINY_PNG, "__key__": "a"}}, True),
    ({"a": {"png": TINY_PNG}, "b": {"png": TINY_PNG}}, False),
    ({"a": {"png": TINY_PNG, "xml": "x"}}, False),
    ({"a": {"jpg": TINY_PNG, "png": TINY_PNG}}, False),
    ({"a": {"txt": "x", "json": {}}}, False),
    ({"readme": {"txt": "x", "png": TINY_PNG}, **MANY}, False),
])  # fmt: skip
def test_detection(tmp_path: Path, samples: Samples, is_one: bool) -> None:
    name = "webdataset" if is_one else "tar"
    Case(shard(samples), "a.tar", source={"name": name}).check(tmp_path)


FIELDS = {"label": "cat", "split": "Val", "who": "x"}
ROLES = shard({
    str(n): {"jpg": TINY_PNG, "json": {**FIELDS, "kind": n, "key": f"k{n}"}} for n in range(2)
})  # fmt: skip
SEG = {**IMAGE, "seg.png": TINY_PNG}
FORCED = {"input_format": "webdataset"}
CASES = {
    "shards have other types": Case(
        {
            **shard({"k": {**IMAGE, "json": {"n": 1}}}, "a-000.tar"),
            **shard({"k": {**IMAGE, "json": {"n": 2.5}}}, "a-001.tar"),
        },
        rows={"id": ["a-000/k", "a-001/k"], "x/n": [1.0, 2.5]},
    ),
    "forced to be a tar": Case(
        shard(SAMPLES), "a.tar", options={"input_format": "tar"}, source={"name": "tar"}
    ),
    "forced": Case(
        shard({"cat/a": {"png": TINY_PNG}}), "a.tar", options=FORCED,
        rows={"id": ["a/cat/a"], "label": ["cat"]},
    ),
    "no samples": Case(
        {"a.tar": {"a": TINY_PNG}}, "a.tar", options=FORCED,
        error=UsageError(r"has no samples: expected members KEY\.SUFFIX"),
    ),
    "no records": Case(
        shard({
            **{f"good{n}": {**IMAGE, "txt": "x", "json": {"n": 1}} for n in range(3)},
            "no_image": {"cls": 1, "json": {"n": 1}}, "empty": {**IMAGE, "png": b""},
            "bad_json": {**IMAGE, "json": b"{"}, "no_object": {**IMAGE, "json": b"[1]"},
            "half_a_character": {**IMAGE, "json": b'{"n": "\\ud800"}'},
            "half_a_name": {**IMAGE, "json": b'{"\xed\xa0\x80": 1}'},
            "bad_text": {**IMAGE, "txt": b"\xff"},
        }), "a.tar", options=FORCED, rows={"id": ["a/good0", "a/good1", "a/good2"]},
        rejects={
            "a/no_image": "not_an_image: no image among its members (cls, json)",
            "a/empty": "empty_file", "a/bad_json": "bad_value", "a/no_object": "bad_value",
            "a/half_a_character": "bad_value", "a/half_a_name": "bad_value",
            "a/bad_text": "bad_value",
        },
    ),
    "roles of json": Case(ROLES, "a.tar", rows={
        "id": ["a/0", "a/1"], "label": ["cat"] * 2, "split": ["validation"] * 2, "x/kind": [0, 1],
    }),
    "roles by options": Case(
        ROLES, "a.tar", {"label": "kind", "group": "who", "id": "key"},
        rows={"id": ["k0", "k1"], "label": ["0", "1"], "group": ["x", "x"]},
        source={"states_splits": True},
    ),
    "a missing column": Case(ROLES, "a.tar", {"label": "nope"}, error=UsageError(
        "--label-column 'nope' is not in the samples' json, which has the columns 'label', "
    )),
    "a size": Case(
        ROLES, "a.tar", {"size": "kind"}, error=UsageError("--size-column needs a table")
    ),
    **{
        f"a label before the cls {label}": Case(
            shard({"0": {"jpg": TINY_PNG, "cls": cls, "json": {"species": label}}}), "a.tar",
            {"label": "species"}, rows={"label": [str(label)]}, says="without .cls",
        )
        for cls, label in (("0", "ant"), ("cat", 7))
    },
    "no samples' members and a key twice": Case(
        {"a.tar": {
            **members({"0": IMAGE}), ".x.png": TINY_PNG, "README": b"text", **members({"1": IMAGE}),
            "0.PNG": png(3),
        }}, "a.tar", rows={"id": ["a/0", "a/1", "a/0"]},  # the plan leaves out the second
        rejects={"a.tar/.x.png": "other_file", "a.tar/README": "other_file"},
    ),
    "dots in suffixes": Case(
        shard({"a": SEG, "b": {"png": png(3), "cls": 4, "seg.jpg": png(5)}}), "a.tar",
        rows={"id": ["a/a", "a/b"], "label": ["1", "4"]},
        source={"features": (Feature("seg", FeatureKind.MASK),)},
    ),
    "two pictures of one name": Case(
        shard({"a": SEG, "b": {**SEG, "seg.jpg": TINY_PNG}}), "a.tar", rows={"id": ["a/a"]},
        rejects={
            "a/b": "bad_value: it has seg.png and seg.jpg, which are both the image 'seg'"
        },
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


LATE = {
    "label": ("007", {"n": 1, "w": 0.5, "t": ["a"], "b": True}),
    "fine": (8, {"n": 2, "w": 1, "t": [], "b": None, "more": None}),
    "name": ("cat", {}), "no_label": (None, {}), "more": (9, {"more": 1}),
    "bad_int": (1, {"n": 1.5}), "bad_list": (1, {"t": ["a", 1]}), "bad_bool": (1, {"b": 1}),
    "no_float": (1, {"w": 2**53 + 1}),
}  # fmt: skip
LATE_SAMPLES = {
    name: {"png": TINY_PNG, **({} if label is None else {"cls": label}), "json": fields}
    for name, (label, fields) in LATE.items()
}
LACKED: dict[str, Any] = {"txt": "1", "seg.png": TINY_PNG, "depth.npy": "1"}


@by_case({
    "values": Case(
        shard({**LATE_SAMPLES, "none": IMAGE}), "a.tar",
        rows={
            "id": [f"a/{name}" for name in ("label", "fine", "name", "no_label", "none")],
            "label": ["7", "8", "cat", None, "1"], "x/n": [1, 2, *[None] * 3],
            "x/w": [0.5, 1.0, *[None] * 3], "x/t": [["a"], [], *[None] * 3],
            "x/b": [True, *[None] * 4],
        },
        rejects={
            "a/more": "bad_value: it has the json's more, which the first samples lack",
            "a/bad_int": "bad_value: row 5 of a.tar: 'n' is 1.5, but others are int64",
            "a/bad_list": "bad_value: row 6 of a.tar: 't' is ['a', 1], but others are list<item: "
            "string>",
            "a/bad_bool": "bad_value: row 7 of a.tar: 'b' is 1, but others are bool",
            "a/no_float": "bad_value: row 8 of a.tar: 'w' is 9007199254740993, but others are "
            "double",
        },
    ),
    # They have no column, so labels and captions of later shards would be lost.
    "members": Case(
        shard({
            "first": {"png": TINY_PNG, "json": {"n": 1}}, "cls": IMAGE,
            **{suffix.partition(".")[0]: {"png": TINY_PNG, suffix: LACKED[suffix]}
               for suffix in LACKED},
        }), "a.tar", rows={"id": ["a/first"]},
        rejects={
            f"a/{suffix.partition('.')[0]}":
            f"bad_value: it has .{suffix}, which the first samples lack"
            for suffix in ("cls", *LACKED)
        },
    ),
})  # fmt: skip
def test_later_samples_unlike_the_first(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "_LOOK_SAMPLES", 1)
    case.check(tmp_path)


def test_members_and_fields_without_a_feature(tmp_path: Path) -> None:
    fields = {"label": 5, "id": 1, "d": {}, "mix": [1, "a"], "none": None, "n": 1}
    write_files(tmp_path, shard({"0": {**IMAGE, "npy": b"x", "json": fields}}))
    source = listing(tmp_path / "a.tar").source
    assert [feature.name for feature in source.features] == ["n"]
    ignored = (f"the json's {name}" for name in ("label", "id", "d", "mix"))
    assert source.samples.ignored == (".npy", *ignored)


def test_further_pictures_of_a_sample(tmp_path: Path) -> None:
    samples = {
        "0": {"jpg": png(1), "seg.png": png(2), "cls": 1},
        "1": {"jpg": png(3), "cls": 1},
        "2": {"seg.png": png(4), "jpg": png(5), "cls": 1},
    }
    write_files(tmp_path, shard(samples))
    found = listing(tmp_path / "a.tar")
    assert found.source.schema.field("x/seg").type == PICTURE_TYPE
    assert [read_row(row) for row in found.rows] == [png(1), png(3), png(5)]
    pictures = [row["x/seg"] and read_row(row["x/seg"]) for row in found.rows]
    assert pictures == [png(2), None, png(4)]


def test_keys() -> None:
    keys = {"a.jpg": ("a", "jpg"), "d.e/a.seg.PNG": ("d.e/a", "seg.png")}
    expected = keys | dict.fromkeys(("d/a", ".a.jpg", "d/.jpg", "a."))
    assert {path: split_key(path) for path in expected} == expected


def test_deep_values_get_no_type() -> None:
    """Arrow's own types for them may be as deep, and its calls with them."""
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    assert infer_fields([{"a": deep, "b": {"c": 1}, "d": 1}]) == ({"d": pa.int64()}, ["a", "b"])
