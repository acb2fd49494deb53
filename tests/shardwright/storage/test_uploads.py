"""Uploads: bounded memory, atomic objects, and no leftovers whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shardwright.errors import DeniedError, StorageError, ThrottledError
from shardwright.storage import uploads
from shardwright.storage.uploads import PART_BYTES, ObjectSink
from tests import ROOT
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import (
    Bucket,
    Counted,
    on_s3_and_gcs,
    takes,
)

DATA = os.urandom(PART_BYTES + 1_000_000)
PART: dict[str, Any] = {"method": "PUT", "path_contains": "partNumber=1"}
BEGIN: dict[str, Any] = {"method": "POST", "path_contains": "uploads"}
COMPLETE: dict[str, Any] = {"method": "POST", "path_contains": "uploadId="}


def upload(bucket: Bucket, key: str = "x", data: bytes = DATA, **options: str) -> None:
    with bucket.folder(**options).open_sink(key) as sink:
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


def test_an_object_appears_at_the_end(bucket: Bucket) -> None:
    bucket.put("x", b"old")
    with bucket.folder().open_sink("x") as sink:
        sink.write([DATA])
        sink.write([DATA])
        assert bucket.get("x") == b"old"
        assert sink.num_bytes == 2 * len(DATA)
    assert bucket.get("x") == DATA + DATA


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


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("error", "size"),
    [
        (RuntimeError("mine"), 10), (RuntimeError("mine"), 3 * PART_BYTES), (ValueError("v"), 10),
        (KeyboardInterrupt(), 3 * PART_BYTES), (OSError(5, "a disk"), 3 * PART_BYTES),
        (FileNotFoundError("f"), 10), (SystemExit(3), 10),
    ],
    ids=repr,
)  # fmt: skip
@on_s3_and_gcs
def test_an_error_in_the_block_leaves_nothing(
    bucket: Bucket, error: BaseException, size: int
) -> None:
    def fail() -> None:
        with bucket.folder().open_sink("x") as sink:
            sink.write([bytes(size)])
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error, "it is not the store's"
    # A part on its way when the upload was aborted may leave that unfinished, never an object.
    assert (bucket.keys() if size > PART_BYTES else left(bucket)) == []


TRANSIENT = [
    *(Fault("status", 1, status=status, **PART) for status in (500, 503, 429)),
    Fault("status", 1, **BEGIN), Fault("reset", 1, **PART), Fault("reset", 1, **COMPLETE),
    Fault("reset", 1, at_byte=2_000_000, upload=True, **PART),
    Fault("reset_after_upstream", 1, **PART), Fault("stall", 1, **PART),
    Fault("status", 1, **COMPLETE), Fault("reset_after_upstream", 1, **COMPLETE),
    Fault("status", 1, method="HEAD"), Fault("status", 1, method="GET"),
]  # fmt: skip
CASES = [
    *(("s3_server", fault) for fault in TRANSIENT),
    *(("gcs_server", fault) for fault in TRANSIENT[-5:]),
]


@pytest.mark.long_but_first
@pytest.mark.parametrize(("bucket", "fault"), CASES, ids=str, indirect=["bucket"])
def test_transient_errors_are_retried(bucket: Bucket, proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(fault)
    # A busy machine may need more than a second for a part.
    upload(bucket.behind(proxy), read_timeout="4" if fault.kind == "stall" else "120")
    assert bucket.get("x") == DATA
    assert (bucket.pending(), proxy.hits(fault)) == ([], fault.times)


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


DENIED, THROTTLED = r"may not write it \(403", "cannot be written: .* returned 503 SlowDown"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault("status", None, status=403, **PART), DeniedError, DENIED),
        (Fault("status", None, status=403, **COMPLETE), DeniedError, DENIED),
        (Fault("status", None, status=503, **PART), ThrottledError, THROTTLED),
        (Fault("status", None, status=503, **BEGIN), ThrottledError, THROTTLED),
    ],
)
@on_s3_and_gcs
def test_a_failed_upload_leaves_nothing(
    bucket: Bucket, proxy: FaultProxy, fault: Fault, error: type[StorageError], message: str
) -> None:
    proxy.add(fault)
    with pytest.raises(error, match=rf"^{bucket.uri}/x.*{message}"), takes(0, 100):
        upload(bucket.behind(proxy), deadline="1")
    assert left(bucket) == []


@pytest.mark.parametrize("size", [100_000, len(DATA)])
def test_s3_refuses_corrupt_uploads(s3_bucket: Bucket, s3_proxy: FaultProxy, size: int) -> None:
    s3_proxy.add(Fault("corrupt", None, method="PUT", upload=True, at_byte=5_000))
    bucket = s3_bucket.behind(s3_proxy)
    answer = "cannot be written: .* returned 400 (BadDigest|XAmzContentSHA256Mismatch)"
    with pytest.raises(StorageError, match=rf"^{bucket.uri}/x {answer}"):
        upload(bucket, data=DATA[:size])
    with pytest.raises(StorageError, match=rf"^{bucket.uri}/y {answer}"):
        bucket.folder().write_bytes("y", DATA[:size])
    assert left(s3_bucket) == []


@pytest.mark.parametrize(
    "write", [upload, lambda bucket, data: bucket.folder().write_bytes("x", data)]
)
@pytest.mark.parametrize("size", [100_000, len(DATA)])
def test_corrupt_uploads_to_gcs_are_found(
    gcs_bucket: Bucket, write: Callable[..., None], size: int
) -> None:
    message = rf"^{gcs_bucket.uri}/x was damaged during the upload.*: run the build again$"
    with FaultProxy(gcs_bucket.server.endpoint) as proxy:
        proxy.add(Fault("corrupt", None, method="PUT", upload=True, at_byte=5_000))
        with pytest.raises(StorageError, match=message):
            write(gcs_bucket.behind(proxy), data=DATA[:size])


START = """
import os, signal, sys, time
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = Folder.at(sys.argv[1], StorageOptions.parse(sys.argv[2:]))
"""
BEGIN_AND_WAIT = """
with folder.open_sink("index/train-00000-of-00001.parquet") as sink:
    sink.write([bytes(30 << 20)])
    print("begun", flush=True)
    while True:  # a signal just before signal.pause() would not end it
        time.sleep(0.05)
