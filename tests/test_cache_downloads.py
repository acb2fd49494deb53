"""Shards on their way into the cache: resumed, checked, and what goes wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cache import ShardCache
from shardwright.cache.downloads import PartJournal, missing_spans
from shardwright.errors import MissingError, StorageError, ThrottledError, TimedOutError
from shardwright.storage import Folder
from shardwright.storage.downloads import PART_BYTES
from tests.cached_datasets import (
    at,
    behind,
    finish,
    line_of,
    names_of,
    put_dataset,
    shards_in,
    start_reader,
    wait_until,
)
from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import delete_object, put_object
from tests.servers.store_server import StoreServer

NUM_PARTS = 5
SIZE = (NUM_PARTS - 1) * PART_BYTES + 12_345
SHARD = names_of(1)[0]


@pytest.fixture(scope="module")
def big(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, bytes]:
    """A dataset of one shard of five parts, and the shard's bytes."""
    folder = tmp_path_factory.mktemp("noise")
    root = put_dataset(s3_server, folder, [SIZE])
    return root, (folder / SHARD.shard).read_bytes()


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


def parts_asked_for(proxy: FaultProxy) -> int:
    return len(
        [target for method, target in proxy.requests if method == "GET" and "tfrecord" in target]
    )


def journal_lines(cache: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) - 1 for path in cache.rglob("*.parts"))


