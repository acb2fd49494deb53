"""`shardwright watch`: exit codes, a real build, a terminal, a store that fails."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import RawIOBase
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from shardwright.format import naming
from shardwright.inspect import watch
from shardwright.inspect.cli import main
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import write_rejects
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket
from tests.support.build_helpers import RunningBuild, make_images, start_build
from tests.support.watched_builds import START, at, put_plan, put_shard, rejects_of


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out"))


class Clock:
    """The time of `watch`: it passes in the pauses between looks alone.

    Args:
        actions: One is done in each pause; a pause too many is an error.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, actions: Iterable[Callable[[], object]] = ()
    ) -> None:
        self.now = time.time() + 10  # after all files that the test writes
        self._actions = iter(actions)
        monkeypatch.setattr(watch, "time", self)

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        next(self._actions)()


def nothing() -> None:
    """Let a pause pass."""


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = main(["watch", *map(str, argv)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_states_by_exit_code(
    root: Folder,
    zoo: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    code, out, _ = run(capsys, zoo, "--once", "--json")
    found = json.loads(out)
    assert (code, found["phase"], found["output"]) == (0, "published", str(zoo))
    assert found["done"]["records"] == 36
    code, out, err = run(capsys, zoo)
    assert (code, err) == (0, "")
    assert out.startswith("shardwright: published: 36 records, 4 shards, ")
    code, out, _ = run(capsys, root, "--once")
    assert code == 1
    told = "nothing is there yet: the build has not begun, or is planning"
    assert out == f"{root}: {told}\n"
    code, _, err = run(capsys, root, "--wait", "0")
    assert code == 1
    assert f"no build has begun in {root} for 0:00: check that it is the OUTPUT" in err
    write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 2}))
    at(root, naming.FAILED_REJECTS, 0)
    code, _, err = run(capsys, root, "--wait", "0")
    assert (code, f"no build has begun in {root} for 0:00: " in err) == (1, True)
    code, out, _ = run(capsys, root, "--once")
    assert (code, "ago, before it wrote shards: see its log and rejects/" in out) == (1, True)
    put_plan(root, train=(4, 40, 4000))
    assert run(capsys, root, "--once")[0] == 0
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    told = "is not the OUTPUT of a build: it holds 'cat.jpg', and no plan.json"
    code, _, err = run(capsys, tmp_path / "photos")
    assert (code, told in err) == (2, True)
    code, _, err = run(capsys, tmp_path / "photos" / "cat.jpg")
    assert (code, "cat.jpg is a file; give the OUTPUT of a build" in err) == (2, True)


@pytest.mark.parametrize(
    "plan",
    [
        b"[]",
        b"{}",
        b"no JSON",
        b'{"splits": 5}',
        b'{"splits": {"x": {}}}',
        b'{"splits": {"a": {"num_shards": 1000000000, "num_records": 1, "num_bytes": 1}}}',
        b'{"splits": {"a": {"num_shards": -1, "num_records": 1, "num_bytes": 1}}}',
        b'{"splits": {"a": {"num_shards": "9", "num_records": 1, "num_bytes": 1}}}',
        b'{"splits": {"../x": {"num_shards": 9, "num_records": 1, "num_bytes": 1}}}',
    ],
)
def test_a_damaged_plan(plan: bytes, root: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    root.write_bytes(naming.PLAN, plan)
    code, out, err = run(capsys, root)
    assert (code, out, naming.PLAN in err) == (2, "", True)


def test_a_real_build_from_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(tmp_path / "in", 60)
    (images / "cat" / "empty.png").write_bytes(b"")
    options = ("--records-per-shard", "10", "--max-reject-fraction", "0.1")
    builds: list[RunningBuild] = []

    def start() -> None:
        builds.append(start_build(tmp_path / "log", images, tmp_path / "out", *options))

    Clock(monkeypatch, chain([start], repeat(partial(time.sleep, 0.1))))
    code, out, err = run(capsys, tmp_path / "out", "--interval", "0.1", "--json")
    assert (code, err, [build.wait() for build in builds]) == (0, "", [0])
    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    order = ["empty", "writing", "publishing", "published"]
    phases = [each["phase"] for each in found]
    assert phases == sorted(phases, key=order.index)
    assert (phases[0], phases[-1]) == ("empty", "published")
    assert found[-1]["done"]["records"] == 60


def test_a_failure_ends_the_watch_unless_it_was_there_before(
    root: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 2}))
        at(root, naming.FAILED_REJECTS, clock.now - START)

    write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 1}))
    at(root, naming.FAILED_REJECTS, 0)
    clock = Clock(monkeypatch, [nothing, fail])
    code, out, _ = run(capsys, root, "--interval", "0.1")
    assert code == 1
    first, second, last = out.splitlines()
    assert "the build failed 0:00 ago" not in first + second
    assert "the build failed 0:00 ago, before it wrote shards" in last


def read_until(screen: RawIOBase, end: bytes) -> str:
    data = b""
    while end not in data:
        data += screen.read(4096) or b""
    return data.decode()


def test_a_terminal_is_refreshed_in_place(
    root: Folder, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_plan(root, train=(4, 40, 4000))
    put_shard(root, 0, 4, rejects={"corrupt": 2})
    main_side, terminal = pty.openpty()
    published = (zoo / naming.MANIFEST).read_bytes()
    publish = partial(root.write_bytes, naming.MANIFEST, published)
    Clock(monkeypatch, [nothing, nothing, publish])
    with os.fdopen(terminal, "w") as out, os.fdopen(main_side, "rb", 0) as screen:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setenv("TERM", "xterm")
        with ThreadPoolExecutor() as pool:
            shown = pool.submit(read_until, screen, b"\x04")
            code = main(["watch", str(root), "--interval", "0.1"])
            print("\x04", flush=True)
            frames = shown.result().split("\r\x1b[2K")
    assert (code, len(frames)) == (0, 4)
    for frame in frames[:-1]:
        assert ("\n" in frame, len(frame) < 80) == (False, True)
        assert "1 of 4 shards (25%)" in frame
    assert "published" in frames[-1]


def test_an_interrupt(root: Folder) -> None:
    put_plan(root, train=(4, 40, 4000))
    command = [sys.executable, "-m", "shardwright.inspect.cli", "watch", root.uri]
    # A test run that a shell started in the background ignores the signal, and so would its child.
    command = ["env", "--default-signal=INT", *command]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("shardwright: writing for ")
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=250) == ("", "shardwright: interrupted\n")
    assert watching.returncode == 130


@pytest.mark.parametrize("words", ["--interval 0", "--interval nan", "--interval inf", "--wait -1"])
def test_numbers_out_of_range(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["watch", "x", *words.split()])
    assert "must be from 0" in capsys.readouterr().err


def test_a_store_that_fails_for_a_while(
    s3_bucket: Bucket,
    s3_proxy: FaultProxy,
    zoo: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_plan(s3_bucket.folder("data"), train=(4, 40, 4000))

    def publish() -> None:
        s3_bucket.put(f"data/{naming.MANIFEST}", (zoo / naming.MANIFEST).read_bytes())
        s3_proxy.clear()

    Clock(monkeypatch, [partial(s3_proxy.add, Fault("status", None)), nothing, publish])
    args = s3_bucket.behind(s3_proxy).args(deadline="0.2")
    code, _, err = run(capsys, f"{s3_bucket.uri}/data", "--interval", "0.1", *args)
    assert (code, err.count("; trying again\n")) == (0, 2)
