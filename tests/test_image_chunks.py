"""Chunks: their bounds, and what becomes of an image that is not what was listed."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.image_classification import image_classification
from shardwright.errors import StorageError
from tests.build_helpers import png_of
from tests.helpers import references
from transforms.examples import ExampleEncoder
from transforms.folders import MAX_IMAGE_BYTES, etag_of
from transforms.image_chunks import CHUNK_BYTES, CHUNK_RECORDS, Chunk, WriteJob, chunk_bounds, make_chunk
from transforms.images import EncodeOptions
from transforms.rejects import RejectReason as R

PNG = png_of(0)
SIZES = st.lists(st.integers(0, 3 * CHUNK_BYTES) | st.integers(0, 100_000), max_size=300)


@given(sizes=SIZES)
def test_bounds_cover_every_row_once_and_in_order(sizes: list[int]) -> None:
    bounds = list(chunk_bounds(sizes))
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(len(sizes)))
    assert all(start < stop for start, stop in bounds)


@given(sizes=SIZES)
def test_chunks_keep_both_limits_and_are_as_long_as_they_allow(sizes: list[int]) -> None:
    bounds = list(chunk_bounds(sizes))
    for start, stop in bounds:
        assert stop - start <= CHUNK_RECORDS
        assert sum(sizes[start:stop]) <= CHUNK_BYTES or stop - start == 1
        full = stop - start == CHUNK_RECORDS or stop == len(sizes)
        assert full or sum(sizes[start : stop + 1]) > CHUNK_BYTES


def make_job(**changes: Any) -> WriteJob:
    schema = image_classification().with_class_names(("a",))
    return WriteJob(**{"root": "/nowhere", "schema": schema, "check": "header", "encode": EncodeOptions(), "threads": 2, **changes})


def chunk_of(*paths: Path, listed: bool = True, first_row: int = 0, **changes: Any) -> Chunk:
    """A chunk of these files, `listed` as they are now or, with a size column, not looked at at all."""
    status = [os.stat(path) if listed else None for path in paths]
    batch = references(
        [path.name for path in paths],
        labelled=True,
        uri=[str(path) for path in paths],
        num_bytes=[found.st_size if found else 1 for found in status],
        etag=[etag_of(found) if found else None for found in status],
    )
    job = make_job(**changes)
    encoder = ExampleEncoder(job.schema)
    return make_chunk(batch, first_row, encoder.encode_known(batch), encoder, job)


def write(path: Path, data: bytes = PNG) -> Path:
    path.write_bytes(data)
    return path


def reasons(chunk: Chunk) -> dict[str, tuple[R, str]]:
    return {reject.id: (reject.reason, reject.detail) for reject in chunk.rejects}


def test_good_rows_and_rejects_keep_their_own_places(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a"), write(tmp_path / "b", b"no image"), write(tmp_path / "c", PNG[:-5]), write(tmp_path / "d")]
    chunk = chunk_of(*paths, first_row=64)
    assert chunk.rows == [64, 67]
    assert chunk.image_bytes == [len(PNG)] * 2
    assert [info.format for info in chunk.infos] == ["png", "png"]
    assert {name: reason for name, (reason, _) in reasons(chunk).items()} == {"b": R.NOT_AN_IMAGE, "c": R.TRUNCATED}
    assert [reject.uri for reject in chunk.rejects] == [str(paths[1]), str(paths[2])]


def test_the_bytes_in_the_record_are_those_of_the_file(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a"))
    offset = chunk.framed.image_offsets[0]
    assert b"".join(chunk.framed.pieces)[offset : offset + len(PNG)] == PNG


def test_a_chunk_of_rejects_has_no_records(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a", b"?"), write(tmp_path / "b", b"?"))
    assert (chunk.rows, b"".join(chunk.framed.pieces), len(chunk.rejects)) == ([], b"", 2)


@pytest.mark.parametrize("change", ["longer", "same length, later", "other file of another time"])
def test_a_file_that_changed_since_it_was_listed_is_a_reject(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a")
    batch = references(["a"], labelled=True, uri=str(path), num_bytes=path.stat().st_size, etag=etag_of(path.stat()))
    if change == "longer":
        write(path, PNG + b"!")
    else:
        if change.startswith("other"):
            os.replace(write(tmp_path / "b"), path)
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    encoder = ExampleEncoder(make_job().schema)
    chunk = make_chunk(batch, 0, encoder.encode_known(batch), encoder, make_job())
    assert reasons(chunk) == {"a": (R.CHANGED, "the file changed between listing and reading: build again")}


def _make_missing(path: Path) -> None:
    (path.parent / "gone").touch()


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_loop(path: Path) -> None:
    path.symlink_to(path)


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)


def _make_empty(path: Path) -> None:
    path.touch()


def _make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_IMAGE_BYTES + 1)  # a hole: no disk is used


@pytest.mark.parametrize(
    ("make", "reason", "detail"),
    [
        (_make_missing, R.MISSING_FILE, "there is no such file"),
        (_make_folder, R.UNREADABLE, "not a regular file"),
        (_make_loop, R.UNREADABLE, "Too many levels of symbolic links"),
        (_make_pipe, R.UNREADABLE, "not a regular file"),
        (_make_empty, R.EMPTY_FILE, "the file has no bytes"),
        (_make_huge, R.TOO_LARGE, "an image may have up to"),
    ],
)
@pytest.mark.parametrize("check", ["header", "none"])
def test_a_file_nobody_looked_at_may_be_anything(tmp_path: Path, make: Any, reason: R, detail: str, check: str) -> None:
    path = tmp_path / "a"
    make(path)
    (found,) = reasons(chunk_of(path, listed=False, check=check)).values()
    assert found[0] == reason
    assert detail in found[1]


@pytest.mark.parametrize(("name", "reason"), [("a\0b", R.UNREADABLE), ("n" * 300, R.UNREADABLE), ("file.png/below", R.MISSING_FILE)])
def test_a_path_that_can_be_none_is_a_reject(tmp_path: Path, name: str, reason: R) -> None:
    write(tmp_path / "file.png")
    (found,) = reasons(chunk_of(tmp_path / name, listed=False)).values()
    assert found[0] == reason


def test_a_process_out_of_files_says_so_and_blames_no_image(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(StorageError, match=r"cannot read .*a: Too many open files; lower --threads or raise the limit \(ulimit -n\)"):
            chunk_of(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_descriptor_is_closed_again(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a"), write(tmp_path / "b", b"?"), tmp_path / "missing"]
    before = len(os.listdir("/dev/fd"))
    chunk_of(*paths, listed=False)
    assert len(os.listdir("/dev/fd")) == before


def test_encoded_anew_what_is_stored_is_described(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a"), encode=EncodeOptions("raw", (4, 2)))
    assert chunk.image_bytes == [4 * 2 * 3]
    assert (chunk.infos[0].format, chunk.infos[0].width, chunk.infos[0].height) == ("raw", 4, 2)


def test_a_programming_error_is_no_reject(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    batch = references(["a"], labelled=True, uri=str(path), etag=None).drop_columns(["etag"])
    encoder = ExampleEncoder(make_job().schema)
    with pytest.raises(KeyError, match="etag"):
        make_chunk(batch, 0, [b""], encoder, make_job())
    assert isinstance(batch, pa.RecordBatch)
