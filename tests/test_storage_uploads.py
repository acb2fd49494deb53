"""Uploads: in little memory, whole or not at all, and nothing left of them, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import DeniedError, StorageError, ThrottledError
from shardwright.storage.uploads import PART_BYTES
from tests.buckets import Bucket, Counted
from tests.fault_proxy import Fault, FaultProxy

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
DATA = os.urandom(PART_BYTES + 1_000_000)


def upload(bucket: Bucket, key: str = "x", data: bytes = DATA, **options: str) -> None:
    with bucket.folder(**options).open_sink(key) as sink:
        for start in range(0, len(data), 3_000_000):
            sink.write(
                [data[start : start + 1_000_000], data[start + 1_000_000 : start + 3_000_000]]
            )


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 20_000_001])
@BOTH
def test_sizes_around_a_part(bucket: Bucket, size: int) -> None:
    data = os.urandom(size)
    counted = Counted()
    upload(bucket, "a b/ü", data)
    assert bucket.get("a b/ü") == data
    assert counted.all.get("bytes_written", 0) == size
    assert bucket.server.pending_uploads(bucket.name) == []


def test_nothing_is_seen_before_the_end(bucket: Bucket) -> None:
    bucket.put("x", b"old")
    with bucket.folder().open_sink("x") as sink:
        sink.write([DATA])
        sink.write([DATA])
        assert bucket.get("x") == b"old"
        assert sink.num_bytes == 2 * len(DATA)
    assert bucket.get("x") == DATA + DATA


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (RuntimeError("mine"), 10), (RuntimeError("mine"), 3 * PART_BYTES), (KeyboardInterrupt(), 3 * PART_BYTES),
        (OSError(5, "a disk"), 3 * PART_BYTES), (ValueError("v"), 10), (FileNotFoundError("f"), 10),
    ],
    ids=repr,
)  # fmt: skip
@BOTH
def test_an_error_in_the_block_leaves_nothing(
    bucket: Bucket, error: BaseException, size: int
) -> None:
    """And goes on as it is: it is not the store's."""

    def fail() -> None:
        with bucket.folder().open_sink("x") as sink:
            sink.write([bytes(size)])
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert (bucket.keys(), bucket.server.pending_uploads(bucket.name)) == ([], [])


PART: dict[str, Any] = {"method": "PUT", "path_contains": "partNumber=1"}
BEGIN: dict[str, Any] = {"method": "POST", "path_contains": "uploads"}
COMPLETE: dict[str, Any] = {"method": "POST", "path_contains": "uploadId="}


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault("status", 1, status=status, **PART) for status in (500, 503, 429)),
        *(Fault("status", 1, status=503, **where) for where in (BEGIN, COMPLETE)),
        Fault("reset", 1, **PART), Fault("reset", 1, at_byte=2_000_000, upload=True, **PART), Fault("reset", 1, **COMPLETE),
        Fault("stall", 1, **PART), Fault("reset_after_upstream", 1, **PART), Fault("reset_after_upstream", 1, **COMPLETE),
        Fault("status", 1, status=503, method="HEAD"), Fault("status", 1, status=503, method="GET"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.path_contains or fault.method}-{fault.at_byte}",
)  # fmt: skip
@BOTH
def test_what_passes_is_waited_for(bucket: Bucket, proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(fault)
    upload(bucket.behind(proxy), read_timeout="1")
    assert bucket.get("x") == DATA
    assert bucket.server.pending_uploads(bucket.name) == []
    assert proxy.hits(fault) == fault.times


@BOTH
def test_a_completion_that_is_never_answered_has_gone_well(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    proxy.add(
        Fault("reset_after_upstream", 1, **COMPLETE), Fault("status", None, status=404, **COMPLETE)
    )
    upload(bucket.behind(proxy))
    assert bucket.get("x") == DATA


@BOTH
def test_an_older_object_of_that_length_is_no_completion(bucket: Bucket, proxy: FaultProxy) -> None:
    bucket.put("x", bytes(len(DATA)))
    proxy.add(Fault("status", None, status=404, **COMPLETE))
    with pytest.raises(StorageError, match=rf"^{bucket.uri}/x"):
        upload(bucket.behind(proxy))
    assert bucket.get("x") == bytes(len(DATA))
    assert bucket.server.pending_uploads(bucket.name) == []


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        (Fault("status", None, status=403, **PART), DeniedError, r"may not write it \(403"),
        (Fault("status", None, status=403, **COMPLETE), DeniedError, r"may not write it \(403"),
        (
            Fault("status", None, status=503, **PART),
            ThrottledError,
            "cannot be written: .* answers 503 SlowDown",
        ),
        (
            Fault("status", None, status=503, **BEGIN),
            ThrottledError,
            "cannot be written: .* answers 503 SlowDown",
        ),
    ],
)
@BOTH
def test_what_does_not_pass_leaves_nothing(
    bucket: Bucket, proxy: FaultProxy, fault: Fault, error: type[StorageError], told: str
) -> None:
    proxy.add(fault)
    started = time.monotonic()
    with pytest.raises(error, match=rf"^{bucket.uri}/x.*{told}"):
        upload(bucket.behind(proxy), data=DATA * 3, deadline="1")
    assert time.monotonic() - started < 15
    assert (bucket.keys(), bucket.server.pending_uploads(bucket.name)) == ([], [])


