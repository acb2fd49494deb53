"""Uploads: bounded memory, atomic objects, and no leftovers whatever happens on the way."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import DeniedError, StorageError
from shardwright.storage import uploads
from shardwright.storage.folder import Folder
from shardwright.storage.uploads import PART_BYTES, ObjectSink
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket, Counted, on_s3_and_gcs

DATA = os.urandom(PART_BYTES + 1_000_000)
COMPLETE: dict[str, Any] = {"method": "POST", "path_contains": "uploadId="}


def upload(bucket: Bucket, key: str = "x", data: bytes = DATA) -> None:
    with bucket.folder().open_sink(key) as sink:
        for start in range(0, len(data), 3_000_000):
            middle, end = start + 1_000_000, start + 3_000_000
            sink.write([data[start:middle], data[middle:end]])


def left(bucket: Bucket) -> list[str]:
    return bucket.keys() + bucket.pending()


@pytest.mark.long_but_first
@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 20_000_001])
@on_s3_and_gcs
def test_sizes_around_a_part(bucket: Bucket, size: int) -> None:
    data = os.urandom(size)
    counted = Counted()
    upload(bucket, "a b/ü", data)
    assert bucket.get("a b/ü") == data
    assert counted.all.get("bytes_written", 0) == size
    assert bucket.pending() == []


def test_the_earlier_object_is_looked_up_while_the_upload_begins(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_bucket.folder().write_bytes("y", b"the store has responded before")
    begun = threading.Event()

    def etag_of(*_: object) -> None:
        assert begun.wait(100)

    monkeypatch.setattr(uploads, "_etag_of", etag_of)
    with s3_bucket.folder().open_sink("x") as sink:
        sink.write([DATA])
        begun.set()
    assert s3_bucket.get("x") == DATA


def test_the_answer_says_what_arrived(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    """No request follows it: HEAD for the earlier object, the begin, two parts, the completion."""
    s3_bucket.put("x", b"old")
    with s3_bucket.behind(s3_proxy).folder().open_sink("x") as sink:
        sink.write([DATA])
    assert s3_proxy.num_requests == 5
    assert sink.etag == s3_bucket.folder().files()["x"].etag


def test_an_answer_that_counts_other_parts_is_not_believed(s3_bucket: Bucket) -> None:
    s3_bucket.put("x", b"12")
    client, uri = s3_bucket.client(), f"{s3_bucket.uri}/x"
    sink = ObjectSink(client, "x", uri)
    sink.num_bytes, sink.num_parts = 3, 2
    uploads._compare(client, "x", uri, sink, "0123-2")
    assert sink.etag == "0123-2"
    with pytest.raises(StorageError, match=f"^{uri} was damaged during the upload"):
        uploads._compare(client, "x", uri, sink, "0123-1")


@on_s3_and_gcs
def test_a_completion_without_an_answer_has_succeeded(bucket: Bucket, proxy: FaultProxy) -> None:
    proxy.add(Fault("reset_after_upstream", 1, **COMPLETE))
    proxy.add(Fault("status", None, status=404, **COMPLETE))
    upload(bucket.behind(proxy))
    assert bucket.get("x") == DATA


@on_s3_and_gcs
def test_an_older_object_of_that_length_is_no_completion(bucket: Bucket, proxy: FaultProxy) -> None:
    bucket.put("x", bytes(len(DATA)))
    proxy.add(Fault("status", None, status=404, **COMPLETE))
    with pytest.raises(StorageError, match=rf"^{bucket.uri}/x"):
        upload(bucket.behind(proxy))
    assert bucket.get("x") == bytes(len(DATA))
    assert bucket.pending() == []


@on_s3_and_gcs
def test_an_upload_that_cannot_be_completed_leaves_nothing(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    proxy.add(Fault("status", None, status=403, **COMPLETE))
    with pytest.raises(DeniedError, match=rf"^{bucket.uri}/x.*may not write it \(403"):
        upload(bucket.behind(proxy))
    assert left(bucket) == []


REFUSED = r" cannot be written: .* returned 400 (BadDigest|XAmzContentSHA256Mismatch)"
DAMAGED = r" was damaged during the upload.*: run the build again$"


@pytest.mark.parametrize(
    ("bucket", "message"), [("s3_server", REFUSED), ("gcs_server", DAMAGED)], indirect=["bucket"]
)
@pytest.mark.parametrize(
    "write", [upload, lambda bucket, data: bucket.folder().write_bytes("x", data)]
)
@pytest.mark.parametrize("size", [100_000, len(DATA)])
def test_corrupt_uploads_are_found(
    bucket: Bucket, proxy: FaultProxy, message: str, write: Callable[..., None], size: int
) -> None:
    proxy.add(Fault("corrupt", None, method="PUT", upload=True, at_byte=5_000))
    with pytest.raises(StorageError, match=f"^{bucket.uri}/x{message}"):
        write(bucket.behind(proxy), data=DATA[:size])
    assert left(bucket) == [] or message == DAMAGED


def peak_kb() -> int:
    """Return this process's peak; `ru_maxrss` it inherits from the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def growth_of_upload(folder: Folder) -> int:
    """Return the kilobytes that an upload of 100 MiB adds to this process."""
    block = os.urandom(1 << 20)
    folder.write_bytes("warm", block)
    before = peak_kb()
    with folder.open_sink("large") as sink:
        for _ in range(100):
            sink.write([block[:1000], block[1000:]])
    return peak_kb() - before


@pytest.mark.parametrize(
    "bucket", ["s3_server", pytest.param("gcs_server", marks=pytest.mark.long)], indirect=True
)
def test_a_large_upload_takes_little_memory(bucket: Bucket) -> None:
    folder = bucket.folder("set")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        grown_kb = pool.submit(growth_of_upload, folder).result(timeout=280)
    assert folder.num_bytes_of("large") == 100 << 20
    # On a slow machine, a part may be sent before the next one is full.
    assert 5 * 1024 < grown_kb < 64 * 1024
