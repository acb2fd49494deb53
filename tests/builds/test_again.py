"""Building again over a dataset: up to date, repaired, refused or replaced, never mixed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests.support import build_helpers as builds
from tests.support.build_helpers import (
    build,
    hashes_of,
    make_images,
    manifest_of,
    png_of,
    stamps_of,
)
from tests.support.judge import judge
from tests.support.store_builds import Sources, build_between, by_store, error_of
from tests.support.store_places import KINDS, Kind, Places

TINY = ("--name", "tiny", "--records-per-shard", "5")
SHARD = "tiny-train.tfrecord-00001-of-00004"
UP_TO_DATE = "shardwright: up to date: all 4 shards were already written"
EXISTS = "already holds a dataset, and --if-exists error was given"
SIDECAR = "index/train-00001-of-00004.parquet"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("again") / "in", 20)


@pytest.fixture(scope="module")
def kept(images: Path, places: Places) -> Sources:
    """A finished dataset in each kind of place, for tests that leave it as it is."""
    made = {kind: places.make(kind) for kind in KINDS}
    for place in made.values():
        assert build_between(images, place, *TINY) == 0
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another INPUT, `in`, and its finished dataset, `out`; beside it a copy."""
    root = tmp_path_factory.mktemp("small") / "small"
    assert build(make_images(root / "in", 20), root / "out", *TINY) == 0
    shutil.copytree(root, root.with_name("copy"))
    return root


@pytest.fixture
def small(built: Path) -> Path:
    """INPUT, for a test to change, put back from the copy with its times of change."""
    shutil.rmtree(built)
    shutil.copytree(built.with_name("copy"), built)
    return built / "in"


@pytest.fixture
def finished(small: Path) -> Path:
    """Its finished dataset."""
    return small.with_name("out")


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("kind", "name", "damage"),
    [
        ("local", SHARD, None),
        ("local", SHARD, 50),
        ("local", SIDECAR, None),
        ("local", SIDECAR, 4),
        ("local", "features.json", None),
        ("s3", SHARD, None),
        ("gs", SIDECAR, None),
    ],
)
def test_a_lost_or_truncated_file_is_made_again(
    images: Path, kept: Sources, kind: Kind, name: str, damage: int | None
) -> None:
    output = kept[kind]
    whole, stamps = output.get(name), output.stamps()
    if damage is None:
        output.remove(name)
    else:
        os.truncate(output.at(name), damage)
    assert build_between(images, output, *TINY) == 0
    assert output.get(name) == whole
    rewritten = {path for path, stamp in output.stamps().items() if stamps[path] != stamp}
    assert rewritten == ({SHARD, SIDECAR} if name in (SHARD, SIDECAR) else {name})


