"""Local storage: files are atomic; every error names the path."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage import local
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.local import FileInfo, FileSink
from shardwright.storage.options import NO_OPTIONS
from tests.support.build_helpers import stamps_of
from tests.support.open_files import open_files

FILES = files_of("/", NO_OPTIONS)


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder without permissions. Root ignores those, so the process is `nobody` meanwhile."""
    tmp_path.chmod(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield tmp_path
    os.seteuid(user)
    tmp_path.chmod(0o700)


def copy(path: str) -> bytes:
    with FILES.local_copy(path) as file:
        return file.read()


def input_file(path: str) -> bytes:
    with FILES.open_input(path) as file:
        return bytes(file.read())


READS: dict[str, Callable[[str], object]] = {
    "read_bytes": FILES.read_bytes,
    "read_range": lambda path: FILES.read_range(path, 0, 10),
    "read_ranges": lambda path: FILES.read_ranges(path, [(0, 10)])[0],
    "open_input": input_file,
    "local_copy": copy,
}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


@every_read
def test_reading(read: Callable[[str], object], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read(str(tmp_path / "file")) == b"0123456789"
    for name in ("gone", "gone/below", "file/below"):
        with pytest.raises(MissingError) as caught:
            read(str(tmp_path / name))
        assert str(caught.value) == f"{tmp_path / name}: there is no such file"
        assert isinstance(caught.value, FileNotFoundError)
    if read is not copy:
        message = f"^{re.escape(str(tmp_path))} cannot be read: .*(directory|folder)"
        with pytest.raises(StorageError, match=message):
            read(str(tmp_path))


@pytest.mark.parametrize("read", [*READS.values(), FILES.num_bytes_of])
def test_a_file_without_permission(read: Callable[[str], object], locked_folder: Path) -> None:
    path = str(locked_folder / "secret")
    message = f"^{re.escape(path)} cannot be read: .*Permission denied"
    with pytest.raises(StorageError, match=message) as caught:
        read(path)
    assert not isinstance(caught.value, MissingError)


def test_a_folder_without_permission(locked_folder: Path) -> None:
    path = re.escape(str(locked_folder))
    with pytest.raises(StorageError, match=f"^cannot list {path}: Permission denied"):
        FILES.names(str(locked_folder))
    for write in (FILES.write_bytes, FILES.create_bytes):
        with pytest.raises(StorageError, match=f"^cannot write {path}/a: Permission denied") as no:
            write(str(locked_folder / "a"), b"x")
        assert not isinstance(no.value, ExistsError)


@given(
    content=st.binary(max_size=40),
    spans=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5),
)
def test_ranges_are_slices(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, spans: list[tuple[int, int]]
) -> None:
    """Ranges beyond the end are no error: callers compare lengths."""
    root = Folder(str(tmp_path_factory.getbasetemp()))
    root.write_bytes("ranges", content)
    for offset, length in spans:
        assert root.read_range("ranges", offset, length) == content[offset : offset + length]
    ordered = [(start, start + length) for start, length in spans]
    assert root.read_ranges("ranges", ordered) == [content[start:stop] for start, stop in ordered]


def test_an_input_is_seekable_and_closes(root: Folder, tmp_path: Path) -> None:
    root.write_bytes("file", b"0123456789")
    with root.open_input("file") as file:
        assert isinstance(file, pa.NativeFile)
        assert open_files(tmp_path) == [str(tmp_path / "file")]
        assert (file.size(), file.seek(-3, os.SEEK_END)) == (10, 7)
        assert (file.read(2), file.tell()) == (b"78", 9)
    assert file.closed
    assert open_files(tmp_path) == []


def test_a_local_file_is_its_own_copy(root: Folder, tmp_path: Path) -> None:
    root.write_bytes("file", b"x")
    with root.local_copy("file") as file:
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(tmp_path / "file"))
    assert listing(tmp_path) == ["file"]


def test_files(root: Folder, tmp_path: Path) -> None:
    assert (root.info("a"), root.files(), root.first_names()) == (None, {}, [])
    root.write_bytes("a", b"xyz")
    root.write_bytes("below/b", b"")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    os.utime(tmp_path / "a", (1.0, 12.5))
    os.utime(tmp_path / "below" / "b", (1.0, 13.5))
    assert root.info("a") == FileInfo(3, 12.5, etag=None, crc32c=None)
    assert (root.files(), root.files("below")) == ({"a": root.info("a")}, {"b": FileInfo(0, 13.5)})
    assert root.first_names() == ["a", "below", "broken"]
    assert (root.files("none"), root.below("a").files(), root.info("a/x")) == ({}, {}, None)
    assert (root.below("none").first_names(), root.stated_crc32c("a")) == ([], None)


def test_names_that_cannot_be_accessed(root: Folder) -> None:
    long = "x" * 300
    with pytest.raises(StorageError, match=r"cannot be read: File name too long"):
        root.info(long)
    with pytest.raises(StorageError, match=r"cannot list .*: File name too long"):
        root.files(long)
    with pytest.raises(StorageError, match=r"cannot list .*: File name too long"):
        root.below(long).first_names()


def test_removal(root: Folder, tmp_path: Path) -> None:
    root.write_bytes("a/b", b"abc")
    assert (root.num_bytes_of("a/b"), root.num_bytes_of("a/b/below")) == (3, None)
    root.remove_all(["a/b/below"])
    root.remove_all(["a/b"])
    path = re.escape(str(tmp_path / "a"))
    for remove in (root.remove, lambda name: root.remove_all([name])):
        with pytest.raises(StorageError, match=f"^cannot remove {path}: Is a directory"):
            remove("a")
    assert listing(tmp_path) == ["a"]


