"""Shards of local folders as open files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
import re
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.errors import MissingError, ShardwrightError, StorageError, UsageError
from shardwright.read_plan import plan_read
from shardwright.reader import shard_files
from shardwright.reader.corpus import ShardRef, Source
from shardwright.reader.shard_files import ShardFiles
from shardwright.storage import Folder
from tests.cached_datasets import write_dataset

NUM_SHARDS, SIZE = 300, 64
FORK = multiprocessing.get_context("fork")


def refs_of(folder: Path, times: int = 1) -> list[ShardRef]:
    root = Folder(str(folder))
    source = Source.open(root, None)
    names, infos = source.manifest.shard_names("train"), source.manifest.splits["train"].shards
    return [
        ShardRef(source, name, info, 0, 1) for name, info in zip(names, infos, strict=True)
    ] * times


def paths_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("noise-train.*"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ShardRef], list[bytes]]:
    """300 shards and their bytes; not to be changed."""
    folder = tmp_path_factory.mktemp("many")
    write_dataset(folder, [SIZE] * NUM_SHARDS)
    return refs_of(folder), [path.read_bytes() for path in paths_of(folder)]


@contextmanager
def closing(files: ShardFiles) -> Iterator[ShardFiles]:
    try:
        yield files
    finally:
        files.close()


def num_open(folder: str = "") -> int:
    """Files that this process has open, of a folder."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(folder)
        except FileNotFoundError:  # that of the listing itself
            continue
    return count


def read(files: ShardFiles, shard: int) -> bytes:
    with files.open(shard) as descriptor:
        return os.pread(descriptor, SIZE + 1, 0)


def limit_open(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(shard_files, "_MAX_OPEN", limit)


def test_any_order_gives_each_shard_with_no_more_open_than_allowed(
    many: tuple[list[ShardRef], list[bytes]],
) -> None:
    refs, contents = many
    folder = refs[0].source.root.uri
    order = random.Random(0).choices(range(NUM_SHARDS), k=1000)
    with closing(ShardFiles(refs, in_order=True)) as files:
        for shard in order:
            assert read(files, shard) == contents[shard]
            assert shard % 8 or num_open(folder) <= 256
        assert num_open(folder) == 256
    assert num_open(folder) == 0


def test_keeps_a_quarter_of_few_files_that_a_process_may_have_open(
    many: tuple[list[ShardRef], list[bytes]],
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    quarter = len(os.listdir("/proc/self/fd")) // 2 + 40  # room for what the other tests have open
    assert quarter < 250, "or reading 300 shards would not tell"
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * quarter, limits[1]))
    try:
        with closing(ShardFiles(many[0])) as files:
            for shard in range(300):
                read(files, shard)
            assert num_open(many[0][0].source.root.uri) == quarter
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_one_used_longest_ago_is_closed(
    many: tuple[list[ShardRef], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_open(monkeypatch, 3)
    with closing(ShardFiles(many[0])) as files:
        for shard in (0, 1, 2, 0, 3):
            read(files, shard)
        assert [found.ref.info.index for found in files.opened] == [2, 0, 3]


def test_what_is_in_use_stays_open(
    many: tuple[list[ShardRef], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_open(monkeypatch, 2)
    refs, contents = many
    with closing(ShardFiles(refs)) as files:
        with (
            files.open(0) as zero,
            files.open(1) as one,
            files.open(2) as two,
            files.open(0) as again,
        ):
            assert again == zero
            for shard in range(3, 50):
                read(files, shard)
            assert [os.pread(descriptor, SIZE, 0) for descriptor in (zero, one, two)] == contents[
                :3
            ]
        assert num_open(refs[0].source.root.uri) == 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40), st.integers(1, 4))
def test_blocks_that_overlap_in_any_way_keep_their_descriptors(
    many: tuple[list[ShardRef], list[bytes]], steps: list[tuple[int, bool]], limit: int
) -> None:
    """Enter a shard, or leave the block that was entered first."""
    refs, contents = many
    with pytest.MonkeyPatch.context() as monkeypatch, closing(ShardFiles(refs)) as files:
        limit_open(monkeypatch, limit)
        files = ShardFiles(refs)
        inside: list[tuple[Any, int, int]] = []
        for shard, enters in steps:
            if enters:
                block = files.open(shard)
                inside.append((block, block.__enter__(), shard))
            elif inside:
                inside.pop(0)[0].__exit__(None, None, None)
            for _, descriptor, used in inside:
                assert os.pread(descriptor, SIZE, 0) == contents[used]
            assert num_open(refs[0].source.root.uri) <= max(
                limit, len({used for *_, used in inside})
            )
        for block, _, _ in inside:
            block.__exit__(None, None, None)
        files.close()
    assert num_open(refs[0].source.root.uri) == 0


def test_threads_share_files_of_which_few_may_be_open(
    many: tuple[list[ShardRef], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_open(monkeypatch, 3)
    refs, contents = many

    def work(seed: int) -> int:
        choose = random.Random(seed)
        good = 0
        for _ in range(3000):
            shard = choose.randrange(12)
            with files.open(shard) as descriptor:
                if choose.random() < 0.01:
                    time.sleep(0.0005)  # let the others in
                good += os.pread(descriptor, SIZE, 0) == contents[shard]
        return good

    with closing(ShardFiles(refs)) as files, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [3000] * 8
        assert num_open(refs[0].source.root.uri) <= 3


def test_parts_of_one_shard_are_one_file(tmp_path: Path) -> None:
    write_dataset(tmp_path, [SIZE] * 2)
    with closing(ShardFiles(refs_of(tmp_path, times=2))) as files:
        with files.open(0) as one, files.open(2) as other:
            assert one == other
        assert num_open(str(tmp_path)) == 1


def test_a_path_is_that_of_the_shard_and_is_checked(tmp_path: Path) -> None:
    write_dataset(tmp_path, [SIZE] * 2)
    paths_of(tmp_path)[1].write_bytes(b"")
    with closing(ShardFiles(refs_of(tmp_path))) as files:
        with files.path(0) as path:
            assert path == str(paths_of(tmp_path)[0])
        with pytest.raises(StorageError, match="is 0 bytes long"), files.path(1):
            pass


def test_planning_is_nothing_for_local_folders(many: tuple[list[ShardRef], list[bytes]]) -> None:
    with closing(ShardFiles(many[0], at_a_time=NUM_SHARDS)) as files:
        files.plan(range(10), iter(int, 1))  # never ends
        read(files, 200)
        files.plan([5])
        assert [found.ref.info.index for found in files.opened] == [200]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (
            None,
            MissingError,
            "is missing, and the manifest states 64 bytes with 1 records: copy the dataset again, or run",
        ),
        (
            bytes(63),
            StorageError,
            "is 63 bytes long, and the manifest states 64 bytes with 1 records: copy the dataset again, or run",
        ),
        (
            bytes(2000),
            StorageError,
            "is 2,000 bytes long, and the manifest states 64 bytes with 1 records: copy the dataset again, or",
        ),
    ],
    ids=["missing", "truncated", "longer"],
)
def test_a_shard_that_is_not_what_the_manifest_states(
    tmp_path: Path, content: bytes | None, error: type[ShardwrightError], message: str
) -> None:
    write_dataset(tmp_path, [SIZE] * 3)
    path = paths_of(tmp_path)[1]
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with closing(ShardFiles(refs_of(tmp_path))) as files:
        for _ in range(2):
            with pytest.raises(error, match=re.escape(f"{path} {message}")) as caught:
                read(files, 1)
        with pytest.raises(StorageError, match=re.escape(str(caught.value))):
            plan_read(Source.open(Folder(str(tmp_path)), None), "train", None)
        assert num_open(str(tmp_path)) == 0
        path.write_bytes(whole)
        assert read(files, 1) == whole


def test_a_shard_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    write_dataset(tmp_path, [SIZE])
    path = paths_of(tmp_path)[0]
    path.unlink()
    path.symlink_to(path)
    with (
        closing(ShardFiles(refs_of(tmp_path))) as files,
        pytest.raises(StorageError, match=f"{path} cannot be read: Too many levels"),
    ):
        read(files, 0)


def test_no_file_left_to_open_names_the_limit(many: tuple[list[ShardRef], list[bytes]]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(ShardFiles(many[0])) as files:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), limits[1])
        )
        taken = []
        try:
            with pytest.raises(OSError, match="Too many") as caught:  # noqa: PT012 - as many as there are
                while True:
                    taken.append(os.dup(0))
            assert caught.value.errno == errno.EMFILE
            with pytest.raises(
                StorageError,
                match=r"00007-of-00300 cannot be read: Too many open files: raise `ulimit -n`",
            ):
                read(files, 7)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert len(read(files, 7)) == SIZE


