"""Listing folders: splits and labels of paths, and a reject for each file that can be no record."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shardwright.errors import UsageError
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES
from shardwright.transforms.inputs.formats.folders import find_splits, list_files
from shardwright.transforms.inputs.source import ImageRow, SourceRequest
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import detect, list_source

Places = dict[str, tuple[str | None, str | None]]


def splits_in(root: Path) -> tuple[str, ...]:
    return find_splits(SourceRequest(str(root)))


def listing(root: Path) -> tuple[Places, dict[str, str]]:
    """Return id -> (split, label) of the references, and id -> reason of the rejects."""
    found = list(list_files(str(root), splits_in(root), NO_OPTIONS))
    rows = {row.id: (row.split, row.label) for row in found if not isinstance(row, Reject)}
    return rows, {reject.id: str(reject.reason) for reject in found if isinstance(reject, Reject)}


def ids_of(root: Path) -> list[str]:
    source = detect(str(root), input_format="folder")
    return [row["id"] for row in rows_of(list_source(source))]


@pytest.mark.parametrize("places", [
    {"cat/1.png": (None, "cat"), "dog/2.png": (None, "dog")},
    {"1.png": (None, None), "2.png": (None, None)},
    {"cat/a/b/1.png": (None, "cat"), "cat/c/1.png": (None, "cat")},
    {"train/cat/1.png": ("train", "cat"), "test/dog/2.png": ("test", "dog")},
    {"Training/cat/1.png": ("train", "cat"), "VAL/cat/2.png": ("validation", "cat"),
     "dev/cat/3.png": ("validation", "cat"), "valid/cat/4.png": ("validation", "cat"),
     "TeSt/cat/a/5.png": ("test", "cat")},
    {"train/1.png": ("train", None), "val/2.png": ("validation", None)},
    {"train/1.png": ("train", None)}, {},
    {"cat/1.png": (None, "cat"), "loose.PNG": (None, None)},
    {"cat /1.png": (None, "cat"), " /2.png": (None, None)},
    {"cat/with space%20#1?.png": (None, "cat"), "cat/new\nline.png": (None, "cat"),
     "🐱/é.png": (None, "🐱")},
])  # fmt: skip
def test_splits_and_labels(tmp_path: Path, places: Places) -> None:
    """Other files beside the folders do not hide them."""
    make_files(tmp_path, ".DS_Store", "README.md", "__MACOSX/x.png", data=b"text")
    rejects = dict.fromkeys((".DS_Store", "README.md", "__MACOSX"), "other_file")
    assert listing(make_files(tmp_path, *places)) == (places, rejects)
    assert sorted(ids_of(tmp_path)) == sorted(places)


@pytest.mark.parametrize(("name", "data", "reason"), [
    ("empty.png", b"", "empty_file"), ("notes.txt", b"", "empty_file"),
    ("notes.txt", b"hello", "other_file"), ("Thumbs.db", TINY_PNG, "other_file"),
    (".hidden.png", TINY_PNG, "other_file"),
    ("png", b"no dot, so this is no extension", "other_file"),
    ("image.txt", TINY_PNG, "other_file"), ("no_extension", b"\xff\xd8\xff\xe0", "other_file"),
    # A later step looks at the content.
    ("text.jpg", b"hello", None), ("photo.HEIC", b"whatever", None),
])  # fmt: skip
def test_single_files(tmp_path: Path, name: str, data: bytes, reason: str | None) -> None:
    path = f"cat/{name}"
    rows, rejects = listing(make_files(tmp_path, path, data=data))
    assert (list(rows), rejects) == (([], {path: reason}) if reason else ([path], {}))


def test_links_loops_and_pipes(tmp_path: Path) -> None:
    elsewhere = make_files(tmp_path / "elsewhere", "real.png", "more/deep.png")
    root = make_files(tmp_path / "above" / "in", "cat/1.png")
    os.utime(root / "cat" / "1.png", ns=(0, 12345))
    for name, target in {
        "cat/link.png": elsewhere / "real.png",
        "dog": elsewhere / "more",
        "cat/gone.png": tmp_path / "nothing.png",
        "cat/self.png": root / "cat" / "self.png",
        "cat/folder": root / "cat" / "folder",
        "cat/long.png": "x" * 300,
        "cat/through.png": root / "cat" / "1.png" / "below.png",
        "cat/up": root,
        "loop": root / "loop",
        "dots": "..",  # the folder above INPUT, which holds INPUT again
    }.items():
        (root / name).symlink_to(target)
    for name in ("pipe", "pipe.png"):
        os.mkfifo(root / "cat" / name)  # to open it would wait forever
    rows, rejects = listing(root)
    assert detect(str(root)).name == "folder"
    assert rows == {
        name: (None, name[:3]) for name in ("cat/1.png", "cat/link.png", "dog/deep.png")
    }
    row = next(iter(list_files(str(root), (), NO_OPTIONS)))
    path = str(root / "cat" / "1.png")
    assert row == ImageRow("cat/1.png", path, len(TINY_PNG), "3039", split=None, label="cat")
    assert rejects == {
        "cat/gone.png": "missing_file", "cat/self.png": "unreadable", "cat/folder": "unreadable",
        "cat/long.png": "unreadable", "cat/through.png": "unreadable", "cat/up": "other_file",
        "loop": "unreadable", "dots/in": "other_file", "cat/pipe": "unreadable",
        "cat/pipe.png": "unreadable",
    }  # fmt: skip


def test_hidden_folders_are_one_reject_each_and_large_files(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/.git/objects/x.png", "cat/__MACOSX/x.png")
    root = make_files(tmp_path, "cat/1.png", "cat/most.png", "cat/more.png")
    for name, size in (("most.png", MAX_IMAGE_BYTES), ("more.png", MAX_IMAGE_BYTES + 1)):
        os.truncate(root / "cat" / name, size)  # sparse: takes no room
    rows, rejects = listing(root)
    assert sorted(rows) == ["cat/1.png", "cat/most.png"]
    hidden = dict.fromkeys(("cat/.git", "cat/__MACOSX"), "other_file")
    assert rejects == {"cat/more.png": "too_large", **hidden}


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/1.png", "cat/caf\udce9.png", "d\udcff/2.png")
    rejects = rejects_of(list_files(str(root), splits_in(root), NO_OPTIONS))
    assert [(str(reject.reason), reject.id, reject.uri) for reject in rejects] == [
        ("bad_id", "", f"{root}/cat/caf\\xe9.png"),
        ("bad_id", "", f"{root}/d\\xff/2.png"),
    ]
    assert rejects[0].detail == "the file's name is not UTF-8: rename it"
    assert ids_of(root) == ["cat/1.png"]


def test_files_that_go_away_while_they_are_listed(tmp_path: Path) -> None:
    root = make_files(tmp_path, "a/1.png", "a/2.png", "b/3.png")
    listed = list_files(str(root), splits_in(root), NO_OPTIONS)
    first = next(listed)
    (root / "a" / "2.png").unlink()
    shutil.rmtree(root / "b")
    assert not isinstance(first, Reject)
    assert [(part.id, str(part.reason)) for part in listed if isinstance(part, Reject)] == [
        ("a/2.png", "missing_file"),
        ("b", "incomplete"),
    ]


def test_a_root_that_goes_away(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone does not exist"):
        detect(f"{tmp_path}/gone", input_format="folder")
    assert splits_in(tmp_path / "gone") == ()
    (reject,) = rejects_of(list_files(str(tmp_path / "gone"), (), NO_OPTIONS))
    assert reject.detail == "cannot list the folder: No such file or directory"


def test_folders_nested_deeper_than_python_calls(tmp_path: Path) -> None:
    folders = [f"{tmp_path}{'/d' * depth}" for depth in range(1, 1101)]
    for folder in folders:
        os.mkdir(folder)
    os.mkfifo(f"{folders[-1]}/1.png")
    try:
        found = list(list_files(str(tmp_path), (), NO_OPTIONS))
    finally:  # shutil.rmtree, which clears up after tests, does not go this deep
        os.unlink(f"{folders[-1]}/1.png")
        for folder in folders[::-1]:
            os.rmdir(folder)
    assert [reject.id for reject in rejects_of(found)] == ["d/" * 1100 + "1.png"]


def test_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    ids = [
        "B/1.png", "a/10.png", "a/9.png", "a/b/1.png", "a-b/1.png", "a.png", "b/2.png", "ä.png"
    ]  # fmt: skip
    assert ids_of(make_files(tmp_path, *(ids[i] for i in (6, 2, 0, 1, 7, 5, 3, 4)))) == ids


def test_batches_end_at_their_size(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/0.png")
    for number in range(1, BATCH_ROWS + 1):
        os.link(tmp_path / "cat" / "0.png", tmp_path / "cat" / f"{number}.png")
    batches = list(list_source(detect(str(tmp_path), input_format="folder")))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 1]  # type: ignore[union-attr]
    assert len({row["id"] for row in rows_of(batches)}) == BATCH_ROWS + 1
