"""Addresses: which are local, which name a store and a key, and which nobody could ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage import (
    Folder,
    absolute,
    is_remote,
    join,
    key_problem,
    local_path,
    parse_address,
)


@pytest.mark.parametrize(
    ("uri", "store", "key"),
    [
        ("s3://bucket", "s3://bucket", ""),
        ("s3://bucket/", "s3://bucket", ""),
        ("s3://bucket/a/b.png", "s3://bucket", "a/b.png"),
        ("S3://bucket/a", "s3://bucket", "a"),
        ("s3a://bucket/a", "s3://bucket", "a"),
        ("gs://bucket/a", "gs://bucket", "a"),
        ("gcs://bucket/a", "gs://bucket", "a"),
        ("az://container/a", "az://container", "a"),
        ("https://host:8000/a/b", "https://host:8000", "a/b"),
        ("https://host/a%20b", "https://host", "a b"),
        ("http://127.0.0.1/a", "http://127.0.0.1", "a"),
        ("s3://bucket/a%20b", "s3://bucket", "a%20b"),
        ("s3://bucket/a?b#c&d", "s3://bucket", "a?b#c&d"),
        ("s3://bucket//a", "s3://bucket", "/a"),
        ("s3://bucket/a://b", "s3://bucket", "a://b"),
        ("s3://bucket/ü/🐱", "s3://bucket", "ü/🐱"),
    ],
)
def test_parts(uri: str, store: str, key: str) -> None:
    assert is_remote(uri)
    assert parse_address(uri) == (store, key)
    assert parse_address(uri).uri == (f"{store}/{key}" if key else store)


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3a://bucket/a//", "s3://bucket/a"),
        ("gcs://bucket", "gs://bucket"),
        ("https://host/a%20b/", "https://host/a b"),
        ("/a/../b/", "/b"),
        ("file:///a/b", "/a/b"),
    ],
)
def test_one_form_of_each(uri: str, found: str) -> None:
    assert (absolute(uri), Folder.at(uri).uri, str(Folder.at(uri))) == (found,) * 3
    assert Folder.at(uri).is_remote == is_remote(uri) == ("://" in found)


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    here = {
        "a": f"{tmp_path}/a",
        "~/a": "/home/me/a",
        "a:b": f"{tmp_path}/a:b",
        "a//b": f"{tmp_path}/a/b",
        ":/a": f"{tmp_path}/:/a",
    }
    assert {path: absolute(path) for path in here} == here
    assert not any(map(is_remote, here))
    assert absolute("3d://x") == f"{tmp_path}/3d:/x", "a scheme begins with a letter"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        (
            "hdfs://host/a",
            "'hdfs://host/a': hdfs:// addresses are not read or written; give a local path or one of s3://, gs://, az://, http",
        ),
        ("S4://bucket", "'S4://bucket': S4:// addresses are not read or written; "),
        ("s3://", "'s3://' names no bucket: write s3://BUCKET/PREFIX"),
        ("gs:///a", "'gs:///a' names no bucket: write gs://BUCKET/PREFIX"),
        (
            "s3://bucket/a//b",
            "'s3://bucket/a//b' has an empty, '.' or '..' part in its name, which cannot be asked for",
        ),
        ("s3://bucket//a", "'s3://bucket//a' has an empty, '.' or '..' part"),
        ("s3://bucket/../a", "'s3://bucket/../a' has an empty, '.' or '..' part"),
        ("s3://bucket/./a", "'s3://bucket/./a' has an empty, '.' or '..' part"),
        ("s3://bucket/a\nb", r"'s3://bucket/a\\nb' has a control character in its name"),
    ],
)
def test_refused(uri: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"^{told}"):
        Folder.at(uri)


def test_a_store_is_no_local_path() -> None:
    with pytest.raises(
        UsageError,
        match=r"^'s3://bucket/a' is the address of a store, and this must be a local path$",
    ):
        local_path("s3://bucket/a")


def test_joining() -> None:
    assert join("/a", "b/c.png") == os.path.join("/a", "b", "c.png")
    assert join("s3://bucket", "b/c.png") == "s3://bucket/b/c.png"
    assert Folder.at("s3://bucket/a/").path("b c") == "s3://bucket/a/b c"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_keys_are_taken_as_they_are_written(key: str) -> None:
    address = parse_address(f"s3://bucket/{key}")
    assert address == ("s3://bucket", key)
    if key and key_problem(key) is None:
        assert absolute(address.uri) == address.uri


@pytest.mark.parametrize(
    "key", ["a", "a/b", "...", "a..b", "..a", ".a", "a/.b", " ", "a\\b", "\u0085", "\u200b"]
)
def test_names_that_can_be_asked_for(key: str) -> None:
    assert key_problem(key) is None


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", ".", "a/.", "./a", "..", "a/../b", "a\x00", "\x1f", "a\x7fb", "a\tb"],
)
def test_names_that_cannot(key: str) -> None:
    assert "cannot be asked for: rename the object" in str(key_problem(key))
