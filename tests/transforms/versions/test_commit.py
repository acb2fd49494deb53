"""Versions of a dataset: committed one after another, or by writers at the same time."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import BuildError, UsageError
from shardwright.format.index import read_index_of
from shardwright.format.manifest import read_manifest
from shardwright.format.versions import number_of, read_version, version_numbers
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.commit import Operation, commit
from tests.support.build_helpers import stamps_of
from tests.support.random_tests import examples
from tests.transforms.versions.histories import (
    append,
    append_change,
    pictures_of,
    wanted,
    write,
)

FIRST = {f"r{number}": number for number in range(10)}
KEYS = st.sampled_from([f"r{number}" for number in range(14)])
STEPS = st.lists(
    st.tuples(
        st.dictionaries(KEYS, st.integers(0, 50), max_size=5),
        st.lists(KEYS, max_size=4, unique=True),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("first") / "out"
    write(FIRST, root)
    return root


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    shutil.copytree(first, tmp_path / "out")
    return tmp_path / "out"


def test_records_are_added_replaced_and_taken_away(root: Path) -> None:
    version = append(root, {"r3": 20, "new": 21}, removed=["r5", "unknown"])
    content = {**FIRST, "r3": 20, "new": 21}
    del content["r5"]
    assert pictures_of(root) == wanted(content)
    assert {key: version.history[key] for key in ("version", "added", "removed")} == {
        "version": 2,
        "added": 2,
        "removed": 2,
    }
    assert (version.num_records, version.splits["train"].stats["width"]["count"]) == (10, 10)
    labels = sw.open(str(root)).class_counts("train")
    assert labels == {
        name: sum(s % 3 == n for s in content.values()) for n, name in enumerate("abc")
    }
    assert pictures_of(root, version=1) == wanted(FIRST)
    assert pictures_of(root, version=version.history["created"][:10]) == wanted(content)


@pytest.mark.long
@examples(6)
@given(steps=STEPS)
def test_any_history_has_the_records_of_its_last_state(
    steps: list[tuple[dict[str, int], list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("history") / "out"
    write(FIRST, root)
    states = [dict(FIRST)]
    for number, (content, removed) in enumerate(steps):
        state = {name: seed for name, seed in states[-1].items() if name not in removed} | content
        if not state:
            return
        change = append_change(root, content, removed, f"s{number}")
        if number_of(commit(Folder(str(root)), change)) > len(states):
            states.append(state)
        assert state == states[-1]
    for number, state in enumerate(states, start=1):
        assert pictures_of(root, version=number) == wanted(state)
        shuffled = pictures_of(root, version=number, shuffle=True, seed=3)
        assert list(shuffled) != list(state) or len(state) < 9  # by chance
        assert shuffled == wanted(state)


def test_of_two_writers_none_loses_its_commit(root: Path) -> None:
    base = read_version(Folder(str(root)))
    one = append_change(root, {"r1": 30, "x": 31}, ["r2"], "one", base)
    other = append_change(root, {"r1": 40, "y": 41}, ["r3"], "other", base)
    commit(Folder(str(root)), one)
    commit(Folder(str(root)), other)
    content = {**FIRST, "r1": 40, "x": 31, "y": 41}
    del content["r2"], content["r3"]
    assert pictures_of(root) == wanted(content)
    assert list(version_numbers(Folder(str(root)))) == [1, 2, 3]


def test_names_that_two_writers_add_are_all_there(root: Path) -> None:
    base = read_version(Folder(str(root)))
    words = {"color": ("red", "blue", "green")}
    for number, names in enumerate(
        ({"class_names": ("a", "b", "c", "d")}, {"vocabularies": words})
    ):
        change = append_change(root, {f"x{number}": 30}, [], f"x{number}", base)
        assert change.added is not None
        added = replace(change.added, schema=replace(change.added.schema, **names))
        schema = commit(Folder(str(root)), replace(change, added=added)).schema
    assert (schema.class_names, schema.vocabularies) == (("a", "b", "c", "d"), words)


def test_a_compaction_counts_what_is_left_of_appends_that_came_meanwhile(root: Path) -> None:
    append(root, {"x": 1})
    folder = Folder(str(root))
    base = read_version(folder)
    whole = append_change(root, {**FIRST, "x": 1}, [], "whole", base)
    later = {f"y{number}": number for number in range(8)}  # two shards
    version = commit(folder, append_change(root, later, [], "later", base))
    shard = next(name for name, info in version.named_shards() if info.folder.endswith("later"))
    gone = read_index_of(folder, shard, dict(version.named_shards())[shard], ["id"])["id"]
    commit(folder, append_change(root, {}, gone.to_pylist(), "less"))
    compacted = replace(whole, operation=Operation.COMPACT, outdated={})
    content = {
        **FIRST,
        "x": 1,
        **{name: later[name] for name in later.keys() - {*gone.to_pylist()}},
    }
    stats = commit(folder, compacted).splits["train"].stats
    assert pictures_of(root) == wanted(content)
    assert stats["width"]["count"] == len(content) == 15


def test_an_id_that_another_append_has_added_too(root: Path) -> None:
    """With --keep-missing it may be another image; one that both replace is the dataset's own."""
    folder = Folder(str(root))
    base = read_version(folder)
    first, second, third = (
        replace(append_change(root, content, [], token, base), keeps_places=True)
        for token, content in {"a": {"x": 1, "r1": 4}, "b": {"x": 2}, "c": {"r1": 5}}.items()
    )
    commit(folder, first)
    with pytest.raises(BuildError, match=r"added 1 image meanwhile .* INPUT, such as 'x': run"):
        commit(folder, second)
    commit(folder, third)
    assert pictures_of(root) == wanted({**FIRST, "x": 1, "r1": 5})


