"""Only regular files are opened: a named pipe would wait for a writer for ever."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.errors import StorageError, UsageError
from shardwright.transforms.rejects import Reject
from tests.support.listings import detect, list_source

NAMES = [
    *("metadata.csv", "metadata.jsonl", "metadata.parquet", "_annotations.coco.json"),
    *("1.xml", "1.txt", "data.yaml", "train.tar", "a.tgz", "a.zip", "a.tfrecord", "a.tfrecord.gz"),
    *("features.json", "labels.txt", "train.csv", "a.parquet", "2.png"),
]


def write_image(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (3, 3)).save(path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("image", ["cat/1.png", "1.png", ""])
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_is_an_error_or_a_reject(name: str, image: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    os.mkfifo(tmp_path / "photos" / name)
    if image:
        write_image(tmp_path / "photos" / image)
    with suppress(UsageError, StorageError):
        parts: list[Any] = list(list_source(detect(str(tmp_path / "photos"))))
        [reject] = [part for part in parts if isinstance(part, Reject)]
        assert (Path(reject.uri).name, reject.detail) == (name, "not a regular file")
        assert sum(part.num_rows for part in parts if part is not reject) == bool(image)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.tfrecord", "a.csv", "a.jsonl"])
def test_a_pipe_as_input(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises((UsageError, StorageError), match=name):
        list(list_source(detect(str(tmp_path / name))))
