"""Reading images of stores ahead of whoever takes them: in order, within bounds, and not when nobody wants them any more."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.errors import CredentialsError, ThrottledError
from shardwright.storage import StorageOptions
from shardwright.storage.objects import head_object
from tests.buckets import Bucket
from tests.fault_proxy import Fault, FaultProxy
from tests.helpers import TINY_PNG, make_files, references
from transforms.images import ImageFault
from transforms.rejects import RejectReason
from transforms.writing.image_reads import AHEAD_BYTES, Place, read_ahead, read_remote_image

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)


def chunk_of(*uris: str, num_bytes: int = 1, etag: str | None = None) -> pa.RecordBatch:
    return references(list(uris), uri=list(uris), num_bytes=num_bytes, etag=etag)


def chunks_of(bucket: Bucket, number: int, size: int) -> list[pa.RecordBatch]:
    """Chunks of objects, each of which holds its own key."""
    keys = [f"{index:03d}" for index in range(number * size)]
    for key in keys:
        bucket.folder().write_bytes(key, key.encode())
    uris = [f"{bucket.uri}/{key}" for key in keys]
    return [chunk_of(*uris[start : start + size]) for start in range(0, len(uris), size)]


def reads_of(proxy: FaultProxy) -> int:
    return sum(method == "GET" for method, _ in proxy.requests)


def wait_for_reads(proxy: FaultProxy, number: int) -> None:
    """Until that many have been asked for, and a while more, for those that should not be."""
    deadline = time.monotonic() + 10
    while reads_of(proxy) < number:
        assert time.monotonic() < deadline, reads_of(proxy)
        time.sleep(0.01)
    time.sleep(0.1)
    assert reads_of(proxy) == number


@BOTH
def test_in_order(bucket: Bucket) -> None:
    chunks = chunks_of(bucket, 6, 9)
    given = list(read_ahead(iter(chunks), bucket.options(), 4))
    assert [chunk for chunk, _ in given] == chunks
    assert [[read() for read in reads] for _, reads in given] == [
        [b"%03d" % (9 * n + m) for m in range(9)] for n in range(6)
    ]


def test_as_many_images_ahead_as_are_wanted(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    chunks = iter(chunks_of(s3_bucket, 10, 5))
    ahead = read_ahead(chunks, s3_bucket.behind(s3_proxy).options(), 4)
    next(ahead)
    wait_for_reads(s3_proxy, 10)  # more than two rounds of 4: two chunks
    next(ahead)
    wait_for_reads(s3_proxy, 15)
    assert len(list(chunks)) == 7


def test_as_many_bytes_ahead_as_are_allowed(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    large = [
        chunk.set_column(3, chunk.schema.field(3), pa.array([AHEAD_BYTES // 2]))
        for chunk in chunks_of(s3_bucket, 6, 1)
    ]
    assert large[0].schema.names[3] == "num_bytes"
    ahead = read_ahead(iter(large), s3_bucket.behind(s3_proxy).options())
    for number in (3, 4, 5):
        next(ahead)
        wait_for_reads(s3_proxy, number)


def test_what_nobody_wants_any_more_is_not_read(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_proxy.latency_msec = 200
    ahead = read_ahead(iter(chunks_of(s3_bucket, 20, 3)), s3_bucket.behind(s3_proxy).options(), 3)
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    time.sleep(0.8)
    assert reads_of(s3_proxy) <= 6, (
        "those of the chunk that was given, and those that were on their way"
    )


def test_files_and_objects_in_one_table(gcs_bucket: Bucket, tmp_path: Path) -> None:
    make_files(tmp_path, "1.png", "2.png")
    gcs_bucket.put("a b", b"object")
    local, remote = [f"{tmp_path}/{name}.png" for name in "12"], f"{gcs_bucket.uri}/a b"
    chunks = [
        chunk_of(*uris) for uris in ((local[0], remote), (remote, local[1]), (local[0],), (remote,))
    ]
    given = [
        [read() for read in reads] for _, reads in read_ahead(iter(chunks), gcs_bucket.options())
    ]
    assert given == [[TINY_PNG, b"object"], [b"object", TINY_PNG], [TINY_PNG], [b"object"]]


def test_an_error_of_whoever_makes_the_chunks_comes_through(gcs_bucket: Bucket) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield chunk_of(f"{gcs_bucket.uri}/x")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(read_ahead(failing(), gcs_bucket.options()))


def fault(
    uri: str, options: StorageOptions, num_bytes: int = 3, etag: str | None = None
) -> tuple[RejectReason, str]:
    with pytest.raises(ImageFault) as caught:
        read_remote_image(Place(uri, None, num_bytes, etag), options)
    return caught.value.reason, caught.value.detail


@BOTH
def test_faults_of_one_image(bucket: Bucket, proxy: FaultProxy) -> None:
    for key in ("x", "denied"):
        bucket.put(key, b"old")
    bucket.put("empty", b"")
    through = bucket.behind(proxy)
    options = through.options(deadline="1")
    proxy.add(Fault("status", None, status=403, path_contains="/denied"))
    found = head_object(f"{bucket.uri}/x", options)
    assert found is not None
    etag = found.etag
    assert (
        read_remote_image(Place(f"{bucket.uri}/x", None, 3, etag), options)
        == read_remote_image(Place(f"{bucket.uri}/x", None, 0, None), options)
        == b"old"
    )
    changed = (RejectReason.CHANGED, f"{bucket.uri}/x has changed since it was listed")
    assert fault(f"{bucket.uri}/x", options, 4, etag) == changed
    bucket.put("x", b"new")
    assert fault(f"{bucket.uri}/x", options, 3, etag) == changed
    assert fault(f"{bucket.uri}/none", options) == (
        RejectReason.MISSING_FILE,
        f"{bucket.uri}/none: there is no such object",
    )
    assert fault(f"{bucket.uri}/empty", options) == (
        RejectReason.EMPTY_FILE,
        "the file has no bytes",
    )
    denied = f"{bucket.uri}/denied: access denied: these credentials may not read it (403 AccessDenied from {proxy.endpoint})"
    assert fault(f"{bucket.uri}/denied", options) == (RejectReason.UNREADABLE, denied)
    odd = f"{bucket.uri}/a//b"
    assert (
        fault(odd, options)[1]
        == f"{odd!r} has an empty, '.' or '..' part in its name, which cannot be asked for: rename the object"
    )


def test_an_image_that_always_fails_while_others_do_not(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    chunks = itertools.cycle(chunks_of(s3_bucket, 1, 3))
    options = s3_bucket.behind(s3_proxy).options(deadline="1")
    s3_proxy.add(Fault("status", None, path_contains="/001"))
    given = [reads for _, reads in itertools.islice(read_ahead(chunks, options, 2), 2)]
    deadline = time.monotonic() + 1.5
    others = read_ahead(itertools.cycle([chunk_of(f"{s3_bucket.uri}/000")]), options, 4)
    while time.monotonic() < deadline:
        assert next(others)[1][0]() == b"000"
    with pytest.raises(
        ImageFault,
        match=r"001 cannot be read: .* answers 503 SlowDown, while other objects are served",
    ) as caught:
        given[0][1]()
    assert caught.value.reason is RejectReason.UNREADABLE
    assert (given[0][0](), given[0][2]()) == (b"000", b"002")


def test_faults_of_the_store_are_no_image_s(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("x", b"x")
    options = s3_bucket.behind(s3_proxy).options(deadline="1")
    assert read_remote_image(Place(f"{s3_bucket.uri}/x", None, 1, None), options) == b"x"
    with pytest.raises(CredentialsError):
        read_remote_image(
            Place(f"{s3_bucket.uri}/x", None, 1, None), s3_bucket.options(access_key_id="nobody")
        )
    s3_proxy.add(Fault("status", None))
    with pytest.raises(ThrottledError):
        read_remote_image(Place(f"{s3_bucket.uri}/x", None, 1, None), options)
