"""Top folders that are splits, classes, or either: then the user chooses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from shardwright.errors import UsageError
from shardwright.transforms.inputs.formats.folders import find_splits
from shardwright.transforms.inputs.source import SourceRequest
from tests.support.archive_files import pack_tar, pack_zip
from tests.support.helpers import TINY_PNG, make_files
from tests.support.listings import columns_of, detect, listed

MANY = [f"c{number}/1.png" for number in range(9)]


@pytest.mark.parametrize("names", [
    ["train/cat/1.png", "test/cat/2.png", "extra/cat/3.png"],
    ["train/1.png", "test/2.png", "unlabeled/3.png"],
    ["train/1.png", "ship/2.png"],
    ["train/cat/1.png", "2.png"],
    ["Test/1.png", "cat/2.png", "dog/3.png"],
    ["seg_train/cat/1.png", "seg_test/cat/2.png", "seg_pred/3.png"],
    ["train2017/1.png", "val2017/2.png"],
    ["trainA/1.png", "trainB/2.png", "testA/3.png", "testB/4.png"],
    # Among many folders: two splits, or one with class folders.
    ["train/1.png", "test/2.png", *MANY],
    ["test/cat/1.png", *MANY],
])  # fmt: skip
def test_folders_that_may_be_either(tmp_path: Path, names: list[str]) -> None:
    root = make_files(tmp_path / "in put", *names)
    for uri in map(str, (root, pack_zip(tmp_path / "a.zip", dict.fromkeys(names, TINY_PNG)))):
        with pytest.raises(UsageError, match="may be splits or classes") as error:
            detect(uri)
        for reading in ("splits", "classes"):
            command = f"`shardwright build {shlex.quote(uri)} OUTPUT --top-folders {reading}`"
            assert command in str(error.value)


@pytest.mark.parametrize(("names", "splits"), [
    (["test/1.png", *MANY], ()),
    (["bullet_train/1.png", "car/2.png"], ()),
    (["testing/cat/1.png", "Training/cat/2.png"], ("Training", "testing")),
    (["training_set/cat/1.png", "test_set/cat/2.png"], ("test_set", "training_set")),
    (["extra/1.png", "unlabeled/2.png"], ()),
    (["contest/1.png", "latest/2.png", "trainer/3.png"], ()),
    (["1.png"], ()),
])  # fmt: skip
def test_folders_that_have_one_reading(
    tmp_path: Path, names: list[str], splits: tuple[str, ...]
) -> None:
    root = make_files(tmp_path / "in", *names)
    assert find_splits(SourceRequest(str(root))) == splits
    tar = detect(str(pack_tar(tmp_path / "a.tar", dict.fromkeys(names, TINY_PNG))))
    assert tar.states_splits == bool(splits)


def test_the_choice_of_the_user(tmp_path: Path) -> None:
    """Every top folder is a split, called as written unless it has a usual name; or a class."""
    names = ["extra/dog/3.png", "test/cat/2.png", "train2017/cat/1.png"]
    root = make_files(tmp_path / "in", *names)
    files = dict.fromkeys(names, TINY_PNG)
    for uri in (root, pack_zip(tmp_path / "a.zip", files), pack_tar(tmp_path / "a.tar", files)):
        splits = detect(str(uri), top_folders="splits")
        rows = sorted(columns_of(listed(splits)[0], "split", "label"))
        assert rows == [("extra", "dog"), ("test", "cat"), ("train", "cat")]
        assert splits.states_splits
        assert splits.labels_from == "the folders below extra/, test/ and train2017/"
        classes = detect(str(uri), top_folders="classes")
        found = sorted(columns_of(listed(classes)[0], "split", "label"))
        assert found == [(None, "extra"), (None, "test"), (None, "train2017")]
    plain = make_files(tmp_path / "all", "train/cat/1.png", "test/cat/2.png")
    rows, _ = listed(detect(str(plain), top_folders="classes"))
    assert columns_of(rows, "split", "label") == [(None, "test"), (None, "train")]


def test_metadata_files_in_folders_that_may_be_either(tmp_path: Path) -> None:
    root = make_files(tmp_path / "in", "train/1.png", "test/2.png", "extra/3.png")
    for folder in ("train", "test", "extra"):
        [image] = (root / folder).iterdir()
        (root / folder / "metadata.csv").write_text(f"file_name,label\n{image.name},cat\n")
    with pytest.raises(UsageError, match="may be splits or classes"):
        detect(str(root))
    source = detect(str(root), top_folders="splits")
    assert source.name == "image-folder"
    rows = sorted(columns_of(listed(source)[0], "split", "label"))
    assert rows == [("extra", "cat"), ("test", "cat"), ("train", "cat")]


def test_a_choice_without_top_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "1.png")
    table = tmp_path / "table.csv"
    table.write_text("image,label\n1.png,cat\n")
    with pytest.raises(
        UsageError, match="--top-folders is for folders and archives of images, but"
    ):
        detect(str(table), top_folders="classes")
    with pytest.raises(UsageError, match=r"--top-folders splits: INPUT .* has no folders"):
        detect(str(tmp_path), top_folders="splits", input_format="folder")