def test_closing_waits_for_blocks_and_ends_opening(
    many: tuple[list[ShardRef], list[bytes]],
) -> None:
    refs, contents = many
    files = ShardFiles(refs)
    read(files, 5)
    with files.open(0) as descriptor:
        files.close()
        assert num_open(refs[0].source.root.uri) == 1
        assert os.pread(descriptor, SIZE, 0) == contents[0]
        for shard in (5, 6):
            with pytest.raises(UsageError, match=r"of-00300: the reader is closed"):
                read(files, shard)
    assert num_open(refs[0].source.root.uri) == 0
    files.close()


def test_a_copy_by_pickle_opens_files_of_its_own(many: tuple[list[ShardRef], list[bytes]]) -> None:
    refs, contents = many
    with closing(ShardFiles(refs, at_a_time=7)) as files:
        read(files, 3)
        with closing(pickle.loads(pickle.dumps(files))) as copy:
            assert not copy.opened
            assert read(copy, 3) == contents[3]


def _read_all(files: ShardFiles, contents: list[bytes]) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda shard: read(files, shard), range(len(contents))))
    os._exit(0 if found == contents else 1)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_goes_on_in_another_process(many: tuple[list[ShardRef], list[bytes]], start: str) -> None:
    refs, contents = many
    with closing(ShardFiles(refs[:8])) as files:
        for shard in range(4):
            read(files, shard)
        child = multiprocessing.get_context(start).Process(
            target=_read_all, args=(files, contents[:8])
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert [read(files, shard) for shard in range(8)] == contents[:8]


def test_a_process_forked_while_threads_hold_every_lock_goes_on(
    many: tuple[list[ShardRef], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_open(monkeypatch, 2)
    refs, contents = many
    stop = threading.Event()
    with closing(ShardFiles(refs[:8])) as files, ThreadPoolExecutor(4) as pool:

        def work(shard: int) -> None:
            while not stop.is_set():
                read(files, shard)

        def hold() -> None:
            with files.open(0).opening, files.lock:
                stop.wait(60)

        tasks = [pool.submit(work, shard) for shard in range(3)]
        try:
            for _ in range(5):
                _check_child(files, contents[:8])
            tasks.append(pool.submit(hold))
            while not files.lock.locked() or not files.open(0).opening.locked():
                time.sleep(0.001)
            _check_child(files, contents[:8])
        finally:
            stop.set()
        for task in tasks:
            task.result()


def _check_child(files: ShardFiles, contents: list[bytes]) -> None:
    child = FORK.Process(target=_read_all, args=(files, contents))
    child.start()
    child.join(20)
    hung = child.is_alive()
    child.kill()
    assert not hung
    assert child.exitcode == 0