@pytest.mark.parametrize(
    ("kind", "options", "code", "said"),
    [
        ("local", (), 0, UP_TO_DATE),
        ("local", ("--threads", "7", "--max-reject-fraction", "0.5"), 0, UP_TO_DATE),
        ("local", ("--seed", "1"), 1, "seed is 0 there and 1 here"),
        ("local", ("--encode", "png"), 1, "encode is"),
        ("local", ("--check", "decode"), 1, "check is 'header' there and 'decode' here"),
        ("local", ("--records-per-shard", "6"), 1, "'num_records': 6"),
        ("local", ("--split", "train=0.5,test=0.5"), 1, "split is"),
        ("local", ("--feature-names", "model-garden"), 1, "feature_names is 'tfds' there"),
        ("local", ("--version", "2.0.0"), 1, "version is '1.0.0' there and '2.0.0' here"),
        ("local", ("--name", "other"), 1, "name is 'tiny' there and 'other' here"),
        ("local", ("--name", "other"), 1, "--if-exists overwrite to replace it"),
        ("s3", ("--encode", "png"), 1, "--if-exists overwrite to replace it"),
        ("local", ("--if-exists", "error"), 1, EXISTS),
        ("s3", ("--if-exists", "error"), 1, EXISTS),
        ("gs", ("--writer", "beam", "--if-exists", "overwrite"), 2, ": use --writer planned"),
        ("s3", ("--storage-option", "regoin=x"), 2, "did you mean 'region'?"),
    ],
)
def test_a_refused_or_repeated_build_leaves_the_dataset_as_it_is(
    images: Path,
    kept: Sources,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    before = kept[kind].stamps()
    capfd.readouterr()
    assert build_between(images, kept[kind], *TINY, *options) == code
    err = capfd.readouterr().err
    assert said in (error_of(err) if code else err)
    assert kept[kind].stamps() == before


@by_store
def test_beams_writer_makes_nothing_in_a_store(
    images: Path, places: Places, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    assert build_between(images, output, *TINY, "--writer", "beam") == 2
    message = f"writes only to local folders, and OUTPUT is {output.uri}: use --writer planned"
    assert message in error_of(capfd.readouterr().err)
    assert output.names() == []


@pytest.mark.long_but_first
@pytest.mark.parametrize("kind", KINDS)
def test_overwrite_is_a_new_build(images: Path, places: Places, tmp_path: Path, kind: Kind) -> None:
    output = places.make(kind)
    assert build_between(images, output, *TINY) == 0
    output.put("thesis.tex", b"mine")
    options = (*TINY[:3], "9", "--seed", "1", "--split", "a=0.5,b=0.5", "--if-exists", "overwrite")
    assert build_between(images, output, *options) == 0
    assert build(images, tmp_path / "fresh", *options) == 0
    assert output.names() == sorted([*stamps_of(tmp_path / "fresh"), "thesis.tex"])
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(tmp_path / "fresh")
    assert output.get("thesis.tex") == b"mine"


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_with_other_files_is_refused(
    images: Path, places: Places, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    output.put("thesis.tex", b"mine")
    assert build_between(images, output, *TINY) == 1
    message = "is not empty and holds no shardwright build (found 'thesis.tex')"
    assert message in capfd.readouterr().err
    assert output.names() == ["thesis.tex"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "data"), [("new", png_of(77)), ("0001", png_of(78)), ("0001", None)]
)
def test_only_an_unfinished_build_takes_a_changed_input(
    small: Path,
    finished: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    data: bytes | None,
) -> None:
    before = stamps_of(finished)
    path = small / "cat" / f"{name}.png"
    if data:
        path.write_bytes(data)
    else:
        path.unlink()
    capfd.readouterr()
    assert build(small, finished, *TINY) == 1
    assert "INPUT has changed since the dataset at" in error_of(capfd.readouterr().err)
    assert stamps_of(finished) == before

    (finished / "manifest.json").unlink()
    (finished / "tiny-train.tfrecord-00000-of-00004").unlink()
    assert build(small, finished, *TINY) == 0
    assert build(small, tmp_path / "fresh", *TINY) == 0
    assert hashes_of(finished) == hashes_of(tmp_path / "fresh")
    assert sorted(stamps_of(finished)) == sorted(stamps_of(tmp_path / "fresh"))


def changed_since(before: dict[str, tuple[int, int]], root: Path) -> set[str]:
    return {name for name, stamp in stamps_of(root).items() if before.get(name) != stamp}


def test_a_file_that_is_no_image_changes_no_shard(small: Path, finished: Path) -> None:
    before = stamps_of(finished)
    (small / "notes.txt").write_text("x")
    assert build(small, finished, *TINY) == 0
    expected = {"manifest.json", "report.html", "rejects/plan.parquet"}
    assert changed_since(before, finished) == expected
    assert builds.reasons_of(finished) == {"notes.txt": "other_file"}
    assert manifest_of(finished)["rejects"] == {"other_file": 1}


def test_a_build_that_died_before_its_manifest_only_publishes(small: Path, finished: Path) -> None:
    before = stamps_of(finished)
    (finished / "manifest.json").unlink()
    assert build(small, finished, *TINY) == 0
    assert changed_since(before, finished) <= {"manifest.json", "plan.json", "report.html"}


def test_an_overwrite_that_fails_on_its_plan_leaves_the_old_dataset(
    small: Path, finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(finished)
    for path in (small / "cat").iterdir():
        path.write_bytes(b"")
    options = ("--if-exists", "overwrite", "--max-reject-fraction", "0.01")
    assert build(small, finished, *TINY, *options) == 1
    assert "are rejects, more than --max-reject-fraction" in error_of(capfd.readouterr().err)
    assert changed_since(before, finished) == {"rejects/failed.parquet"}
    assert before.keys() <= stamps_of(finished).keys()
    assert read_manifest(Folder(str(finished))).num_records == 20


@pytest.mark.long
def test_a_failed_overwrite_leaves_the_old_dataset_and_is_resumed(
    small: Path, finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(finished)
    for path in (small / "cat").iterdir():
        path.write_bytes(b"not an image")
    options = ("--if-exists", "overwrite", "--max-rejects", "6")
    assert build(small, finished, *TINY, *options) == 1
    told = capfd.readouterr().err
    assert told.count("not_an_image: cat/") == 3
    assert f"fix these inputs, or raise --max-rejects; {finished}/next/rejects/ lists them" in told
    assert before.items() <= stamps_of(finished).items()
    assert (found := judge(str(finished))).is_sound
    assert found.num_records == 20
    options = ("--if-exists", "overwrite", "--max-reject-fraction", "0.5")
    assert build(small, finished, *TINY, *options) == 0
    assert read_manifest(Folder(str(finished))).num_records == 13
