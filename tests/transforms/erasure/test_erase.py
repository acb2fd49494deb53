"""Erasures that are stopped, repeated, refused, or met by other writers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardwright.errors import UsageError
from shardwright.format.manifest import read_manifest
from shardwright.inspect.verify import verify
from shardwright.pipelines.commands.erase import main
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.wanted_ids import parse_ids
from tests.support.build_helpers import make_images, png_of, record_ids, stamps_of
from tests.support.kills import killed
from tests.support.repairs import build_plainly, damage_record, repair
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
from tests.transforms.versions.histories import append, pictures_of, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_grown(tmp_path / "out")


def test_without_yes_nothing_changes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stamps_of(root)
    (root.parent / "ids").write_text("r8\nr9\r\n\n")
    capsys.readouterr()
    words = [str(root), "--ids", str(root.parent / "ids")]
    assert main([*words, "--json"]) == 1
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert (shown["asked"], shown["found"], shown["num_shards"]) == (2, 1, 1)
    assert shown["missing"] == ["r9"]
    assert "not found: r9" in output.err
    assert main([*words, "--allow-missing"]) == 0
    assert "not found: r9" in capsys.readouterr().err
    assert stamps_of(root) == before


def test_ids_that_are_not_found_are_named_and_the_others_erased(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert erase(root, "r8", *(f"no{number:02}" for number in range(23))) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "shardwright: not found: no00" in lines
    assert lines[-1] == "shardwright: and 3 more"
    assert_holds(root, contents("r8"))
    assert erase(root, "r7", "r8", receipt="other.json", also=("--allow-missing",)) == 0
    assert_holds(root, contents("r7", "r8"))


def test_an_id_of_input_erases_what_a_transform_made_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    (tmp_path / "ids").write_text("a/2.png\nb/2.png#left\n")
    capsys.readouterr()
    assert main([str(root), "--ids", str(tmp_path / "ids"), "--json"]) == 0
    made = {"a/2.png": [f"a/2.png{end}" for end in ("#left", "#left#top", "_whole")]}
    assert json.loads(capsys.readouterr().out)["made"] == made | {
        "b/2.png#left": ["b/2.png#left#top"]
    }
    assert erase(root, "a/2.png", "b/2.png#left", "b/2.png#left#top") == 0
    assert "a/2.png: erases 3 records that --transform made of it" in capsys.readouterr().out
    ends = ("#left", "#left#top", "_whole")
    kept = {f"{name}{end}" for name in ("a/1.png", "a/2.png.png") for end in ends}
    assert set(record_ids(root)) == kept | {"b/2.png_whole"}
    assert check(root) == 0
    assert verify(str(root)).is_sound


def test_ids_are_prefixes_only_of_what_a_transform_made(root: Path) -> None:
    append(root, {"r5#left": 60})
    assert erase(root, "r5") == 0
    assert "r5#left" in pictures_of(root)


def test_files_that_a_finished_build_keeps_are_not_called_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing of an archive, and perceptual hashes."""
    source, root = make_images(tmp_path / "in", 9), tmp_path / "out"
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", source)
    build_plainly(Path(archive), root, "--name", "data", "--near-duplicates", "report")
    gone = record_ids(root)[0]
    (tmp_path / "ids").write_text(gone)
    (root / "spool" / f"{'0' * 32}.bin").write_bytes(b"of a build that was stopped")
    capsys.readouterr()
    assert main([str(root), "--ids", str(tmp_path / "ids")]) == 0
    lines = capsys.readouterr().out.splitlines()
    kept = [line for line in lines if "what a build has read of INPUT" in line]
    assert {line.split(":")[0].rpartition(".")[2] for line in kept} == {"parquet", "hashes"}
    assert [line for line in lines if "has not ended" in line] == [
        f"  spool/{'0' * 32}.bin: removed, of a build that has not ended"
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('["a", "b\\nc", "", "é"]', {"a", "b\nc", "é"}),
        ("[]", "has no ids"),
        ("a", "must be a JSON list of ids"),
        ('{"a": 1}', "must be a JSON list of ids"),
        ("[1]", "must be a JSON list of ids"),
        ('["\\ud800"]', "must be a JSON list of ids"),
    ],
)
def test_ids_as_json(text: str, wanted: set[str] | str) -> None:
    if isinstance(wanted, set):
        assert parse_ids(text.encode(), "ids.json") == wanted
        return
    with pytest.raises(UsageError, match=wanted):
        parse_ids(text.encode(), "ids.json")


