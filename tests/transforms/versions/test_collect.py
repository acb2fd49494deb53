"""Old versions are removed, and nothing that a kept one needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.collect_versions import main
from shardwright.errors import BuildError, UsageError
from shardwright.format.versions import number_of, read_version, version_numbers
from shardwright.storage.folder import Folder
from tests.support.build_helpers import stamps_of
from tests.transforms.versions.histories import append, append_change, pictures_of, wanted, write
from transforms.versions.changes import Operation, VersionChange
from transforms.versions.collect import collect, plan_collection
from transforms.versions.commit import commit

FIRST = {f"r{number}": number for number in range(9)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a dataset whose second version replaces a record, and whose third has all anew."""
    root = tmp_path / "out"
    write(FIRST, root)
    append(root, {"r3": 20})
    base = read_version(Folder(str(root)))
    change = append_change(root, {**FIRST, "r3": 20}, [], "whole")
    replaced = frozenset(base.history["generations"])
    whole = VersionChange(
        Operation.COMPACT, base, folder=change.folder, added=change.added, replaced=replaced
    )
    commit(Folder(str(root)), whole)
    return root


def gc(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert main([*map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_nothing_is_removed_without_yes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stamps_of(root)
    found = gc(capsys, root, "--keep", 1)
    assert (found["removed"], found["versions"]) == (False, [1, 2])
    assert found["generations"] == ["", "generations/00002-x"]
    assert stamps_of(root) == before


def test_a_kept_version_keeps_its_generations(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(root)
    assert gc(capsys, root, "--keep", 2, "--yes")["files"] == []
    assert stamps_of(root) == before
    assert pictures_of(root, version=2) == wanted({**FIRST, "r3": 20})


def test_what_no_kept_version_names_is_removed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = gc(capsys, root, "--keep", 1, "--yes")
    assert not [name for name in found["files"] if (root / name).exists()]
    assert pictures_of(root) == pictures_of(root, version=3) == wanted({**FIRST, "r3": 20})
    for number in (1, 2):
        with pytest.raises(UsageError, match=f"version {number} of .* removed by `shardwright gc`"):
            read_version(Folder(str(root)), number)
    left = {path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file()}
    assert left == {"versions", "generations"}
    assert [path.name for path in (root / "generations").iterdir()] == ["00003-whole"]
    assert gc(capsys, root, "--keep", 1, "--yes")["files"] == []
    append(root, {"new": 5})
    assert version_numbers(Folder(str(root))) == [1, 2, 3, 4]
    assert pictures_of(root) == wanted({**FIRST, "r3": 20, "new": 5})


def test_a_stopped_collection_goes_on(root: Path) -> None:
    folder = Folder(str(root))
    found = plan_collection(folder, 1)
    collect(folder, replace(found, folders=()))  # as if it was stopped before the files
    again = plan_collection(folder, 1)
    assert (again.versions, again.folders) == ((1,), found.folders)
    collect(folder, again)
    assert plan_collection(folder, 1).files == ()


def test_the_newest_version_is_collected_while_it_is_opened(root: Path) -> None:
    """Another one has been committed since the versions were listed."""

    class Late(Folder):
        def names(self, below: str = "") -> list[str]:
            found = super().names(below)
            if "00004.json" not in found:
                append(root, {"new": 5})
                collect(Folder(str(root)), plan_collection(Folder(str(root)), 1))
            return found

    assert number_of(read_version(Late(str(root)))) == 4


def test_an_append_whose_version_was_removed_meanwhile(root: Path) -> None:
    late = append_change(root, {"new": 3}, ["r1"], "late", read_version(Folder(str(root)), 2))
    folder = Folder(str(root))
    collect(folder, plan_collection(folder, 1))
    with pytest.raises(BuildError, match=r"version 2 of .* was removed by .* meanwhile"):
        commit(folder, late)


def test_the_newest_version_cannot_be_removed(root: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(root), "--keep", "0"])