def test_several_parts_make_the_shard(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    root, data = big
    proxy.latency_msec = 30
    with (
        ShardCache.open(behind(root, proxy.endpoint), at(tmp_path)) as cache,
        cache.open_shard(SHARD) as shard,
    ):
        assert Path(shard.path).read_bytes() == data
        assert Path(shard.path).name == SHARD.shard
    assert parts_asked_for(proxy) == NUM_PARTS
    assert proxy.max_in_flight > 1
    assert [
        path.name
        for path in Path(shard.path).parent.iterdir()
        if path.suffix in (".part", ".parts")
    ] == []
    with (
        ShardCache.open(behind(root, proxy.endpoint), at(tmp_path)) as cache,
        cache.open_shard(SHARD),
    ):
        assert parts_asked_for(proxy) == NUM_PARTS


def test_a_killed_download_goes_on_where_it_stopped(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    root, data = big
    remote = behind(root, proxy.endpoint)
    proxy.add(Fault("stall", None, method="GET", path_contains="tfrecord", skip=3))
    killed = start_reader(remote, at(tmp_path), "cache.open_shard(names[0])")
    wait_until(lambda: journal_lines(tmp_path) == 3)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    proxy.clear()
    proxy.requests.clear()
    before = proxy.num_bytes_down

    with ShardCache.open(remote, at(tmp_path)) as cache, cache.open_shard(SHARD) as shard:
        assert Path(shard.path).read_bytes() == data
    assert parts_asked_for(proxy) == NUM_PARTS - 3
    assert proxy.num_bytes_down - before < 2 * PART_BYTES + 10_000


def test_one_downloads_the_others_wait_and_one_takes_over_when_it_is_killed(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    root, data = big
    remote = behind(root, proxy.endpoint)
    proxy.add(stall := Fault("stall", None, method="GET", path_contains="tfrecord", skip=2))
    first = start_reader(remote, at(tmp_path), "cache.open_shard(names[0])")
    wait_until(lambda: journal_lines(tmp_path) == 2)
    code = "say('here')\nwith cache.open_shard(names[0]) as shard: say(shard.path)"
    others = [start_reader(remote, at(tmp_path), code) for _ in range(2)]
    assert [line_of(other) for other in others] == ["here"] * 2
    wait_until(lambda: proxy.hits(stall) == NUM_PARTS - 2)
    proxy.clear()
    proxy.requests.clear()
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()

    paths = {line_of(other) for other in others}
    for other in others:
        finish(other)
    assert Path(paths.pop()).read_bytes() == data
    assert not paths
    assert parts_asked_for(proxy) == NUM_PARTS - 2


def test_two_at_once_download_one_copy(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    root, _ = big
    proxy.latency_msec = 100
    code = "say('ready'); sys.stdin.readline()\nwith cache.open_shard(names[0]) as shard: say(len(open(shard.path, 'rb').read()))"
    readers = [start_reader(behind(root, proxy.endpoint), at(tmp_path), code) for _ in range(2)]
    assert [line_of(reader) for reader in readers] == ["ready"] * 2
    for reader in readers:
        assert reader.stdin
        reader.stdin.write("\n")
        reader.stdin.flush()
    assert [line_of(reader) for reader in readers] == [str(SIZE)] * 2
    for reader in readers:
        finish(reader)
    assert parts_asked_for(proxy) == NUM_PARTS


@pytest.mark.parametrize(
    "fault",
    [
        Fault("reset", 3, method="GET", path_contains="tfrecord", at_byte=1_000_000),
        Fault("truncate", 3, method="GET", path_contains="tfrecord", at_byte=1_000_000),
        Fault("status", 3, method="GET", path_contains="tfrecord"),
        Fault("status", 1, method="HEAD", path_contains="tfrecord"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.method}",
)
def test_gets_over_faults_that_pass(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    root, data = big
    proxy.add(fault)
    with (
        ShardCache.open(behind(root, proxy.endpoint, deadline="20"), at(tmp_path)) as cache,
        cache.open_shard(SHARD) as shard,
    ):
        assert Path(shard.path).read_bytes() == data
    assert proxy.hits(fault) == fault.times


def test_a_bit_that_flipped_on_the_way_is_downloaded_once_more(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    root, data = big
    proxy.add(fault := Fault("corrupt", 1, method="GET", path_contains="tfrecord", at_byte=77))
    with (
        ShardCache.open(behind(root, proxy.endpoint), at(tmp_path)) as cache,
        cache.open_shard(SHARD) as shard,
    ):
        assert Path(shard.path).read_bytes() == data
    assert proxy.hits(fault) == 1
    assert parts_asked_for(proxy) == 2 * NUM_PARTS


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            "flip",
            StorageError,
            r"has crc32c [0-9a-f]{8}, downloaded twice, and the manifest states [0-9a-f]{8}: if the dataset was built",
        ),
        (
            "cut",
            StorageError,
            r"is 999 bytes long, and the manifest states 1,000: if the dataset was built again meanwhile",
        ),
        (
            "remove",
            MissingError,
            r"is missing, and the manifest names it: if the dataset was built again meanwhile, open it again",
        ),
    ],
)
def test_what_is_not_what_the_manifest_says_is_refused(
    request: pytest.FixtureRequest,
    server_name: str,
    tmp_path: Path,
    damage: str,
    error: type[StorageError],
    message: str,
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    root = put_dataset(server, tmp_path / "data", [1000])
    data = (tmp_path / "data" / SHARD.shard).read_bytes()
    uri = root.path(SHARD.shard)
    with ShardCache.open(root, at(tmp_path / "cache")) as cache:
        if damage == "remove":
            delete_object(server, uri)
        else:
            put_object(
                server, uri, data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1])
            )
        with pytest.raises(error, match=f"{uri} {message}"):
            cache.open_shard(SHARD)
        assert [
            path.name
            for path in (tmp_path / "cache").rglob("noise-*")
            if path.is_file() and path.suffix != ".lock"
        ] == []
        put_object(server, uri, data)
        with cache.open_shard(SHARD) as shard:
            assert Path(shard.path).read_bytes() == data


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (
            Fault("status", None, path_contains="tfrecord"),
            ThrottledError,
            r"tfrecord-00000-of-00001 cannot be read: .* answers 503",
        ),
        (
            Fault("stall", None, method="GET", path_contains="tfrecord", skip=2),
            TimedOutError,
            r"tfrecord-00000-of-00001: .* is silent",
        ),
    ],
    ids=["throttled", "stalled"],
)
def test_a_store_that_goes_on_failing_is_told_and_the_parts_that_came_are_kept(
    big: tuple[Folder, bytes],
    proxy: FaultProxy,
    tmp_path: Path,
    fault: Fault,
    error: type[StorageError],
    message: str,
) -> None:
    root, data = big
    remote = behind(root, proxy.endpoint, read_timeout="1", deadline="1")
    with ShardCache.open(remote, at(tmp_path)) as cache:
        proxy.add(fault)
        with pytest.raises(StorageError, match=message) as caught:
            cache.open_shard(SHARD)
        assert isinstance(caught.value, error) or "while other objects are served" in str(
            caught.value
        )
        arrived = journal_lines(tmp_path)
        assert arrived == fault.skip
        proxy.clear()
        proxy.requests.clear()
        with cache.open_shard(SHARD) as shard:
            assert Path(shard.path).read_bytes() == data
    assert parts_asked_for(proxy) == NUM_PARTS - arrived


def test_parts_of_an_object_that_was_replaced_are_not_used(
    s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path
) -> None:
    """It has the same bytes, but another etag tells only that somebody wrote it."""
    root = put_dataset(s3_server, tmp_path / "data", [2 * PART_BYTES])
    data = (tmp_path / "data" / SHARD.shard).read_bytes()
    put_object(s3_server, root.path(SHARD.shard), bytes(len(data)))
    with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path / "cache")) as cache:
        proxy.add(Fault("status", None, status=403, method="GET", path_contains="tfrecord", skip=1))
        with pytest.raises(StorageError, match="access denied"):
            cache.open_shard(SHARD)
        assert journal_lines(tmp_path / "cache") == 1
        proxy.clear()
        proxy.requests.clear()
        put_object(s3_server, root.path(SHARD.shard), data)
        with cache.open_shard(SHARD) as shard:
            assert Path(shard.path).read_bytes() == data
    assert parts_asked_for(proxy) == 2


