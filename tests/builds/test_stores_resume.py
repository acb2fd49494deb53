"""A build into a store resumes, and shows only whole shards."""

from __future__ import annotations

import re
import signal
from collections.abc import Set
from pathlib import Path
from urllib.parse import unquote

import pytest

from shardwright.errors import NotADatasetError
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support import store_builds as stores
from tests.support.build_helpers import (
    Before,
    RunningBuild,
    before_shard,
    make_images,
    start_build,
    wait_for,
)
from tests.support.store_builds import (
    Pair,
    Sources,
    build_between,
    by_pair,
    by_store,
    make_reference,
)
from tests.support.store_places import Kind, Place, Places

NUM_SHARDS = 8
SMALL = ("--name", "small", "--shard-count", str(NUM_SHARDS), "--threads", "1")
LARGE = ("--name", "large", "--records-per-shard", "8")
PART = 5 << 20  # bytes


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reference(make_images(tmp_path_factory.mktemp("resumed") / "in", 48), *SMALL)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images for 3 shards of 22 MB, which are uploaded in five parts."""
    root = make_images(tmp_path_factory.mktemp("large") / "in", 24, side=950)
    return make_reference(root, *LARGE)


@pytest.fixture(scope="module")
def sources(images: Path, places: Places) -> Sources:
    return stores.fill_places(places, images)


def start(
    source: Place, output: Place, stderr: Path, *options: str, waits: Before | None = None
) -> RunningBuild:
    args = (*source.args, *output.args, *options)
    return start_build(stderr, source.uri, output.uri, *args, waits=waits)


def num_put(proxy: FaultProxy, text: str) -> int:
    return sum(method == "PUT" and text in unquote(target) for method, target in proxy.requests)


# Where the build waits, then a part of files' names and how many there are when it is killed.
MOMENTS = {
    ("local", "s3"): (before_shard(0), "plan.json", 1),
    ("local", "gs"): (before_shard(1), "index/train", 1),
    ("s3", "local"): (before_shard(4), "tfrecord-", 4),
    ("s3", "s3"): (before_shard(6), "index/train", 6),
    ("s3", "gs"): (before_shard(3), "index/train", 3),
    ("gs", "local"): (before_shard(7), "tfrecord-", 7),
    ("gs", "s3"): (Before("manifest.json"), "stats.json", 1),
    ("gs", "gs"): (before_shard(7), "index/train", 7),
}


@pytest.mark.long
@by_pair
def test_a_killed_build_resumes(
    sources: Sources,
    images: Path,
    places: Places,
    tmp_path: Path,
    pair: Pair,
) -> None:
    source, output, (waits, written, number) = sources[pair[0]], places.make(pair[1]), MOMENTS[pair]
    with places.proxy(output if output.server else source) as (proxy, through):
        ends = (source, through) if output.server else (through, output)
        running = start(*ends, tmp_path / "stderr", *SMALL, waits=waits)
        wait_for(lambda: stores.num_files(output, written) >= number, running)
        running.signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
        wait_for(lambda: not proxy.num_in_flight)
    before = output.stamps()
    message = r"unfinished build .* run the same `shardwright build` command again"
    with pytest.raises(NotADatasetError, match=message):
        stores.manifest_at(output)
    sidecars = re.compile(r"index/train-(.{14})\.parquet")  # a temporary file has another name
    positions = [found[1] for found in map(sidecars.fullmatch, before) if found]
    finished = {name for name in before for position in positions if position in name}
    # Of the local files seen, one may be still written and another one put in place.
    unfinished = 2 if written == "tfrecord-" else 1
    assert len(finished) >= (2 * (number - unfinished) if written != "plan.json" else 0)
    assert len(finished) < 2 * NUM_SHARDS or written != "plan.json"

    assert_only_the_rest_is_written(source, output, finished, places)
    after = output.stamps()
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    stores.assert_as_reference(output, images, tmp_path / "out")
    assert sorted(after) == Place(str(images.parent / "reference")).names()


def assert_only_the_rest_is_written(
    source: Place, output: Place, finished: set[str], places: Places
) -> None:
    if output.server is None:
        assert build_between(source, output, *SMALL) == 0
        return
    with places.proxy(output) as (proxy, through):
        assert build_between(source, through, *SMALL) == 0
        assert [name for name in finished if num_put(proxy, name)] == []


def whole_shards(output: Place, images: Path, seen: Set[str] = frozenset()) -> set[str]:
    """Return the names of the visible shards; check that those not seen before are whole."""
    visible = {name for name in output.names() if "tfrecord" in name}
    for name in visible - seen:
        assert output.get(name) == (images.parent / "reference" / name).read_bytes()
    return visible


@pytest.mark.long
@by_store
def test_only_whole_shards_appear(large: Path, places: Places, tmp_path: Path, kind: Kind) -> None:
    output = places.make(kind)
    with places.proxy(output) as (proxy, through):
        # The second shard cannot be completed.
        proxy.add(refused := Fault("status", None, path_contains="partNumber=2", skip=1))
        running = start(Place(str(large)), through, tmp_path / "stderr", *LARGE, "--threads", "1")
        wait_for(lambda: proxy.hits(refused) > 0, running)
        wait_for(lambda: bool(whole_shards(output, large)), running)
        seen = whole_shards(output, large)
        assert len(seen) == 1
        proxy.clear()
        while running.process.is_alive():
            seen = whole_shards(output, large, seen)
        assert running.wait() == 0
    assert len(whole_shards(output, large)) == 3
    assert output.pending_uploads() == []


@pytest.mark.long
@by_store
def test_an_upload_that_a_killed_build_left_is_in_nobodys_way(
    large: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    output = places.make(kind)
    with places.proxy(output) as (proxy, through):
        proxy.add(hang := Fault("stall", None, path_contains="partNumber=2", skip=1))
        running = start(Place(str(large)), through, tmp_path / "stderr", *LARGE)
        wait_for(lambda: proxy.hits(hang) > 0, running)
        # The first shard is put in place while the second one is written.
        wait_for(lambda: any(name.startswith("index/train") for name in output.stamps()), running)
        running.signal(signal.SIGKILL)
        running.wait()
    left = output.pending_uploads()  # of the second shard, and perhaps of the third
    assert left
    assert all("tfrecord" in name for name in left)
    [first] = whole_shards(output, large)
    assert first not in left
    before = output.stamps()

    assert build_between(large, output, *LARGE) == 0
    assert len(whole_shards(output, large)) == 3
    assert output.stamps()[first] == before[first]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "number", "code"), [("s3", signal.SIGTERM, 143), ("gs", signal.SIGINT, 130)]
)
def test_a_signal_in_mid_upload_leaves_nothing_and_reports_how_to_resume(
    large: Path, places: Places, tmp_path: Path, kind: Kind, number: signal.Signals, code: int
) -> None:
    """The first part of the second shard is under way while its fourth image is awaited."""
    source, output = places.make("s3").fill(large), places.make(kind)
    with places.proxy(source) as (slow, _), places.proxy(output) as (proxy, through):
        slow.add(Fault("latency", None, path_contains=".png", skip=11, latency_msec=1e6))
        slowly = source.behind(slow, deadline="2", read_timeout="1000")
        running = start(slowly, through, tmp_path / "stderr", *LARGE, "--threads", "1")
        wait_for(lambda: num_put(proxy, "partNumber=1&") >= 2, running)
        wait_for(lambda: bool(whole_shards(output, large)), running)
        running.signal(number)
        slow.close()  # else the threads that read images would end late
        assert running.wait() == code
    message = f"shardwright: stopped by {number.name}; run the same command again to resume"
    assert running.said.splitlines()[-1] == message
    assert "Traceback" not in running.said
    assert output.pending_uploads() == []
    assert len(whole_shards(output, large)) == 1
    assert "manifest.json" not in output.names()


# With the note of an attempt, and without, where no image is checked. Two are for the report,
# which looks into at most 16 shards: into the index, and at some records.
REQUESTS = {("s3", "header"): 18, ("s3", "none"): 14, ("gs", "header"): 18, ("gs", "none"): 14}


@pytest.mark.long
@pytest.mark.parametrize(("kind", "check"), REQUESTS)
def test_requests_for_a_shard(images: Path, places: Places, kind: Kind, check: str) -> None:
    """Small shards are uploaded in one request."""
    numbers = []
    for num_shards in (8, 16):
        options = ("--name", "small", "--shard-count", str(num_shards), "--check", check)
        with places.proxy(places.make(kind)) as (proxy, through):
            assert build_between(images, through, *options) == 0
            numbers.append(len(proxy.requests))
    assert numbers[1] - numbers[0] == 8 * REQUESTS[kind, check]
