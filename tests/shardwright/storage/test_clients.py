"""Clients in processes and threads: one for each store, made in the process that uses it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwright.storage.counters import StorageCounters
from shardwright.storage.reads import map_reads, start_read
from tests import ROOT
from tests.support.buckets import Bucket, on_s3_and_gcs

START = """
import os, signal, sys
from shardwright.errors import ClientError
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import start_read
folder = Folder.at(sys.argv[1], StorageOptions.parse(sys.argv[2:]))
def child(act):
    pid = os.fork()
    if not pid:
        signal.alarm(250)
        try:
            print("child", act(), flush=True)
        except ClientError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def run(bucket: Bucket, *lines: str) -> list[str]:
    """Run lines that may use `folder`, the bucket, and `child(act)`; return what they print."""
    code, args = START + "\n".join(lines), [bucket.uri, *bucket.args()[1::2]]
    command, root = [sys.executable, "-c", code, *args], ROOT
    return subprocess.check_output(command, text=True, timeout=280, cwd=root).splitlines()


@on_s3_and_gcs
def test_a_process_forked_after_use_fails(bucket: Bucket) -> None:
    bucket.put("x", b"data")
    use = "print(start_read(lambda: folder.read_bytes('x')).result(), flush=True)"
    acts = [
        "folder.read_bytes('x')",
        "folder.names()",
        "folder.open_sink('y').__enter__()",
        "start_read(lambda: folder.read_bytes('x')).result()",
    ]
    first, *children, last = run(bucket, use, *(f"child(lambda: {act})" for act in acts), use)
    assert first == last == "b'data'"
    message = (
        "this process was forked after a store was used, and storage clients do not survive a "
        "fork: start processes with 'spawn' or 'forkserver' (multiprocessing.set_start_method), or "
        "use stores only after the fork"
    )
    assert children == [f"ClientError {bucket.uri}: {message}"] * len(acts)


@on_s3_and_gcs
def test_processes_forked_before_first_use_work(bucket: Bucket) -> None:
    bucket.put("x", b"data")
    child = "child(lambda: folder.read_bytes('x'))"
    printed = run(bucket, child, child, "print(folder.read_bytes('x'))")
    assert printed == ["child b'data'", "child b'data'", "b'data'"]


def test_folders_are_picklable(s3_bucket: Bucket) -> None:
    folder = pickle.loads(pickle.dumps(s3_bucket.folder("a")))
    assert folder == s3_bucket.folder("a")
    folder.write_bytes("x", b"1")
    assert s3_bucket.get("a/x") == b"1"


def test_threads_share_clients(s3_bucket: Bucket) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: s3_bucket.client(), range(50)))
    assert len(clients) == 1
    assert s3_bucket.client(deadline="3") not in clients


def test_reads_are_in_order_and_a_few_ahead() -> None:
    begun = []

    def read(number: int) -> int:
        begun.append(number)
        return number * number

    results = map_reads(read, iter(range(100)), in_flight=3)
    assert next(results) == 0
    assert len(begun) <= 6
    assert list(results) == [number * number for number in range(1, 100)]
    assert list(map_reads(read, [])) == []


def test_errors_of_reads() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_reads(lambda number: 1 // number, [1, 0, 1]))
    assert start_read(lambda: 5).result() == 5


def test_counters() -> None:
    counters = StorageCounters()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counters.add("requests"), range(1000)))
    counters.add("bytes_read", 7)
    assert counters.snapshot() == counters.drain() == {"requests": 1000, "bytes_read": 7}
    assert counters.drain() == {}
    counters.add("requests")
    assert (counters.drain(), counters.snapshot()["requests"]) == ({"requests": 1}, 1001)
