"""Erasures that are stopped, repeated, refused, or met by other writers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shardwright as sw
from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.notes import Note, is_noted, noted
from shardwright.format.pins import add_pin
from shardwright.format.versions import number_of, read_stated, read_version
from shardwright.inspect.cli import main as shardwright
from shardwright.pipelines.commands import erase as erase_command
from shardwright.pipelines.commands.erase import main
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure import remains
from shardwright.transforms.erasure.receipt import parse_ids
from shardwright.transforms.versions.collect import collect
from shardwright.transforms.versions.commit import commit
from tests.support.build_helpers import build, make_images, png_of, record_ids, stamps_of
from tests.support.canaries import canary, canary_png, find_canaries
from tests.support.growing import Grown, Source
from tests.support.judge import judge
from tests.support.kills import killed
from tests.support.repairs import build_plainly
from tests.transforms.erasure.grown import (
    FIRST,
    GONE,
    SECOND,
    THIRD,
    assert_holds,
    check,
    contents,
    erase,
    make_grown,
    state_of,
    told,
)
from tests.transforms.versions.histories import (
    Content,
    append,
    append_change,
    pictures_of,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_grown(tmp_path / "out")


def test_without_yes_nothing_changes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_pin(Folder(str(root)), "training", 2)
    before = stamps_of(root)
    (root.parent / "ids").write_text("r8\nr9\r\n\n")
    capsys.readouterr()
    words = [str(root), "--ids", str(root.parent / "ids")]
    assert main([*words, "--json"]) == 1
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert (shown["asked"], shown["found"], shown["num_records"]) == (2, 1, 1)
    assert (shown["copied_records"], shown["versions"], shown["pins"]) == (12, [1, 2], ["training"])
    assert shown["missing"] == ["r9"]
    assert "not found: r9" in output.err
    assert main([*words, "--allow-missing"]) == 0
    output = capsys.readouterr()
    assert "not found: r9" in output.err
    assert "Earlier versions end (1, 2), with 1 pin" in output.out
    assert stamps_of(root) == before


def test_the_newest_version_is_copied_and_all_others_end(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pin(Folder(str(root)), "training", 2)
    assert erase(root, *GONE) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "erases 4 records of 5 of 5 ids, and copies 9 records" in lines[0]
    assert_holds(root, contents(*GONE), 4)
    found = told(root)
    assert (len(found["found"]), found["num_records"]) == (5, 4)
    assert (found["versions"], found["pins"]) == ([1, 2, 3], ["training"])
    assert found["ended"] >= found["begun"]
    assert check(root) == 0
    append(root, {"t0": 50}, ["r0"])
    left = {name: seed for name, seed in contents(*GONE).items() if name != "r0"}
    assert pictures_of(root) == {**pictures_of(root, version=5)}
    assert pictures_of(root).keys() == left.keys() | {"t0"}


def test_ids_that_are_not_found_are_named_and_the_others_erased(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a record that only earlier versions have, whose bytes are in the newest one's shards.

    One that another id begins with stays: no transform made it.
    """
    assert erase(root, "r1", receipt="first.json") == 0
    assert_holds(root, contents(), 4)
    capsys.readouterr()
    append(root, {"r8#left": 60})
    assert erase(root, "r8", *(f"no{number:02}" for number in range(23))) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "shardwright: not found: no00" in lines
    assert lines[-1] == "shardwright: and 3 more"
    assert_holds(root, contents("r8") | {"r8#left": 60}, 6)
    assert erase(root, "r7", "r8", receipt="other.json", also=("--allow-missing",)) == 0
    assert_holds(root, contents("r7", "r8") | {"r8#left": 60}, 7)