@pytest.mark.parametrize("size", [100_000, len(DATA)])
def test_s3_refuses_what_was_changed_on_its_way(
    s3_bucket: Bucket, s3_proxy: FaultProxy, size: int
) -> None:
    s3_proxy.add(Fault("corrupt", None, method="PUT", upload=True, at_byte=5_000))
    with pytest.raises(
        StorageError,
        match=rf"^{s3_bucket.uri}/x cannot be written: .* answers 400 (BadDigest|XAmzContentSHA256Mismatch)",
    ):
        upload(s3_bucket.behind(s3_proxy), data=DATA[:size])
    with pytest.raises(
        StorageError,
        match=rf"^{s3_bucket.uri}/y cannot be written: .* answers 400 (BadDigest|XAmzContentSHA256Mismatch)",
    ):
        s3_bucket.behind(s3_proxy).folder().write_bytes("y", DATA[:size])
    assert (s3_bucket.keys(), s3_bucket.server.pending_uploads(s3_bucket.name)) == ([], [])


@pytest.mark.parametrize(
    "write", [upload, lambda bucket, data: bucket.folder().write_bytes("x", data)]
)
@pytest.mark.parametrize("size", [100_000, len(DATA)])
def test_what_arrives_changed_at_gcs_is_found(
    gcs_bucket: Bucket, write: Callable[..., None], size: int
) -> None:
    with FaultProxy(gcs_bucket.server.endpoint) as proxy:
        proxy.add(Fault("corrupt", None, method="PUT", upload=True, at_byte=5_000))
        with pytest.raises(
            StorageError,
            match=rf"^{gcs_bucket.uri}/x did not arrive as it was sent.*: run the build again$",
        ):
            write(gcs_bucket.behind(proxy), data=DATA[:size])


START = """
import os, signal, sys
from shardwright.storage import Folder, StorageOptions
folder = Folder.at(sys.argv[1], StorageOptions.parse(sys.argv[2:]))
"""


def run(bucket: Bucket, script: str) -> subprocess.Popen[str]:
    """Run a script that may use `folder`, `set` in the bucket, in a process of its own."""
    args = [
        f"{bucket.uri}/set",
        *(f"{key}={value}" for key, value in bucket.server.options.items()),
    ]
    command = [sys.executable, "-c", START + textwrap.dedent(script), *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )


@BOTH
def test_150_mb_take_little_memory(bucket: Bucket) -> None:
    script = """
    block = os.urandom(1 << 20)
    folder.write_bytes("warm", block)
    def peak():  # not ru_maxrss, which a process inherits from the one that started it
        return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
    before = peak()
    with folder.open_sink("large") as sink:
        for _ in range(150):
            sink.write([block[:1000], block[1000:]])
    print(peak() - before, sink.num_bytes)
    """
    process = run(bucket, script)
    out, _ = process.communicate(timeout=60)
    grown_kb, num_bytes = map(int, out.split())
    assert (process.returncode, num_bytes, bucket.folder("set").num_bytes_of("large")) == (
        0,
        150 << 20,
        150 << 20,
    )
    assert 10 * 1024 < grown_kb < 64 * 1024


BEGIN_AND = """
with folder.open_sink("index/train-00000-of-00001.parquet") as sink:
    sink.write([bytes(30 << 20)])
    print("begun", flush=True)
    %s
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [("signal.pause()", -signal.SIGINT), ("raise RuntimeError", 1), ("sys.exit(3)", 3)],
)
@BOTH
def test_a_process_that_ends_in_the_middle_leaves_nothing(
    bucket: Bucket, then: str, code: int
) -> None:
    process = run(bucket, BEGIN_AND % then)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    if code < 0:
        process.send_signal(-code)
    assert process.wait(30) == code
    assert (bucket.keys(), bucket.server.pending_uploads(bucket.name)) == ([], [])


@BOTH
def test_leftovers_of_a_killed_process_are_aborted(bucket: Bucket) -> None:
    bucket.put("set/manifest.json", b"{}")
    process = run(bucket, BEGIN_AND % "signal.pause()")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.wait(30)
    name = "index/train-00000-of-00001.parquet"
    assert bucket.server.pending_uploads(bucket.name) == [f"set/{name}"]
    assert bucket.folder("se").abort_uploads() == bucket.folder("set/index").abort_uploads() == []
    assert bucket.folder("set").abort_uploads() == [name]
    assert bucket.folder("set").abort_uploads() == []
    assert (bucket.keys(), bucket.server.pending_uploads(bucket.name)) == (
        ["set/manifest.json"],
        [],
    )