def test_is_file(root: Folder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    names = ("file", "folder", "link", "broken", "gone", "file/below")
    found = [name for name in names if Folder(root.path(name)).is_file()]
    assert found == ["file", "broken"], "a broken link takes a folder's place too"


def test_write_if_new(root: Folder, tmp_path: Path) -> None:
    root.write_if_new("a", b"1")
    before = stamps_of(tmp_path)
    root.write_if_new("a", b"1")
    assert stamps_of(tmp_path) == before
    root.write_if_new("a", b"2")
    assert root.read_bytes("a") == b"2"
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*a: Is a directory"):
        root.write_if_new("a", b"3")


def test_folders_from_user_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for written in ("data/", "./x/../data", f"file://{tmp_path}/data", f"{tmp_path}/data"):
        root = Folder.at(written)
        assert root.uri == str(root) == f"{tmp_path}/data"
        assert (root.path("index/a"), root.is_remote) == (f"{tmp_path}/data/index/a", False)


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
    """FAT, and buckets mounted as folders: `os.link` fails there."""

    def no_link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_link)
    root.create_bytes("a", b"first")
    with pytest.raises(ExistsError, match="a already exists"):
        root.create_bytes("a", b"second")
    assert (root.read_bytes("a"), listing(tmp_path)) == (b"first", ["a"])


@pytest.mark.parametrize("number", [0, errno.EPERM, errno.EMLINK, errno.EXDEV])
def test_a_copy_replaces_a_file_at_once(
    number: int, root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one file with two names where the disk has hard links, and copying again is fine."""

    def no_link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    if number:
        monkeypatch.setattr(os, "link", no_link)
    root.write_bytes("below/a", b"new")
    root.write_bytes("a", b"old")
    with open(tmp_path / "a", "rb") as before:
        for _ in range(2):
            root.below("below").copy("a", root)
            assert (root.read_bytes("a"), sorted(os.listdir(tmp_path))) == (b"new", ["a", "below"])
        assert before.read() == b"old"
    assert (tmp_path / "a").samefile(tmp_path / "below" / "a") is (number == 0)
    with pytest.raises(MissingError, match=r"below/b: there is no such file"):
        root.below("below").copy("b", root)
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*/a: Is a directory"):
        root.below("below").copy("a", root)
    assert sorted(os.listdir(tmp_path)) == ["a", "below"]


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


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with FILES.open_sink(str(path)) as sink:
        sink.write([b"abc", b"", b"de"])
        assert sink.num_bytes == 5
        assert not path.exists()
        [temporary] = path.parent.iterdir()
        assert re.fullmatch(r"\.file\.[0-9a-f]{8}\.tmp", temporary.name)
    assert path.read_bytes() == b"abcde"
    assert listing(tmp_path) == ["a", "a/b", "a/b/file"]


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), GeneratorExit(), OSError(5, "bad disk")]
)
def test_an_error_in_the_block_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with FILES.open_sink(str(path)) as sink:
            sink.write([b"new"])
            raise error

    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)):
        write()
    assert listing(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_signal_while_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python handles a signal as soon as the call returns, with the file made."""

    def make_and_stop(*args: Any, **options: Any) -> None:
        open(*args, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "open", make_and_stop, raising=False)
    with pytest.raises(KeyboardInterrupt):
        FILES.write_bytes(str(tmp_path / "file"), b"x")
    assert listing(tmp_path) == []


@given(st.lists(st.lists(st.binary(max_size=50), max_size=8), max_size=5))
@example([[b"%d" % number for number in range(1025)]])  # more than one call takes
@example([[b"%d" % number for number in range(5000)], [b"last"]])
def test_pieces_are_written_in_order(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[bytes]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    with FILES.open_sink(str(path)) as sink:
        for pieces in writes:
            sink.write(pieces)
    expected = b"".join(b"".join(pieces) for pieces in writes)
    assert (path.read_bytes(), sink.num_bytes) == (expected, len(expected))


def test_an_interrupted_write_continues() -> None:
    """A signal ends a write to a full pipe half-way: the rest must follow, each byte once."""
    pieces = [bytes([number % 251]) * 997 for number in range(900)]
    read_end, write_end = os.pipe()
    received = bytearray()

    def receive() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        while block := os.read(read_end, 8192):
            received.extend(block)
            time.sleep(0.002)

    reader = threading.Thread(target=receive)
    reader.start()
    sink = FileSink(write_end)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        sink.write(pieces)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.close(write_end)
    reader.join()
    os.close(read_end)
    assert bytes(received) == b"".join(pieces)
    assert sink.num_bytes == len(received)


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


def test_a_disk_that_takes_only_a_part(tmp_path: Path) -> None:
    path = str(tmp_path / "more")
    with file_limit(10_000):  # not around the test: what measures coverage writes files, too
        with FILES.open_sink(str(tmp_path / "full")) as sink:
            sink.write([b"x" * 100] * 100)
            assert sink.num_bytes == 10_000
        with (
            pytest.raises(StorageError, match=f"^cannot write {re.escape(path)}: File too large$"),
            FILES.open_sink(path) as sink,
        ):
            sink.write([b"x" * 100] * 101)
    assert listing(tmp_path) == ["full"]


def test_errors_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for name, why in {
        "file/x": "Not a directory|File exists",
        "folder": "Is a directory",
        "n" * 300: "File name too long",
    }.items():
        path = str(tmp_path / name)
        with pytest.raises(StorageError, match=f"cannot write {re.escape(path)}: ({why})"):
            FILES.write_bytes(path, b"x")
    assert listing(tmp_path) == ["file", "folder"]