def test_an_id_of_input_erases_what_a_transform_made_of_it(tmp_path: Path) -> None:
    """Also of an id that another one begins with, which stays."""
    source, root = tmp_path / "in", tmp_path / "out"
    for name, number in (("a/1.png", 1), ("a/2.png", 2), ("a/2.png.png", 3), ("b/2.png", 4)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(png_of(number))
    (tmp_path / "cut.py").write_text(
        "def cut(record):\n"
        "    for end in ('#left', '#left#top', '_whole'):\n"
        "        yield record.replace(id=record.id + end)\n"
    )
    build_plainly(source, root, "--name", "data", "--transform", f"{tmp_path}/cut.py:cut")
    assert erase(root, "a/2.png", "b/2.png#left") == 0
    assert told(root)["num_records"] == 4
    ends = ("#left", "#left#top", "_whole")
    kept = {f"{name}{end}" for name in ("a/1.png", "a/2.png.png") for end in ends}
    assert set(record_ids(root)) == kept | {"b/2.png#left#top", "b/2.png_whole"}
    assert check(root) == 0
    assert judge(str(root)).is_sound


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('["a", "b\\nc", "", "é"]', {"a", "b\nc", "é"}),
        ("[]", "has no ids"),
        ("a", "--ids ids.json is not readable JSON .*: write a JSON list of ids"),
        ('{"a": 1}', "write a JSON list of ids"),
        ("[1]", "write a JSON list of ids"),
        ('["\\ud800"]', "--ids ids.json cannot be read"),
    ],
)
def test_ids_as_json(text: str, wanted: set[str] | str) -> None:
    if isinstance(wanted, set):
        assert parse_ids(text.encode(), "ids.json") == wanted
        return
    with pytest.raises(UsageError, match=wanted):
        parse_ids(text.encode(), "ids.json")


@pytest.mark.long
@pytest.mark.weight(5)
@pytest.mark.parametrize("has_grown", [True, False])
def test_a_stop_at_any_change(tmp_path: Path, has_grown: bool, rng: np.random.Generator) -> None:
    root, after, is_dead = tmp_path / "out", int(rng.integers(9)), True
    make_grown(root) if has_grown else write(FIRST, root)
    gone = GONE if has_grown else ("r1", "r3", "r8")
    whole = tmp_path / "whole" / "out"
    shutil.copytree(root, whole)
    assert erase(whole, *gone) == 0
    while is_dead:
        place = tmp_path / f"stop{after}" / "out"
        shutil.copytree(root, place)
        with killed(after) as kill:
            erase(place, *gone)
        is_dead = kill.is_dead
        if is_dead:
            assert erase(place, *gone) == 0
        assert pictures_of(place) == pictures_of(whole)
        assert judge(str(place)).is_sound
        # The note of a killed commit stays for a day, as it could be that of one that goes on.
        files = [path for path in state_of(place) if f".{Note.COMMIT}-" not in path]
        assert sorted(map(_unsalted, files)) == sorted(map(_unsalted, state_of(whole)))
        assert len(told(place)["found"]) == len(gone)
        assert told(place)["num_records"] == told(whole)["num_records"]
        assert check(place) == 0
        after += 9
    assert after > 40


def _unsalted(path: str) -> str:
    """Return a path without the salt of the receipt in the folder of a generation."""
    return re.sub(r"-erase\w+", "-erase", path)


@pytest.mark.long_but_first
@pytest.mark.parametrize("options", [(), ("--signals", "--split", "train=0.5,test=0.5")])
def test_a_dataset_that_has_not_grown_is_replaced(options: tuple[str, ...], tmp_path: Path) -> None:
    """Its files stay where TFDS reads them, and an append and a repair find the build's options."""
    source, root = make_images(tmp_path / "in", 12), tmp_path / "out"
    words = ("--name", "data", "--records-per-shard", "4", *options)
    build_plainly(source, root, *words)
    before = read_version(Folder(str(root)))
    gone, other, *_ = record_ids(root)
    (root / "notes.txt").write_text("a file of the user")
    assert erase(root, gone) == 0
    after = read_version(Folder(str(root)))
    assert (after.settings, after.provenance) == (before.settings, before.provenance)
    assert set(record_ids(root)) == set(make_ids(source)) - {gone}
    assert not (root / "generations").exists()
    assert (root / "notes.txt").exists()
    assert judge(str(root)).is_sound
    assert check(root) == 0
    (source / gone).unlink()
    (source / other).unlink()
    assert build(source, root, *words, "--if-exists", "append") == 0
    assert set(pictures_ids(root)) == set(make_ids(source))


def make_ids(source: Path) -> list[str]:
    return [path.relative_to(source).as_posix() for path in source.rglob("*.png")]


def pictures_ids(root: Path) -> list[str]:
    found: list[str] = []
    for split in sw.open(str(root)).splits:
        with sw.Reader(str(root), split, global_batch_size=3, epochs=1, remainder="keep") as reader:
            found += (str(name) for batch in reader for name in batch["id"])
    return found


