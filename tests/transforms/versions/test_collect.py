"""Old versions are removed, and nothing that a kept one needs."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, NotADatasetError, UsageError
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import notice_file
from shardwright.format.notes import Note, noted
from shardwright.format.pins import Pin, add_pin
from shardwright.format.versions import number_of, read_version, read_versions, version_numbers
from shardwright.inspect.cli import main as command
from shardwright.pipelines.commands.append import append_version
from shardwright.pipelines.commands.collect import main
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.collect import Collection, collect, plan_collection
from shardwright.transforms.versions.commit import Operation, VersionChange, commit
from tests.support.build_helpers import leftovers_of, stamps_of
from tests.support.growing import Grown, Source
from tests.support.tfrecord_makers import source_of
from tests.transforms.versions.histories import append, append_change, pictures_of, wanted, write

FIRST = {f"r{number}": number for number in range(9)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset whose second version replaces a record, and whose third has all anew."""
    root = tmp_path_factory.mktemp("made") / "out"
    write(FIRST, root)
    append(root, {"r3": 20})
    base = read_version(Folder(str(root)))
    change = append_change(root, {**FIRST, "r3": 20}, [], "whole")
    whole = VersionChange(Operation.COMPACT, base, change.folder, change.added)
    commit(Folder(str(root)), whole)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Return a copy of that dataset."""
    return Path(shutil.copytree(made, tmp_path / "out"))


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
    # A glob over the shards that are gone goes on to fail with the cause.
    assert left == {"versions", "generations", notice_file("grown", "train")}
    assert [path.name for path in (root / "generations").iterdir()] == ["00003-whole"]
    assert gc(capsys, root, "--keep", 1, "--yes")["files"] == []
    append(root, {"new": 5})
    assert list(version_numbers(Folder(str(root)))) == [1, 2, 3, 4]
    assert pictures_of(root) == wanted({**FIRST, "r3": 20, "new": 5})


@pytest.mark.parametrize("folder", ["", "generations/00002-x"])
def test_what_a_repair_has_left_goes_with_its_generation(root: Path, folder: str) -> None:
    left = ["out-train.tfrecord-00000-of-00003", "mended/out-train.tfrecord-00000-of-00003"]
    left += ["fresh/index/train-00000-of-00003.parquet"]
    for name in left:
        path = root / folder / "staged" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (root / folder / "staged" / "notes.txt").write_text("a file of the user")
    assert main([str(root), "--keep", "1", "--yes"]) == 0
    there = [path.name for path in (root / folder / "staged").rglob("*") if path.is_file()]
    assert there == ["notes.txt"]


def test_a_dataset_without_its_first_version_is_finished(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gc(capsys, root, "--keep", 1, "--yes")
    assert source_of(root).name == "dataset"
    assert command(["watch", str(root), "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["phase"], found["done"]["records"]) == ("published", len(FIRST))


def test_a_stopped_collection_goes_on(root: Path) -> None:
    folder = Folder(str(root))
    found = plan_collection(folder, 1)
    collect(folder, replace(found, generations=()))  # as if it was stopped before the files
    again = plan_collection(folder, 1)
    assert (again.versions, again.generations) == ((1,), found.generations)
    assert collect(folder, again) == again
    assert plan_collection(folder, 1) == Collection((), ())


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


def test_a_pinned_version_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(str(root))
    add_pin(folder, "one", 2)
    add_pin(folder, "newest", 3)
    found = gc(capsys, root, "--keep", 1, "--yes")
    assert (found["versions"], found["generations"]) == ([], [])  # the second needs the first's
    assert [(pin["name"], pin["version"]) for pin in found["pins"]] == [("one", 2)]
    assert pictures_of(root, version=2) == wanted({**FIRST, "r3": 20})
    assert main([str(root), "--keep", "1"]) == 0
    assert "kept by a pin: version 2 (one)" in capsys.readouterr().out
    over = Pin("one", 2, "2026-01-01T00:00:00+00:00", date(2026, 1, 1))
    folder.write_bytes("versions/pins/one.json", over.to_bytes())
    assert gc(capsys, root, "--keep", 1)["versions"] == [1, 2]
    folder.write_bytes("versions/pins/one.json", b"damaged")
    assert main([str(root), "--keep", "1", "--yes"]) == 1
    assert len(list(read_versions(folder))) == 3


@pytest.mark.parametrize(("pinned", "removed"), [(1, [2]), (2, []), (3, [1, 2])])
def test_a_pin_made_after_the_plan_counts(root: Path, pinned: int, removed: list[int]) -> None:
    folder = Folder(str(root))
    before = pictures_of(root, version=pinned)
    found = plan_collection(folder, 1)
    add_pin(folder, "late", pinned)
    done = collect(folder, found)
    assert list(done.versions) == removed  # the second version needs the first one's generation
    assert [pin.version for pin in done.pins] == [pinned] * (pinned < 3)
    assert pictures_of(root, version=pinned) == before
    assert not [path for path in (root / "versions").iterdir() if path.name.startswith(".")]


def orphan(root: Path, age_hours: float) -> VersionChange:
    """Write a generation whose commit is late, and return the change."""
    change = append_change(root, {"new": 3}, [], "late")
    (root / change.folder / "spool").mkdir(exist_ok=True)
    (root / change.folder / "spool" / f"{'0' * 32}.known").write_bytes(b"left")
    for path in (root / change.folder).rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - age_hours * 3600))
    return change


@pytest.mark.parametrize(
    ("age_hours", "words", "is_removed"),
    [
        (23, [], False),
        (25, [], True),
        (49, ["--orphans-after", 48.5], True),
        (48, ["--orphans-after", 48.5], False),
    ],
)
def test_old_leftovers_are_removed(
    root: Path, age_hours: float, words: list[Any], is_removed: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    late = orphan(root, age_hours)
    found = gc(capsys, root, "--keep", 9, *words)
    assert found["orphans"] == [late.folder] * is_removed
    assert (found["versions"], found["generations"]) == ([], [])
    assert f"{late.folder}/spool/{'0' * 32}.known" in [*found["files"]] or not is_removed
    assert gc(capsys, root, "--keep", 9, "--yes", *words) == {**found, "removed": True}
    assert (root / late.folder).exists() != is_removed
    if not is_removed:
        assert number_of(commit(Folder(str(root)), late)) == 4
        return
    with pytest.raises(BuildError, match=r"00004-late lost files before .* this command again"):
        commit(Folder(str(root)), late)
    assert list(version_numbers(Folder(str(root)))) == [1, 2, 3]


def test_an_orphan_that_is_about_to_be_committed_stays(root: Path) -> None:
    folder, late = Folder(str(root)), orphan(root, 30)
    found = plan_collection(folder, 9)
    with noted(folder, Note.COMMIT, [late.folder]):
        assert collect(folder, found).generations == ()
    assert number_of(commit(folder, late)) == 4
    assert collect(folder, found).generations == ()
    assert pictures_of(root) == wanted({**FIRST, "r3": 20, "new": 3})


def test_an_orphan_that_goes_on_being_written_stays(root: Path) -> None:
    folder, late = Folder(str(root)), orphan(root, 30)
    found = plan_collection(folder, 9)
    os.utime(root / late.folder / "plan.json")
    assert collect(folder, found).generations == ()
    assert plan_collection(folder, 9).generations == ()


@pytest.mark.parametrize("lost", ["manifest.json", "plan.json", "index/*", "*.tfrecord*", ""])
def test_a_commit_checks_its_generation(root: Path, lost: str) -> None:
    folder, late = Folder(str(root)), orphan(root, 0)
    for path in [*(root / late.folder).glob(lost)] if lost else []:
        path.unlink()
    removing = [] if lost else [late.folder]
    with noted(folder, Note.REMOVE, removing), pytest.raises(BuildError, match="lost files before"):
        commit(folder, late)
    assert list(version_numbers(folder)) == [1, 2, 3]


_COLLECT = """
import glob, math, os
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.collect import collect, plan_collection