def test_only_touched_shards_are_rewritten(root: Path) -> None:
    before = stamps_of(root)
    assert erase(root, *GONE) == 0
    assert_holds(root, contents(*GONE))
    found = told(root)
    touched = {each["path"] for each in found["objects"] if "tfrecord" in each["path"]}
    changed = {name for name, stamp in stamps_of(root).items() if before.get(name) != stamp}
    assert touched == {name for name in changed if "tfrecord" in name}
    assert len(touched) < sum("tfrecord" in name for name in before)
    assert sum(len(each["found_in"]) for each in found["ids"]) == 5  # r3 is in two shards
    assert (found["versions"], len(found["generations"])) == ([1, 2, 3], 3)
    assert check(root) == 0


@pytest.mark.long
@pytest.mark.weight(5)
def test_a_stop_at_any_change(root: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    whole, after, is_dead = tmp_path / "whole" / "out", int(rng.integers(17)), True
    shutil.copytree(root, whole)
    assert erase(whole, *GONE) == 0
    while is_dead:
        place = tmp_path / f"stop{after}" / "out"
        shutil.copytree(root, place)
        with killed(after) as kill:
            erase(place, *GONE)
        is_dead = kill.is_dead
        if is_dead:
            assert erase(place, *GONE) == 0
        assert state_of(place) == state_of(whole)
        assert told(place)["asked"] == {"ids": len(GONE), "found": len(GONE)}
        assert _objects(place) == _objects(whole)
        assert check(place) == 0
        after += 17
    assert after > 40


def _objects(root: Path) -> list[tuple[str, str]]:
    """Return the files in a receipt, and how they were; the manifests have times."""
    return [(each["path"], str(each["before"])) for each in told(root)["objects"]]


def test_all_records_of_a_generation(root: Path) -> None:
    assert erase(root, *FIRST) == 0
    left = contents(*FIRST)
    assert_holds(root, {2: left[2], 3: left[3]})
    assert read_manifest(Folder(str(root))).num_records == 0
    append(root, {"t0": 50})
    assert_holds(root, {4: left[3] | {"t0": 50}})


def test_a_dataset_that_has_never_grown(tmp_path: Path) -> None:
    root = tmp_path / "out"
    write(FIRST, root)
    assert erase(root, "r0", "r4") == 0
    assert_holds(root, {1: contents("r0", "r4")[1]})
    assert (told(root)["versions"], told(root)["generations"]) == ([1], [""])
    assert check(root) == 0


def test_an_erased_id_that_comes_again_is_found(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert erase(root, "r0") == 0
    append(root, {"r0": 0})
    (root / "spool").mkdir(exist_ok=True)
    (root / "spool" / "listed.parquet").write_bytes(b"of a later build")
    assert check(root) == 1
    output = capsys.readouterr()
    assert "has 1 of the ids" in output.out
    assert "not checked: spool/listed.parquet" in output.err
    (root.parent / "more").write_text("r0\nr4\n")
    words = ["--verify", str(root.parent / "receipt.json"), "--ids", str(root.parent / "more")]
    assert main([str(root), *words]) == 1
    assert "1 id of --ids" in capsys.readouterr().out


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        (["x"], 1, "none of 1 id was found"),
        ([*FIRST, *SECOND, *THIRD], 2, "no record of .* would be left"),
        ([], 2, "has no ids"),
    ],
)
def test_ids_that_cannot_be_erased(
    root: Path, ids: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state_of(root)
    assert erase(root, *ids) == code
    output = capsys.readouterr()
    assert re.search(message, output.out + output.err)
    assert (root.parent / "receipt.json").exists() == (code == 1)
    assert state_of(root) == before


def test_a_dataset_of_an_earlier_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    write(FIRST, root)
    manifest = replace(read_manifest(Folder(str(root))), files={})
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    before = stamps_of(root)
    assert erase(root, "r0") == 1
    assert "an earlier release wrote" in capsys.readouterr().err
    assert stamps_of(root) == before


def test_wrong_usage(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert erase(root, "r0") == 0
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


def test_a_damaged_shard_is_repaired_without_the_erased_record(tmp_path: Path) -> None:
    source, root = make_images(tmp_path / "in", 9), tmp_path / "out"
    build_plainly(source, root, "--records-per-shard", "5", "--name", "data")
    index = sorted(root.glob("index/*.parquet"))[0]
    gone, *_, damaged = pq.ParquetFile(index).read(["id"])["id"].to_pylist()
    assert erase(root, gone) == 0
    shard = sorted(root.glob("*tfrecord*"))[0]
    before = shard.read_bytes()
    number = pq.ParquetFile(index).read(["id"])["id"].to_pylist().index(damaged)
    assert damage_record(root, shard.name, number) == damaged
    assert repair(root) == 0
    assert shard.read_bytes() == before
    index.unlink()  # the plan of the build has the erased record
    assert repair(root) == 1
    assert shard.read_bytes() == before
    assert gone.encode() not in b"".join(path.read_bytes() for path in root.glob("*tfrecord*"))


def test_a_shard_of_which_only_rejects_name_an_id_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = make_images(tmp_path / "in", 9), tmp_path / "out"
    next(iter(sorted(source.glob("*/*.png")))).write_bytes(b"no image")
    build_plainly(source, root, "--max-reject-fraction", "0.5", "--name", "data")
    [rejects] = root.glob("rejects/*.parquet")
    (tmp_path / "ids").write_text(pq.read_table(rejects)["id"][0].as_py())
    capsys.readouterr()
    assert main([str(root), "--ids", str(tmp_path / "ids"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["found"], shown["num_shards"], shown["num_bytes"]) == (1, 0, 0)
    assert shown["paths"] == [f"rejects/{rejects.name}"]


def test_near_duplicates_of_an_erased_image(tmp_path: Path) -> None:
    """The list loses every row that names the image; the other group stays."""
    source, root = tmp_path / "in", tmp_path / "out"
    for number in range(4):
        noise = np.random.default_rng(number).integers(0, 256, (9, 9), dtype=np.uint8)
        image = Image.fromarray(noise).convert("RGB").resize((72, 72), Image.Resampling.BICUBIC)
        (source / "a").mkdir(parents=True, exist_ok=True)
        image.save(source / f"a/{number}.png")
        if number < 2:
            image.save(source / f"a/{number}-again.png", compress_level=0, dpi=(99, 99))
    build_plainly(source, root, "--name", "data", "--near-duplicates", "report")
    listed = pq.read_table(root / "near_duplicates.parquet")["id"].to_pylist()
    assert sorted(listed) == ["a/0-again.png", "a/0.png", "a/1-again.png", "a/1.png"]
    assert erase(root, "a/0.png", "a/0-again.png") == 0
    listed = pq.read_table(root / "near_duplicates.parquet")["id"].to_pylist()
    assert sorted(listed) == ["a/1-again.png", "a/1.png"]
    assert verify(str(root)).is_sound
    assert check(root) == 0


def test_ids_that_an_overwrite_has_taken_away_leave_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = make_images(tmp_path / "in", 6), tmp_path / "out"
    build_plainly(source, root, "--name", "data")
    gone, changed, *_ = sorted(record_ids(root))
    (source / gone).unlink()
    (source / changed).write_bytes(png_of(99))
    build_plainly(source, root, "--name", "data", "--if-exists", "overwrite")
    page = root / "report.html"
    assert gone in page.read_text()
    assert erase(root, gone) == 0
    assert "erased 1 of 1 id" in capsys.readouterr().out
    assert gone not in page.read_text()
    assert "Compared with" not in page.read_text()  # it has the picture
    assert told(root)["ids"][0]["found_in"] == ["report.html"]
    assert changed in record_ids(root)
    assert verify(str(root)).is_sound
    assert check(root) == 0
