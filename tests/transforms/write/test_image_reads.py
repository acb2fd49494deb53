"""Reads of local images: the bytes as they were listed, or the reason, and none begun too early."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ImageFault, StorageError
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES, etag_of
from shardwright.transforms.rejects import RejectReason as R
from shardwright.transforms.write.image_reads import (
    ImageLocation,
    read_ahead,
    read_local_image,
    start_reads,
)
from tests.support.build_helpers import png_of
from tests.support.helpers import references
from tests.support.open_files import open_files
from tests.support.random_tests import examples

PNG = png_of(0)
CHANGED = (R.CHANGED, "the file changed between listing and reading: build again")


def write(path: Path, data: bytes = PNG) -> Path:
    path.write_bytes(data)
    return path


def read(path: Path, etag: str | None = None, num_bytes: int = 1) -> bytes:
    """Read a file; without an etag it was not listed, and the length is a table's."""
    return read_local_image(ImageLocation(str(path), None, num_bytes, etag))


def fault_of(path: Path, etag: str | None = None, num_bytes: int = 1) -> tuple[R, str]:
    with pytest.raises(ImageFault) as caught:
        read(path, etag, num_bytes)
    return caught.value.reason, caught.value.what


@pytest.mark.parametrize("size", [1, 2**20])
def test_the_bytes_are_those_of_the_file(size: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a", random.Random(size).randbytes(size))
    status = path.stat()
    assert read(path, etag_of(status), status.st_size) == path.read_bytes()
    assert read(path) == path.read_bytes(), "a size that a table states is not believed"


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, at: pread(file, min(length, 1000), at))
    data = bytes(range(256)) * 10
    assert read(write(tmp_path / "a", data)) == data


@pytest.mark.parametrize("change", ["longer", "later", "replaced"])
def test_a_file_that_changed_since_it_was_listed_is_a_fault(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a")
    status = path.stat()
    if change == "longer":
        write(path, PNG + b"!")
    if change == "replaced":
        os.replace(write(tmp_path / "b"), path)
    os.utime(path, ns=(0, status.st_mtime_ns + (change != "longer")))
    assert fault_of(path, etag_of(status), status.st_size) == CHANGED


@pytest.mark.parametrize("data", [PNG[:9], b"?" * len(PNG)], ids=["cut", "written"])
def test_a_file_that_changes_while_it_is_read_is_a_fault(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pread = write(tmp_path / "a"), os.pread
    os.utime(path, ns=(0, 0))

    def read_late(file: int, length: int, at: int) -> bytes:
        if at == 0:
            path.write_bytes(data)
        return pread(file, length, at)

    monkeypatch.setattr(os, "pread", read_late)
    assert fault_of(path) == CHANGED


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_IMAGE_BYTES + 1)  # a hole: no disk is used


@pytest.mark.parametrize(("make", "reason", "detail"), [
    (lambda path: path.with_name("b").touch(), R.MISSING_FILE, "there is no such file"),
    (Path.mkdir, R.UNREADABLE, "not a regular file"),
    (lambda path: path.symlink_to(path), R.UNREADABLE, "Too many levels of symbolic links"),
    (os.mkfifo, R.UNREADABLE, "not a regular file"),
    (Path.touch, R.EMPTY_FILE, "the file has no bytes"),
    (make_huge, R.TOO_LARGE, "an image may have at most"),
])  # fmt: skip
def test_not_listed_it_may_be_anything(make: Any, reason: R, detail: str, tmp_path: Path) -> None:
    make(tmp_path / "a")
    found = fault_of(tmp_path / "a")
    assert found[0] == reason
    assert detail in found[1]


@pytest.mark.parametrize("etag", ["e", None])
def test_an_impossible_path_is_a_fault(tmp_path: Path, etag: str | None) -> None:
    write(tmp_path / "file.png")
    names = ("a\0b", "n" * 300, "file.png/below")
    reasons = [fault_of(tmp_path / name, etag)[0] for name in names]
    assert reasons == [R.UNREADABLE, R.UNREADABLE, R.MISSING_FILE]


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file without read permission; root, who may read anything, becomes nobody meanwhile."""
    path = write(tmp_path / "secret.png")
    path.chmod(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield path
    os.seteuid(user)


def test_a_file_without_read_permission_is_a_fault(secret: Path) -> None:
    assert fault_of(secret) == (R.UNREADABLE, "Permission denied")


def test_a_process_out_of_files_is_no_fault_of_the_image(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    message = r"a: Too many open files; lower --threads or raise the limit \(ulimit -n\)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(StorageError, match=rf"cannot read .*{message}"):
            read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_descriptor_is_closed_again(tmp_path: Path) -> None:
    good = write(tmp_path / "a")
    read(good)
    assert fault_of(good, "another") == CHANGED
    assert fault_of(tmp_path)[0] == R.UNREADABLE
    assert open_files(tmp_path) == []


def batch_of(*paths: Path, listed: bool = True) -> pa.RecordBatch:
    """References to files, `listed` as they are now, or by a table without etags."""
    status = [os.stat(path) if listed else None for path in paths]
    return references(
        [path.name for path in paths],
        labelled=True,
        uri=[str(path) for path in paths],
        num_bytes=[found.st_size if found else 1 for found in status],
        etag=[etag_of(found) if found else None for found in status],
    )


def test_a_read_for_each_row_in_order(tmp_path: Path) -> None:
    batch = batch_of(*(write(tmp_path / name, name.encode()) for name in ("b", "a", "c")))
    assert [read() for read in start_reads(batch, NO_OPTIONS)] == [b"b", b"a", b"c"]
    with pytest.raises(KeyError, match="etag"):
        start_reads(batch.drop_columns(["etag"]), NO_OPTIONS)


def test_local_files_are_not_read_ahead(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    (read_it,) = start_reads(batch_of(path), NO_OPTIONS)
    write(path, PNG + b"!")
    with pytest.raises(ImageFault, match="changed between listing and reading"):
        read_it()
    path.unlink()
    with pytest.raises(ImageFault, match="there is no such file"):
        read_it()


@examples(25)
@given(sizes=st.lists(st.integers(1, 5), max_size=12))
def test_chunks_of_local_files_come_one_at_a_time_and_in_order(sizes: list[int]) -> None:
    drawn: list[list[str]] = []

    def chunks() -> Iterator[pa.RecordBatch]:
        for number, size in enumerate(sizes):
            drawn.append([f"{number}-{row}" for row in range(size)])
            yield references(drawn[-1], num_bytes=100 << 20)

    given_out = 0
    for chunk, reads in read_ahead(chunks(), NO_OPTIONS, 2):
        given_out += 1
        assert len(drawn) == given_out, "none ahead"
        assert chunk.column("id").to_pylist() == drawn[-1]
        assert len(reads) == len(drawn[-1])
    assert given_out == len(sizes)