def remove(record):
    if record.id == "{id}" and not os.path.exists("{done}"):
        open("{done}", "x").close()
        while glob.glob("{root}/generations/*/plan.json"):  # one that is being written stays
            root = Folder("{root}")
            collect(root, plan_collection(root, 9, clock=lambda: math.inf))
    return record
"""


@pytest.mark.parametrize("number", [10, 13, 15])
def test_an_append_whose_generation_is_removed_says_why(tmp_path: Path, number: int) -> None:
    """While any of its records is made, as if its files were old."""
    root, code = tmp_path / "out", tmp_path / "code.py"
    names = {"root": root, "done": tmp_path / "done", "id": f"cat/{number}.png"}
    code.write_text(_COLLECT.format(**names))
    grown = Grown(Folder(str(root)), ("--records-per-shard", "2", "--transform", f"{code}:remove"))
    source = Source(tmp_path / "photos")
    source.change({f"cat/{one}.png": one for one in range(4)})
    grown.append(source)
    source.change({f"cat/{one}.png": one for one in range(10, 16)})
    why = r"plan.json is gone, because `shardwright gc` or .*: run the same command again"
    with pytest.raises(BuildError, match=why):
        grown.append(source)
    assert number_of(grown.append(source)) == 2


@pytest.fixture
def grown(tmp_path: Path) -> tuple[Grown, Source]:
    """Return a dataset, and its folder of images with a new one."""
    grown = Grown(Folder(str(tmp_path / "out")), ("--records-per-shard", "2"))
    source = Source(tmp_path / "photos")
    source.change({f"cat/{one}.png": one for one in range(4)})
    grown.append(source)
    source.change({"cat/new.png": 5})
    return grown, source


def generation_of(root: Path) -> str:
    [folder] = root.glob("generations/*")
    return str(folder.relative_to(root))


def test_the_generation_of_a_running_append_stays(
    grown: tuple[Grown, Source],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the clock of the machine that collects is three days ahead."""
    dataset, source = grown
    job, root = dataset.prepare(source), Path(dataset.root.uri)
    ahead = time.time() + 3 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert gc(capsys, root, "--keep", 9, "--yes")["orphans"] == []
    monkeypatch.undo()
    assert number_of(append_version(job)) == 2
    assert leftovers_of(root) == []


