"""Local files: atomic, on the disk before they have their names; every error names the path."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage import local
from shardwright.storage.folder import Folder
from tests.support.open_files import open_files


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


@pytest.fixture
def locked(root: Folder, tmp_path: Path) -> Iterator[Folder]:
    """A folder without permissions. Root ignores those, so the process is `nobody` meanwhile."""
    tmp_path.chmod(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield root
    os.seteuid(user)
    tmp_path.chmod(0o700)


Call = Callable[[Folder, str], object]
READS: dict[str, Call] = {
    "read_bytes": lambda root, name: root.read_bytes(name),
    "read_range": lambda root, name: root.read_range(name, 0, 1),
    "read_ranges": lambda root, name: root.read_ranges(name, [(0, 1)]),
    "open_input": lambda root, name: root.open_input(name),
    "local_copy": lambda root, name: root.local_copy(name).__enter__(),
    "info": lambda root, name: root.info(name),
    "num_bytes_of": lambda root, name: root.num_bytes_of(name),
}
LISTS: dict[str, Call] = {
    "names": lambda root, name: root.names(name),
    "files": lambda root, name: root.files(name),
    "first_names": lambda root, name: root.below(name).first_names(),
}
WRITES: dict[str, Call] = {
    "write_bytes": lambda root, name: root.write_bytes(name, b"x"),
    "write_if_new": lambda root, name: root.write_if_new(name, b"x"),
    "create_bytes": lambda root, name: root.create_bytes(name, b"x"),
    "open_sink": lambda root, name: root.open_sink(name).__enter__(),
}
REMOVALS: dict[str, Call] = {
    "remove": lambda root, name: root.remove(name),
    "remove_all": lambda root, name: root.remove_all([name]),
}
MESSAGES = (
    (READS, "{} cannot be read: .*"),
    (LISTS, "cannot list {}: "),
    (WRITES, "cannot write {}: "),
    (REMOVALS, "cannot remove {}: "),
)
CALLS = {name: (call, text) for calls, text in MESSAGES for name, call in calls.items()}


def check_error(call: Call, text: str, root: Folder, name: str, why: str) -> None:
    with pytest.raises(
        StorageError, match=f"^{text.format(re.escape(root.path(name)))}({why})"
    ) as no:
        call(root, name)
    assert not isinstance(no.value, MissingError | ExistsError)


@pytest.mark.parametrize(("call", "text"), CALLS.values(), ids=CALLS)
def test_a_folder_without_permission(call: Call, text: str, locked: Folder) -> None:
    check_error(call, text, locked, "secret", "Permission denied")


@pytest.mark.parametrize("name", ["info", "files", "first_names", "write_bytes", "remove"])
def test_a_name_that_is_too_long(name: str, root: Folder) -> None:
    check_error(*CALLS[name], root, "n" * 300, "File name too long")


@pytest.mark.parametrize("name", ["write_bytes", "write_if_new", "remove", "remove_all"])
def test_what_is_in_the_way_stays(name: str, root: Folder, tmp_path: Path) -> None:
    root.write_bytes("from/a", b"x")
    (tmp_path / "a").mkdir()
    check_error(*CALLS[name], root, "a", "Is a directory")
    if name in WRITES:
        check_error(*CALLS[name], root, "from/a/b", "Not a directory|File exists")
    with pytest.raises(StorageError, match=r"^cannot write .*/a: Is a directory"):
        root.below("from").copy("a", root)
    assert listing(tmp_path) == ["a", "from", "from/a"]


def test_a_file_is_read_where_it_is(root: Folder, tmp_path: Path) -> None:
    root.write_bytes("file", b"x")
    with root.local_copy("file") as file:
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(tmp_path / "file"))
    with root.open_input("file"):
        assert open_files(tmp_path) == [str(tmp_path / "file")]
    assert (open_files(tmp_path), listing(tmp_path)) == ([], ["file"])
    assert root.stated_crc32c("file") is None


def test_is_file(root: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    names = ("link", "broken", "broken/below")
    assert [root.is_file(name) for name in names] == [False, True, False]


def no_link(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hard links fail, as on FAT and in buckets mounted as folders."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_create_bytes_replaces_nothing(
    make: Callable[[Path], None], root: Folder, tmp_path: Path
) -> None:
    make(tmp_path / "a")
    before = (tmp_path / "a").lstat()
    with pytest.raises(ExistsError) as caught:
        root.create_bytes("a", b"content")
    assert str(caught.value) == f"{tmp_path / 'a'} already exists"
    assert ((tmp_path / "a").lstat(), listing(tmp_path)) == (before, ["a"])


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_create_bytes_without_hard_links(
    number: int, root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_link(number, monkeypatch)
    root.create_bytes("a", b"first")
    with pytest.raises(ExistsError, match="a already exists"):
        root.create_bytes("a", b"second")
    assert (root.read_bytes("a"), listing(tmp_path)) == (b"first", ["a"])


@pytest.mark.parametrize("number", [0, errno.EPERM, errno.EMLINK, errno.EXDEV])
def test_a_copy_replaces_a_file_at_once(
    number: int, root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one file with two names where the disk has hard links."""
    if number:
        no_link(number, monkeypatch)
    root.write_bytes("below/a", b"new")
    root.write_bytes("a", b"old")
    with open(tmp_path / "a", "rb") as before:
        for _ in range(2):
            root.below("below").copy("a", root)
            assert (root.read_bytes("a"), listing(tmp_path)) == (b"new", ["a", "below", "below/a"])
        assert before.read() == b"old"
    assert (tmp_path / "a").samefile(tmp_path / "below" / "a") is (number == 0)


