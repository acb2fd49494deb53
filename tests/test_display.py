"""Progress as a person sees it: plain lines where stderr is no terminal, a bar where it is one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.display import ProgressDisplay
from tests.build_helpers import COMMAND, make_images
from transforms.progress import Progress

LINE = re.compile(
    r"shardwright: (\d+)/100 images, (\d+)/s, ([\d.]+) (k?B)/s, (\d+)/4 shards, (\S+) left"
)


def test_plain_lines_tell_rate_and_time_left(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with ProgressDisplay(progress, line_seconds=0.25):
        time.sleep(0.5)
        progress.start(total_images=100, total_shards=4)
        time.sleep(0.25)
        progress.add(images=50, num_bytes=50_000, shards=2)
        time.sleep(0.9)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "shardwright: planning"
    match = LINE.fullmatch(lines[-1])
    assert match, lines
    images, rate, _, unit, shards, left = match.groups()
    assert (images, unit, shards) == ("50", "kB", "2")
    assert 25 <= int(rate) <= 75, "50 images in about one second"
    assert left in ("0:01", "0:02")


def test_work_of_an_earlier_build_does_not_raise_the_rate(
    capfd: pytest.CaptureFixture[str],
) -> None:
    progress = Progress()
    progress.start(total_images=100, total_shards=4)
    progress.add_reused(images=60, shards=2)
    with ProgressDisplay(progress, line_seconds=0.1):
        time.sleep(0.7)
    match = LINE.fullmatch(capfd.readouterr().err.splitlines()[-1])
    assert match
    assert (match[1], match[2], match[6]) == ("60", "0", "?")


def test_a_short_build_shows_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(Progress()):
        time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_the_display_ends_with_its_block_when_that_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), ProgressDisplay(Progress(), line_seconds=0.1):
        raise ZeroDivisionError
    time.sleep(0.3)
    assert capfd.readouterr().err == ""


def run_on_a_terminal(*argv: str | Path) -> tuple[int, str]:
    """The exit code, and all that a terminal of 100 columns was sent."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        list(map(str, argv)), stdin=end, stdout=end, stderr=end, env=environment
    ) as process:
        os.close(end)
        output = b""
        while chunk := _read(terminal):
            output += chunk
    os.close(terminal)
    return process.returncode, output.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux tells by EIO that the other end is closed
        return b""


def test_a_terminal_gets_a_bar_that_goes_away(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", 160, side=240)
    code, output = run_on_a_terminal(
        COMMAND,
        "build",
        images,
        tmp_path / "out",
        "--records-per-shard",
        "20",
        "--encode",
        "png",
        "--threads",
        "2",
    )
    assert code == 0, output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert "planning" in plain
    assert re.search(
        r"writing .*\d+/160 images, \d+/s, [\d.]+ [kM]?B/s, \d+/8 shards, \S+ left", plain
    ), plain
    assert "\x1b[2K" in output, "the bar is wiped"
    assert (
        plain.rstrip()
        .splitlines()[-1]
        .startswith(f"shardwright: {tmp_path}/out: 160 records in 8 shards, 0:")
    )
    assert "Traceback" not in plain


_SHOW_IN_A_TERMINAL = """
import time
from pipelines.display import ProgressDisplay
from transforms.progress import Progress
progress = Progress()
with ProgressDisplay(progress):
    time.sleep(0.5)
    progress.start(total_images=10, total_shards=2)
    progress.add(images=5, num_bytes=10, shards=1)
    time.sleep(0.7)
"""


def test_the_bar_counts_images_and_shards() -> None:
    code, output = run_on_a_terminal(sys.executable, "-c", _SHOW_IN_A_TERMINAL)
    assert code == 0
    assert "5/10 images" in output
    assert "1/2 shards" in output
