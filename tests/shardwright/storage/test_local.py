"""Local storage: reading, listing, removing and creating files; every error names the path."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ExistsError, MissingError, StorageError
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.local import FileInfo
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
    root.write_bytes("index/a", b"12")
    root.write_bytes("b", b"")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    modified = (tmp_path / "index" / "a").stat().st_mtime
    assert root.files("index") == {"a": FileInfo(2, modified, etag=None, crc32c=None)}
    assert {name: found.num_bytes for name, found in root.files().items()} == {"b": 0}
    assert (root.files("nowhere"), root.stated_crc32c("b")) == ({}, None)


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


def test_create_bytes(root: Folder, tmp_path: Path) -> None:
    root.create_bytes("a/b", b"content")
    assert (tmp_path / "a" / "b").read_bytes() == b"content"
    assert listing(tmp_path) == ["a", "a/b"]


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