def test_an_erased_id_that_comes_again_is_found(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert erase(root, "r0") == 0
    append(root, {"r0": 0})
    (root / "spool").mkdir(exist_ok=True)
    (root / "spool" / "listed.parquet").write_bytes(b"of a later build")
    capsys.readouterr()
    assert check(root) == 1
    lines = capsys.readouterr().out
    assert "index/train-00000-of-00001.parquet has 1 of the ids" in lines
    assert "listed.parquet cannot be read" in lines


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        (["x"], 1, "erased 0 of 1 id"),
        ([*FIRST, *SECOND, *THIRD], 2, "no record of .* would be left"),
        ([], 2, "has no ids"),
    ],
)
def test_ids_that_cannot_be_erased(
    root: Path, ids: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of ids that are not found, all versions and pins stay."""
    add_pin(Folder(str(root)), "training", 2)
    before = state_of(root)
    assert erase(root, *ids) == code
    output = capsys.readouterr()
    assert re.search(message, output.out + output.err)
    assert (root.parent / "receipt.json").exists() == (code == 1)
    assert state_of(root) == before


def test_wrong_usage(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert erase(root, "r0") == 0
    assert erase(root, "r0") == 0  # a kill may come after its end
    assert erase(root, "r4") == 2  # the receipt is that of another run
    (tmp_path / "bad.json").write_text("{}")
    assert erase(root, "r4", receipt="bad.json") == 2
    assert main([str(root), "--verify", str(tmp_path / "none.json")]) == 2
    assert main([str(tmp_path), "--verify", str(tmp_path / "receipt.json")]) == 2
    capsys.readouterr()
    assert main([str(root), "--verify", str(tmp_path / "ids")]) == 2
    assert "give a receipt that `shardwright erase` has written" in capsys.readouterr().err
    assert erase(tmp_path / "nowhere", "r4", receipt="new.json") == 2
    assert not (tmp_path / "new.json").exists()
    for words in (["--ids", "x", "--yes"], ["--yes", "--receipt", "x"]):
        with pytest.raises(SystemExit, match="2"):
            main([str(root), *words])


@pytest.mark.parametrize("erased", ["first", "other"])
def test_a_damaged_record_stops_the_copy_unless_it_goes(erased: str, tmp_path: Path) -> None:
    source, root = make_images(tmp_path / "in", 6), tmp_path / "out"
    build_plainly(source, root, "--name", "data")
    first, *others = record_ids(root)
    [shard] = root.glob("*tfrecord*")
    shard.write_bytes(b"?" + shard.read_bytes()[1:])
    before = state_of(root)
    if erased == "first":
        assert erase(root, first) == 0
        assert record_ids(root) == others
    else:
        assert erase(root, others[0]) == 1
        files = {name for name in state_of(root) if not name.startswith("generations/")}
        assert files == before.keys()


def test_an_id_that_only_lists_name(tmp_path: Path) -> None:
    """A reject, and a near-duplicate."""
    source, root = tmp_path / "in", tmp_path / "out"
    for number in range(4):
        noise = np.random.default_rng(number).integers(0, 256, (9, 9), dtype=np.uint8)
        image = Image.fromarray(noise).convert("RGB").resize((72, 72), Image.Resampling.BICUBIC)
        (source / "a").mkdir(parents=True, exist_ok=True)
        image.save(source / f"a/{number}.png")
        if number < 2:
            image.save(source / f"a/{number}-again.png", compress_level=0, dpi=(99, 99))
    (source / "a/broken.png").write_bytes(b"no image")
    words = ("--name", "data", "--near-duplicates", "drop", "--max-reject-fraction", "0.5")
    build_plainly(source, root, *words)
    kept = set(record_ids(root))
    gone = {f"a/{name}.png" for name in ("0", "1", "0-again", "1-again")} - kept
    for number, name in enumerate(sorted(gone | {"a/broken.png"})):
        assert erase(root, name, receipt=f"{number}.json") == (number > 0)
        assert check(root, f"{number}.json") == 0
    assert set(record_ids(root)) == kept
    assert not any(name in path.read_text("latin-1") for name in gone for path in root.rglob("*.*"))
    assert judge(str(root)).is_sound


@pytest.mark.parametrize(
    ("has_grown", "content", "why"),
    [
        (True, {"t0": 50, "r3": 70}, r"lost files .* run this command again"),
        (False, {"t0": 50, "r3": 70}, r"not what it was when this command began.* run this"),
        (False, {}, r"not what it was when this command began.* run this"),
    ],
    ids=["grown", "adds", "only removes"],
)
def test_an_append_to_a_dataset_that_was_replaced_fails(
    tmp_path: Path, has_grown: bool, content: Content, why: str
) -> None:
    """Its generation was finished before the erasure, which removes it.

    A dataset that has not grown keeps the names of its shards, but not their rows.
    """
    root = tmp_path / "out"
    make_grown(root) if has_grown else write(FIRST, root)
    change = append_change(root, content, ["r0"], "late")
    assert erase(root, *(GONE if has_grown else ("r1", "r2"))) == 0
    assert not change.folder or not (root / change.folder).exists()
    with pytest.raises(BuildError, match=why):
        commit(Folder(str(root)), change)
    left = {name: seed for name, seed in FIRST.items() if name not in ("r1", "r2")}
    assert_holds(root, contents(*GONE) if has_grown else left, 4 if has_grown else 1)


@pytest.mark.parametrize("has_grown", [True, False])
def test_an_erasure_does_not_take_away_what_is_committed_just_now(
    tmp_path: Path, has_grown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    write(FIRST, root)
    if has_grown:
        append(root, SECOND)
    folder, change = Folder(str(root)), append_change(root, {"t0": 50}, [], "late")
    with noted(folder, Note.COMMIT, [change.folder]):
        assert erase(root, "r1") == 1
        assert "was killed when it did: let it end" in capsys.readouterr().err
        assert (root / change.folder / "manifest.json").exists()
        version = commit(folder, change)
    left = {**FIRST, **(SECOND if has_grown else {}), "t0": 50}
    assert erase(root, "r1") == 0
    del left["r1"]
    # The first try has ended after its commit, where there was one.
    assert_holds(root, left, number_of(version) + (not has_grown))


def test_an_erasure_sees_a_commit_that_ends_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note is gone when the erasure looks for notes; its version is there from then on."""
    root = tmp_path / "out"
    write(FIRST, root)
    folder, change = Folder(str(root)), append_change(root, {"t0": 50}, [], "late")
    committed: list[int] = []

    def look(*args: Any) -> bool:
        if not committed:
            committed.append(number_of(commit(folder, change)))
        return is_noted(*args)

    monkeypatch.setattr(erase_command, "is_noted", look)
    monkeypatch.setattr("shardwright.transforms.versions.commit._check_there", lambda *_: None)
    assert erase(root, "r1") == 1
    assert committed == [2]
    assert judge(str(root)).is_sound
    monkeypatch.undo()
    assert erase(root, "r1") == 0
    left = {**FIRST, "t0": 50}
    del left["r1"]
    assert_holds(root, left, 3)


def test_an_erasure_leaves_a_build_that_has_begun_since(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the append that is run again because the erasure has taken away its first try."""

    def collect_and_append(*args: Any) -> Any:
        removed = collect(*args)
        append_change(root, {"t0": 50}, [], "next")
        (root / "generations" / "00005-next" / "manifest.json").unlink()  # as before its end
        return removed

    monkeypatch.setattr(remains, "collect", collect_and_append)
    assert erase(root, *GONE) == 0
    assert list((root / "generations" / "00005-next").glob("*.tfrecord*"))


def test_a_reader_fails_or_reads_the_same(root: Path) -> None:
    """One has all shards open, the other none yet."""
    options: dict[str, Any] = {"global_batch_size": 30, "epochs": 2, "remainder": "keep"}
    with sw.Reader(str(root), "train", **options) as one, sw.Reader(str(root), **options) as other:
        batches = iter(one)
        first = next(batches)
        assert erase(root, *GONE) == 0
        again = next(batches)
        with pytest.raises(StorageError):
            next(iter(other))
    assert sorted(first["id"]) == sorted(again["id"]) == sorted(contents())


def test_a_class_that_a_collected_version_had(tmp_path: Path) -> None:
    """Its name is in no stub of a version, not even in one of an earlier release."""
    secret, source = canary(1), Source(make_images(tmp_path / "in", 6))
    grown, stub = Grown(Folder(str(tmp_path / "out")), ("--name", "data")), "versions/00002.json"
    grown.append(source)
    (source.folder / secret).mkdir()
    (source.folder / secret / f"{secret}.png").write_bytes(canary_png(secret))
    grown.append(source)
    before = read_stated(grown.root, 2)
    assert grown.compact().schema.class_names[-1] == secret
    assert shardwright(["gc", grown.root.uri, "--keep", "1", "--yes"]) == 0
    assert secret.encode() not in grown.root.read_bytes(stub)
    collected = {**before.history, "collected": True}
    earlier = replace(before, splits={}, num_inputs=0, history=collected)
    grown.root.write_bytes(stub, earlier.to_bytes())
    assert erase(tmp_path / "out", f"{secret}/{secret}.png") == 0
    assert find_canaries([tmp_path / "out"]) == {}
    assert read_version(grown.root).schema.class_names[-1].startswith("<erased ")
    assert check(tmp_path / "out") == 0
