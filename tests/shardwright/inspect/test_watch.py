"""`shardwright watch`: OUTPUT in every state, a real build, a store, a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import RawIOBase
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.manifest import write_json
from shardwright.format.naming import ShardName
from shardwright.inspect.build_progress import BuildPhase, BuildProgress
from shardwright.inspect.build_scan import BuildScan
from shardwright.inspect.cli import main
from shardwright.inspect.watch_report import show_line, show_lines
from shardwright.inspect.watched_plan import MOST_READS
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.build_helpers import make_images, start_build
from transforms.reject_files import write_rejects
from transforms.rejects import Reject, RejectReason

START = 1_700_000_000.0
NO_ROWS = INDEX_SCHEMA.empty_table()


def put_plan(root: Folder, **splits: tuple[int, int, int]) -> None:
    """Write a plan of (shards, records, bytes) by split."""
    names = ("num_shards", "num_records", "num_bytes")
    content = {split: dict(zip(names, numbers, strict=True)) for split, numbers in splits.items()}
    write_json(root, naming.PLAN, {"fingerprint": "f", "settings": {}, "splits": content})


def put_shard(
    root: Folder, index: int, count: int, *, records: int = 9, rejects: Mapping[str, int] = {}
) -> str:
    """Write a sidecar and the shard's rejects; return the sidecar's name."""
    name = ShardName("pets", "train", index, count)
    if rejects:
        write_rejects(root, name.rejects, rejects_of(rejects))
    summary = ShardSummary(name, records, 100 * records, 0, "d", rejects=rejects)
    write_sidecar(root, summary, NO_ROWS)
    return name.sidecar


def rejects_of(counts: Mapping[str, int]) -> list[Reject]:
    return [
        Reject(f"{reason}{n}", f"/in/{n}", RejectReason(reason), "detail")
        for reason, number in counts.items()
        for n in range(number)
    ]


def at(root: Folder, name: str, seconds: float) -> None:
    os.utime(root.path(name), (START + seconds, START + seconds))


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out"))


def test_a_build_from_its_plan_to_its_last_shard(root: Folder) -> None:
    scan = BuildScan(root)
    assert scan.look(START) == BuildProgress(BuildPhase.EMPTY)
    put_plan(root, train=(4, 40, 4000), test=(1, 10, 1000))
    at(root, naming.PLAN, 0)
    plan_rejects = rejects_of({"duplicate_id": 3, "other_file": 2})
    for number, rows in enumerate((plan_rejects[:4], plan_rejects[4:])):
        write_rejects(root, naming.reject_files(naming.PLAN_REJECTS, 2)[number], rows)
    found = scan.look(START + 2)
    assert (found.phase, found.planned, found.done) == ("writing", (5, 50, 5000), (0, 0, 0))
    assert found.rejects == {"duplicate_id": 3, "other_file": 2}
    assert (found.recent, found.overall, found.seconds_left) == (None, None, None)

    note = ShardName("pets", "train", 1, 4).attempt
    root.write_bytes(note, b"d")
    at(root, note, 3)
    assert scan.look(START + 5).writing == [("train-00001-of-00004", 2.0)]
    root.remove(note)
    rejects = {"corrupt": 2, "other_file": 1}
    at(root, put_shard(root, 1, 4, records=7, rejects=rejects), 10)
    at(root, put_shard(root, 0, 4, records=10), 16)
    root.write_bytes(f"{naming.INDEX_DIR}/train-00000-of-00009.parquet", b"of another plan")
    found = scan.look(START + 20)
    assert found.done == (2, 17, 1700)
    assert found.rejects == {"duplicate_id": 3, "other_file": 3, "corrupt": 2}
    assert found.slowest == [("train-00001-of-00004", 7.0)]
    assert found.overall is not None
    assert found.overall.to_json() == {
        "seconds": 20.0, "records_per_second": 0.8, "bytes_per_second": 85,
    }  # fmt: skip
    assert found.seconds_left == 30 / (17 / 20)
    assert (found.writing, found.num_unread, found.num_reused) == ([], 0, 0)
    assert (found.seconds, found.idle_seconds is not None) == (20, True)
    for index in (2, 3):
        put_shard(root, index, 4)
    test = ShardName("pets", "test", 0, 1)
    write_sidecar(root, ShardSummary(test, 10, 1000, 0, "d"), NO_ROWS)
    assert scan.look(START + 30).phase is BuildPhase.PUBLISHING


def test_a_resumed_build_and_a_damaged_sidecar(root: Folder) -> None:
    scan = BuildScan(root)
    put_plan(root, train=(4, 40, 4000))
    at(root, put_shard(root, 0, 4), 5)
    at(root, naming.PLAN, 60)  # written again
    at(root, put_shard(root, 2, 4, records=8), 70)
    path = f"{naming.INDEX_DIR}/train-00003-of-00004.parquet"
    root.write_bytes(path, b"no Parquet")
    at(root, path, 80)
    found = scan.look(START + 100)
    assert (found.num_reused, found.done) == (1, (3, 9 + 8 + 10, 2700))
    assert found.overall is not None
    assert found.overall.records_per_second == 18 / 40
    at(root, put_shard(root, 3, 4, records=5, rejects={"corrupt": 5}), 90)  # instead
    found = scan.look(START + 101)
    assert (found.done, found.rejects) == ((3, 9 + 8 + 5, 2200), {"corrupt": 5})
    assert "shards    3 of 4 (75%), 1 of an earlier run" in "\n".join(show_lines(found, "x"))


def test_a_look_reads_a_bounded_number_of_sidecars(root: Folder) -> None:
    """First those with rejects; the others are estimated until they are read, once."""
    count = MOST_READS + 50
    put_plan(root, train=(count, 10 * count, 1000 * count))
    for index in range(count):
        put_shard(root, index, count, rejects={"corrupt": 1} if index >= count - 5 else {})
    scan, now = BuildScan(root), time.time()
    first, second = scan.look(now), scan.look(now)
    assert (first.num_unread, first.done.records) == (50, 9 * MOST_READS + 10 * 50)
    assert first.rejects == second.rejects == {"corrupt": 5}
    assert (second.num_unread, second.done.records) == (0, 9 * count)
    assert "about 2,300" in show_lines(first, "x")[3]
    assert "at least 5 corrupt" in "\n".join(show_lines(first, "x"))


def test_reasons_that_no_build_writes(root: Folder) -> None:
    """They reach no terminal; a shard with one counts as damaged."""
    put_plan(root, train=(2, 20, 2000))
    for index, rejects in enumerate(({"\x1b[2J": 1}, {"corrupt": "many"})):
        name = ShardName("pets", "train", index, 2)
        write_sidecar(root, ShardSummary(name, 9, 900, 0, "d", rejects=rejects), NO_ROWS)  # type: ignore[arg-type]
    rows = [Reject("id", "uri", "\x1b[2J", "detail")]  # type: ignore[arg-type]
    write_rejects(root, naming.PLAN_REJECTS, rows)
    found = BuildScan(root).look(time.time())
    assert (found.done, found.rejects) == ((2, 20, 2000), {"unknown": 1})
    root.write_bytes(naming.PLAN_REJECTS, b"no Parquet")
    with pytest.raises(StorageError, match=r"plan.parquet cannot be read: "):
        BuildScan(root).look(time.time())


def test_planning_and_failing(root: Folder) -> None:
    scan = BuildScan(root)
    root.write_bytes("spool/0a.bin", b"12345")
    root.write_bytes("spool/.0b.bin.c0ffee.tmp", b"123")
    root.write_bytes("spool/0a.parquet", b"listing")
    found = scan.look(time.time())
    assert (found.phase, found.spooled_bytes) == ("planning", 8)
    assert show_line(found) == "planning, 8 B of INPUT unpacked"
    told = show_line(scan.look(time.time() + 400))
    assert "no change for 6:4" in told
    failed = naming.reject_files(naming.FAILED_REJECTS, 1)[0]
    write_rejects(root, failed, rejects_of({"other_file": 2}))
    os.utime(root.path(failed), (time.time() + 9, time.time() + 9))
    found = scan.look(time.time() + 20)
    assert (found.phase, found.rejects) == ("failed", {"other_file": 2})
    put_plan(root, train=(1, 1, 1))  # a later run passed
    at(root, failed, 0)
    assert scan.look(time.time()).phase is BuildPhase.WRITING


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = main(["watch", *map(str, argv)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_states_by_exit_code(
    root: Folder, zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, zoo, "--once", "--json")
    found = json.loads(out)
    assert (code, found["phase"], found["output"]) == (0, "published", str(zoo))
    assert found["done"]["records"] == 36
    assert found["rejects"] == {"empty_file": 1}
    code, out, err = run(capsys, zoo)
    assert (code, err) == (0, "")
    assert "ago: 36 records, 4 shards" in out
    code, out, _ = run(capsys, root, "--once")
    assert code == 1
    told = "nothing is there yet: the build has not begun, or is planning"
    assert out == f"{root}\n  state     {told}\n"
    code, _, err = run(capsys, root, "--wait", "0")
    assert code == 1
    assert f"nothing has appeared in {root} for 0:00: check that it is the OUTPUT" in err
    write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 2}))
    code, out, _ = run(capsys, root, "--once")
    assert (code, out.splitlines()[2]) == (1, "  rejects   2 corrupt")
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


def test_an_overwriting_build(dataset: Path) -> None:
    """It is followed beside the published dataset, until it has replaced that."""
    beside = Folder(str(dataset)).below(naming.NEXT_DIR)
    put_plan(beside, train=(4, 40, 4000))
    put_shard(beside, 0, 4)
    scan = BuildScan(Folder(str(dataset)))
    found = scan.look(time.time())
    assert (found.phase, found.replaces, found.done.shards) == ("writing", True, 1)
    assert show_line(found).startswith("writing beside the published dataset for 0:0")
    beside.remove(naming.PLAN)
    assert scan.look(time.time()).phase is BuildPhase.PUBLISHED


def test_a_real_build_from_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = make_images(tmp_path / "in", 60)
    (images / "cat" / "empty.png").write_bytes(b"")
    options = ("--records-per-shard", "10", "--max-reject-fraction", "0.1")
    build = start_build(tmp_path / "log", images, tmp_path / "out", *options)
    code, out, err = run(capsys, tmp_path / "out", "--interval", "0.1", "--json")
    assert (code, err, build.wait()) == (0, "", 0)
    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    order = ["empty", "writing", "publishing", "published"]
    phases = [each["phase"] for each in found]
    assert phases == sorted(phases, key=order.index)
    assert (phases[0], phases[-1]) == ("empty", "published")
    assert found[-1]["done"]["records"] == 60
    assert found[-1]["rejects"] == {"empty_file": 1}


def test_a_failure_ends_the_watch_unless_it_was_there_before(
    root: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 1}))
    at(root, naming.FAILED_REJECTS, 0)
    after(0.4, lambda: write_rejects(root, naming.FAILED_REJECTS, rejects_of({"corrupt": 2})))
    code, out, _ = run(capsys, root, "--interval", "0.1")
    assert code == 1
    first, *_, last = out.splitlines()
    assert first.endswith(" ago, before it wrote shards, rejects: 1 corrupt")
    assert "the build failed 0:00 ago, before it wrote shards, rejects: 2 corrupt" in last


def after(seconds: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


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
    after(0.4, lambda: root.write_bytes(naming.MANIFEST, published))
    with os.fdopen(terminal, "w") as out, os.fdopen(main_side, "rb", 0) as screen:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setenv("TERM", "xterm")
        with ThreadPoolExecutor() as pool:
            shown = pool.submit(read_until, screen, b"\x04")
            code = main(["watch", str(root), "--interval", "0.1"])
            print("\x04", flush=True)
            frames = shown.result().split("\x1b[J")
    assert (code, len(frames) > 2) == (0, True)
    for frame in frames[:-1]:
        text, _, move = frame.rpartition("\x1b[")
        assert move == f"{text.count(chr(10))}A"
        assert max(map(len, text.splitlines())) < 80
    assert "shards    1 of 4 (25%)" in frames[0]
    assert "published" in frames[-1]


def test_an_interrupt(root: Folder) -> None:
    put_plan(root, train=(4, 40, 4000))
    command = [sys.executable, "-m", "shardwright.inspect.cli", "watch", root.uri]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("shardwright: writing for ")
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=30) == ("", "shardwright: interrupted\n")
    assert watching.returncode == 130


@pytest.mark.parametrize("words", ["--interval 0", "--interval nan", "--wait -1"])
def test_numbers_out_of_range(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["watch", "x", *words.split()])
    assert "must be at least" in capsys.readouterr().err


@on_s3_and_gcs
def test_a_store_takes_few_requests(bucket: Bucket, proxy: FaultProxy) -> None:
    root = bucket.folder("data")
    scan = BuildScan(bucket.behind(proxy).folder("data"))
    assert scan.look(time.time()).phase is BuildPhase.EMPTY
    put_plan(root, train=(4, 40, 4000))
    put_shard(root, 0, 4, rejects={"corrupt": 1})
    found = scan.look(time.time())
    assert (found.done, found.rejects) == ((1, 9, 900), {"corrupt": 1})
    proxy.requests.clear()
    assert scan.look(time.time()).done == found.done
    listed = [target for method, target in proxy.requests if "prefix=" in target]
    # The manifest is missing, which a second request confirms.
    assert (len(listed), len(proxy.requests)) == (2, 5)


def test_a_store_that_fails_for_a_while(
    s3_bucket: Bucket, s3_proxy: FaultProxy, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_plan(s3_bucket.folder("data"), train=(4, 40, 4000))
    fault = Fault("status", None, skip=9)
    s3_proxy.add(fault)

    def publish() -> None:
        while not s3_proxy.hits(fault):
            time.sleep(0.01)
        time.sleep(2)  # much longer than the deadline, so that a look has failed
        s3_bucket.put(f"data/{naming.MANIFEST}", (zoo / naming.MANIFEST).read_bytes())
        s3_proxy.clear()

    after(0.0, publish)
    args = s3_bucket.behind(s3_proxy).args(deadline="0.5")
    code, _, err = run(capsys, f"{s3_bucket.uri}/data", "--interval", "0.1", *args)
    assert code == 0
    assert "; trying again\n" in err
