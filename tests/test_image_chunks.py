"""Chunks: their bounds, and what becomes of an image that cannot be read or is none."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.image_classification import image_classification
from shardwright.errors import StorageError
from shardwright.storage import Folder
from tests.build_helpers import png_of
from tests.helpers import references
from transforms.images import EncodeOptions, ImageFault
from transforms.inputs.file_rules import etag_of
from transforms.rejects import Reject
from transforms.rejects import RejectReason as R
from transforms.writing.examples import ExampleEncoder
from transforms.writing.image_chunks import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    Chunk,
    chunk_bounds,
    make_chunk,
)
from transforms.writing.image_reads import start_reads
from transforms.writing.write_job import WriteJob

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
    return WriteJob(
        **{
            "root": Folder("/nowhere"),
            "schema": schema,
            "check": "header",
            "encode": EncodeOptions(),
            "threads": 2,
            **changes,
        }
    )


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
    reads = start_reads(batch, job.storage, job.threads)
    return make_chunk(
        batch,
        reads,
        first_row=first_row,
        entries=encoder.encode_known(batch),
        encoder=encoder,
        job=job,
    )


def write(path: Path, data: bytes = PNG) -> Path:
    path.write_bytes(data)
    return path


def reasons(chunk: Chunk) -> dict[str, tuple[R, str]]:
    return {reject.id: (reject.reason, reject.detail) for reject in chunk.rejects}


def test_good_rows_and_rejects_keep_their_own_places(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a"),
        write(tmp_path / "b", b"no image"),
        write(tmp_path / "c", PNG[:-5]),
        write(tmp_path / "d"),
    ]
    chunk = chunk_of(*paths, first_row=64)
    assert chunk.rows == [64, 67]
    assert chunk.image_bytes == [len(PNG)] * 2
    assert [info.format for info in chunk.infos] == ["png", "png"]
    assert {name: reason for name, (reason, _) in reasons(chunk).items()} == {
        "b": R.NOT_AN_IMAGE,
        "c": R.TRUNCATED,
    }
    assert [reject.uri for reject in chunk.rejects] == [str(paths[1]), str(paths[2])]


def test_the_bytes_in_the_record_are_those_of_the_file(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a"))
    offset = chunk.framed.image_offsets[0]
    assert b"".join(chunk.framed.pieces)[offset : offset + len(PNG)] == PNG


def test_a_chunk_of_rejects_has_no_records(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a", b"?"), write(tmp_path / "b", b"?"))
    assert (chunk.rows, b"".join(chunk.framed.pieces), len(chunk.rejects)) == ([], b"", 2)


@pytest.mark.parametrize("check", ["header", "none"])
def test_an_image_that_cannot_be_read_is_a_reject_whatever_is_checked(
    tmp_path: Path, check: str
) -> None:
    """What the read raised is told as it is; the rows beside it keep their places."""
    good = write(tmp_path / "good")
    chunk = chunk_of(tmp_path / "missing", good, tmp_path / "nul\0", listed=False, check=check)
    assert chunk.rows == [1]
    assert reasons(chunk) == {
        "missing": (R.MISSING_FILE, "there is no such file"),
        "nul\0": (R.UNREADABLE, "embedded null byte"),
    }


def test_reads_are_taken_one_after_another() -> None:
    """So that no more than one file is open, and no more is held than the records that are made."""
    taken: list[int] = []
    job = make_job()
    encoder = ExampleEncoder(job.schema)
    batch = references(["a", "b", "c"], labelled=True)

    def read(number: int) -> bytes:
        taken.append(number)
        if number == 1:
            raise ImageFault(R.CHANGED, "it is another one now")
        return PNG

    reads = [functools.partial(read, number) for number in range(3)]
    chunk = make_chunk(
        batch, reads, first_row=10, entries=encoder.encode_known(batch), encoder=encoder, job=job
    )
    assert (taken, chunk.rows, chunk.image_bytes) == ([0, 1, 2], [10, 12], [len(PNG)] * 2)
    assert chunk.rejects == [Reject("b", "/in/b", R.CHANGED, "it is another one now")]


@pytest.mark.parametrize(
    "error", [StorageError("the store is down"), RuntimeError("a programming error"), KeyError("x")]
)
def test_what_is_no_fault_of_the_image_is_no_reject(error: Exception) -> None:
    def read() -> bytes:
        raise error

    job = make_job()
    encoder = ExampleEncoder(job.schema)
    batch = references(["a"], labelled=True)
    with pytest.raises(type(error)) as caught:
        make_chunk(
            batch,
            [read],
            first_row=0,
            entries=encoder.encode_known(batch),
            encoder=encoder,
            job=job,
        )
    assert caught.value is error


@pytest.mark.parametrize("number", [0, 1, 3])
def test_each_row_has_a_read(number: int) -> None:
    job = make_job()
    encoder = ExampleEncoder(job.schema)
    batch = references(["a", "b"], labelled=True)
    with pytest.raises(
        ValueError, match="2 rows with 0 further pictures each need as many reads, got"
    ):
        make_chunk(
            batch,
            [lambda: PNG] * number,
            first_row=0,
            entries=encoder.encode_known(batch),
            encoder=encoder,
            job=job,
        )


def test_encoded_anew_what_is_stored_is_described(tmp_path: Path) -> None:
    chunk = chunk_of(write(tmp_path / "a"), encode=EncodeOptions("raw", (4, 2)))
    assert chunk.image_bytes == [4 * 2 * 3]
    assert (chunk.infos[0].format, chunk.infos[0].width, chunk.infos[0].height) == ("raw", 4, 2)
