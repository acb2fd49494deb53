"""`verify` and `repair` of a dataset that has grown: no file of any version is passed over."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from shardwright.format.naming import notice_file
from shardwright.format.pins import Pin, add_pin, read_pins
from shardwright.format.versions import read_version
from shardwright.inspect.cli import main
from shardwright.inspect.faults import Verification
from shardwright.inspect.verify import verify, verify_built
from shardwright.inspect.version_check import verify_versions
from shardwright.pipelines.commands import repair
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.collect import collect, plan_collection
from shardwright.transforms.versions.commit import Operation, VersionChange, commit
from tests.support.build_helpers import files_below, is_report
from tests.transforms.versions.histories import append, append_change, write

FIRST = {f"r{number}": number for number in range(6)}
OLDER = "generations/00002-x"  # only version 2 names it
WHOLE = "generations/00003-whole"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset whose third version has all records anew, and whose second is pinned."""
    root = tmp_path_factory.mktemp("grown") / "out"
    write(FIRST, root)
    base = append(root, {"r3": 20})
    change = append_change(root, {**FIRST, "r3": 20}, [], "whole")
    whole = VersionChange(Operation.COMPACT, base, change.folder, change.added)
    commit(Folder(str(root)), whole)
    add_pin(Folder(str(root)), "training", 2)
    return root


@pytest.fixture
def root(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown, tmp_path / "out"))


def faulty(root: Path, **options: bool) -> set[str]:
    return {fault.file for fault in verify(str(root), **options).faults}


@pytest.mark.long
@pytest.mark.weight(10)
def test_a_mutation_of_any_file_of_any_version_is_placed(
    grown: Path, rng: np.random.Generator
) -> None:
    assert verify(str(grown)).is_sound
    files = files_below(grown)
    assert {f"{OLDER}/plan.json", "plan.json", "versions/pins/training.json"} < files.keys()
    for name, path in files.items():
        whole = path.read_bytes()
        offset = int(rng.integers(len(whole)))
        byte = bytes([whole[offset] ^ int(rng.integers(1, 256))])
        path.write_bytes(whole[:offset] + byte + whole[offset + 1 :])
        assert faulty(grown) == (set() if is_report(name) else {name}), (name, offset, byte)
        in_newest = name.startswith(WHOLE) and not is_report(name)
        if name != "versions/00003.json":
            assert bool(faulty(grown, newest=True)) == in_newest, name
        path.write_bytes(whole)


def test_a_version_without_its_checksum_is_damaged(root: Path) -> None:
    file = root / "versions/00002.json"
    file.write_bytes(file.read_bytes().replace(b'"checksum"', b'"checksun"'))
    assert faulty(root) == {"versions/00002.json"}


def test_what_is_missing_of_older_versions_is_named(root: Path) -> None:
    (root / "versions/00002.json").unlink()
    assert faulty(root) == {"versions/00002.json"}
    (root / "manifest.json").unlink()  # as after `gc`: version 2, which names it, is gone
    assert faulty(root) == {"versions/00002.json"}
    assert not faulty(root, newest=True)


def test_a_manifest_that_is_that_of_a_version_is_a_fault(root: Path) -> None:
    shutil.copy(root / "versions/00003.json", root / OLDER / "manifest.json")
    assert faulty(root) == {f"{OLDER}/manifest.json"}


def test_an_older_version_that_does_not_fit_its_generations(root: Path) -> None:
    folder = Folder(str(root))
    version = read_version(folder, 2)
    train = version.splits["train"]
    other = tuple(replace(one, crc32c=one.crc32c ^ 1) for one in train.shards[:1])
    whole = replace(train, shards=other + train.shards[1:])
    changed = replace(version, splits={"train": whole})
    folder.write_bytes("versions/00002.json", changed.to_bytes())
    [fault] = verify(str(root)).faults
    [name, *_] = version.shard_names("train")
    what = f"{name.shard} is not the shard of its generation"
    assert str(fault) == f"versions/00002.json: {what}"


def test_pins_are_checked(root: Path) -> None:
    folder, pins = Folder(str(root)), root / "versions/pins"
    before = {"version": 1, "created": "2026-11-20T00:00:00+00:00", "until": None}
    over = Pin("over", 9, before["created"], date(2026, 1, 1))  # type: ignore[arg-type]
    folder.write_bytes("versions/pins/over.json", over.to_bytes())
    assert len(read_pins(folder)) == 2
    assert verify(str(root)).is_sound
    folder.write_bytes("versions/pins/lost.json", replace(over, until=None).to_bytes())
    (pins / "renamed.json").write_text(json.dumps({**before, "checksun": 1}))
    (pins / "list.json").write_text("[]")
    broken = ("lost", "renamed", "list")
    assert faulty(root) == {f"versions/pins/{name}.json" for name in broken}


def test_a_generation_that_no_version_names_is_a_note(root: Path) -> None:
    append_change(root, {"later": 8}, [], "y")
    found = verify(str(root))
    assert found.is_sound
    assert "generations/00004-y: no version names it" in str(found.notes[0])


def test_versions_that_gc_removes_meanwhile_are_left_out(root: Path) -> None:
    folder = Folder(str(root))
    (root / "versions/pins/training.json").unlink()

    def check(generation: Folder) -> Verification:
        if generation.uri.endswith(OLDER):
            collect(folder, plan_collection(folder, 1))
        return verify_built(generation)

    found = verify_versions(folder, check)
    assert (found.faults, found.num_records) == ((), len(FIRST))
    assert not (root / OLDER).exists()


def test_repair_mends_what_any_version_names(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"features.json", f"{OLDER}/features.json", f"{WHOLE}/stats.json"}
    broken.add(notice_file("grown", "train"))
    sound = {name: path.read_bytes() for name, path in files_below(root).items()}
    for name in broken:
        (root / name).write_bytes(b"{}")
    assert main(["verify", str(root)]) == 1
    assert main(["verify", str(root), "--quick", "--newest"]) == 1
    assert repair.main([str(root)]) == 0
    assert {name: path.read_bytes() for name, path in files_below(root).items()} == sound
    capsys.readouterr()
    (root / "versions/00002.json").write_bytes(b"{}")
    (root / f"{WHOLE}/features.json").write_bytes(b"{}")
    assert repair.main([str(root), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["repaired"] == {f"{WHOLE}/features.json": "repaired"}
    assert list(told["failed"]) == ["versions/00002.json"]


def test_repair_goes_on_after_a_lost_manifest(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / OLDER / "manifest.json").unlink()
    (root / f"{WHOLE}/features.json").write_bytes(b"{}")
    assert repair.main([str(root)]) == 1
    assert f"{OLDER}/manifest.json: NOT repaired" in capsys.readouterr().out
    assert faulty(root) == {f"{OLDER}/manifest.json"}