def test_the_generation_of_a_killed_append_stays_for_a_day(
    grown: tuple[Grown, Source], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, source = grown
    dataset.prepare(source)
    root = Path(dataset.root.uri)
    folder = generation_of(root)
    assert gc(capsys, root, "--keep", 9, "--yes")["orphans"] == []
    for path in (root / folder).rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - 25 * 3600))
    found = gc(capsys, root, "--keep", 9, "--yes")
    assert (found["orphans"], found["left"]) == ([folder], [])
    assert not (root / folder).exists()
    assert number_of(dataset.append(source)) == 2
    assert leftovers_of(root) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--keep", "0"),
        *(("--keep", "1", "--orphans-after", hours) for hours in ("23.9", "nan", "1e9")),
    ],
)
def test_wrong_numbers(root: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(root), *words])


def test_a_folder_that_comes_back_after_the_plan_stays(root: Path) -> None:
    """A late commit of the second version's generation, which the compaction has replaced."""
    folder = Folder(str(root))
    base, again = read_version(folder, 1), "generations/00002-x"
    late = VersionChange(
        Operation.APPEND, base, folder=again, added=read_manifest(folder.below(again))
    )
    found = plan_collection(folder, 1)
    assert again in [one.folder for one in found.generations]
    commit(folder, late)
    assert again not in [one.folder for one in collect(folder, found).generations]
    assert pictures_of(root) == wanted({**FIRST, "r3": 20})


def test_the_file_of_a_version_that_is_lost(root: Path) -> None:
    """Later versions stay, and nothing is removed that the lost one may need."""
    lost = root / "versions" / "00002.json"
    lost.unlink()
    with pytest.raises(NotADatasetError, match=f"{lost} is missing, but later versions exist"):
        plan_collection(Folder(str(root)), 1)
    append(root, {"new": 5})
    assert list(version_numbers(Folder(str(root)))) == [1, 2, 3, 4]
    assert pictures_of(root) == wanted({**FIRST, "r3": 20, "new": 5})
