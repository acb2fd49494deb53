"""Local storage: reading, listing, removing and creating files; every error names the path."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ExistsError, MissingError, StorageError, UsageError
from shardwright.storage import Folder, files_of, local_path
from shardwright.storage.local import LocalFiles, StatedFile

FILES = LocalFiles()


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be entered. Root may go anywhere, so for a moment this process is nobody."""
    tmp_path.chmod(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield tmp_path
    os.seteuid(user)
    tmp_path.chmod(0o700)


def test_a_folder_that_may_not_be_written(locked_folder: Path) -> None:
    with pytest.raises(StorageError, match="Permission denied"):
        FILES.write_bytes(str(locked_folder / "x"), b"x")


def read_with(name: str) -> Callable[[str], object]:
    """One of the ways to read a file."""

    def copy(path: str) -> bytes:
        with FILES.local_copy(path) as copied:
            return Path(copied).read_bytes()

    def input_file(path: str) -> bytes:
        with FILES.open_input(path) as file:
            return bytes(file.read())

    ways: dict[str, Callable[[str], object]] = {
        "read_bytes": FILES.read_bytes,
        "read_range": lambda path: FILES.read_range(path, 0, 10),
        "read_ranges": lambda path: FILES.read_ranges(path, [(0, 10)])[0],
        "open_input": input_file,
        "local_copy": copy,
    }
    return ways[name]


WAYS = ["read_bytes", "read_range", "read_ranges", "open_input", "local_copy"]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_gives_the_content(way: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_with(way)(str(tmp_path / "file")) == b"0123456789"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["gone", "gone/below", "file/below"])
def test_what_is_not_there_is_missing(way: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingError) as caught:
        read_with(way)(str(tmp_path / name))
    assert str(caught.value) == f"{tmp_path / name}: there is no such file"
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("way", WAYS[:4])
def test_a_folder_is_no_file_to_read(way: str, tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=f"^{re.escape(str(tmp_path))} cannot be read: .*(directory|folder)"
    ):
        read_with(way)(str(tmp_path))


@pytest.mark.parametrize("way", [*WAYS, "num_bytes_of"])
def test_what_may_not_be_read_is_no_missing_file(way: str, locked_folder: Path) -> None:
    path = str(locked_folder / "secret")
    look = FILES.num_bytes_of if way == "num_bytes_of" else read_with(way)
    with pytest.raises(
        StorageError, match=f"^{re.escape(path)} cannot be read: .*Permission denied"
    ) as caught:
        look(path)
    assert not isinstance(caught.value, MissingError)


def test_a_folder_that_may_not_be_listed_is_no_empty_one(locked_folder: Path) -> None:
    with pytest.raises(
        StorageError, match=f"^cannot list {re.escape(str(locked_folder))}: Permission denied"
    ):
        FILES.names_in(str(locked_folder))


@given(
    content=st.binary(max_size=40),
    spans=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5),
)
def test_ranges_are_slices(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, spans: list[tuple[int, int]]
) -> None:
    """Beyond the end there is nothing, and that is no error: whoever asks compares lengths."""
    root = Folder(str(tmp_path_factory.getbasetemp()))
    root.write_bytes("ranges", content)
    for offset, length in spans:
        assert root.read_range("ranges", offset, length) == content[offset : offset + length]
    ordered = [(start, start + length) for start, length in spans]
    assert root.read_ranges("ranges", ordered) == [content[start:stop] for start, stop in ordered]