def test_only_empty_folders_are_removed(root: Folder, tmp_path: Path) -> None:
    root.write_bytes("x/y/a", b"")
    (tmp_path / "x" / "z").mkdir()
    root.below("x").remove_empty()
    assert listing(tmp_path / "x") == ["y", "y/a"]
    root.remove("x/y/a")
    root.below("x").remove_empty()
    assert listing(tmp_path) == []


@pytest.mark.parametrize("is_new", [False, True])
def test_a_file_is_on_disk_before_it_has_its_name(
    root: Folder, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    synced: dict[int, tuple[int, bool]] = {}
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        found = os.fstat(descriptor)
        synced[found.st_ino] = (found.st_size, os.path.lexists(root.path("a/file")))

    monkeypatch.setattr(os, "fsync", note)
    (root.create_bytes if is_new else root.write_bytes)("a/file", b"some bytes")
    assert synced[os.stat(root.path("a/file")).st_ino] == (10, False)
    with root.open_sink("a/shard") as sink:
        sink.write([b"more", b" bytes"])
    assert synced[os.stat(root.path("a/shard")).st_ino] == (10, True)


def test_a_temporary_name(root: Folder, tmp_path: Path) -> None:
    with root.open_sink("file"):
        (name,) = os.listdir(tmp_path)
    assert re.fullmatch(r"\.file\.[0-9a-f]{8}\.tmp", name)


def test_a_signal_while_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python handles a signal as soon as the call returns, with the file made."""

    def make_and_stop(*args: Any, **options: Any) -> None:
        open(*args, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "open", make_and_stop, raising=False)
    with pytest.raises(KeyboardInterrupt):
        Folder(str(tmp_path)).write_bytes("file", b"x")
    assert listing(tmp_path) == []


@given(st.lists(st.lists(st.binary(max_size=50), max_size=8), max_size=5), st.integers(1, 60))
@example([[b"%d" % number for number in range(1025)]], 10**9)  # more than one call takes
@example([[b"%d" % number for number in range(5000)], [b"last"]], 10**9)
def test_pieces_are_written_in_order(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[bytes]], most: int
) -> None:
    """However few bytes a call takes: a signal ends one half-way, and the rest must follow."""
    root, write, writev = Folder(str(tmp_path_factory.getbasetemp())), os.write, os.writev

    def write_some(descriptor: int, pieces: list[bytes]) -> int:
        whole = sum(map(len, pieces)) <= most
        return writev(descriptor, pieces if whole else [b"".join(pieces)[:most]])

    with pytest.MonkeyPatch.context() as patch, root.open_sink("pieces") as sink:
        patch.setattr(os, "writev", write_some)
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:most]))
        for pieces in writes:
            sink.write(pieces)
    expected = b"".join(b"".join(pieces) for pieces in writes)
    assert (root.read_bytes("pieces"), sink.num_bytes) == (expected, len(expected))


@contextmanager
def file_limit(num_bytes: int) -> Iterator[None]:
    """Limit the size of files: the system writes up to it, and refuses the rest."""
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_disk_that_takes_only_a_part(root: Folder, tmp_path: Path) -> None:
    path = re.escape(root.path("more"))
    with file_limit(10_000):  # not around the test: what measures coverage writes files, too
        with root.open_sink("full") as sink:
            sink.write([b"x" * 100] * 100)
            assert sink.num_bytes == 10_000
        with (
            pytest.raises(StorageError, match=f"^cannot write {path}: File too large$"),
            root.open_sink("more") as sink,
        ):
            sink.write([b"x" * 100] * 101)
    assert listing(tmp_path) == ["full"]
