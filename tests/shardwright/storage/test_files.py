"""Lengths and modification times of files, on disks and in stores."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shardwright.errors import StorageError
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from tests.support.buckets import Bucket, on_s3_and_gcs


def test_local_files(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    assert (root.info("a"), root.files(), root.first_names()) == (None, {}, [])
    root.write_bytes("a", b"xyz")
    root.write_bytes("below/b", b"")
    os.utime(tmp_path / "a", (1.0, 12.5))
    os.utime(tmp_path / "below" / "b", (1.0, 13.5))
    assert root.info("a") == root.files()["a"] == FileInfo(3, 12.5)
    assert list(root.files()) == ["a"]
    assert root.files("below") == {"b": FileInfo(0, 13.5)}
    assert root.first_names() == ["a", "below"]
    assert (root.files("none"), root.below("a").files(), root.info("a/x")) == ({}, {}, None)
    assert root.below("none").first_names() == []


def test_names_that_cannot_be_accessed(tmp_path: Path) -> None:
    root, long = Folder(str(tmp_path)), "x" * 300
    with pytest.raises(StorageError, match=r"cannot be read: File name too long"):
        root.info(long)
    with pytest.raises(StorageError, match=r"cannot list .*: File name too long"):
        root.files(long)
    with pytest.raises(StorageError, match=r"cannot list .*: File name too long"):
        root.below(long).first_names()


@on_s3_and_gcs
def test_objects(bucket: Bucket) -> None:
    root = bucket.folder("data")
    assert (root.info("a"), root.files(), root.first_names()) == (None, {}, [])
    began = time.time()
    bucket.fill(["data/a", "data/below/b", "database"], b"xyz")
    found = root.files()
    assert list(found) == ["a"]
    alone = root.info("a")
    assert alone is not None
    assert found["a"].num_bytes == alone.num_bytes == 3
    assert abs(found["a"].modified - alone.modified) < 1  # a header has whole seconds
    assert began - 1 <= found["a"].modified <= time.time() + 1
    assert root.first_names() == ["a", "below"]
    assert bucket.folder().first_names() == ["data", "database"]
