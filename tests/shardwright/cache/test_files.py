"""The cache's folder by itself: locks, room, and the order of eviction."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cache.files import (
    CURRENT,
    USAGE,
    CacheFiles,
    DiskFullError,
    NoRoomError,
    note_next_use,
)
from shardwright.cache.locks import FileLock
from shardwright.cache.settings import CacheSettings
from shardwright.errors import StorageError
from tests.support.cached_datasets import ROOT


def make(root: Path, name: str, num_bytes: int, last_use: float, build: str = "data/new") -> Path:
    path = root / build / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(num_bytes))
    os.utime(path, (last_use, last_use))
    return path


def locked(path: Path, *, shared: bool) -> FileLock:
    lock = FileLock(f"{path}.lock")
    lock.acquire(shared=shared)
    return lock


def reserve(files: CacheFiles, name: str, num_bytes: int, *, wait: bool = False) -> None:
    files.reserve(f"{files.root}/data/new/{name}", num_bytes, wait=wait)


def left(root: Path) -> set[str]:
    names = {path.name for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}
    return names - {"lock", USAGE, CURRENT}


@pytest.mark.parametrize(
    ("num_bytes", "stay"),
    [
        (100, {"a", "b", "stale", "x.parquet", "new"}),
        (101, {"a", "b", "x.parquet", "new"}),
        (200, {"a", "b", "x.parquet", "new"}),
        (201, {"a", "x.parquet", "new"}),
        (301, {"x.parquet", "new"}),
        (401, {"new"}),
    ],
)
def test_stale_builds_go_first(tmp_path: Path, num_bytes: int, stay: set[str]) -> None:
    make(tmp_path, "a", 100, 3000)
    make(tmp_path, "b", 100, 2000)
    make(tmp_path, "x.parquet", 100, 4000, "data/new/index")
    make(tmp_path, "stale", 100, 9000, "data/old")
    (tmp_path / "data" / CURRENT).write_text("new")
    reserve(CacheFiles(str(tmp_path), 500), "new", num_bytes)
    assert left(tmp_path) == stay
    assert (tmp_path / "data/new/new").stat().st_size == num_bytes


def test_without_a_current_build_none_is_stale(tmp_path: Path) -> None:
    make(tmp_path, "a", 100, 3000, "data/one")
    make(tmp_path, "b", 100, 2000, "data/two")
    reserve(CacheFiles(str(tmp_path), 250), "new", 100)
    assert left(tmp_path) == {"a", "new"}


@pytest.mark.parametrize(
    ("noted", "known", "stay"),
    [
        ({"a": -300, "b": 200, "c": -100}, {}, {"b", "c"}),  # used longest ago
        ({"a": -100, "b": 300, "c": -200}, {}, {"a", "c"}),  # comes again last
        ({"a": 100, "b": 300, "c": 200}, {}, {"a", "c"}),
        ({"a": -100, "b": 300, "c": -200}, {"b": 0.0}, {"a", "b"}),  # this process knows better
        ({"a": -100, "b": 300, "c": -200}, {"a": 400.0}, {"b", "c"}),
        ({"a": -1, "b": -2, "c": -3}, {"a": 9.0, "b": 8.0, "c": 7.0}, {"b", "c"}),
        ({"a": 100, "b": 200, "c": 300}, {"a": 900.0, "b": 800.0}, {"a", "b"}),  # others need them
    ],
)
def test_the_furthest_next_use_goes_first(
    tmp_path: Path, noted: dict[str, int], known: dict[str, float], stay: set[str]
) -> None:
    for name, seconds in noted.items():
        make(tmp_path, name, 100, int(time.time()) + seconds)
    files = CacheFiles(str(tmp_path), 300)
    files.expected = lambda path: known.get(os.path.basename(path))
    reserve(files, "new", 100)
    assert left(tmp_path) == {*stay, "new"}


@pytest.mark.parametrize(
    ("noted", "soon", "stay"),
    [
        ({"a": 100, "b": 400}, 300.0, {"a", "new"}),
        ({"a": 100, "b": 200}, 300.0, {"a", "b"}),  # each is used before the new one
        ({"a": 100, "b": -900}, 300.0, {"a", "new"}),  # nobody said that it is used again
        ({"a": -100, "b": -200}, 300.0, {"a", "new"}),
    ],
)
def test_what_is_downloaded_ahead_takes_no_room_of_what_is_used_before(
    tmp_path: Path, noted: dict[str, int], soon: float, stay: set[str]
) -> None:
    for name, seconds in noted.items():
        make(tmp_path, name, 100, int(time.time()) + seconds)
    files = CacheFiles(str(tmp_path), 200)
    files.expected = lambda path: soon if path.endswith("new") else None
    with nullcontext() if "new" in stay else pytest.raises(NoRoomError):
        reserve(files, "new", 100)
    assert left(tmp_path) == stay
    reserve(files, "now", 100, wait=True)
    assert len(left(tmp_path)) == 2, "what is needed now takes any"


@pytest.mark.parametrize(("noted", "seconds", "then"), [(-50, 10, 10), (60, 10, 10), (60, 90, 60)])
def test_the_earliest_next_use_counts(tmp_path: Path, noted: int, seconds: int, then: int) -> None:
    now = time.time()
    path = make(tmp_path, "a", 100, now + noted)
    note_next_use(str(path), seconds)
    assert -1 < path.stat().st_mtime - now - then <= time.time() - now
    note_next_use(str(tmp_path / "removed"), 5)


@pytest.mark.parametrize("shared", [True, False])
def test_a_locked_file_stays_whatever_its_age(tmp_path: Path, shared: bool) -> None:
    lock = locked(make(tmp_path, "used", 100, 1000), shared=shared)
    make(tmp_path, "idle", 100, 2000)
    files = CacheFiles(str(tmp_path), 200)
    reserve(files, "new", 100)
    assert left(tmp_path) == {"used", "new"}
    (tmp_path / "data/new/new").unlink()
    message = r"no room for big \(150 B\) in the cache at .*: all of it is in use, and its cap"
    with pytest.raises(NoRoomError, match=f"{message} of 200 B would be exceeded by 50 B"):
        reserve(files, "big", 150)
    assert left(tmp_path) == {"used"}
    lock.release()
    reserve(files, "big", 150)
    assert left(tmp_path) == {"big"}


def test_waits_for_room(tmp_path: Path) -> None:
    lock = locked(make(tmp_path, "used", 100, 1000), shared=True)
    threading.Timer(0.3, lock.release).start()
    reserve(CacheFiles(str(tmp_path), 100), "new", 60, wait=True)
    assert left(tmp_path) == {"new"}


def test_an_abandoned_download_is_evicted_with_its_journal(tmp_path: Path) -> None:
    make(tmp_path, "a.part", 100, 1000)
    make(tmp_path, "a.parts", 10, 1000)
    held = locked(tmp_path / "data/new/a", shared=False)
    files = CacheFiles(str(tmp_path), 100)
    with pytest.raises(NoRoomError):
        reserve(files, "new", 100)
    held.release()
    reserve(files, "new", 100)
    assert left(tmp_path) == {"new"}


def test_old_temporary_files_go_and_young_ones_stay(tmp_path: Path) -> None:
    make(tmp_path, ".old.parquet.ab12.tmp", 100, time.time() - 7200, "data/new/index")
    make(tmp_path, ".young.parquet.ab12.tmp", 100, time.time(), "data/new/index")
    reserve(CacheFiles(str(tmp_path), 100), "new", 100)
    assert left(tmp_path) == {".young.parquet.ab12.tmp", "new"}


STEP = st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.booleans())


@given(st.lists(STEP, max_size=25))
def test_never_over_the_cap_and_always_counted_right(steps: list[tuple[str, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, files = Path(folder), CacheFiles(folder, 100)
        for name, num_bytes, removes in steps:
            path = root / "data/new" / name
            if path.exists() or removes:
                files.remove(str(path))
            else:
                reserve(files, name, num_bytes)
            there = [path.stat().st_size for path in root.rglob("data/*/*") if path.is_file()]
            assert files.num_bytes() == sum(there) <= 100


def test_a_lost_or_wrong_count_is_made_again(tmp_path: Path) -> None:
    make(tmp_path, "a", 70, 1000)
    files = CacheFiles(str(tmp_path), 100)
    for text in ("", "x"):
        (tmp_path / USAGE).write_text(text)
        assert files.num_bytes() == 70
    (tmp_path / USAGE).write_text("100")  # too high, as after a kill
    reserve(files, "b", 30)
    assert (left(tmp_path), files.num_bytes()) == ({"a", "b"}, 100)


def test_locks_between_threads_and_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "lock")
    one, two, alone = FileLock(path), FileLock(path), FileLock(path)
    assert one.acquire(shared=True)
    assert two.acquire(shared=True)
    assert not alone.acquire(shared=False, wait=False)
    one.release()
    two.release()
    code = (
        f"import fcntl, sys; f = open({path!r}); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        assert not alone.acquire(shared=True, wait=False)
        other.kill()
        assert alone.acquire(shared=False)


def test_a_forked_process_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    path, lock = f"{tmp_path}/file.lock", locked(tmp_path / "file", shared=False)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not FileLock(path).acquire(shared=True, wait=False)
    lock.release()
    assert FileLock(path).acquire(shared=False, wait=False)


def test_a_lock_whose_file_its_holder_removed_is_taken_on_a_new_file(tmp_path: Path) -> None:
    path, holder = tmp_path / "file.lock", locked(tmp_path / "file", shared=False)
    waiter = FileLock(str(path))
    waiting = threading.Thread(target=waiter.acquire, kwargs={"shared": False})
    waiting.start()
    time.sleep(0.05)
    path.unlink()
    holder.release()
    waiting.join(10)
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_ON_A_FULL_DISK = """
import os, sys
from contextlib import nullcontext
from pathlib import Path
from shardwright.cache.files import CacheFiles, DiskFullError
from shardwright.cache.locks import FileLock
root = Path(sys.argv[1])
files = CacheFiles(str(root), 10**9)
def put(name):
    path = root / "data" / "new" / name
    def fill():
        files.reserve(str(path), 1_500_000, wait=True)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 1_500_000)
    lock = FileLock(str(path) + ".lock")
    lock.acquire(shared=False)
    files.unless_full(1_500_000, fill)
    lock.release()
    os.utime(path, (ord(name), ord(name)))
