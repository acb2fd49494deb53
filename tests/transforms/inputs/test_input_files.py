"""The files that INPUT stands for: one, a wildcard's or a folder's; and splits by their names."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.folder_contents import expand_braces
from shardwright.transforms.inputs.input_files import (
    InputFile,
    checked,
    find_files,
    names_state_splits,
    state_of,
)
from shardwright.transforms.inputs.source import SourceRequest
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket
from tests.support.helpers import make_files

NAMES = (
    "a.rec", "b.rec", "c.png", "sub/d.rec", "train/e.rec", ".hidden.rec", "data/f.rec",
    "Val/g.rec", "README.md",
)  # fmt: skip
CASES = {
    "": ["Val/g.rec", "a.rec", "b.rec", "data/f.rec", "train/e.rec"], "/a.rec": ["a.rec"],
    "/c.png": [], "/train": ["e.rec"], "/no": [], "/[ab].rec": ["a.rec", "b.rec"],
    "/?.rec": ["a.rec", "b.rec"],
    "/*/?.rec": ["Val/g.rec", "data/f.rec", "sub/d.rec", "train/e.rec"],
    "/t*/*.rec": ["train/e.rec"], "/x*": [], "/{sub/d,train/e}.rec": ["sub/d.rec", "train/e.rec"],
}  # fmt: skip


def names_of(uri: str, **request: object) -> list[str]:
    found = find_files(SourceRequest(uri, **request), lambda name: name.endswith(".rec"))  # type: ignore[arg-type]
    assert all(file.uri.endswith(f"/{file.name}") for file in found)
    return [file.name for file in found]


@pytest.mark.parametrize("given", ["fotos/", "nowhere/photos"])
def test_a_missing_input(given: str) -> None:
    with pytest.raises(UsageError, match=f"^INPUT {given} does not exist: check its spelling$"):
        checked(SourceRequest(given))


def test_local(tmp_path: Path) -> None:
    make_files(tmp_path, *NAMES)
    assert {below: names_of(f"{tmp_path}{below}") for below in CASES} == CASES


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "a/1.rec", "b/2.rec")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError, match=f"cannot list {tmp_path}/b: Permission denied"):
        names_of(f"{tmp_path}/*/*.rec")
    assert names_of(f"{tmp_path}/a/[12].rec") == ["1.rec"]


def test_stores(bucket: Bucket) -> None:
    bucket.fill([f"in/{name}" for name in NAMES])
    uri, options = f"{bucket.uri}/in", bucket.options()
    assert {below: names_of(f"{uri}{below}", storage=options) for below in CASES} == CASES


def test_a_prefix_of_images_is_listed_once(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    """One page of 1,000 names shows that a prefix has no such files: it may have millions."""
    s3_bucket.fill([f"in/{number:05d}.png" for number in range(1001)])
    assert names_of(f"{s3_bucket.uri}/in", storage=s3_bucket.behind(s3_proxy).options()) == []
    assert len(s3_proxy.requests) == 1


def test_splits() -> None:
    splits = {
        "flowers-train.tfrecord-00000-of-00012": "train",
        "flowers-my_split.tfrecord-00000-of-00012": "my_split", "train-00000-of-01024": "train",
        "data/dev-00000-of-00002-abc.parquet": "validation", "x_Test.parquet": "test",
        "Split-eval/data_tfrecord-00000-of-00001.gz": "eval", "Eval/x.rec": "eval",
        "VALID/train.rec": "validation", "test_train.rec": None, "trainer.rec": None, "x.rec": None,
    }  # fmt: skip
    assert {name: InputFile(f"/in/{name}", name).split for name in splits} == splits


@pytest.mark.parametrize(("names", "found"), [
    ((), False), (("train.rec",), True), (("train.rec", "x.rec"), False), (("x.rec",), False),
    (("train.rec", "val.rec"), True),
    (("train.rec", "val.rec", "extra.rec"), None), (("test.rec", "x.rec"), None),
])  # fmt: skip
def test_splits_count_only_where_all_files_state_one(
    names: tuple[str, ...], found: bool | None
) -> None:
    parts = {name: InputFile(f"/{name}", name).split for name in names}
    if found is not None:
        assert names_state_splits(SourceRequest("/in"), parts) == found
        return
    named, other = ", ".join(names[:-1]), names[-1]
    told = f"INPUT /in has {named}, whose names state splits, beside {other}, without a split: move"
    with pytest.raises(UsageError, match=re.escape(told)):
        names_state_splits(SourceRequest("/in"), parts)


def test_braces() -> None:
    names = {
        "a": ["a"], "a-{08..11}": ["a-08", "a-09", "a-10", "a-11"],
        "a-{8..10}": ["a-8", "a-9", "a-10"], "{a,b}-{0..1}": ["a-0", "a-1", "b-0", "b-1"],
        "a{,x}": ["a", "ax"], "{3..1}": [], "{a}": ["{a}"],
    }  # fmt: skip
    assert {pattern: expand_braces(pattern) for pattern in names} == names


def test_the_state_of_a_file(tmp_path: Path, s3_bucket: Bucket) -> None:
    make_files(tmp_path, "a.rec", data=b"four")
    s3_bucket.put("a.rec", b"four")
    for folder, options in ((tmp_path, NO_OPTIONS), (s3_bucket.uri, s3_bucket.options())):
        state = state_of(f"{folder}/a.rec", options)
        assert state.num_bytes == 4
        assert state.etag
        with pytest.raises(MissingError, match=r"/no: "):
            state_of(f"{folder}/no", options)
