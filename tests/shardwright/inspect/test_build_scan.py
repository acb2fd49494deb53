"""The state of a build, read from its OUTPUT: every phase, resumed, damaged, in a store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.index import ShardSummary, write_sidecar
from shardwright.format.naming import ShardName
from shardwright.inspect.build_progress import BuildPhase, BuildProgress
from shardwright.inspect.build_scan import MOST_READS, BuildScan
from shardwright.inspect.watch import show_line, show_lines
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.watched_builds import NO_ROWS, START, at, put_plan, put_shard, rejects_of


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
    like = Path(root.path(put_shard(root, 0, count))).read_bytes()
    for index in range(1, count - 5):
        path = Path(root.path(ShardName("pets", "train", index, count).sidecar))
        path.write_bytes(like)  # not synced
    for index in range(count - 5, count):
        put_shard(root, index, count, rejects={"corrupt": 1})
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
    spooled = {"0a.bin": b"12345", ".0b.bin.c0ffee.tmp": b"123", "0a.parquet": b"listing"}
    for name, data in spooled.items():
        root.write_bytes(f"spool/{name}", data)
        at(root, f"spool/{name}", 0)
    found = scan.look(START)
    assert (found.phase, found.spooled_bytes) == ("planning", 8)
    assert show_line(found) == "planning, 8 B of INPUT unpacked"
    assert "no change for 6:40" in show_line(scan.look(START + 400))
    failed = naming.reject_files(naming.FAILED_REJECTS, 1)[0]
    write_rejects(root, failed, rejects_of({"other_file": 2}))
    at(root, failed, 409)
    found = scan.look(START + 420)
    assert (found.phase, found.rejects) == ("failed", {"other_file": 2})
    put_plan(root, train=(1, 1, 1))  # a later run passed
    at(root, naming.PLAN, 500)
    assert scan.look(START + 510).phase is BuildPhase.WRITING


def test_an_overwriting_build(dataset: Path) -> None:
    """It is followed beside the published dataset, until it has replaced that."""
    beside = Folder(str(dataset)).below(naming.NEXT_DIR)
    put_plan(beside, train=(4, 40, 4000))
    at(beside, naming.PLAN, 0)
    at(beside, put_shard(beside, 0, 4), 1)
    scan = BuildScan(Folder(str(dataset)))
    found = scan.look(START + 5)
    assert (found.phase, found.replaces, found.done.shards) == ("writing", True, 1)
    assert show_line(found).startswith("writing beside the published dataset for 0:05")
    beside.remove(naming.PLAN)
    assert scan.look(START + 6).phase is BuildPhase.PUBLISHED


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