def test_an_input_can_be_sought_and_is_closed(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    root.write_bytes("file", b"0123456789")
    before = len(os.listdir("/dev/fd"))
    for opened in (root.open_input, root.open_small):
        with opened("file") as file:
            assert isinstance(file, pa.NativeFile)
            assert (file.size(), file.seek(-3, os.SEEK_END), file.read(2), file.tell()) == (
                10,
                7,
                b"78",
                9,
            )
        assert file.closed
    assert len(os.listdir("/dev/fd")) == before


def test_a_local_file_is_its_own_copy(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    root.write_bytes("file", b"x")
    with root.local_copy("file") as path:
        assert path == str(tmp_path / "file")
    assert listing(tmp_path) == ["file"], "what was lent is not removed"


def test_lengths_and_removal(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    assert FILES.num_bytes_of(path) is None
    FILES.remove(path)
    FILES.write_bytes(path, b"abc")
    assert FILES.num_bytes_of(path) == 3
    assert FILES.num_bytes_of(f"{path}/y") is None, "below a file there is nothing"
    assert FILES.read_bytes(path) == b"abc"
    FILES.remove(path)
    assert listing(tmp_path) == []


def test_many_are_removed_and_none_need_be_there(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    for name in ("a", "index/b", "kept"):
        root.write_bytes(name, b"")
    root.remove_all(["a", "gone", "index/b", "gone/too", "a/below"])
    assert listing(tmp_path) == ["index", "kept"]
    root.remove_all([])
    with pytest.raises(
        StorageError, match=f"^cannot remove {re.escape(str(tmp_path / 'index'))}: Is a directory"
    ):
        root.remove_all(["index", "kept"])


def test_names_are_those_directly_below_in_order(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    for name in ("b", "a/c/d", "a/a", ".hidden", "é"):
        root.write_bytes(name, b"")
    assert root.names() == [".hidden", "a", "b", "é"]
    assert root.names("a") == ["a", "c"]
    assert (root.names("nowhere"), root.names("b"), Folder(f"{tmp_path}/nowhere").names()) == (
        [],
        [],
        [],
    )


def test_what_the_disk_states_is_lengths_only(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    root.write_bytes("index/a", b"12")
    root.write_bytes("b", b"")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert root.stated("index") == {"a": StatedFile(2)}
    assert root.stated()["b"] == StatedFile(0, etag=None, crc32c=None)
    assert "broken" not in root.stated()
    assert root.stated("nowhere") == {}
    assert root.stated_crc32c("b") is None


def test_is_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    found = {
        name
        for name in ("file", "folder", "link", "broken", "gone", "file/below")
        if Folder(f"{tmp_path}/{name}").is_file()
    }
    assert found == {"file", "broken"}, "a broken link is in the way of a folder, too"


def test_outputs_are_listed_and_nothing_else(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    ours = [
        "index/train-00000-of-00001.parquet",
        "manifest.json",
        "rejects/plan.parquet",
        "zoo-train.tfrecord-00000-of-00001",
    ]
    for name in [*ours, "README.md", "index/notes.txt", "other/manifest.json"]:
        root.write_bytes(name, b"")
    assert root.outputs() == ours
    assert Folder(f"{tmp_path}/nowhere").outputs() == []
    assert root.abort_uploads() == [], "a disk has none"


def test_a_file_that_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    root.write_if_new("a", b"1")
    before = (tmp_path / "a").stat()
    root.write_if_new("a", b"1")
    assert (tmp_path / "a").stat() == before
    root.write_if_new("a", b"2")
    assert root.read_bytes("a") == b"2"
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*a: Is a directory"):
        root.write_if_new("a", b"3")


def test_folders_are_made_from_what_a_user_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for written in ("data/", "./x/../data", f"file://{tmp_path}/data", f"{tmp_path}/data"):
        root = Folder.at(written)
        assert (root.uri, str(root), root.is_remote) == (
            f"{tmp_path}/data",
            f"{tmp_path}/data",
            False,
        )
        assert root.path("index/a") == f"{tmp_path}/data/index/a"
    assert isinstance(files_of(str(tmp_path), Folder.at("x").options), LocalFiles)


@pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://bucket/x", "hdfs://a", "http://x/y"])
def test_an_address_is_no_local_path(uri: str) -> None:
    with pytest.raises(
        UsageError, match=f"^'{uri}' is the address of a store, and this must be a local path"
    ):
        local_path(uri)


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert local_path("a/../b") == str(tmp_path / "b")
    assert local_path("file:///x/y") == "/x/y"
    assert local_path("~/y") == str(tmp_path / "home" / "y")
    assert local_path("a:b/c") == str(tmp_path / "a:b" / "c")


class TestCreating:
    """Writing a file where there is none, which is what makes one of two builds the only one."""

    def test_what_is_created_is_whole(self, tmp_path: Path) -> None:
        Folder(str(tmp_path)).create_bytes("a/b", b"content")
        assert (tmp_path / "a" / "b").read_bytes() == b"content"
        assert listing(tmp_path) == ["a", "a/b"]

    @pytest.mark.parametrize(
        "make",
        [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")],
        ids=["file", "folder", "link"],
    )
    def test_what_is_there_stays(self, make: Callable[[Path], None], tmp_path: Path) -> None:
        make(tmp_path / "a")
        before = (tmp_path / "a").lstat()
        with pytest.raises(
            ExistsError, match=f"^{re.escape(str(tmp_path / 'a'))} is there already$"
        ):
            Folder(str(tmp_path)).create_bytes("a", b"content")
        assert (tmp_path / "a").lstat() == before
        assert listing(tmp_path) == ["a"]

    @pytest.mark.parametrize("attempt", range(20))
    def test_of_eight_at_once_exactly_one_wins(self, attempt: int, tmp_path: Path) -> None:
        root, start = Folder(str(tmp_path)), threading.Barrier(8)

        def create(number: int) -> bool:
            start.wait()
            try:
                root.create_bytes("a", f"{attempt} {number} ".encode() * 1000)
            except ExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(create, range(8)))
        assert sum(won) == 1
        assert root.read_bytes("a") == f"{attempt} {won.index(True)} ".encode() * 1000
        assert listing(tmp_path) == ["a"]

    def test_where_the_folder_cannot_be_written(self, locked_folder: Path) -> None:
        with pytest.raises(StorageError, match=r"^cannot write .*/a: Permission denied") as caught:
            FILES.create_bytes(str(locked_folder / "a"), b"")
        assert not isinstance(caught.value, ExistsError)

    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
    def test_a_disk_without_hard_links(
        self, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """FAT, and buckets mounted as folders: `os.link` fails there."""

        def no_link(*_: str) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", no_link)
        root = Folder(str(tmp_path))
        root.create_bytes("a", b"first")
        with pytest.raises(ExistsError, match="a is there already"):
            root.create_bytes("a", b"second")
        assert root.read_bytes("a") == b"first"
        assert listing(tmp_path) == ["a"]
