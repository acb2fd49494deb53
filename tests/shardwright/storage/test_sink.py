"""Local sinks: a file is atomic, and errors of the disk name its path."""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.storage import local
from shardwright.storage.folder import files_of
from shardwright.storage.local import FileSink
from shardwright.storage.options import NO_OPTIONS

FILES = files_of("/", NO_OPTIONS)


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


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


def test_a_file_is_replaced(tmp_path: Path) -> None:
    for text in (b"long old text", b"new"):
        FILES.write_bytes(str(tmp_path / "file"), text)
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("num_pieces", [0, 1, 1023, 1024, 1025, 5000])
def test_more_pieces_than_one_call_takes(num_pieces: int, tmp_path: Path) -> None:
    pieces = [str(number).encode() for number in range(num_pieces)]
    with FILES.open_sink(str(tmp_path / "file")) as sink:
        sink.write(pieces)
        assert sink.num_bytes == len(b"".join(pieces))
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


@given(st.lists(st.lists(st.binary(max_size=50), max_size=8), max_size=5))
def test_pieces_are_written_in_order(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[bytes]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    with FILES.open_sink(str(path)) as sink:
        for pieces in writes:
            sink.write(pieces)
    assert path.read_bytes() == b"".join(b"".join(pieces) for pieces in writes)


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
