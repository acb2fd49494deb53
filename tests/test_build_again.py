"""Building again over what is there: up to date, repaired, refused or replaced, and never a mix of two builds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.errors import NotADatasetError
from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from tests.build_helpers import (
    build,
    hashes_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    stamps_of,
)

TINY = ("--name", "tiny", "--records-per-shard", "5")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(INPUT, finished dataset) for tests that leave both as they are."""
    images = make_images(tmp_path_factory.mktemp("kept") / "in", 20)
    assert build(images, images.parent / "out", *TINY) == 0
    return images, images.parent / "out"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another INPUT, `in`, and of its finished dataset, `out`; both are put back for each test, from a copy."""
    root = tmp_path_factory.mktemp("small") / "small"
    assert build(make_images(root / "in", 20), root / "out", *TINY) == 0
    shutil.copytree(root, root.with_name("copy"))
    return root


@pytest.fixture
def small(built: Path) -> Path:
    """INPUT, for a test to change, where it has always been and with its times of change."""
    shutil.rmtree(built)
    shutil.copytree(built.with_name("copy"), built)
    return built / "in"


@pytest.fixture
def finished(small: Path) -> Path:
    """Its finished dataset."""
    return small.with_name("out")


def test_a_finished_build_is_up_to_date_and_nothing_is_touched(
    kept: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    small, finished = kept
    before = stamps_of(finished)
    capfd.readouterr()
    assert build(small, finished, *TINY) == 0
    assert "shardwright: up to date: all 4 shards were already written" in capfd.readouterr().err
    assert stamps_of(finished) == before


def test_options_that_decide_no_byte_may_differ(kept: tuple[Path, Path]) -> None:
    small, finished = kept
    before = stamps_of(finished)
    assert build(small, finished, *TINY, "--threads", "7", "--max-reject-fraction", "0.5") == 0
    assert stamps_of(finished) == before


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, 50)


def _damage(path: Path) -> None:
    path.write_bytes(b"PAR1")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tiny-train.tfrecord-00001-of-00004", _remove),
        ("tiny-train.tfrecord-00001-of-00004", _cut),
        ("index/train-00001-of-00004.parquet", _remove),
        ("index/train-00001-of-00004.parquet", _damage),
        ("features.json", _remove),
        ("report.html", _cut),
    ],
)
def test_what_is_lost_of_a_finished_dataset_is_made_again(
    kept: tuple[Path, Path], name: str, fault: Callable[[Path], None]
) -> None:
    small, finished = kept
    whole, stamps = (finished / name).read_bytes(), stamps_of(finished)
    fault(finished / name)
    assert build(small, finished, *TINY) == 0
    assert (finished / name).read_bytes() == whole
    rewritten = {path for path, stamp in stamps_of(finished).items() if stamps[path] != stamp}
    shard = {"tiny-train.tfrecord-00001-of-00004", "index/train-00001-of-00004.parquet"}
    assert rewritten == (shard if name in shard else {name})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seed", "1"), "seed is 0 there and 1 here"),
        (("--encode", "png"), "encode is"),
        (("--check", "decode"), "check is 'header' there and 'decode' here"),
        (("--records-per-shard", "6"), "'num_records': 6"),
        (("--split", "train=0.5,test=0.5"), "split is"),
        (("--feature-names", "model-garden"), "feature_names is 'tfds' there"),
        (("--version", "2.0.0"), "version is '1.0.0' there and '2.0.0' here"),
        (("--name", "other"), "name is 'tiny' there and 'other' here"),
    ],
)
def test_other_options_are_refused_by_name(
    kept: tuple[Path, Path], capfd: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    small, finished = kept
    before = stamps_of(finished)
    capfd.readouterr()
    assert build(small, finished, *TINY, *options) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert said in last
    assert "--if-exists overwrite to replace it" in last
    assert stamps_of(finished) == before


def test_overwrite_rebuilds_and_leaves_nothing_stale(
    small: Path, finished: Path, tmp_path: Path
) -> None:
    (finished / "thesis.tex").write_text("mine")
    options = (
        "--name",
        "tiny",
        "--records-per-shard",
        "9",
        "--seed",
        "1",
        "--split",
        "a=0.5,b=0.5",
    )
    assert build(small, finished, *options, "--if-exists", "overwrite") == 0
    assert build(small, tmp_path / "fresh", *options) == 0
    assert sorted(stamps_of(finished)) == sorted([*stamps_of(tmp_path / "fresh"), "thesis.tex"])
    assert hashes_of(finished) == hashes_of(tmp_path / "fresh")
    assert (finished / "thesis.tex").read_text() == "mine"


def test_if_exists_error_refuses_even_the_same_build(
    kept: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    small, finished = kept
    before = stamps_of(finished)
    assert build(small, finished, *TINY, "--if-exists", "error") == 1
    assert (
        "already holds a dataset, and --if-exists error was given"
        in capfd.readouterr().err.splitlines()[-1]
    )
    assert stamps_of(finished) == before


def test_an_output_of_strangers_is_refused(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("mine")
    assert build(small, tmp_path / "out", *TINY) == 1
    assert "(there is 'thesis.tex')" in capfd.readouterr().err
    assert sorted(stamps_of(tmp_path / "out")) == ["thesis.tex"]


def _add(root: Path) -> None:
    (root / "cat/new.png").write_bytes(png_of(77))


def _change(root: Path) -> None:
    (root / "cat/0001.png").write_bytes(png_of(78))


def _take_away(root: Path) -> None:
    (root / "cat/0001.png").unlink()


@pytest.mark.parametrize("change", [_add, _change, _take_away])
def test_a_finished_dataset_does_not_take_a_changed_input(
    small: Path, finished: Path, capfd: pytest.CaptureFixture[str], change: Callable[[Path], None]
) -> None:
    before = stamps_of(finished)
    change(small)
    capfd.readouterr()
    assert build(small, finished, *TINY) == 1
    assert "INPUT has changed since the dataset at" in capfd.readouterr().err.splitlines()[-1]
    assert stamps_of(finished) == before


def test_a_file_that_is_no_image_changes_no_shard_and_is_listed(
    small: Path, finished: Path
) -> None:
    before = stamps_of(finished)
    (small / "notes.txt").write_text("x")
    assert build(small, finished, *TINY) == 0
    after = stamps_of(finished)
    assert {name for name in after if before.get(name) != after[name]} == {
        "manifest.json",
        "report.html",
        "rejects/plan.parquet",
    }
    assert reasons_of(finished) == {"notes.txt": "other_file"}
    assert manifest_of(finished)["rejects"] == {"other_file": 1}


@pytest.mark.parametrize("change", [_add, _change, _take_away])
def test_an_unfinished_build_goes_on_with_a_changed_input(
    small: Path, finished: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    (finished / "manifest.json").unlink()
    (finished / "tiny-train.tfrecord-00000-of-00004").unlink()
    change(small)
    assert build(small, finished, *TINY) == 0
    assert build(small, tmp_path / "fresh", *TINY) == 0
    assert hashes_of(finished) == hashes_of(tmp_path / "fresh")
    assert sorted(stamps_of(finished)) == sorted(stamps_of(tmp_path / "fresh"))


def test_an_overwrite_that_fails_on_its_plan_leaves_the_old_dataset(
    small: Path, finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(finished)
    for path in (small / "cat").iterdir():
        path.write_bytes(b"")
    assert build(small, finished, *TINY, "--if-exists", "overwrite") == 1
    assert "are rejects, more than --max-reject-fraction" in capfd.readouterr().err.splitlines()[-1]
    after = stamps_of(finished)
    assert after.pop("rejects/failed.parquet")
    assert after == before
    assert read_manifest(Folder(str(finished))).num_records == 20


def test_a_build_that_died_before_its_manifest_only_publishes(small: Path, finished: Path) -> None:
    before = stamps_of(finished)
    (finished / "manifest.json").unlink()
    assert build(small, finished, *TINY) == 0
    assert {name for name, stamp in stamps_of(finished).items() if before[name] != stamp} <= {
        "manifest.json",
        "plan.json",
        "report.html",
    }


def test_an_overwrite_that_is_stopped_leaves_no_half_dataset(small: Path, finished: Path) -> None:
    for path in (small / "cat").iterdir():
        path.write_bytes(b"not an image")
    assert build(small, finished, *TINY, "--if-exists", "overwrite") == 1
    assert not (finished / "manifest.json").exists()
    with pytest.raises(NotADatasetError, match="unfinished build"):
        read_manifest(Folder(str(finished)))
    assert build(small, finished, *TINY, "--max-reject-fraction", "0.5") == 0, (
        "a resumed build, without overwrite"
    )
