"""The files that INPUT stands for: one, those of a wildcard, those of a folder; and the splits that their names state."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import MissingError
from shardwright.storage import NO_OPTIONS
from tests.buckets import Bucket
from tests.fault_proxy import FaultProxy
from tests.helpers import make_files
from transforms.inputs.input_files import InputFile, common_split_names, find_files, state_of
from transforms.inputs.source import SourceRequest

NAMES = (
    "a.rec",
    "b.rec",
    "c.png",
    "sub/d.rec",
    "train/e.rec",
    ".hidden.rec",
    "data/f.rec",
    "Val/g.rec",
    "README.md",
)


def is_rec(name: str) -> bool:
    return name.endswith(".rec")


def names_of(uri: str, **request: object) -> list[str]:
    found = find_files(SourceRequest(uri, **request), is_rec)  # type: ignore[arg-type]
    assert all(file.uri.endswith(f"/{file.name}") for file in found)
    return [file.name for file in found]


CASES = [
    ("", ["Val/g.rec", "a.rec", "b.rec", "data/f.rec", "train/e.rec"]),
    ("/a.rec", ["a.rec"]),
    ("/c.png", []),
    ("/train", ["e.rec"]),
    ("/no", []),
    ("/[ab].rec", ["a.rec", "b.rec"]),
    ("/?.rec", ["a.rec", "b.rec"]),
    ("/*/?.rec", ["Val/g.rec", "data/f.rec", "sub/d.rec", "train/e.rec"]),
    ("/t*/*.rec", ["train/e.rec"]),
    ("/x*", []),
]


@pytest.mark.parametrize(("below", "names"), CASES)
def test_local(tmp_path: Path, below: str, names: list[str]) -> None:
    make_files(tmp_path, *NAMES)
    assert names_of(f"{tmp_path}{below}") == names


def test_stores(bucket: Bucket) -> None:
    for name in NAMES:
        bucket.put(f"in/{name}", b"x")
    for below, names in CASES:
        assert names_of(f"{bucket.uri}/in{below}", storage=bucket.options()) == names, below


def test_split_folders_and_data_are_looked_into(tmp_path: Path) -> None:
    make_files(tmp_path, *NAMES[2:])
    assert names_of(str(tmp_path)) == ["Val/g.rec", "data/f.rec", "train/e.rec"]


def test_a_prefix_of_images_is_not_listed_to_its_end(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    """Nobody waits for millions of names to know that there are no such files among them: one page of 1,000 will do."""
    s3_bucket.fill([f"in/{number:05d}.png" for number in range(1500)])
    assert names_of(f"{s3_bucket.uri}/in", storage=s3_bucket.behind(s3_proxy).options()) == []
    assert len(s3_proxy.requests) == 1


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("flowers-train.tfrecord-00000-of-00012", "train"),
        ("flowers-my_split.tfrecord-00000-of-00012", "my_split"),
        ("train-00000-of-01024", "train"),
        ("data/dev-00000-of-00002-abc.parquet", "validation"),
        ("x_Test.parquet", "test"),
        ("VALID/train.rec", "validation"),
        ("test_train.rec", None),
        ("trainer.rec", None),
        ("x.rec", None),
    ],
)
def test_splits(name: str, split: str | None) -> None:
    assert InputFile(f"/in/{name}", name).split == split


def test_splits_count_only_where_all_files_state_one() -> None:
    train, other = InputFile("/train.rec", "train.rec"), InputFile("/x.rec", "x.rec")
    assert [common_split_names(files) for files in ([train], [train, other], [])] == [
        True,
        False,
        False,
    ]


def test_the_state_of_a_file(tmp_path: Path, s3_bucket: Bucket) -> None:
    make_files(tmp_path, "a.rec", data=b"four")
    s3_bucket.put("a.rec", b"four")
    states = [
        state_of(f"{tmp_path}/a.rec", NO_OPTIONS),
        state_of(f"{s3_bucket.uri}/a.rec", s3_bucket.options()),
    ]
    assert [state.num_bytes for state in states] == [4, 4]
    assert all(state.etag for state in states)
    for uri, options in (
        (f"{tmp_path}/no", NO_OPTIONS),
        (f"{s3_bucket.uri}/no", s3_bucket.options()),
    ):
        with pytest.raises(MissingError, match=r"/no: "):
            state_of(uri, options)
