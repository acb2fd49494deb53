"""Folders of images as INPUT: splits and labels of paths, rejects of files, and stores."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import StorageError, UsageError
from shardwright.storage.counters import COUNTERS
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES, NO_IMAGE_NAME
from shardwright.transforms.inputs.formats.folders import find_splits, list_files
from shardwright.transforms.inputs.source import ImageRow, InputSource, SourceRequest
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listing_cases import PIPE, Case, by_case, listing, write_files
from tests.support.listings import detect, list_source

FOLDER = {"input_format": "folder"}
MANY = [f"c{number}/1.png" for number in range(9)]


def named(*places: tuple[str, str | None, str | None], **expected: Any) -> Case:
    """Return tiny images, and the split and label of each, in the order of their listing."""
    names, splits, labels = (list(column) for column in zip(*places, strict=True))
    return Case(names, rows={"id": names, "split": splits, "label": labels}, **expected)


# The order does not depend on the file system.
ORDER = ["B/1.png", "a/10.png", "a/9.png", "a/b/1.png", "a-b/1.png", "a.png", "b/2.png", "ä.png"]
CASES = {
    "classes": named(
        ("cat/1.png", None, "cat"), ("dog/deep/er/2.png", None, "dog"),
        says="a folder at FOLDER, with the folders cat, dog",
    ),
    "no classes": named(("1.png", None, None), ("2.png", None, None)),
    "splits": named(
        ("TeSt/cat/a/5.png", "test", "cat"), ("Training/cat/1.png", "train", "cat"),
        ("VAL/cat/2.png", "validation", "cat"), ("dev/cat/3.png", "validation", "cat"),
        ("valid/cat/4.png", "validation", "cat"), source={"states_splits": True},
        says="split folders (TeSt, Training, VAL, dev, valid) at FOLDER",
    ),
    "splits without classes": named(
        ("train/1.png", "train", None), ("val/2.png", "validation", None)
    ),
    "one split": named(("train/1.png", "train", None)),
    "a loose image": named(("cat/1.png", None, "cat"), ("loose.PNG", None, None)),
    "blanks": named((" /2.png", None, None), ("cat /1.png", None, "cat")),
    "odd names": named(
        ("cat/new\nline.png", None, "cat"), ("cat/with space%20#1?.png", None, "cat"),
        ("🐱/é.png", None, "🐱"),
    ),
    "order": Case(ORDER[::-1], options=FOLDER, rows={"id": ORDER}),
    "other files": Case(
        {
            "cat/1.png": TINY_PNG, ".DS_Store": "x", "README.md": "x", "__MACOSX/x.png": TINY_PNG,
            "cat/empty.png": b"", "cat/empty.txt": b"", "cat/Thumbs.db": TINY_PNG,
            "cat/.hidden.png": TINY_PNG, "cat/png": b"no dot, so this is no extension",
            "cat/image.txt": TINY_PNG, "cat/no_extension": b"\xff\xd8\xff\xe0",
            "cat/.git/objects/x.png": TINY_PNG, "cat/__MACOSX/x.png": TINY_PNG,
            # A later step looks at the content.
            "cat/text.jpg": b"hello", "cat/photo.HEIC": b"whatever",
        },
        rows={"id": ["cat/1.png", "cat/photo.HEIC", "cat/text.jpg"], "label": ["cat"] * 3},
        rejects={
            "cat/empty.png": "empty_file", "cat/empty.txt": "empty_file",
            **dict.fromkeys((
                ".DS_Store", "README.md", "__MACOSX", "cat/Thumbs.db", "cat/.hidden.png", "cat/png",
                "cat/image.txt", "cat/no_extension", "cat/.git", "cat/__MACOSX",
            ), "other_file"),
        },
    ),
    "a missing folder": Case([], "gone", options=FOLDER, error=UsageError("gone does not exist")),
    "no top folders": Case(["1.png"], options={"top_folders": "splits", **FOLDER}, error=UsageError(
        r"--top-folders splits: INPUT .* has no folders"
    )),
    "top folders of a table": Case(
        {"t.csv": "image\n1.png\n"}, "t.csv", options={"top_folders": "classes"},
        error=UsageError("--top-folders is for folders and archives of images, but"),
    ),
    "top folders that are classes": Case(
        ["train/cat/1.png", "test/cat/2.png"], options={"top_folders": "classes"},
        rows={"split": [None, None], "label": ["test", "train"]},
    ),
}  # fmt: skip


@by_case(CASES)
def test_listing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def files_of(root: Path) -> list[ImageRow | Reject]:
    return list(list_files(str(root), find_splits(SourceRequest(str(root))), NO_OPTIONS))


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
    found = files_of(root)
    assert detect(str(root)).name == "folder"
    images = [row for row in found if isinstance(row, ImageRow)]
    assert {(row.id, row.label) for row in images} == {
        (name, name[:3]) for name in ("cat/1.png", "cat/link.png", "dog/deep.png")
    }
    path = str(root / "cat" / "1.png")
    assert images[0] == ImageRow("cat/1.png", path, len(TINY_PNG), "3039", split=None, label="cat")
    unreadable = ("self.png", "folder", "long.png", "through.png", "pipe", "pipe.png")
    assert {one.id: str(one.reason) for one in found if isinstance(one, Reject)} == {
        "cat/gone.png": "missing_file", "cat/up": "other_file", "dots/in": "other_file",
        **dict.fromkeys(("loop", *(f"cat/{name}" for name in unreadable)), "unreadable"),
    }  # fmt: skip


def test_large_files(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/most.png", "cat/more.png")
    for name, size in (("most.png", MAX_IMAGE_BYTES), ("more.png", MAX_IMAGE_BYTES + 1)):
        os.truncate(root / "cat" / name, size)  # sparse: takes no room
    found = listing(root)
    assert (found.of("id"), found.reasons) == ([("cat/most.png",)], {"cat/more.png": "too_large"})


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = make_files(tmp_path, "cat/1.png", "cat/caf\udce9.png", "d\udcff/2.png")
    found = listing(root, input_format="folder")
    assert [(str(reject.reason), reject.id, reject.uri) for reject in found.rejects] == [
        ("bad_id", "", f"{root}/cat/caf\\xe9.png"), ("bad_id", "", f"{root}/d\\xff/2.png"),
    ]  # fmt: skip
    assert found.rejects[0].detail == "the file's name is not UTF-8: rename it"
    assert found.of("id") == [("cat/1.png",)]


def test_files_that_go_away_while_they_are_listed(tmp_path: Path) -> None:
    root = make_files(tmp_path, "a/1.png", "a/2.png", "b/3.png")
    listed = list_files(str(root), (), NO_OPTIONS)
    assert isinstance(next(listed), ImageRow)
    (root / "a" / "2.png").unlink()
    shutil.rmtree(root / "b")
    rejects = [(part.id, str(part.reason)) for part in listed if isinstance(part, Reject)]
    assert rejects == [("a/2.png", "missing_file"), ("b", "incomplete")]
    [gone] = files_of(root / "gone")
    assert isinstance(gone, Reject)
    assert gone.detail == "cannot list the folder: No such file or directory"


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


def test_batches_end_at_their_size(tmp_path: Path) -> None:
    make_files(tmp_path, "cat/0.png")
    for number in range(1, BATCH_ROWS + 1):
        os.link(tmp_path / "cat" / "0.png", tmp_path / "cat" / f"{number}.png")
    batches: list[Any] = list(list_source(detect(str(tmp_path), **FOLDER)))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 1]
    assert len({row["id"] for row in rows_of(batches)}) == BATCH_ROWS + 1


@pytest.mark.parametrize("names", [
    ["train/1.png", "test/2.png", "unlabeled/3.png"],
    ["train/1.png", "ship/2.png"],
    ["train/cat/1.png", "2.png"],
    ["seg_train/cat/1.png", "seg_test/cat/2.png", "seg_pred/3.png"],
    ["train2017/1.png", "val2017/2.png"],
    ["trainA/1.png", "trainB/2.png", "testA/3.png", "testB/4.png"],
    # Among many folders: two splits, or one with class folders.
    ["train/1.png", "test/2.png", *MANY],
    ["test/cat/1.png", *MANY],
])  # fmt: skip
def test_folders_that_may_be_splits_or_classes(tmp_path: Path, names: list[str]) -> None:
    root = write_files(tmp_path, {"in put/a.zip": dict.fromkeys(names, TINY_PNG)}) / "in put"
    for uri in (f"{root}/a.zip", str(make_files(root / "in", *names))):
        with pytest.raises(UsageError, match="may be splits or classes") as error:
            detect(uri)
        for reading in ("splits", "classes"):
            command = f"`shardwright build {shlex.quote(uri)} OUTPUT --top-folders {reading}`"
            assert command in str(error.value)


@pytest.mark.parametrize(("names", "splits"), [
    (["test/1.png", *MANY], ()),
    (["testing/cat/1.png", "Training/cat/2.png"], ("Training", "testing")),
    (["training_set/cat/1.png", "test_set/cat/2.png"], ("test_set", "training_set")),
    (["extra/1.png", "unlabeled/2.png", "bullet_train/1.png"], ()),
    (["contest/1.png", "latest/2.png", "trainer/3.png"], ()),
])  # fmt: skip
def test_folders_that_have_one_reading(
    tmp_path: Path, names: list[str], splits: tuple[str, ...]
) -> None:
    root = make_files(tmp_path / "in", *names)
    assert find_splits(SourceRequest(str(root))) == splits
    write_files(tmp_path, {"a.tar": dict.fromkeys(names, TINY_PNG)})
    assert detect(f"{tmp_path}/a.tar").states_splits == bool(splits)


THREE = ["extra/dog/3.png", "test/cat/2.png", "train2017/cat/1.png"]
METADATA = {
    name: content
    for number, folder in enumerate(("train", "test", "extra"))
    for name, content in ((f"{folder}/{number}.png", TINY_PNG),
                          (f"{folder}/metadata.csv", f"file_name,label\n{number}.png,cat\n"))
}  # fmt: skip


@pytest.mark.parametrize("at", ["", "a.zip", "a.tar"])
def test_the_choice_of_the_user(tmp_path: Path, at: str) -> None:
    """Every top folder is a split, called as written unless it has a usual name; or a class."""
    files = {at: dict.fromkeys(THREE, TINY_PNG)} if at else THREE
    Case(
        files, at, options={"top_folders": "splits"},
        rows={"split": ["extra", "test", "train"], "label": ["dog", "cat", "cat"]},
        source={"states_splits": True,
                "labels_from": "the folders below extra/, test/ and train2017/"},
    ).check(tmp_path / "splits")  # fmt: skip
    Case(
        files, at, options={"top_folders": "classes"},
        rows={"split": [None] * 3, "label": ["extra", "test", "train2017"]},
    ).check(tmp_path / "classes")  # fmt: skip


def test_metadata_files_in_folders_that_may_be_either(tmp_path: Path) -> None:
    error = UsageError("may be splits or classes")
    Case(METADATA, error=error).check(tmp_path / "either")
    found = Case(
        METADATA, options={"top_folders": "splits"}, rejects={}, source={"name": "image-folder"}
    ).listed(tmp_path / "splits")
    assert sorted(found.of("split", "label")) == [
        ("extra", "cat"), ("test", "cat"), ("train", "cat")
    ]  # fmt: skip


PIPES = [
    *("metadata.csv", "metadata.jsonl", "metadata.parquet", "_annotations.coco.json"),
    *("1.xml", "1.txt", "data.yaml", "train.tar", "a.tgz", "a.zip", "a.tfrecord", "a.tfrecord.gz"),
    *("features.json", "labels.txt", "train.csv", "a.parquet", "2.png"),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("image", ["cat/1.png", "1.png", ""])
@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_an_error_or_a_reject(name: str, image: str, tmp_path: Path) -> None:
    """Only regular files are opened: a named pipe would wait for a writer for ever."""
    root = write_files(tmp_path / "in", {name: PIPE, **({image: TINY_PNG} if image else {})})
    with suppress(UsageError, StorageError):
        found = listing(root)
        [reject] = found.rejects
        assert (Path(reject.uri).name, reject.detail) == (name, "not a regular file")
        assert len(found.rows) == bool(image)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.tfrecord", "a.csv", "a.jsonl"])
def test_a_pipe_as_input(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises((UsageError, StorageError), match=name):
        listing(tmp_path / name)


FILES = {
    "cat/1.png": TINY_PNG, "cat/2.PNG": TINY_PNG, "dog/deep/er/3.jpg": b"no jpeg",
    "loose.png": TINY_PNG, "no-extension": TINY_PNG, "cat/ü #%41?+.png": TINY_PNG,
    "cat/empty.png": b"", "notes.txt": b"not an image", "cat/Thumbs.db": b"x",
    ".hidden/4.png": TINY_PNG, "cat/.5.png": TINY_PNG, "__MACOSX/6.png": TINY_PNG,
    "jpeg.bin": b"\xff\xd8\xff...", "short": b"B", "empty.txt": b"", " /7.png": TINY_PNG,
}  # fmt: skip


@on_s3_and_gcs
@pytest.mark.parametrize("prefix", ["in", "a b/ü%41"])
def test_the_same_in_a_store(bucket: Bucket, tmp_path: Path, prefix: str) -> None:
    local = listing(write_files(tmp_path, FILES))
    for name, data in {**FILES, f"../{prefix.rpartition('/')[2]}-not/8.png": TINY_PNG}.items():
        bucket.put(os.path.normpath(f"{prefix}/{name}"), data)
    found = listing(f"{bucket.uri}/{prefix}", storage=bucket.options())
    names = ("id", "num_bytes", "split", "label")
    assert sorted(found.of(*names), key=str) == sorted(local.of(*names), key=str)
    expected = local.details
    for folder in (".hidden", "__MACOSX"):  # a store has no folders: each file is a reject
        [name] = [name for name in FILES if name.startswith(folder)]
        expected[name] = expected.pop(folder)
    assert found.details == expected
    for reject in found.rejects:
        assert reject.uri == f"{bucket.uri}/{prefix}/{reject.id}"
    for row in found.rows:
        etag = bucket.client().objects.head(f"{prefix}/{row['id']}")["e_tag"].strip('"')
        assert (row["uri"], row["etag"]) == (f"{bucket.uri}/{prefix}/{row['id']}", etag)


def ids_of_part(source: InputSource, part: str) -> list[str]:
    return [row["id"] for row in rows_of(source.list_part(part))]


@pytest.mark.long
@on_s3_and_gcs
def test_workers_list_ranges_of_a_long_prefix(bucket: Bucket) -> None:
    bucket.fill([f"in/{'äb c'[number % 4]}/{number}.png" for number in range(2500)], TINY_PNG)
    bucket.put("in/", b"")  # listed and left out
    source = detect(f"{bucket.uri}/in", storage=bucket.options())
    found = [sorted(ids_of_part(source, part)) for part in source.worker_parts()]
    assert 1 < len(found) <= 16
    assert all(found)
    assert sorted(chain(*found)) == sorted(ids_of_part(source, ""))
    assert len(set(chain(*found))) == 2500
    short = detect(f"{bucket.uri}/in/c", storage=bucket.options())
    assert list(short.worker_parts()) == [""]


def test_text_beside_images_costs_no_request(
    s3_bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """A bucket of triples, as tools write them, is listed with one request per thousand keys."""
    names = [f"{number}.{kind}" for number in range(400) for kind in ("jpg", "json", "txt")]
    s3_bucket.fill([f"in/{name}" for name in names], TINY_PNG)
    source = detect(f"{s3_bucket.uri}/in", storage=s3_bucket.options(), **FOLDER)
    before = COUNTERS.snapshot().get("requests", 0)
    found = list(source.list_part(""))
    assert COUNTERS.snapshot()["requests"] - before <= 3
    reasons = Counter(str(row.reason) for row in found if isinstance(row, Reject))
    assert (len(rows_of(found)), reasons) == (400, {"other_file": 800})
    assert "not images by their names: 400 ending in .json, 400 ending in .txt" in caplog.text


@pytest.mark.parametrize("num_others", [3, 1300])
def test_objects_with_other_names_are_never_read(s3_bucket: Bucket, num_others: int) -> None:
    """However many there are, and in however many parts, the listing is the same."""
    names = [f"{number:04d}.dat" for number in range(num_others)] + ["9.png", "zz"]
    s3_bucket.fill([f"in/{name}" for name in names], TINY_PNG)
    source = detect(f"{s3_bucket.uri}/in", storage=s3_bucket.options())
    for parts in (source.parts(), source.worker_parts()):
        found = [found for part in parts for found in source.list_part(part)]
        assert [row["id"] for row in rows_of(found)] == ["9.png"]
        rejects = {reject.id: (reject.reason, reject.detail) for reject in rejects_of(found)}
        assert rejects == dict.fromkeys({*names} - {"9.png"}, NO_IMAGE_NAME)


def test_a_web_server_is_no_folder() -> None:
    message = "a web server cannot be listed: use a folder or a bucket, or give the image URLs"
    with pytest.raises(StorageError, match=message):
        detect("https://127.0.0.1:1/in")


def test_all_formats_look_at_one_listing(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.fill(["in/cat/1.png", "in/dog/2.png", "in/notes.txt"], TINY_PNG)
    source = detect(f"{s3_bucket.uri}/in", storage=s3_bucket.behind(s3_proxy).options())
    assert source.name == "folder"
    assert len(s3_proxy.requests) == 2, "the first page and notes.txt"
