"""Reading images of stores ahead of their use: in order, within bounds, and only if wanted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.errors import CredentialsError, ImageFault, ThrottledError
from shardwright.storage.object_reads import head_object
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.reads import start_read
from shardwright.transforms.references import REFERENCE_SCHEMA
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write import image_reads
from shardwright.transforms.write.image_reads import (
    AHEAD_BYTES,
    ImageLocation,
    read_ahead,
    read_remote_image,
)
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket, PauseClock
from tests.support.cached_datasets import downloads, wait_until
from tests.support.helpers import TINY_PNG, make_files, references

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)


def chunk_of(*uris: str) -> pa.RecordBatch:
    return references(list(uris), uri=list(uris), num_bytes=1, etag=None)


def chunks_of(bucket: Bucket, number: int, size: int) -> list[pa.RecordBatch]:
    """Return chunks of objects, each of which holds its own key."""
    keys = [f"{index:03d}" for index in range(number * size)]
    for key in keys:
        bucket.folder().write_bytes(key, key.encode())
    uris = [f"{bucket.uri}/{key}" for key in keys]
    return [chunk_of(*uris[start : start + size]) for start in range(0, len(uris), size)]


def assert_reads(proxy: FaultProxy, number: int) -> None:
    """Wait for so many reads, and a while longer for others, which should not come."""
    wait_until(lambda: len(downloads(proxy, "")) >= number)
    time.sleep(0.1)
    assert len(downloads(proxy, "")) == number


@BOTH
def test_in_order(bucket: Bucket) -> None:
    chunks = chunks_of(bucket, 6, 9)
    given = list(read_ahead(iter(chunks), bucket.options(), 4))
    assert [chunk for chunk, _ in given] == chunks
    images = [read() for _, reads in given for read in reads]
    assert images == [b"%03d" % index for index in range(54)]


def test_the_number_of_images_ahead(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    chunks = iter(chunks_of(s3_bucket, 10, 5))
    ahead = read_ahead(chunks, s3_bucket.behind(s3_proxy).options(), 4)
    next(ahead)
    assert_reads(s3_proxy, 10)  # more than two rounds of 4: two chunks
    next(ahead)
    assert_reads(s3_proxy, 15)
    assert len(list(chunks)) == 7


def test_the_number_of_bytes_ahead(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    column = REFERENCE_SCHEMA.get_field_index("num_bytes")
    large = [
        chunk.set_column(column, chunk.schema.field(column), pa.array([AHEAD_BYTES // 2]))
        for chunk in chunks_of(s3_bucket, 6, 1)
    ]
    ahead = read_ahead(iter(large), s3_bucket.behind(s3_proxy).options())
    for number in (3, 4, 5):
        next(ahead)
        assert_reads(s3_proxy, number)


def test_reading_stops_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    closed = threading.Event()

    def read_late(place: ImageLocation, _: StorageOptions) -> bytes:
        begun.append(place.uri)
        assert closed.wait(250)
        return b""

    monkeypatch.setattr(image_reads, "read_remote_image", read_late)
    uris = [[f"s3://bucket/{chunk}/{row}" for row in range(3)] for chunk in range(20)]
    ahead = read_ahead(iter([chunk_of(*chunk) for chunk in uris]), NO_OPTIONS, 3)
    _, reads = next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    closed.set()
    assert [read() for read in reads] == [b""] * 3
    for later in [start_read(list, 3) for _ in range(3)]:  # after all that are queued
        later.result()
    assert sorted(begun) == uris[0]


def test_files_and_objects_in_one_table(gcs_bucket: Bucket, tmp_path: Path) -> None:
    make_files(tmp_path, "1.png", "2.png")
    gcs_bucket.put("a b", b"object")
    one, two, remote = f"{tmp_path}/1.png", f"{tmp_path}/2.png", f"{gcs_bucket.uri}/a b"
    chunks = [chunk_of(one, remote), chunk_of(remote, two), chunk_of(one), chunk_of(remote)]
    given = read_ahead(iter(chunks), gcs_bucket.options())
    images = [[read() for read in reads] for _, reads in given]
    assert images == [[TINY_PNG, b"object"], [b"object", TINY_PNG], [TINY_PNG], [b"object"]]


def test_an_error_in_the_chunks_comes_through(gcs_bucket: Bucket) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield chunk_of(f"{gcs_bucket.uri}/x")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(read_ahead(failing(), gcs_bucket.options()))


def read(uri: str, options: StorageOptions, num_bytes: int = 3, etag: str | None = None) -> bytes:
    return read_remote_image(ImageLocation(uri, None, num_bytes, etag), options)


@BOTH
def test_faults_of_one_image(bucket: Bucket, proxy: FaultProxy) -> None:
    x, none, _, denied, odd = uris = [
        f"{bucket.uri}/{key}" for key in ("x", "none", "empty", "denied", "a//b")
    ]
    for key, data in (("x", b"old"), ("empty", b""), ("denied", b"old")):
        bucket.put(key, data)
    options = bucket.behind(proxy).options(deadline="1")
    proxy.add(Fault("status", None, status=403, path_contains="/denied"))
    found = head_object(x, options)
    assert found is not None
    assert read(x, options, 3, found.etag) == read(x, options, 0) == b"old"

    def fault(uri: str, num_bytes: int = 3, etag: str | None = None) -> tuple[RejectReason, str]:
        with pytest.raises(ImageFault) as caught:
            read(uri, options, num_bytes, etag)
        return caught.value.reason, caught.value.what

    changed = (RejectReason.CHANGED, f"{x} has changed since it was listed")
    assert fault(x, 4, found.etag) == changed
    bucket.put("x", b"new")
    assert fault(x, 3, found.etag) == changed
    access = "access denied: these credentials may not read it (403 AccessDenied from"
    name = "has an empty, '.' or '..' part in its name, which is not supported"
    assert [fault(uri) for uri in uris[1:]] == [
        (RejectReason.MISSING_FILE, f"{none}: there is no such object"),
        (RejectReason.EMPTY_FILE, "the file has no bytes"),
        (RejectReason.UNREADABLE, f"{denied}: {access} {proxy.endpoint})"),
        (RejectReason.UNREADABLE, f"{odd!r} {name}: rename the object"),
    ]


def test_an_image_that_fails_while_others_do_not(
    s3_bucket: Bucket, s3_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = PauseClock(monkeypatch)
    options = s3_bucket.behind(s3_proxy).options(deadline="1")
    clock.in_pauses = lambda: read(f"{s3_bucket.uri}/000", options)
    s3_proxy.add(Fault("status", None, path_contains="/001"))
    [(_, given)] = read_ahead(chunks_of(s3_bucket, 1, 3), options, 2)
    message = r"001 cannot be read: .* returned 503 SlowDown, while other objects are served"
    with pytest.raises(ImageFault, match=message) as caught:
        given[1]()
    assert caught.value.reason is RejectReason.UNREADABLE
    assert (given[0](), given[2]()) == (b"000", b"002")


def test_faults_of_the_store_are_no_images(
    s3_bucket: Bucket, s3_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    PauseClock(monkeypatch)
    s3_bucket.put("x", b"x")
    uri, options = f"{s3_bucket.uri}/x", s3_bucket.behind(s3_proxy).options(deadline="1")
    assert read(uri, options, 1) == b"x"
    with pytest.raises(CredentialsError):
        read(uri, s3_bucket.options(access_key_id="nobody"), 1)
    s3_proxy.add(Fault("status", None))
    with pytest.raises(ThrottledError):
        read(uri, options, 1)
