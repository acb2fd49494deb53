"""Erasures met by other writers and readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.versions import number_of, read_version
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.leftovers import find_leftovers, remove_leftovers
from shardwright.transforms.erasure.traces import finished_generations
from shardwright.transforms.versions.additions import Append, hash_of_shards
from shardwright.transforms.versions.changes import Operation, VersionChange
from shardwright.transforms.versions.commit import commit
from tests.support.build_helpers import stamps_of
from tests.transforms.erasure.grown import (
    GONE,
    assert_holds,
    check,
    contents,
    erase,
    make_grown,
)
from tests.transforms.versions.histories import append, append_change, wanted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_grown(tmp_path / "out")


@pytest.mark.long
def test_a_generation_that_is_committed_later(root: Path) -> None:
    """It was finished before the erasure, and its rows to take away were found before it."""
    folder, newest = Folder(str(root)), contents()[3]
    change = append_change(root, {"t0": 50, "t1": 51, "t2": 52}, ["r0", "r3", "s3"], "late")
    assert erase(root, *GONE, "t1") == 0
    assert number_of(commit(folder, change)) == 4
    left = newest | {"t0": 50, "t2": 52}
    assert_holds(root, {4: {n: s for n, s in left.items() if n not in (*GONE, "r0", "s3")}})
    assert check(root) == 0


@pytest.mark.long
def test_a_compaction_that_is_committed_later(root: Path) -> None:
    folder, base = Folder(str(root)), read_version(Folder(str(root)))
    change = append_change(root, contents()[3], [], "whole", base)
    replaced = frozenset(base.history["generations"])
    whole = VersionChange(Operation.COMPACT, base, change.folder, change.added, replaced)
    assert erase(root, *GONE) == 0
    append(root, {"t0": 50}, ["r5"])
    commit(folder, whole)
    newest = {name: seed for name, seed in contents(*GONE)[3].items() if name != "r5"}
    assert_holds(root, {5: newest | {"t0": 50}})


def test_a_version_that_is_committed_between_rounds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards and rows are those from before; the version is brought up to date."""
    from shardwright.transforms.versions import commit as module

    late = append_change(root, {"t0": 50}, ["r0"], "late")
    monkeypatch.setattr(
        Folder, "create_bytes", _after(lambda: erase(root, *GONE), Folder.create_bytes)
    )
    number = number_of(module.commit(Folder(str(root)), late))
    left = {name: seed for name, seed in contents(*GONE)[3].items() if name != "r0"}
    assert_holds(root, {number: left | {"t0": 50}})


def _after(first: Any, then: Any) -> Any:
    """Return a function that runs `first` before its first call."""
    begun: list[int] = []

    def run(folder: Folder, name: str, data: bytes) -> None:
        if not begun and "versions/" in name:
            begun.append(1)
            assert first() == 0
        then(folder, name, data)

    return run


def test_a_reader_fails_or_reads_the_same(root: Path) -> None:
    """One has all shards open, the other none yet."""
    options: dict[str, Any] = {"global_batch_size": 30, "epochs": 2, "remainder": "keep"}
    with sw.Reader(str(root), "train", **options) as one, sw.Reader(str(root), **options) as other:
        batches = iter(one)
        first = next(batches)
        assert erase(root, *GONE) == 0
        again, state = next(batches), one.state()
        with pytest.raises(StorageError, match=r"manifest (states|says)"):
            next(iter(other))
    with pytest.raises(UsageError, match="this state is of other records"):
        sw.Reader(str(root), "train", **options, state=state)
    pairs = [dict(zip(b["id"], map(bytes, b["image"]), strict=True)) for b in (first, again)]
    assert pairs[0] == pairs[1] == {n: image for n, (image, _) in wanted(contents()[3]).items()}


def test_an_append_whose_worker_commits_after_an_erasure(root: Path) -> None:
    """It reads its base again, whose rows have other numbers than those that it compared."""
    base = read_version(Folder(str(root)))
    late = Append(
        Folder(str(root)), 3, "generations/00004-late", False, hash_of_shards(base), False
    )
    assert late.read_base() == base
    assert erase(root, *GONE) == 0
    with pytest.raises(BuildError, match=r"has rewritten shards of version 3 .* run this command"):
        late.read_base()


@pytest.mark.long_but_first
@pytest.mark.parametrize("lost", ["index/train-*", "grown-train.tfrecord-*"])
def test_a_generation_that_lost_files_before_its_commit(root: Path, lost: str) -> None:
    """As by an erasure beside the end of its build; nobody can commit or mend it."""
    change = append_change(root, {"t0": 50, "t1": 51}, [], "late")
    folder = root / change.folder
    next(folder.glob(lost)).unlink()
    assert erase(root, *GONE, "t1", also=("--allow-missing",)) == 0
    assert not folder.exists()
    assert check(root) == 0
    with pytest.raises(BuildError, match="lost files before it was committed"):
        commit(Folder(str(root)), change)


def test_a_damaged_generation_of_a_version_stops_an_erasure(root: Path) -> None:
    append(root, {"t0": 50}, [])
    next(root.glob("generations/*/index/train-*")).unlink()
    assert erase(root, *GONE) == 1


def test_a_build_that_goes_on_while_its_leftovers_are_listed(root: Path) -> None:
    """It writes its plan and an index after the first listing: none is found without the plan."""
    generation = root / "generations" / "00004-x"
    (generation / "index").mkdir(parents=True)

    class Building(Folder):
        def below(self, name: str) -> Folder:
            return Building(self.path(name))

        def names(self, below: str = "") -> list[str]:
            found = super().names(below)
            if self.uri == str(generation):
                (generation / "plan.json").write_text("{}")
                (generation / "index" / "train-00000-of-00001.parquet").write_text("")
            return found

    found = find_leftovers(Building(str(root)), finished_generations(Folder(str(root))))
    assert found == ["generations/00004-x/plan.json"]


def test_leftovers_that_are_those_of_a_version_by_now_stay(root: Path) -> None:
    folder, before = Folder(str(root)), stamps_of(root)
    generation = read_version(folder).folders[-1]
    files = [name for name in before if name.startswith(f"{generation}/")]
    (root / generation / "spool").mkdir(exist_ok=True)
    (root / generation / "spool" / "images.bin").write_text("")
    remove_leftovers(folder, [*files, f"{generation}/spool/images.bin"])
    assert stamps_of(root) == before
