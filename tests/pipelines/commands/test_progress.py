"""Progress as a person sees it: plain lines in a log, a line in place on a terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.pipelines.commands import results
from shardwright.pipelines.commands.results import ProgressDisplay
from shardwright.storage.folder import Folder
from shardwright.transforms.progress import Progress
from tests.support.build_helpers import build, make_images, wait_for


class Clock:
    """A clock that a test moves, in place of the display's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_looks = 0

    def __call__(self) -> float:
        self.num_looks += 1
        return self.now

    def move_to(self, now: float) -> None:
        """Move the clock, and wait until the display has seen it."""
        self.now, before = now, self.num_looks
        wait_for(lambda: self.num_looks >= before + 5)  # at most 4 in a round


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(results, "monotonic", clock)
    monkeypatch.setattr(results, "_TICK_SECONDS", 0.005)
    return clock


def test_plain_lines_every_ten_seconds(capfd: pytest.CaptureFixture[str], clock: Clock) -> None:
    progress = Progress()
    with ProgressDisplay(progress):
        clock.move_to(0)
        clock.move_to(9.9)
        assert capfd.readouterr().err == ""
        clock.move_to(10)
        progress.start(total_images=100, total_shards=4)
        clock.move_to(10)
        progress.add(images=50, shards=2)
        clock.move_to(20)
    assert capfd.readouterr().err.splitlines() == [
        "shardwright: planning",
        "shardwright: writing for 0:10, 50 of 100 images, 2 of 4 shards (50%), 5 images/s, "
        "0:10 left",
    ]


def test_planning_counts_what_is_listed(capfd: pytest.CaptureFixture[str], clock: Clock) -> None:
    progress, rows = Progress(), pa.record_batch({"id": ["a"] * 1500})
    listed = progress.count_listed([rows, "a reject", rows])
    with ProgressDisplay(progress):
        clock.move_to(0)
        assert list(listed) == [rows, "a reject", rows]
        clock.move_to(10)
    assert capfd.readouterr().err == "shardwright: planning, listed 3,000 records\n"


def test_reused_work_is_not_in_the_rate(capfd: pytest.CaptureFixture[str], clock: Clock) -> None:
    progress = Progress()
    progress.start(total_images=100, total_shards=4)
    progress.add_reused(images=60, shards=2)
    with ProgressDisplay(progress):
        clock.move_to(0)
        clock.move_to(10)
    line = "writing for 0:10, 60 of 100 images, 2 of 4 shards (50%), 2 of an earlier run"
    assert capfd.readouterr().err == f"shardwright: {line}\n"


def test_the_display_ends_with_its_block_when_that_fails() -> None:
    with pytest.raises(ZeroDivisionError), ProgressDisplay(Progress()):
        raise ZeroDivisionError
    assert "shardwright-progress" not in [thread.name for thread in threading.enumerate()]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, action: Callable[[list[bytes]], None]) -> str:
    """Return the output on a terminal of 100 columns, which `action` is given as it grows."""
    terminal, end = pty.openpty()
    output: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(terminal, 65536):
                output.append(chunk)
        except OSError:  # on Linux, EIO: the other end is closed
            os.close(terminal)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(end, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        action(output)
    reader.join()
    return b"".join(output).decode()


def plain_of(output: str) -> str:
    """Return a terminal's output without colors and moves."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)


def test_a_line_on_a_terminal_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its last shard the build waits for the line."""
    images = make_images(tmp_path / "in", 16)
    line = r"writing for .*\d+ of 16 images, \d of 8 shards .*, \d+ images/s, \S+"
    open_sink = Folder.open_sink

    def run(output: list[bytes]) -> None:
        def open_after_line(root: Folder, name: str, **options: Any) -> Any:
            if "-00007-of-" in name:
                wait_for(lambda: bool(re.search(line, plain_of(b"".join(output).decode()))))
            return open_sink(root, name, **options)

        monkeypatch.setattr(Folder, "open_sink", open_after_line)
        assert build(images, tmp_path / "out", "--records-per-shard", "2") == 0

    output = on_a_terminal(monkeypatch, run)
    plain = plain_of(output)
    assert "planning" in plain
    assert re.search(line, plain), plain
    assert "\x1b[2K" in output, "the line is wiped"
    last = plain.rstrip().splitlines()[-1]
    assert last.startswith(f"shardwright: {tmp_path}/out: 16 records in 8 shards, 0:")
    assert "Traceback" not in plain


def test_the_line_counts_images_and_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    progress.start(total_images=10, total_shards=2)
    progress.add(images=5, shards=1)

    def show(output: list[bytes]) -> None:
        with ProgressDisplay(progress):
            wait_for(lambda: b"5 of 10 images" in b"".join(output))

    assert "1 of 2 shards" in on_a_terminal(monkeypatch, show)
