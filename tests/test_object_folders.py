"""Listing prefixes of stores: the rows and rejects of the same files in a local folder, and what only stores have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.arguments import ROLES
from shardwright.errors import UsageError
from shardwright.storage import StorageOptions
from tests.buckets import Bucket
from tests.fault_proxy import Fault, FaultProxy
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.folders.object_folders import find_split_prefixes, list_prefix
from transforms.rejects import Reject, RejectReason

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
NONE = dict.fromkeys(ROLES)
FILES = {
    "cat/1.png": TINY_PNG, "cat/2.PNG": TINY_PNG, "dog/deep/er/3.jpg": b"no jpeg",
    "loose.png": TINY_PNG, "no-extension": TINY_PNG,
    "cat/ü #%41?+.png": TINY_PNG, "cat/empty.png": b"", "notes.txt": b"not an image", "cat/Thumbs.db": b"x", ".hidden/4.png": TINY_PNG,
    "cat/.5.png": TINY_PNG, "__MACOSX/6.png": TINY_PNG, "jpeg.bin": b"\xff\xd8\xff...", "short": b"B", "empty.txt": b"",
    " /7.png": TINY_PNG,
}  # fmt: skip


def upload(bucket: Bucket, prefix: str, files: dict[str, bytes] = FILES) -> None:
    for name, data in files.items():
        bucket.folder(prefix).write_bytes(name, data)


def listed(
    bucket: Bucket, prefix: str = "in", **options: str
) -> tuple[list[tuple[object, ...]], list[Reject]]:
    """(id, num_bytes, split, label) of each row, and the rejects; both sorted."""
    parts = list(
        list_source(
            detect_source(f"{bucket.uri}/{prefix}", NONE, storage=bucket.options(**options))
        )
    )
    rows = [
        tuple(row[name] for name in ("id", "num_bytes", "split", "label")) for row in rows_of(parts)
    ]
    return sorted(rows, key=str), sorted(rejects_of(parts), key=lambda reject: reject.id)


@BOTH
@pytest.mark.parametrize("prefix", ["in", "a b/ü%41"])
def test_the_same_as_of_a_local_folder(bucket: Bucket, tmp_path: Path, prefix: str) -> None:
    upload(bucket, prefix)
    upload(bucket, prefix + "-not", {"8.png": TINY_PNG})
    for name, data in FILES.items():
        make_files(tmp_path, name, data=data)
    parts = list(list_source(detect_source(str(tmp_path), NONE)))
    local = sorted(
        (
            tuple(row[name] for name in ("id", "num_bytes", "split", "label"))
            for row in rows_of(parts)
        ),
        key=str,
    )
    rows, rejects = listed(bucket, prefix)
    assert rows == local
    wanted = {reject.id: (reject.reason, reject.detail) for reject in rejects_of(parts)}
    found = {reject.id: (reject.reason, reject.detail) for reject in rejects}
    for folder in (".hidden", "__MACOSX"):  # a store has no folders: each file in it is told
        wanted[next(image_id for image_id in found if image_id.startswith(folder))] = wanted.pop(
            folder
        )
    assert found == wanted
    assert {reject.uri for reject in rejects} == {
        f"{bucket.uri}/{prefix}/{reject.id}" for reject in rejects
    }


@BOTH
def test_rows_name_what_is_read_later(bucket: Bucket) -> None:
    upload(bucket, "in", {"cat/ü #%41?+.png": TINY_PNG})
    source = FolderSource(f"{bucket.uri}/in", storage=bucket.options())
    [row] = list_prefix(source.root, (), source.storage)
    assert not isinstance(row, Reject)
    found = bucket.client().objects.head("in/cat/ü #%41?+.png")
    assert (row.uri, row.etag) == (f"{bucket.uri}/in/cat/ü #%41?+.png", found["e_tag"].strip('"'))


@pytest.mark.parametrize(
    ("names", "split_folders"),
    [
        (["train/cat/1.png", "val/cat/2.png"], ("train", "val")),
        (["Train/1.png", "TEST/2.png"], ("TEST", "Train")),
        (["train/1.png", "val/2.png", "notes.txt"], ("train", "val")),
        (["train/1.png", "val/2.png", ".git/3", "__MACOSX/4"], ("train", "val")),
        (["train/1.png", "val/2.png", "loose.png"], ()),
        (["train/1.png", "cat/2.png"], ()),
        (["training", "validation"], ()),
        (["1.png"], ()),
    ],
)
def test_split_folders(
    gcs_bucket: Bucket, names: list[str], split_folders: tuple[str, ...]
) -> None:
    upload(gcs_bucket, "in", dict.fromkeys(names, TINY_PNG))
    options = gcs_bucket.options()
    for prefix in ("in", ""):
        if not prefix:
            upload(gcs_bucket, "", dict.fromkeys(names, TINY_PNG))
            gcs_bucket.folder("in").remove_all(names)
        assert (
            find_split_prefixes(f"{gcs_bucket.uri}/{prefix}".rstrip("/"), options) == split_folders
        )


def test_splits_and_labels_of_rows(gcs_bucket: Bucket) -> None:
    upload(
        gcs_bucket,
        "in",
        dict.fromkeys(["Train/cat/1.png", "val/2.png", "val/dog/deep/3.png"], TINY_PNG),
    )
    assert [row[2:] + row[:1] for row in listed(gcs_bucket)[0]] == [
        ("train", "cat", "Train/cat/1.png"), ("validation", None, "val/2.png"), ("validation", "dog", "val/dog/deep/3.png")
    ]  # fmt: skip
    assert detect_source(
        f"{gcs_bucket.uri}/in/", NONE, storage=gcs_bucket.options()
    ).describe() == (f"split folders (Train, val) at {gcs_bucket.uri}/in")


def test_what_stands_for_a_folder_is_nobody_s_image(
    moto_bucket: Bucket, gcs_bucket: Bucket
) -> None:
    """Consoles and sync tools leave objects without bytes whose names end with a slash."""
    for bucket in (moto_bucket, gcs_bucket):
        for marker in ("in/", "in/cat/", "in/dog/empty/"):
            bucket.put(marker, b"")
        bucket.put("in/cat/1.png", TINY_PNG)
        rows, rejects = listed(bucket)
        assert [row[0] for row in rows] == ["cat/1.png"]
        assert {(reject.id.rstrip("/"), reject.reason, reject.detail) for reject in rejects} == {
            (name, RejectReason.OTHER_FILE, "stands for a folder") for name in ("cat", "dog/empty")
        }


def test_names_that_nobody_can_ask_for_are_rejects(moto_bucket: Bucket, gcs_bucket: Bucket) -> None:
    for bucket in (moto_bucket, gcs_bucket):
        odd = ["a//b.png", "./x.png", "cat/../y.png", "cat/\x01.png", "/z.png"]
        for name in ["cat/1.png", *odd]:
            bucket.put(f"in/{name}", TINY_PNG)
        rows, rejects = listed(bucket)
        assert [row[0] for row in rows] == ["cat/1.png"]
        assert {reject.id: str(reject.reason) for reject in rejects} == dict.fromkeys(odd, "bad_id")
        assert {reject.detail.partition(" in its name")[0] for reject in rejects} == {
            "the object has an empty, '.' or '..' part", "the object has a control character"
        }  # fmt: skip


@BOTH
def test_only_first_bytes_of_files_without_an_image_s_name_are_read(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    upload(bucket, "in", {"1.png": TINY_PNG, "2.txt": b"t" * 100_000, "3": TINY_PNG})
    rows, rejects = listed(bucket.behind(proxy))
    assert ([row[0] for row in rows], [reject.id for reject in rejects]) == (
        ["1.png", "3"],
        ["2.txt"],
    )
    asked = [
        re.split("%2F|/", target)[-1].replace("%2E", ".")
        for _, target in proxy.requests
        if "list-type" not in target
    ]
    # To know what the prefix is, it was asked for a metadata file, too.
    assert sorted(name for name in asked if not name.startswith("metadata.")) == ["2.txt", "3"]
    assert proxy.num_bytes_down < 30_000  # headers of answers, and not the 100,000 bytes of 2.txt


def test_a_look_that_is_denied_is_a_reject(gcs_bucket: Bucket) -> None:
    upload(gcs_bucket, "in", {"1.png": TINY_PNG})
    gcs_bucket.put("in/denied/2", TINY_PNG)
    rows, [reject] = listed(gcs_bucket)
    assert [row[0] for row in rows] == ["1.png"]
    assert (reject.id, reject.reason) == ("denied/2", RejectReason.UNREADABLE)
    assert reject.detail.startswith(
        f"{gcs_bucket.uri}/in/denied/2: access denied: these credentials may not read it"
    )


def test_a_look_at_what_is_gone_is_a_reject(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    upload(s3_bucket, "in", {"1.png": TINY_PNG, "gone": TINY_PNG})
    s3_proxy.add(Fault("status", None, status=404, path_contains="/in/gone"))
    rows, [reject] = listed(s3_bucket.behind(s3_proxy))
    assert [row[0] for row in rows] == ["1.png"]
    assert (reject.id, reject.reason, reject.detail) == (
        "gone", RejectReason.UNREADABLE, f"{s3_bucket.uri}/in/gone: there is no such object"
    )  # fmt: skip


@BOTH
def test_nothing_there(bucket: Bucket) -> None:
    bucket.put("in-2/1.png", TINY_PNG)
    for prefix in ("in", "nowhere", "in-2/1.png"):
        with pytest.raises(
            UsageError,
            match=rf"^INPUT {bucket.uri}/{prefix} does not exist: there are no objects below it$",
        ):
            detect_source(f"{bucket.uri}/{prefix}", NONE, storage=bucket.options())
    assert detect_source(bucket.uri, NONE, storage=bucket.options()) == FolderSource(
        bucket.uri, storage=bucket.options()
    )


def test_many_objects_come_in_batches(gcs_bucket: Bucket) -> None:
    keys = gcs_bucket.fill(
        (f"in/{number % 3}/{number:05d}.png" for number in range(2300)), TINY_PNG
    )
    rows, rejects = listed(gcs_bucket)
    assert ([f"in/{row[0]}" for row in rows], rejects) == (sorted(keys), [])


def test_columns_are_for_tables(gcs_bucket: Bucket) -> None:
    upload(gcs_bucket, "in")
    with pytest.raises(
        UsageError,
        match=rf"^--label-column is for a table, and INPUT {gcs_bucket.uri}/in is a folder",
    ):
        detect_source(f"{gcs_bucket.uri}/in", {**NONE, "label": "x"}, storage=gcs_bucket.options())


def test_a_web_server_is_no_folder() -> None:
    with pytest.raises(
        Exception, match="a web server does not list its files: this needs a folder or a store"
    ):
        detect_source("https://127.0.0.1:1/in", NONE, storage=StorageOptions())