def test_a_journal_that_lies_costs_one_more_download(
    big: tuple[Folder, bytes], proxy: FaultProxy, tmp_path: Path
) -> None:
    """As when the machine lost power, and with it a part, but not the line that says it is there."""
    root, data = big
    with ShardCache.open(behind(root, proxy.endpoint), at(tmp_path)) as cache:
        proxy.add(Fault("status", None, status=403, method="GET", path_contains="tfrecord", skip=2))
        with pytest.raises(StorageError):
            cache.open_shard(SHARD)
        [part] = tmp_path.rglob("*.part")
        assert part.stat().st_size == SIZE
        part.write_bytes(bytes(SIZE))
        proxy.clear()
        with cache.open_shard(SHARD) as shard:
            assert Path(shard.path).read_bytes() == data
        assert shards_in(tmp_path) == [0]


SPANS = st.lists(st.integers(0, 40), unique=True, max_size=10)


@given(SPANS, st.integers(0, 400))
def test_a_journal_that_was_cut_anywhere_gives_a_beginning_of_it(
    tmp_path_factory: pytest.TempPathFactory, starts: list[int], cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.parts"
    journal = PartJournal(str(path), "stamp")
    spans = [(10 * start, 10 * start + 10) for start in starts]
    for span in spans:
        journal.add(*span)
    assert PartJournal(str(path), "stamp").finished == spans

    data = path.read_bytes()
    path.write_bytes(data[:cut])
    found = PartJournal(str(path), "stamp").finished
    assert found == spans[: len(found)]
    assert len(found) == max(data[:cut].count(b"\n") - 1, 0)
    journal.add(7, 8)
    assert PartJournal(str(path), "stamp").finished == [*found, (7, 8)]
    assert PartJournal(str(path), "other").finished == []


@given(st.integers(0, 3), st.integers(8, 60))
def test_a_flipped_byte_in_a_journal_ends_it(
    tmp_path_factory: pytest.TempPathFactory, line: int, place: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.parts"
    spans = [(1000 * number, 1000 * number + 999) for number in range(3)]
    journal = PartJournal(str(path), "stamp")
    for span in spans:
        journal.add(*span)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = bytearray(lines[line])
    damaged[place % (len(damaged) - 1)] ^= 0x80
    lines[line] = bytes(damaged)
    path.write_bytes(b"".join(lines))
    assert PartJournal(str(path), "stamp").finished == spans[: max(line - 1, 0)]


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
def test_missing_spans_are_what_is_left(num_bytes: int, spans: list[tuple[int, int]]) -> None:
    finished = [(min(span), min(max(span), num_bytes)) for span in spans if min(span) <= num_bytes]
    missing = missing_spans(num_bytes, finished)
    there = {place for start, stop in finished for place in range(start, stop)}
    assert [place for start, stop in missing for place in range(start, stop)] == [
        place for place in range(num_bytes) if place not in there
    ]


def test_what_does_not_belong_to_the_dataset_is_told(
    big: tuple[Folder, bytes], tmp_path: Path
) -> None:
    with ShardCache.open(big[0], at(tmp_path)) as cache:
        for ask in (cache.open_shard, cache.index, lambda name: cache.prefetch([name])):
            with pytest.raises(
                Exception, match=r"noise-train.tfrecord-00007-of-00001 is no shard of s3://"
            ):
                ask(replace(SHARD, index=7))
