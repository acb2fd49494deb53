"""`sw.Reader` on a store: the batches of a local folder, by way of a bounded cache."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.cached_datasets import behind, downloads, put_folder, wait_until
from tests.support.damage import build, write_images
from tests.support.readers import global_batches, ids_of, take


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """48 records in 12 shards."""
    root = tmp_path_factory.mktemp("remote")
    return str(build(write_images(root / "images", 16), root / "zoo", "--records-per-shard", "4"))


@pytest.fixture(scope="module")
def stored(local: str, s3_server: StoreServer) -> Folder:
    return put_folder(s3_server, local)


@pytest.fixture
def remote(stored: Folder, tmp_path: Path) -> Callable[..., sw.Reader]:
    def make(root: Folder = stored, **options: Any) -> sw.Reader:
        place = {"storage_options": root.options, "cache": tmp_path / "cache"}
        return sw.Reader(root.uri, global_batch_size=6, **place, **options)

    return make


def largest(dataset: str) -> int:
    return max(shard.num_bytes for shard in sw.open(dataset).splits["train"].shards)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2, "image": sw.TrainImage(12)},
        {"epochs": 2, "shuffle": True, "window": 3, "image": sw.TrainImage(12)},
        {"epochs": 1, "shuffle": True, "window": 12, "split": "train[10%:]", "remainder": "pad"},
        {"epochs": 1, "sampling": sw.ClassBalanced(), "features": ["id", "label"]},
    ],
    ids=str,
)
def test_batches(local: str, remote: Callable[..., sw.Reader], options: dict[str, Any]) -> None:
    readers = sw.Reader(local, global_batch_size=6, **options), remote(**options)
    here, there = (
        [{name: column.tolist() for name, column in batch.items()} for batch in reader]
        for reader in readers
    )
    assert there == here != []


@pytest.mark.long
def test_processes_share_the_cache(local: str, remote: Callable[..., sw.Reader]) -> None:
    options: dict[str, Any] = {"shuffle": True, "window": 3, "epochs": 2}
    here = ids_of(sw.Reader(local, global_batch_size=6, **options))
    with remote(processes=2, cache_bytes=4 * largest(local) + 100_000, **options) as reader:
        assert ids_of(reader) == here


def test_a_state_moves_to_a_local_folder(local: str, remote: Callable[..., sw.Reader]) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2}
    whole = global_batches([remote(window=4, **options)])
    reader = remote(window=4, **options)
    take(reader, 5)
    resumed = sw.Reader(local, global_batch_size=6, state=reader.state(), **options)
    assert global_batches([resumed]) == whole[5:], "the window is part of the state"
    assert sw.Reader(local, global_batch_size=6, **options).state()["window"] == 12
    assert remote(**options).state()["window"] == 12, "16, or all where there are fewer"


def test_a_cache_smaller_than_the_dataset(local: str, remote: Callable[..., sw.Reader]) -> None:
    room = 4 * largest(local) + 100_000  # and the indexes
    options: dict[str, Any] = {"shuffle": True, "window": 3, "epochs": 3}
    here = global_batches([sw.Reader(local, global_batch_size=6, **options)])
    assert global_batches([remote(cache_bytes=room, **options)]) == here
    with pytest.raises(UsageError, match="needs 12 shards of up to"):
        remote(cache_bytes=3 * largest(local), shuffle=True)


INTERRUPTED = """
import signal, sys
import shardwright as sw
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
uri, settings, cache = eval(sys.argv[1])
place = {'storage_options': settings, 'cache': cache}
with sw.Reader(uri, batch_size=6, image=sw.TrainImage(12), **place) as reader:
    print("begins", flush=True)
    next(iter(reader))
"""


@pytest.mark.long
def test_an_interrupt_while_the_store_fails(
    stored: Folder, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """It ends the tries that batches wait for, and the process."""
    s3_proxy.add(Fault("status", None, path_contains="tfrecord-000"))
    root = behind(stored, s3_proxy, deadline="1000")
    options = {key: value for _, key, value in root.options.settings}
    given = repr((root.uri, options, str(tmp_path / "cache")))
    words = [sys.executable, "-c", INTERRUPTED, given]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        wait_until(lambda: len(downloads(s3_proxy)) > 9)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors.endswith("KeyboardInterrupt\n")