def test_a_repeated_commit_changes_nothing(root: Path) -> None:
    change = append_change(root, {"x": 3}, ["r1"], "x")
    assert commit(Folder(str(root)), change) == commit(Folder(str(root)), change)
    assert number_of(commit(Folder(str(root)), append_change(root, {}, ["r1", "gone"], "y"))) == 2


def test_part_of_a_split_and_a_condition_count_what_is_left(root: Path) -> None:
    append(root, {"x": 11}, removed=["r0", "r4", "r7"])
    every = list(pictures_of(root))
    assert list(pictures_of_part(root, "train[2:5]")) == every[2:5]
    assert set(pictures_of(root, where=pc.field("label") == 1)) == {"r1"}


def pictures_of_part(root: Path, part: str) -> list[str]:
    with sw.Reader(str(root), part, global_batch_size=100, epochs=1, remainder="keep") as reader:
        return [str(name) for batch in reader for name in batch["id"]]


def test_a_state_resumes_in_its_version_only(root: Path) -> None:
    with sw.Reader(str(root), global_batch_size=2, shuffle=True) as reader:
        batches = iter(reader)
        first = next(batches)["id"].tolist()
        state = reader.state()
        append(root, {"x": 11}, removed=["r0"])
        rest = [batch["id"].tolist() for batch, _ in zip(batches, range(4), strict=False)]
    with pytest.raises(UsageError, match="other records"):
        sw.Reader(str(root), global_batch_size=2, shuffle=True, state=state)
    with sw.Reader(str(root), global_batch_size=2, shuffle=True, state=state, version=1) as again:
        assert [batch["id"].tolist() for batch, _ in zip(again, range(4), strict=False)] == rest
    assert first not in rest


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (7, "has no version 7, but versions 1 to 2"),
        (0, "has no version 0"),
        ("2001-01-01", "has no version of 2001-01-01 or before"),
        ("yesterday", "must be a number, a day such as 2026-11-22"),
        (1.5, "must be a number"),
    ],
)
def test_a_version_that_is_not_there(root: Path, version: object, message: str) -> None:
    append(root, {"x": 11})
    with pytest.raises(UsageError, match=message):
        sw.open(str(root), version=version)  # type: ignore[arg-type]


def test_the_last_day_has_the_newest_version(root: Path) -> None:
    append(root, {"x": 11})
    assert number_of(read_version(Folder(str(root)), "9999-12-31")) == 2


def test_other_features_are_refused(root: Path) -> None:
    sw.write([{"id": "x", "size": 3}], str(root / "generations/00002-x"), name="grown")
    change = append_change(root, {}, [], "x")
    added = read_manifest(Folder(str(root / "generations/00002-x")))
    with pytest.raises(BuildError, match="does not fit grown"):
        commit(Folder(str(root)), replace(change, folder="generations/00002-x", added=added))
    assert list(version_numbers(Folder(str(root)))) == [1]


@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "error"])
def test_a_build_does_not_touch_a_dataset_that_has_grown(root: Path, if_exists: str) -> None:
    append(root, {"x": 11})
    before = stamps_of(root)
    with pytest.raises(BuildError, match=r"versions 1 to 2, .* use if_exists=.append."):
        write(FIRST, root, if_exists=if_exists)
    assert stamps_of(root) == before
