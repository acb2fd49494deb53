"""Shards of local folders as open files."""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.reader import shard_files
from shardwright.reader.corpus import DatasetSource, ShardRef
from shardwright.reader.shard_files import ShardFiles
from shardwright.storage.folder import Folder
from tests.support.cached_datasets import write_dataset
from tests.support.open_files import open_files
from tests.support.random_tests import examples
from tests.support.shard_readings import exit_code_of_fork

NUM_SHARDS, SIZE = 12, 64
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Shards:
    """The shards of one dataset."""

    folder: str
    refs: list[ShardRef]
    contents: list[bytes]
    num_open = property(lambda self: len(open_files(self.folder)))


def refs_of(folder: Path, times: int = 1) -> list[ShardRef]:
    source = DatasetSource.open(Folder(str(folder)), None)
    pairs = source.manifest.named_shards("train")
    return [ShardRef(source, name, info, 0, 1) for name, info in pairs] * times


def paths_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("noise-train.*"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Twelve shards, read only."""
    folder = tmp_path_factory.mktemp("many")
    write_dataset(folder, [SIZE] * NUM_SHARDS)
    return Shards(str(folder), refs_of(folder), [path.read_bytes() for path in paths_of(folder)])


def read(files: ShardFiles, shard: int) -> bytes:
    file = files.open(shard)
    return os.pread(file.descriptor, SIZE + 1, 0)


@contextmanager
def open_files_limit(limit: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_keeps_a_quarter_of_the_files_that_a_process_may_have_open() -> None:
    with open_files_limit(400):
        assert shard_files.most_open() == 100


def test_the_least_recently_used_is_closed(many: Shards, monkeypatch: Patch) -> None:
    monkeypatch.setattr(shard_files, "_MAX_OPEN", 3)
    with closing(ShardFiles(many.refs)) as files:
        for shard in (0, 1, 2, 0, 3):
            read(files, shard)
        assert [*files.opened] == [2, 0, 3]


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40), st.integers(1, 4))
def test_overlapping_blocks(many: Shards, steps: list[tuple[int, bool]], limit: int) -> None:
    """Enter a shard, or leave the block that was entered first."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(shard_files, "_MAX_OPEN", limit)
        files = ShardFiles(many.refs)
        inside: list[tuple[Any, int]] = []
        for shard, enters in steps:
            if enters:
                inside.append((files.open(shard), shard))
            elif inside:
                del inside[0]
            # In a list of its own: a variable here would keep the last one open.
            read = [(os.pread(block.descriptor, SIZE, 0), used) for block, used in inside]
            assert all(data == many.contents[used] for data, used in read)
            assert many.num_open <= limit + len(inside)
        files.close()
        assert many.num_open <= len(inside)
        inside.clear()
    assert many.num_open == 0


def test_parts_of_one_shard_are_one_file(tmp_path: Path) -> None:
    write_dataset(tmp_path, [SIZE] * 2)
    with closing(ShardFiles(refs_of(tmp_path, times=2))) as files:
        assert files.open(0) is files.open(2)
        assert len(open_files(tmp_path)) == 1


def test_planning_does_nothing_for_local_folders(many: Shards) -> None:
    with closing(ShardFiles(many.refs, at_a_time=NUM_SHARDS)) as files:
        files.plan(range(10), iter(int, 1))  # never ends
        read(files, 11)
        files.plan([5])
        assert [*files.opened] == [11]


STATED = "and the manifest states 64 bytes with 1 record: copy the dataset again, or run"


@pytest.mark.parametrize(("content", "error", "what"), [
    (None, MissingError, "is missing"),
    (bytes(63), StorageError, "is 63 bytes long"),
    (bytes(2000), StorageError, "is 2,000 bytes long"),
], ids=["missing", "truncated", "longer"])  # fmt: skip
def test_a_shard_of_another_length(tmp_path: Path, content: Any, error: Any, what: str) -> None:
    write_dataset(tmp_path, [SIZE] * 3)
    path = paths_of(tmp_path)[1]
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with closing(ShardFiles(refs_of(tmp_path))) as files:
        for _ in range(2):
            with pytest.raises(error, match=re.escape(f"{path} {what}, {STATED}")):
                read(files, 1)
        assert open_files(tmp_path) == []
        path.write_bytes(whole)
        assert read(files, 1) == whole


def test_a_shard_that_cannot_be_opened(tmp_path: Path) -> None:
    write_dataset(tmp_path, [SIZE])
    path = paths_of(tmp_path)[0]
    path.unlink()
    os.mknod(path, stat.S_IFSOCK)
    what = f"{path} cannot be read: No such device"
    files = ShardFiles(refs_of(tmp_path))
    with closing(files), pytest.raises(StorageError, match=what):
        read(files, 0)


def test_the_error_of_too_many_open_files_names_the_limit(many: Shards) -> None:
    with closing(ShardFiles(many.refs)) as files:
        used = max(map(int, os.listdir("/proc/self/fd")))
        with open_files_limit(used), ExitStack() as stack:
            with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012
                while True:
                    stack.callback(os.close, os.dup(0))
            what = "00007-of-00012 cannot be read: Too many open files: raise `ulimit -n`"
            with pytest.raises(StorageError, match=what):
                read(files, 7)
        assert len(read(files, 7)) == SIZE


def test_closing_waits_for_references_and_ends_opening(many: Shards) -> None:
    files = ShardFiles(many.refs)
    read(files, 5)
    file = files.open(0)
    files.close()
    assert many.num_open == 1
    assert os.pread(file.descriptor, SIZE, 0) == many.contents[0]
    for shard in (5, 6):
        with pytest.raises(UsageError, match=r"of-00012: the reader is closed"):
            read(files, shard)
    del file
    assert many.num_open == 0
    files.close()


def _exit_with_num_open(folder: str) -> None:
    os._exit(len(open_files(folder)))


def test_a_forked_process_keeps_no_file_of_its_parent_but_those_in_use(many: Shards) -> None:
    with closing(ShardFiles(many.refs[:8])) as files:
        for shard in range(4):
            read(files, shard)
        used = files.open(0)
        assert exit_code_of_fork(_exit_with_num_open, many.folder) == 1
        assert many.num_open == 4
        del used


def _read_all(files: ShardFiles, contents: list[bytes]) -> None:
    faulthandler.dump_traceback_later(30, file=2)  # a child that hangs says where
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda shard: read(files, shard), range(len(contents))))
    os._exit(0 if found == contents else 1)


def test_works_after_a_fork_with_every_lock_held(many: Shards, monkeypatch: Patch) -> None:
    monkeypatch.setattr(shard_files, "_MAX_OPEN", 2)
    contents = many.contents[:8]
    stop = threading.Event()
    with closing(ShardFiles(many.refs[:8])) as files, ThreadPoolExecutor(4) as pool:

        def work(shard: int) -> None:
            while not stop.is_set():
                read(files, shard)

        def hold() -> None:
            with files._opening[0], files._lock:
                stop.wait(60)

        tasks = [pool.submit(work, shard) for shard in range(3)]
        try:
            for _ in range(5):
                assert exit_code_of_fork(_read_all, files, contents) == 0
            tasks.append(pool.submit(hold))
            while not files._lock.locked() or not files._opening[0].locked():
                time.sleep(0.001)
            assert exit_code_of_fork(_read_all, files, contents) == 0
        finally:
            stop.set()
        for task in tasks:
            task.result()
