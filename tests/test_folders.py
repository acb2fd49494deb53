"""Listing folders: which split and label a path means, and one reject for each thing that can be no record."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shardwright.errors import UsageError
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from transforms.inputs.detection import list_source
from transforms.inputs.file_rules import MAX_IMAGE_BYTES, FileRow, etag_of
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.folders.local_folders import find_split_folders, list_folder
from transforms.references import BATCH_ROWS
from transforms.rejects import Reject

Listing = tuple[dict[str, tuple[str | None, str | None]], dict[str, str]]


def listing(root: Path) -> Listing:
    """id -> (split, label) of the references, and id -> reason of the rejects."""
    found = list(list_folder(str(root), find_split_folders(str(root))))
    rows = {row.id: (row.split, row.label) for row in found if not isinstance(row, Reject)}
    return rows, {reject.id: str(reject.reason) for reject in found if isinstance(reject, Reject)}


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        (["cat/1.png", "dog/2.png"], {"cat/1.png": (None, "cat"), "dog/2.png": (None, "dog")}),
        (["1.png", "2.png"], {"1.png": (None, None), "2.png": (None, None)}),
        (["cat/a/b/1.png", "cat/c/1.png"], {"cat/a/b/1.png": (None, "cat"), "cat/c/1.png": (None, "cat")}),
        (["train/cat/1.png", "test/dog/2.png"], {"train/cat/1.png": ("train", "cat"), "test/dog/2.png": ("test", "dog")}),
        (
            ["Training/cat/1.png", "VAL/cat/2.png", "dev/cat/3.png", "valid/cat/4.png", "TeSt/cat/a/5.png"],
            {
                "Training/cat/1.png": ("train", "cat"),
                "VAL/cat/2.png": ("validation", "cat"),
                "dev/cat/3.png": ("validation", "cat"),
                "valid/cat/4.png": ("validation", "cat"),
                "TeSt/cat/a/5.png": ("test", "cat"),
            },
        ),
        (["train/1.png", "val/2.png"], {"train/1.png": ("train", None), "val/2.png": ("validation", None)}),
        (["train/1.png"], {"train/1.png": ("train", None)}),
        # One folder that is no split, or one loose image, and the split names are class names.
        (["train/1.png", "ship/2.png"], {"train/1.png": (None, "train"), "ship/2.png": (None, "ship")}),
        (["train/1.png", "loose.png"], {"train/1.png": (None, "train"), "loose.png": (None, None)}),
        (["cat/1.png", "loose.PNG"], {"cat/1.png": (None, "cat"), "loose.PNG": (None, None)}),
        (["cat /1.png", " /2.png"], {"cat /1.png": (None, "cat"), " /2.png": (None, None)}),
        (["cat/with space%20#1?.png", "cat/new\nline.png", "🐱/é.png"],
         {"cat/with space%20#1?.png": (None, "cat"), "cat/new\nline.png": (None, "cat"), "🐱/é.png": (None, "🐱")}),
    ],
)  # fmt: skip
def test_splits_and_labels(
    tmp_path: Path, files: list[str], rows: dict[str, tuple[str | None, str | None]]
) -> None:
    assert listing(make_files(tmp_path, *files)) == (rows, {})


def test_companions_of_split_folders_do_not_hide_them(tmp_path: Path) -> None:
    make_files(
        tmp_path,
        "train/cat/1.png",
        "val/cat/2.png",
        ".DS_Store",
        "README.md",
        "labels.txt",
        "__MACOSX/x.png",
        data=b"text",
    )
    assert find_split_folders(str(tmp_path)) == ("train", "val")


def test_a_row_holds_what_later_steps_need(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/1.png")
    row = next(iter(list_folder(str(tmp_path), ())))
    path = tmp_path / "cat" / "1.png"
    assert row == FileRow(
        "cat/1.png", str(path), len(TINY_PNG), etag_of(path.stat()), split=None, label="cat"
    )
    os.utime(path, ns=(0, 12345))
    assert etag_of(path.stat()) == "3039"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.png", b"", "empty_file"),
        ("notes.txt", b"hello", "other_file"),
        ("notes.txt", b"", "empty_file"),
        ("Thumbs.db", TINY_PNG, "other_file"),
        ("desktop.ini", TINY_PNG, "other_file"),
        (".hidden.png", TINY_PNG, "other_file"),
        ("._resource.png", TINY_PNG, "other_file"),
        (".git/objects/x.png", TINY_PNG, "other_file"),
        ("__MACOSX/x.png", TINY_PNG, "other_file"),
        ("png", b"no dot, so this is no extension", "other_file"),
        # Settled later, by a look at the content:
        ("image.txt", TINY_PNG, None),
        ("no_extension", b"\xff\xd8\xff\xe0", None),
        ("text.jpg", b"hello", None),
        ("photo.HEIC", b"whatever", None),
    ],
)
def test_files_that_are_no_images(
    tmp_path: Path, name: str, data: bytes, reason: str | None
) -> None:
    rows, rejects = listing(make_files(tmp_path, f"cat/{name}", data=data))
    listed = (
        f"cat/{name.split('/')[0]}" if name.startswith((".git", "__")) else f"cat/{name}"
    )  # a hidden folder is one reject
    assert (list(rows), rejects) == (([listed], {}) if reason is None else ([], {listed: reason}))


def test_links_are_followed(tmp_path: Path) -> None:
    elsewhere = make_files(tmp_path / "elsewhere", "real.png", "more/deep.png")
    root = make_files(tmp_path / "in", "cat/1.png")
    (root / "cat" / "link.png").symlink_to(elsewhere / "real.png")
    (root / "dog").symlink_to(elsewhere / "more")
    assert listing(root) == (
        {"cat/1.png": (None, "cat"), "cat/link.png": (None, "cat"), "dog/deep.png": (None, "dog")},
        {},
    )


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    root = make_files(tmp_path / "in", "cat/1.png")
    (root / "cat" / "gone.png").symlink_to(tmp_path / "nothing.png")
    (root / "cat" / "self.png").symlink_to(root / "cat" / "self.png")
    (root / "cat" / "folder").symlink_to(root / "cat" / "folder")
    (root / "cat" / "long.png").symlink_to("x" * 300)
    (root / "cat" / "through.png").symlink_to(root / "cat" / "1.png" / "below.png")
    (root / "cat" / "up").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    (root / "dots").symlink_to("..")  # the folder above INPUT, which holds INPUT again
    rows, rejects = listing(root)
    assert list(rows) == ["cat/1.png"]
    assert rejects == {
        "cat/gone.png": "missing_file",
        "cat/self.png": "unreadable",
        "cat/folder": "unreadable",
        "cat/long.png": "unreadable",
        "cat/through.png": "unreadable",
        "cat/up": "other_file",
        "loop": "unreadable",
        "dots/in": "other_file",
    }


def test_things_that_are_no_files(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/1.png")
    os.mkfifo(root / "cat" / "pipe.png")  # opening it would wait for ever
    os.mkfifo(root / "cat" / "pipe")
    rows, rejects = listing(root)
    assert (list(rows), rejects) == (
        ["cat/1.png"],
        {"cat/pipe.png": "unreadable", "cat/pipe": "unreadable"},
    )


def test_files_too_large_for_a_record(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/1.png")
    for name, size in (("most.png", MAX_IMAGE_BYTES), ("more.png", MAX_IMAGE_BYTES + 1)):
        with open(root / "cat" / name, "wb") as file:
            file.truncate(size)  # sparse: takes no room
    rows, rejects = listing(root)
    assert (sorted(rows), rejects) == (["cat/1.png", "cat/most.png"], {"cat/more.png": "too_large"})


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/1.png")
    for name in (b"cat/caf\xe9.png", b"d\xff/2.png"):
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(TINY_PNG)
    rejects = rejects_of(list_folder(str(root), find_split_folders(str(root))))
    assert [(str(reject.reason), reject.id, reject.uri) for reject in rejects] == [
        ("bad_id", "", f"{root}/cat/caf\\xe9.png"),
        ("bad_id", "", f"{root}/d\\xff/2.png"),
    ]
    assert rejects[0].detail == "the file's name is not UTF-8: rename it"
    assert [
        row["id"]
        for row in rows_of(list_source(FolderSource(str(root), find_split_folders(str(root)))))
    ] == ["cat/1.png"]


def test_what_goes_away_while_it_is_listed(tmp_path: Path) -> None:
    root = make_files(tmp_path, "a/1.png", "a/2.png", "b/3.png")
    listed = list_folder(str(root), find_split_folders(str(root)))
    first = next(listed)
    (root / "a" / "2.png").unlink()
    shutil.rmtree(root / "b")
    assert not isinstance(first, Reject)
    assert [(part.id, str(part.reason)) for part in listed if isinstance(part, Reject)] == [
        ("a/2.png", "missing_file"),
        ("b", "unreadable"),
    ]


def test_a_root_that_goes_away(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be listed: No such file or directory"):
        find_split_folders(str(tmp_path / "gone"))
    (reject,) = list_folder(str(tmp_path / "gone"), ())
    assert isinstance(reject, Reject)
    assert reject.detail == "cannot list the folder: No such file or directory"


def test_folders_nested_deeper_than_python_calls(tmp_path: Path) -> None:
    folders = [f"{tmp_path}{'/d' * depth}" for depth in range(1, 1101)]
    for folder in folders:
        os.mkdir(folder)
    os.mkfifo(f"{folders[-1]}/1.png")
    try:
        found = list(list_folder(str(tmp_path), ()))
    finally:  # shutil.rmtree, which clears up after tests, does not go this deep
        os.unlink(f"{folders[-1]}/1.png")
        for folder in folders[::-1]:
            os.rmdir(folder)
    assert [reject.id for reject in rejects_of(found)] == ["d/" * 1100 + "1.png"]


def test_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    names = [
        "b/2.png",
        "a/9.png",
        "B/1.png",
        "a/10.png",
        "ä.png",
        "a.png",
        "a/b/1.png",
        "a-b/1.png",
    ]
    make_files(tmp_path, *names)
    ids = [row["id"] for row in rows_of(list_source(FolderSource(str(tmp_path))))]
    assert ids == [
        "B/1.png",
        "a/10.png",
        "a/9.png",
        "a/b/1.png",
        "a-b/1.png",
        "a.png",
        "b/2.png",
        "ä.png",
    ]


def test_batches_end_at_their_size(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/0.png")
    for number in range(1, BATCH_ROWS + 1):
        os.link(tmp_path / "cat" / "0.png", tmp_path / "cat" / f"{number}.png")
    batches = list(list_source(FolderSource(str(tmp_path))))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 1]  # type: ignore[union-attr]
    assert len({row["id"] for row in rows_of(batches)}) == BATCH_ROWS + 1


@pytest.mark.parametrize("files", [[], ["README.md"], [".DS_Store"]])
def test_a_folder_without_images(tmp_path: Path, files: list[str]) -> None:
    assert rows_of(list_source(FolderSource(str(make_files(tmp_path, *files, data=b"text"))))) == []
