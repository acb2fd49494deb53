"""Chunks: their bounds, and rejects of images that cannot be read or are none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ImageFault, StorageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.rejects import Reject
from shardwright.transforms.rejects import RejectReason as R
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.transforms.write.image_chunks import CHUNK_BYTES, CHUNK_RECORDS, chunk_bounds
from shardwright.transforms.write.image_reads import ImageRead, start_reads
from shardwright.transforms.write.shard_chunks import make_chunks
from shardwright.transforms.write.stored_records import StoredRecords, image_name, take_picture
from shardwright.transforms.write.write_job import Chunk, ReadRows, WriteJob
from tests.support.helpers import references
from tests.support.random_tests import examples
from tests.transforms.write.test_image_reads import PNG, batch_of, write

SIZES = st.lists(st.integers(0, 3 * CHUNK_BYTES) | st.integers(0, 100_000), max_size=300)


def test_the_fault_of_a_further_image_names_its_feature() -> None:
    def fail() -> bytes:
        raise ImageFault("it is gone", R.MISSING_FILE)

    depth = Feature("depth", FeatureKind.IMAGE)
    with pytest.raises(ImageFault, match=r"^depth: it is gone") as caught:
        take_picture(fail, depth, "header", EncodeOptions(), None)
    assert caught.value.reason == R.MISSING_FILE


@pytest.mark.parametrize(
    ("image_id", "uri", "name"),
    [("a/b.png", "in.tar", "a/b.png"), ("7", "in/x.jpg", "in/x.jpg"), ("", "x", "x")],
)
def test_the_name_that_may_tell_the_format(image_id: str, uri: str, name: str) -> None:
    assert image_name(image_id, uri) == name


@examples(25)
@given(sizes=SIZES, scale=st.integers(1, 2))
def test_bounds_cover_every_row_and_are_as_far_apart_as_the_limits_allow(
    sizes: list[int], scale: int
) -> None:
    bounds = list(chunk_bounds(sizes, scale))
    most_records, most_bytes = scale * CHUNK_RECORDS, scale * CHUNK_BYTES
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in bounds:
        assert start < stop <= start + most_records
        assert sum(sizes[start:stop]) <= most_bytes or stop - start == 1
        is_full = stop - start == most_records or stop == len(sizes)
        assert is_full or sum(sizes[start : stop + 1]) > most_bytes


def test_bounds_at_the_limits() -> None:
    assert list(chunk_bounds([1] * (CHUNK_RECORDS + 1))) == [(0, 64), (64, 65)]
    assert list(chunk_bounds([CHUNK_BYTES - 1, 1, 1])) == [(0, 2), (2, 3)]
    assert list(chunk_bounds([CHUNK_BYTES + 1, 1, CHUNK_BYTES])) == [(0, 1), (1, 2), (2, 3)]


KEEP = EncodeOptions()
Reads = Sequence[ImageRead]


def chunk_from(
    batch: pa.RecordBatch, reads: Reads | None = None, first_row: int = 0, **options: Any
) -> Chunk:
    maker = StoredRecords(**{"check": "header", "encode": KEEP, **options})
    schema = image_classification().with_class_names(("a",))
    job, encoder = WriteJob(Folder("/nowhere"), schema, maker, 2), ExampleEncoder(schema)
    reads = start_reads(batch, job.storage, job.threads) if reads is None else reads
    entries = encoder.encode_known(batch)
    return maker.make(ReadRows(batch, reads, first_row, entries, encoder), job)


def test_good_rows_and_rejects_keep_their_own_places(tmp_path: Path) -> None:
    files = {"a": PNG, "b": b"no image", "c": PNG[:-5], "d": PNG}
    paths = [write(tmp_path / name, data) for name, data in files.items()]
    chunk = chunk_from(batch_of(*paths), first_row=64)
    assert (chunk.rows, chunk.image_bytes) == ([64, 67], [len(PNG)] * 2)
    assert [info.format for info in chunk.infos] == ["png", "png"]
    records = b"".join(chunk.framed.pieces)
    for offset in chunk.framed.image_offsets:
        assert records[offset : offset + len(PNG)] == PNG
    assert [(reject.id, reject.uri, reject.reason) for reject in chunk.rejects] == [
        ("b", str(paths[1]), R.NOT_AN_IMAGE),
        ("c", str(paths[2]), R.TRUNCATED),
    ]


def test_a_chunk_of_rejects_has_no_records(tmp_path: Path) -> None:
    chunk = chunk_from(batch_of(write(tmp_path / "a", b"?"), write(tmp_path / "b", b"?")))
    assert (chunk.rows, b"".join(chunk.framed.pieces), len(chunk.rejects)) == ([], b"", 2)


@pytest.mark.parametrize("check", ["header", "none"])
def test_an_unreadable_image_is_rejected_whatever_is_checked(tmp_path: Path, check: str) -> None:
    paths = (tmp_path / "missing", write(tmp_path / "good"), tmp_path / "nul\0")
    chunk = chunk_from(batch_of(*paths, listed=False), check=check)
    assert chunk.rows == [1]
    assert [(reject.id, reject.reason, reject.detail) for reject in chunk.rejects] == [
        ("missing", R.MISSING_FILE, "there is no such file"),
        ("nul\0", R.UNREADABLE, "embedded null byte"),
    ]


def test_images_are_read_one_after_another() -> None:
    """So that one file is open at a time, and only finished records are in memory."""
    taken: list[str] = []

    def read(name: str) -> bytes:
        taken.append(name)
        if name == "b":
            raise ImageFault("it is another one now", R.CHANGED)
        return PNG

    batch = references(list("abc"), labelled=True)
    chunk = chunk_from(batch, [partial(read, name) for name in "abc"], first_row=10)
    assert (taken, chunk.rows, chunk.image_bytes) == (["a", "b", "c"], [10, 12], [len(PNG)] * 2)
    assert chunk.rejects == [Reject("b", "/in/b", R.CHANGED, "it is another one now")]


def test_a_store_that_fails_is_no_reject() -> None:
    def read() -> bytes:
        raise StorageError("the store is down")

    with pytest.raises(StorageError, match="the store is down"):
        chunk_from(references(["a"], labelled=True), [read])


def test_the_info_of_a_re_encoded_image_is_that_of_its_stored_bytes(tmp_path: Path) -> None:
    chunk = chunk_from(batch_of(write(tmp_path / "a")), encode=EncodeOptions("raw", (4, 2)))
    info = chunk.infos[0]
    assert (chunk.image_bytes, info.format, info.width, info.height) == ([24], "raw", 4, 2)


@pytest.mark.parametrize(("threads", "sizes"), [(1, [128, 2]), (2, [64, 64, 2])])
def test_chunks_are_larger_for_a_thread_that_is_alone(
    threads: int, sizes: list[int], tmp_path: Path
) -> None:
    batch = batch_of(*[write(tmp_path / "a", PNG)] * (2 * CHUNK_RECORDS + 2))
    schema = image_classification().with_class_names(("a",))
    chunks = make_chunks(
        batch, WriteJob(Folder("/nowhere"), schema, StoredRecords("none", KEEP), threads)
    )
    assert [len(chunk.rows) for chunk in chunks] == sizes
