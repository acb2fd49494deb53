"""The state of a build, read from its OUTPUT: every phase, resumed, damaged, in a store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shardwright.format import naming
from shardwright.inspect.build_scan import BuildPhase, BuildProgress, scan_build
from shardwright.inspect.watch import show_line
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import write_rejects
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.watched_builds import START, at, put_plan, put_shard, rejects_of


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out"))


def test_a_build_from_its_plan_to_its_last_shard(root: Folder) -> None:
    assert scan_build(root, START) == BuildProgress(BuildPhase.EMPTY)
    put_plan(root, train=(4, 40, 4000), test=(1, 10, 1000))
    at(root, naming.PLAN, 0)
    found = scan_build(root, START + 2)
    assert (found.phase, found.planned, found.done) == ("writing", (5, 50, 5000), (0, 0, 0))
    assert (found.records_per_second, found.seconds_left) == (0, None)

    at(root, put_shard(root, 1, 4, rejects={"corrupt": 1}), 10)
    at(root, put_shard(root, 0, 4), 16)
    root.write_bytes(f"{naming.INDEX_DIR}/train-00000-of-00009.parquet", b"of another plan")
    found = scan_build(root, START + 20)
    assert (found.done, found.reused) == ((2, 20, 2000), (0, 0, 0))
    assert (found.records_per_second, found.seconds_left) == (1.0, 30.0)
    assert (found.seconds, found.idle_seconds) == (20, 4)
    line = "writing for 0:20, 20 of 50 images, 2 of 5 shards (40%), 1 images/s, 0:30 left"
    assert show_line(found) == line
    found = scan_build(root, START + 400)
    assert "left, no change for 6:24: if the build has stopped" in show_line(found)
    for index in (2, 3):
        put_shard(root, index, 4)
    root.write_bytes(f"{naming.INDEX_DIR}/test-00000-of-00001.parquet", b"")
    found = scan_build(root, START + 500)
    assert (found.phase, found.done, found.records_per_second) == ("publishing", (5, 50, 5000), 0)
    assert show_line(found).startswith("all 5 shards written, publishing")


def test_the_rate_of_a_resumed_build_is_that_of_its_new_shards(root: Folder) -> None:
    put_plan(root, train=(4, 40, 4000))
    at(root, put_shard(root, 0, 4), 5)
    at(root, naming.PLAN, 60)  # written again
    found = scan_build(root, START + 80)
    assert (found.records_per_second, found.seconds_left) == (0, None)
    at(root, put_shard(root, 2, 4), 70)
    found = scan_build(root, START + 80)
    assert (found.reused, found.done) == ((1, 10, 1000), (2, 20, 2000))
    assert (found.records_per_second, found.seconds_left) == (0.5, 40)
    assert "2 of 4 shards (50%), 1 of an earlier run, " in show_line(found)


def test_planning_and_failing(root: Folder) -> None:
    root.write_bytes("spool/0a.bin", b"12345")
    at(root, "spool/0a.bin", 0)
    found = scan_build(root, START)
    assert (found, show_line(found)) == (
        BuildProgress(BuildPhase.PLANNING),
        "planning, INPUT is being unpacked",
    )
    failed = naming.reject_files(naming.FAILED_REJECTS, 1)[0]
    write_rejects(root, failed, rejects_of({"other_file": 2}))
    at(root, failed, 409)
    found = scan_build(root, START + 420)
    assert (found.phase, found.idle_seconds) == ("failed", 11)
    put_plan(root, train=(1, 1, 1))  # a later run passed
    at(root, naming.PLAN, 500)
    assert scan_build(root, START + 510).phase is BuildPhase.WRITING
    at(root, failed, 505)  # and one after it did not
    assert scan_build(root, START + 510).phase is BuildPhase.FAILED


def test_an_overwriting_build(dataset: Path) -> None:
    """It is followed beside the published dataset, until it has replaced that."""
    beside = Folder(str(dataset)).below(naming.NEXT_DIR)
    put_plan(beside, train=(4, 40, 4000))
    at(beside, naming.PLAN, 0)
    at(beside, put_shard(beside, 0, 4), 1)
    root = Folder(str(dataset))
    found = scan_build(root, START + 5)
    assert (found.phase, found.replaces, found.done.shards) == ("writing", True, 1)
    assert show_line(found).startswith("writing beside the published dataset for 0:05")
    beside.remove(naming.PLAN)
    assert scan_build(root, START + 6).phase is BuildPhase.PUBLISHED


@on_s3_and_gcs
def test_a_store_takes_few_requests(bucket: Bucket, proxy: FaultProxy) -> None:
    root = bucket.folder("data")
    watched = bucket.behind(proxy).folder("data")
    assert scan_build(watched, time.time()).phase is BuildPhase.EMPTY
    put_plan(root, train=(4, 40, 4000))
    put_shard(root, 0, 4)
    proxy.requests.clear()
    assert scan_build(watched, time.time()).done == (1, 10, 1000)
    listed = [target for method, target in proxy.requests if "prefix=" in target]
    # The manifest is missing, which a second request confirms.
    assert (len(listed), len(proxy.requests)) == (2, 6)
