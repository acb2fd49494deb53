"""The manifest: it comes back as written, and other folders fail with the fix."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import NotADatasetError, StorageError
from shardwright.format.manifest import (
    FORMAT_VERSION,
    Manifest,
    json_bytes,
    read_manifest,
    seal,
)
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.storage.folder import Folder

SCHEMA = ExampleSchema(
    (
        Feature("image", FeatureKind.IMAGE, Source.IMAGE, (4, 5, 3), "raw"),
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
        Feature("tags", FeatureKind.BYTES, shape=(None,)),
    ),
    ("ape", "Löwe"),
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
VALUE = st.one_of(TEXT, st.integers(), st.none(), st.booleans(), st.lists(TEXT, max_size=3))
JSON = st.dictionaries(TEXT, VALUE, max_size=3)
COUNT = st.integers(0, 10**9)
SHARD = st.tuples(
    COUNT, st.integers(16 * 10**9, 2**40), st.integers(0, 2**32 - 1), TEXT, COUNT, COUNT
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    names = draw(st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), unique=True, max_size=3))
    splits = {}
    for name in sorted(names):
        drawn = draw(st.lists(SHARD, max_size=4))
        shards = tuple(ShardInfo(index, *shard) for index, shard in enumerate(drawn))
        # Values of known statistics, such as "labels", are checked: these are of a later release.
        stats = {f"new_{key}": value for key, value in draw(JSON).items()}
        splits[name] = SplitInfo(name, shards, stats)
    rejects = draw(st.dictionaries(st.sampled_from(["corrupt", "truncated"]), st.integers(0, 9)))
    rest = draw(st.tuples(COUNT, JSON, TEXT, JSON))
    return Manifest("zoo", "1.0.0", SCHEMA, splits, rejects, *rest)


def small_manifest() -> Manifest:
    shards = (ShardInfo(0, 10, 1000, 7, "d0", 0, 0), ShardInfo(1, 9, 900, 8, "d1", 0, 0))
    splits = {"train": SplitInfo("train", shards)}
    rest = ({"corrupt": 2}, 21, {"seed": 3}, "f", {"input": "x"})
    return Manifest("zoo", "1.0.0", SCHEMA, splits, *rest)


def write_manifest(root: Path, **changes: Any) -> Path:
    (root / "manifest.json").write_bytes(seal(small_manifest().to_json() | changes))
    return root


@given(manifests())
def test_it_comes_back(tmp_path_factory: pytest.TempPathFactory, manifest: Manifest) -> None:
    root = Folder(str(tmp_path_factory.getbasetemp() / "manifest"))
    root.write_bytes("manifest.json", manifest.to_bytes())
    assert read_manifest(root) == manifest
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_its_sums() -> None:
    manifest = small_manifest()
    assert (manifest.num_records, manifest.num_bytes) == (19, 1900)
    names = [ShardName("zoo", "train", 0, 2), ShardName("zoo", "train", 1, 2)]
    assert manifest.shard_names("train") == names
    with pytest.raises(KeyError):
        manifest.shard_names("test")


def test_open_is_reading_the_manifest(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    for address in (str(tmp_path), f"file://{tmp_path}"):
        dataset = sw.open(address)
        assert dataset.to_json() == small_manifest().to_json()
        assert (dataset.root.uri, dataset.class_names) == (str(tmp_path), ("ape", "Löwe"))


def test_odd_file_names_survive(tmp_path: Path) -> None:
    """Python decodes file names that are not UTF-8 with lone surrogates."""
    odd = os.fsdecode(b"caf\xe9")
    write_manifest(tmp_path, provenance={"input": odd})
    assert read_manifest(Folder(str(tmp_path))).provenance == {"input": odd}


def test_an_unfinished_build_says_how_to_finish_it(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    what = (
        "holds an unfinished build (no manifest.json): run the same `shardwright build` command "
        "again to resume it"
    )
    with pytest.raises(NotADatasetError, match=re.escape(what)):
        read_manifest(Folder(str(tmp_path)))


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "1"])
def test_another_format_version(version: object, tmp_path: Path) -> None:
    write_manifest(tmp_path, format_version=version)
    what = (
        f"has format version {version!r}; this shardwright reads version {FORMAT_VERSION}: "
        "install the release that wrote it, or rebuild"
    )
    with pytest.raises(NotADatasetError, match=re.escape(what)):
        read_manifest(Folder(str(tmp_path)))


@pytest.mark.parametrize(("text", "what"), [
    ("", "is not readable JSON"),
    ("{", "is not readable JSON"),
    ("\xff", "is not readable JSON"),
    ("[]", r"is damaged \(\$: expected object, got array\)"),
    ("3", r"is damaged \(\$ is 3: expected object, got int\)"),
    ("{} x", "is not readable JSON"),
    ("\xef\xbb\xbf[]", r"is damaged \(\$: expected object, got array\)"),
    ('{"a": 1, "a": 2}', r"is not readable JSON \(the key 'a' comes twice\)"),
])  # fmt: skip
def test_damaged_json(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(NotADatasetError, match=f"manifest.json {what}.*: copy it again"):
        read_manifest(Folder(str(tmp_path)))


SOUND = {"name": "x", "kind": "sound", "source": "id"}
SHARDS = ([{"index": 0}], [{"index": 0, "num_records": 1, "more": 2}])


@pytest.mark.parametrize("changes", [
    {"schema": None},
    {"schema": {"features": [SOUND], "class_names": []}},
    {"schema": {"features": [SCHEMA.features[0].to_json()] * 2, "class_names": []}},
    {"splits": []},
    *({"splits": {"train": {"shards": shards, "stats": {}}}} for shards in SHARDS),
], ids=range(6))  # fmt: skip
def test_a_damaged_manifest(changes: dict[str, Any], tmp_path: Path) -> None:
    write_manifest(tmp_path, **changes)
    what = r"manifest\.json is damaged \(.*\$.*: .*\): rebuild"
    with pytest.raises(NotADatasetError, match=what):
        read_manifest(Folder(str(tmp_path)))


NEEDED = small_manifest().to_json().keys() - {"format_version", "num_records", "num_bytes"}


@pytest.mark.parametrize("key", sorted(NEEDED))
def test_a_manifest_that_lacks_a_part(key: str, tmp_path: Path) -> None:
    content = small_manifest().to_json()
    del content[key]
    (tmp_path / "manifest.json").write_bytes(seal(content))
    what = rf"manifest\.json is damaged \(\$: object missing required field {key}\): rebuild"
    with pytest.raises(NotADatasetError, match=what):
        read_manifest(Folder(str(tmp_path)))


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(StorageError, match=r"manifest\.json cannot be read: Is a directory"):
        read_manifest(Folder(str(tmp_path)))


def test_json_files_have_a_fixed_form(tmp_path: Path) -> None:
    Folder(str(tmp_path)).write_bytes("a.json", json_bytes({"b": "é", "a": [1]}))
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n "b": "é",\n "a": [\n  1\n ]\n}\n'


def test_files_are_indented_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"a": [{"b": 1.5e300, "c": [], "d": {}, "e": "\u00e9\ud800\n"}, [None, True]], "f": 1}
    expected = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    number = json.dumps({"a": math.nan}, indent=1) + "\n"
    assert json_bytes({"a": math.nan}) == number.encode()
    monkeypatch.setattr(json.encoder, "_make_iterencode", None)  # the encoder in Python
    assert json_bytes(content) == expected.encode("utf-8", "surrogatepass")