for name in "abcde":
    put(name)
names = sorted(path.name for path in (root / "data/new").iterdir() if path.suffix != ".lock")
assert names == ["d", "e"], names
(root / "other").write_bytes(bytes(900_000))
for name in "de":
    (root / "data/new" / name).unlink()
(root / "more").write_bytes(bytes(2_000_000))
try:
    put("f")
except DiskFullError as error:
    print(error)
"""


def test_a_full_disk_evicts_until_nothing_is_left(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size=4M none {tmp_path} && exec {sys.executable} -c"
    command = ["unshare", "-rm", "sh", "-c", f"{script} '{_ON_A_FULL_DISK}' {tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"cannot mount a disk here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert (
        "is full: 1.5 MB are needed, and nothing in the cache can be evicted: free disk space, "
        "or set SHARDWRIGHT_CACHE to"
    ) in done.stdout


def test_a_disk_that_stays_full_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "a", 100, 1000)
    files, tries = CacheFiles(str(tmp_path), 1000), []

    def full() -> None:
        tries.append(left(tmp_path))
        raise OSError(28, "No space left on device")

    with pytest.raises(DiskFullError, match=r"the disk of the cache at .* is full: 5 B are needed"):
        files.unless_full(5, full)
    assert tries == [{"a"}, set()]


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    message = "cannot lock .*: Is a directory: set SHARDWRIGHT_CACHE to a folder on a local disk"
    with pytest.raises(StorageError, match=message):
        CacheFiles(str(tmp_path), 5).num_bytes()
    (tmp_path / "file").write_bytes(b"")
    message = "cannot create the cache at .*: Not a directory: set SHARDWRIGHT_CACHE to another"
    with pytest.raises(StorageError, match=message):
        CacheSettings(str(tmp_path / "file" / "cache"), 5).open()
