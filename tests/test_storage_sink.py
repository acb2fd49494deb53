"""Writing local files: under its final name a file is whole or not there, and what the disk refuses is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.storage.local import FileSink, LocalFiles

FILES = LocalFiles()


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
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
def test_an_error_inside_leaves_nothing_and_keeps_what_was_there(
    error: BaseException, tmp_path: Path
) -> None:
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


def test_a_signal_at_the_moment_the_file_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy disk that moment is long: Python handles a signal that comes in it as soon as the call returns."""
    make = os.open

    def make_and_stop(*args: Any) -> int:
        os.close(make(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", make_and_stop)
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


def test_what_one_call_leaves_over_is_written_too() -> None:
    """A signal ends a write to a full pipe half-way: the rest of the pieces must follow, each byte once."""
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


LIMITED = """
import resource, signal, sys
from shardwright.errors import StorageError
from shardwright.storage.local import LocalFiles
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    with LocalFiles().open_sink(sys.argv[1]) as sink:
        sink.write([b"x" * 100] * int(sys.argv[2]))
except StorageError as error:
    print(error)
else:
    print("written", sink.num_bytes)
"""


@pytest.mark.parametrize(
    ("num_pieces", "told"), [(100, "written 10000"), (101, "cannot write {path}: File too large")]
)
def test_a_disk_that_takes_only_a_part(num_pieces: int, told: str, tmp_path: Path) -> None:
    """The system writes the 10,000 bytes it may and says so; the rest must be tried, and its error told."""
    path = tmp_path / "file"
    command = [sys.executable, "-c", LIMITED, str(path), str(num_pieces)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told.format(path=path)
    assert listing(tmp_path) == (["file"] if num_pieces == 100 else [])


def test_errors_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for path, why in ((tmp_path / "file" / "x", "Not a directory|File exists"), (tmp_path / "folder", "Is a directory"),
                      (tmp_path / ("n" * 300), "File name too long")):  # fmt: skip
        with pytest.raises(StorageError, match=f"cannot write {re.escape(str(path))}: ({why})"):
            FILES.write_bytes(str(path), b"x")
    assert listing(tmp_path) == ["file", "folder"]
