"""Clients and processes: one for each store, made in the process that uses it, and pictures of them that travel."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardwright.storage import COUNTERS, Folder, StorageOptions
from shardwright.storage.counters import StorageCounters
from shardwright.storage.reads import map_reads, start_read
from tests.buckets import Bucket

START = """
import os, signal, sys
from shardwright.errors import ClientError
from shardwright.storage import Folder, StorageOptions
from shardwright.storage.reads import start_read
folder = Folder.at(sys.argv[1], StorageOptions.parse(sys.argv[2:]))
def child(act):
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        try:
            print("child", act(), flush=True)
        except ClientError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def run(bucket: Bucket, lines: Sequence[str]) -> str:
    args = [bucket.uri, *(f"{key}={value}" for key, value in bucket.server.options.items())]
    command = [sys.executable, "-c", START + "\n".join(lines), *args]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return done.stdout


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
@pytest.mark.parametrize(
    "act",
    [
        "folder.read_bytes('x')",
        "folder.names()",
        "folder.open_sink('y').__enter__()",
        "start_read(lambda: folder.read_bytes('x')).result()",
    ],
)
def test_a_process_forked_after_use_is_told_instead_of_hanging(bucket: Bucket, act: str) -> None:
    bucket.put("x", b"data")
    use = "print(start_read(lambda: folder.read_bytes('x')).result(), flush=True)"
    said = run(bucket, [use, f"child(lambda: {act})", use]).splitlines()
    assert [said[0], said[2]] == ["b'data'"] * 2
    told = "this process was forked after stores had been used, and the storage client cannot go on in it: start processes by 'spawn'"
    assert said[1].startswith(f"ClientError {bucket.uri}: {told}")


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_processes_forked_before_first_use_go_on(bucket: Bucket) -> None:
    bucket.put("x", b"data")
    assert (
        run(
            bucket,
            ["child(lambda: folder.read_bytes('x'))"] * 2 + ["print(folder.read_bytes('x'))"],
        )
        == "child b'data'\n" * 2 + "b'data'\n"
    )


def test_folders_travel(s3_bucket: Bucket) -> None:
    folder = pickle.loads(pickle.dumps(s3_bucket.folder("a")))
    assert folder == s3_bucket.folder("a")
    folder.write_bytes("x", b"1")
    assert s3_bucket.get("a/x") == b"1"


def test_clients_are_shared_by_threads(s3_bucket: Bucket) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: s3_bucket.client(), range(50)))
    assert len(clients) == 1
    assert s3_bucket.client(deadline="3") not in clients


def test_reads_come_in_order_and_not_all_at_once() -> None:
    begun = []

    def read(number: int) -> int:
        begun.append(number)
        return number * number

    results = map_reads(read, iter(range(100)), in_flight=3)
    assert next(results) == 0
    assert len(begun) <= 6
    assert list(results) == [number * number for number in range(1, 100)]
    assert list(map_reads(read, [])) == []


def test_an_error_of_a_read_comes_to_whoever_takes_it() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_reads(lambda number: 1 // number, [1, 0, 1]))
    assert start_read(lambda: 5).result() == 5


def test_counters_are_given_once() -> None:
    counters = StorageCounters()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counters.add("requests"), range(1000)))
    counters.add("bytes_read", 7)
    assert counters.snapshot() == counters.drain() == {"requests": 1000, "bytes_read": 7}
    assert counters.drain() == {}
    counters.add("requests")
    assert (counters.drain(), counters.snapshot()["requests"]) == ({"requests": 1}, 1001)
    assert isinstance(COUNTERS, StorageCounters)


def test_an_unknown_store_is_no_client() -> None:
    with pytest.raises(Exception, match="addresses are not read or written"):
        Folder.at("ftp://host/a", StorageOptions()).names()