"""


def run(bucket: Bucket, script: str) -> subprocess.Popen[str]:
    """Run a script that may use `folder`, `set` in the bucket, in a process of its own."""
    args = [f"{bucket.uri}/set", *bucket.args()[1::2]]
    command = [sys.executable, "-c", START + textwrap.dedent(script), *args]
    root = ROOT
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


@pytest.mark.parametrize(
    "bucket", ["s3_server", pytest.param("gcs_server", marks=pytest.mark.long)], indirect=True
)
def test_a_large_upload_takes_little_memory(bucket: Bucket) -> None:
    script = """
    block = os.urandom(1 << 20)
    folder.write_bytes("warm", block)
    def peak():  # not ru_maxrss, which a process inherits from the one that started it
        lines = open("/proc/self/status").read().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    before = peak()
    with folder.open_sink("large") as sink:
        for _ in range(100):
            sink.write([block[:1000], block[1000:]])
    print(peak() - before, sink.num_bytes)
    """
    process = run(bucket, script)
    grown_kb, num_bytes = map(int, process.communicate(timeout=280)[0].split())
    assert (process.returncode, num_bytes) == (0, 100 << 20)
    assert bucket.folder("set").num_bytes_of("large") == 100 << 20
    # On a slow machine, a part may be sent before the next one is full.
    assert 5 * 1024 < grown_kb < 64 * 1024


def start_upload(bucket: Bucket) -> subprocess.Popen[str]:
    process = run(bucket, BEGIN_AND_WAIT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.long_but_first
@on_s3_and_gcs
def test_an_interrupted_process_leaves_no_object(bucket: Bucket) -> None:
    """A part that was on its way when the upload was aborted may leave that unfinished."""
    process = start_upload(bucket)
    process.send_signal(signal.SIGINT)
    assert process.wait(250) == -signal.SIGINT
    assert bucket.keys() == []
