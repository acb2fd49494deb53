"""`shardwright compact`: a dataset that has grown becomes as a fresh build of the same images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.format.versions import read_version, version_numbers
from shardwright.inspect.cli import main as shardwright
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.commands.compact import (
    _token,
    commit_copy,
    folder_for,
    main,
    prepare_copy,
)
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.builds.test_append import APPEND, FIRST, OPTIONS, Images, first_build, named, put, wanted
from tests.support.build_helpers import hashes_of, stamps_of

STEPS: list[Images] = [
    {**FIRST, "cat/7.png": 50, "ant/0.png": 51},
    {name: seed for name, seed in FIRST.items() if name != "cat/3.png"},
]


def append(images: Path, out: Path) -> None:
    append_version(prepare_version(parse_options([str(images), str(out), *OPTIONS, *APPEND])))


def shards_of(out: Path) -> dict[str, str]:
    """Return the hashes of the shards by their numbers."""
    return {name: found for name, found in hashes_of(out).items() if ".tfrecord-" in name}


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Return a folder with images, `in`, and a dataset of three versions, `out`."""
    first_build(tmp_path / "in", tmp_path / "out")
    for images in STEPS:
        put(images, tmp_path / "in")
        append(tmp_path / "in", tmp_path / "out")
    return tmp_path


def fresh(folder: Path, *options: str, name: str = "fresh") -> Path:
    """Return a build of the same images."""
    words = [str(folder / "in"), str(folder / name), *OPTIONS, *options]
    build_here(prepare_version(parse_options(words)))
    return folder / name


def test_it_equals_a_fresh_build(grown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = grown / "out"
    before = stamps_of(out)
    assert main([str(out)]) == 0
    assert "version 4 has 9 records in 3 shards" in capsys.readouterr().err
    assert named(out) == wanted(STEPS[-1])
    version = read_version(Folder(str(out)))
    [folder] = version.history["generations"]
    assert hashes_of(out / folder) == hashes_of(fresh(grown))
    assert version.splits["train"].stats == sw.open(str(grown / "fresh")).splits["train"].stats
    assert before.items() <= stamps_of(out).items()
    assert shardwright(["verify", str(out)]) == 0
    put({**STEPS[-1], "new/1.png": 60}, grown / "in")
    append(grown / "in", out)
    assert named(out) == wanted({**STEPS[-1], "new/1.png": 60})
    assert len(version_numbers(Folder(str(out)))) == 5


@pytest.mark.long
def test_labels_keep_their_numbers_so_a_fresh_build_needs_the_class_names(grown: Path) -> None:
    """As docs/versions.md says."""
    put({**STEPS[-1], "aardvark/0.png": 80}, grown / "in")
    append(grown / "in", grown / "out")
    assert main([str(grown / "out")]) == 0
    version = read_version(Folder(str(grown / "out")))
    [folder] = version.history["generations"]
    compacted = shards_of(grown / "out" / folder)
    assert compacted != shards_of(fresh(grown))
    (grown / "names.txt").write_text("\n".join(version.schema.class_names))
    named = fresh(grown, "--class-names", str(grown / "names.txt"), name="named")
    assert compacted == shards_of(named)


def test_a_compact_dataset_is_written_again_only_for_other_shards(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(grown / "out")
    found = []
    for words in ([], [], ["--shard-count", "2"], ["--shard-count", "2"], []):
        assert main([out, "--json", *words]) == 0
        found.append(json.loads(capsys.readouterr().out))
    first, second = ({"version": version, "num_records": 9} for version in (4, 5))
    compacted, in_two = {**first, "num_shards": 3}, {**second, "num_shards": 2}
    assert found == [compacted, compacted, in_two, in_two, in_two]


def test_an_append_that_comes_meanwhile_holds(grown: Path) -> None:
    out = Folder(str(grown / "out"))
    base, folder = read_version(out), "generations/00004-compact0"
    build_here(prepare_copy(out, base, folder, []))
    later: Images = {**STEPS[-1], "cat/7.png": 70, "bee/2.png": 71}
    del later["ant/2.png"]
    put(later, grown / "in")
    append(grown / "in", grown / "out")
    commit_copy(out, base, folder)
    assert named(grown / "out") == wanted(later)
    version = read_version(out)
    assert version.history["operation"] == "compact"
    labels = [name.partition("/")[0] for name in later]
    assert sw.open(out.uri).class_counts("train") == {
        name: labels.count(name) for name in ("ant", "cat", "bee")
    }
    assert shardwright(["verify", out.uri]) == 0


def test_of_two_compactions_one_is_committed(grown: Path) -> None:
    out = Folder(str(grown / "out"))
    base, folders = read_version(out), [f"generations/00004-compact{each}" for each in range(2)]
    for folder in folders:
        build_here(prepare_copy(out, base, folder, []))
    for folder in [*folders, *folders]:
        commit_copy(out, base, folder)
    assert read_version(out).history["generations"] == folders[:1]
    assert list(version_numbers(out)) == [1, 2, 3, 4]


def test_a_finished_try_is_committed(grown: Path) -> None:
    """One that was stopped just before its commit."""
    out = Folder(str(grown / "out"))
    base = read_version(out)
    folder = folder_for(out, base, _token([]))
    build_here(prepare_copy(out, base, folder, []))
    shards = {name: at for name, at in stamps_of(grown / "out" / folder).items() if "-of-" in name}
    assert main([out.uri]) == 0
    assert read_version(out).history["generations"] == [folder]
    assert shards.items() <= stamps_of(grown / "out" / folder).items()


def test_nothing_to_compact_and_wrong_words(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(grown)
    assert main([str(fresh(grown))]) == 0
    assert "nothing to compact" in capsys.readouterr().err
    shutil.rmtree(grown / "fresh")
    assert main([str(grown / "out"), "--seed", "3"]) == 2
    assert main([str(grown / "out"), "--encode", "jpeg"]) == 2
    assert main([str(grown / "nowhere")]) == 2
    assert stamps_of(grown) == before


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "words",
    [
        ("--duplicates", "drop"),
        ("--max-reject-fraction=1",),
        ("--max-rejects", "9"),
        ("--accept-partial", "x"),
        ("--split-ids", "test=ids.txt"),
    ],
)
def test_options_that_lose_records_are_refused(
    grown: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(grown / "out"), *words]) == 2
    option = words[0]
    assert f"compact keeps what {option} would change: leave it out" in capsys.readouterr().err


@pytest.mark.long
def test_a_copy_with_fewer_records_is_not_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another way to lose some than options that are refused."""
    first_build(tmp_path / "in", tmp_path / "out")
    put({**FIRST, "cat/8.png": FIRST["cat/1.png"]}, tmp_path / "in")
    append(tmp_path / "in", tmp_path / "out")
    assert main([str(tmp_path / "out"), "--near-duplicates", "drop"]) == 1
    told = capsys.readouterr().err
    assert "records, but must hold 11" in told
    assert list(version_numbers(Folder(str(tmp_path / "out")))) == [1, 2]


def test_a_damaged_record_stops_it(grown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = grown / "out" / "grown-train.tfrecord-00000-of-00003"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert main([str(grown / "out")]) == 1
    assert "reject" in capsys.readouterr().err
    assert len(version_numbers(Folder(str(grown / "out")))) == 3
