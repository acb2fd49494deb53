"""Addresses: local paths, stores with a key, and names that no client can request."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage.addresses import (
    absolute,
    is_remote,
    join,
    key_problem,
    local_path,
    parse_address,
)
from shardwright.storage.folder import Folder


@pytest.mark.parametrize(
    ("uri", "store", "key"),
    [
        ("s3://bucket", "s3://bucket", ""), ("s3://bucket/", "s3://bucket", ""),
        ("s3://bucket/a/b.png", "s3://bucket", "a/b.png"), ("S3://bucket/a", "s3://bucket", "a"),
        ("s3a://bucket/a", "s3://bucket", "a"), ("gs://bucket/a", "gs://bucket", "a"),
        ("gcs://bucket/a", "gs://bucket", "a"), ("az://container/a", "az://container", "a"),
        ("https://host:8000/a/b", "https://host:8000", "a/b"),
        ("https://host/a%20b", "https://host", "a b"), ("http://[::1]/a", "http://[::1]", "a"),
        ("s3://bucket/a%20b?c#d&", "s3://bucket", "a%20b?c#d&"),
        ("s3://bucket//a", "s3://bucket", "/a"), ("s3://bucket/a://b", "s3://bucket", "a://b"),
        ("s3://bucket/ü/🐱", "s3://bucket", "ü/🐱"),
    ],
)  # fmt: skip
def test_parts(uri: str, store: str, key: str) -> None:
    assert is_remote(uri)
    assert parse_address(uri) == (store, key)
    assert parse_address(uri).uri == (f"{store}/{key}" if key else store)


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("s3://bucket/", "s3://bucket"), ("s3://bucket/a/", "s3://bucket/a"),
        ("s3a://bucket/a//", "s3://bucket/a"), ("gcs://bucket", "gs://bucket"),
        ("https://host/a%20b/", "https://host/a b"), ("/a/../b/", "/b"), ("file:///a/b", "/a/b"),
    ],
)  # fmt: skip
def test_one_form_of_each(uri: str, found: str) -> None:
    assert (absolute(uri), Folder.at(uri).uri, str(Folder.at(uri))) == (found,) * 3
    assert Folder.at(uri).is_remote == is_remote(uri) == ("://" in found)


@pytest.mark.parametrize("find", [absolute, local_path])
def test_local_paths(find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    paths = {
        "a": f"{tmp_path}/a", "~/a": "/home/me/a", "a:b": f"{tmp_path}/a:b",
        "a/../b": f"{tmp_path}/b", "a//b": f"{tmp_path}/a/b", ":/a": f"{tmp_path}/:/a",
        "file:///x/y": "/x/y",
        "3d://x": f"{tmp_path}/3d:/x",  # a scheme begins with a letter
    }  # fmt: skip
    assert {path: find(path) for path in paths} == paths
    assert not any(map(is_remote, paths))


PART = "has an empty, '.' or '..' part in its name, which is not supported: rename the object"
CONTROL = "has a control character in its name, which is not supported: rename the object"
EXPRESS = (
    "is in an S3 Express directory bucket, which is not supported: it lists in no order and its "
    "etags are no checksums; use a general purpose bucket"
)
OTHERS = "use a local path or one of s3://, gs://, az://, http://, https://"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hdfs://host/a", f"'hdfs://host/a': hdfs:// addresses are not supported; {OTHERS}"),
        ("S4://bucket", f"'S4://bucket': S4:// addresses are not supported; {OTHERS}"),
        ("s3://", "'s3://' has no bucket: write s3://BUCKET/PREFIX"),
        ("gs:///a", "'gs:///a' has no bucket: write gs://BUCKET/PREFIX"),
        ("s3a://fast--use1-az4--x-s3/a", f"'s3a://fast--use1-az4--x-s3/a' {EXPRESS}"),
        ("s3://bucket/a//b", f"'s3://bucket/a//b' {PART}"),
        ("s3://bucket//a", f"'s3://bucket//a' {PART}"),
        ("s3://bucket/../a", f"'s3://bucket/../a' {PART}"),
        ("s3://bucket/a\nb", f"'s3://bucket/a\\nb' {CONTROL}"),
    ],
)
def test_invalid_addresses(uri: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        Folder.at(uri)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://bucket/x", "hdfs://a", "http://x/y"])
def test_a_store_is_no_local_path(uri: str) -> None:
    message = f"^'{uri}' is in an object store, but must be a local path$"
    with pytest.raises(UsageError, match=message):
        local_path(uri)


def test_joining() -> None:
    assert join("/a", "b/c.png") == os.path.join("/a", "b", "c.png")
    assert join("s3://bucket", "b/c.png") == "s3://bucket/b/c.png"
    assert Folder.at("s3://bucket/a/").path("b c") == "s3://bucket/a/b c"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_keys_stay_as_written(key: str) -> None:
    address = parse_address(f"s3://bucket/{key}")
    assert address == ("s3://bucket", key)
    if key and key_problem(key) is None:
        assert absolute(address.uri) == address.uri


def test_valid_and_invalid_keys() -> None:
    valid = ["a", "a/b", "...", "a..b", "..a", ".a", "a/.b", " ", "a\\b", "\u0085", "\u200b"]
    assert [key_problem(key) for key in valid] == [None] * len(valid)
    parts = ["", "/a", "a/", "a//b", ".", "a/.", "./a", "..", "a/../b"]
    assert {key_problem(key) for key in parts} == {PART}
    assert {key_problem(key) for key in ("a\x00", "\x1f", "a\x7fb", "a\tb")} == {CONTROL}
