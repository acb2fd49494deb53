"""Shards on their way into the cache: resumed, checked, and what goes wrong."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cache.downloads import PartJournal, missing_spans
from shardwright.cache.shard_cache import ShardCache
from shardwright.errors import MissingError, StorageError, ThrottledError, TimedOutError
from shardwright.storage.downloads import PART_BYTES, _download_part
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import at, behind, content, downloads, put_dataset, start_reader
from tests.support.object_stores import delete_object, put_object

NUM_PARTS = 5
SIZE = (NUM_PARTS - 1) * PART_BYTES + 12_345
SHARD = noise.names_of(1)[0]


class Big(NamedTuple):
    """A dataset of one shard of five parts, behind a proxy, and a cache."""

    root: Folder
    data: bytes
    proxy: FaultProxy
    cache: Path

    def open(self, **options: str) -> ShardCache:
        return ShardCache.open(behind(self.root, self.proxy, **options), at(self.cache))

    def read(self, **options: str) -> bytes:
        with self.open(**options) as cache:
            return content(cache, SHARD)

    def start(self, code: str) -> noise.ReaderProcess:
        # Stalled requests last until the process is killed, however late that is.
        remote = behind(self.root, self.proxy, read_timeout="600")
        return start_reader(remote, at(self.cache), code)

    def end_faults(self) -> None:
        self.proxy.clear()
        self.proxy.requests.clear()

    @property
    def num_parts(self) -> int:
        """The number of parts that were requested."""
        return len(downloads(self.proxy))


@pytest.fixture(scope="module")
def kept(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, bytes]:
    folder = tmp_path_factory.mktemp("noise")
    root = put_dataset(s3_server, folder, [SIZE])
    return root, (folder / SHARD.shard).read_bytes()


@pytest.fixture
def big(kept: tuple[Folder, bytes], s3_proxy: FaultProxy, tmp_path: Path) -> Big:
    return Big(*kept, s3_proxy, tmp_path)


def on_shard(kind: str, times: int | None = None, **fields: int) -> Fault:
    """Return a fault of the requests for the shard's bytes."""
    return Fault(kind, times, method="GET", path_contains="tfrecord", **fields)  # type: ignore[arg-type]


def journal_lines(cache: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) - 1 for path in cache.rglob("*.parts"))


def test_parts_are_downloaded_at_once_and_kept(big: Big, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, together = itertools.count(), threading.Barrier(4)

    def download_part(*args: Any) -> None:
        if next(begun) < together.parties:
            together.wait(60)  # raises if parts are downloaded one after another
        _download_part(*args)

    monkeypatch.setattr("shardwright.storage.downloads._download_part", download_part)
    assert big.read() == big.data
    assert big.num_parts == NUM_PARTS
    left = {path.name for path in big.cache.rglob("noise-*") if path.is_file()}
    assert left == {SHARD.shard, f"{SHARD.shard}.lock"}
    assert big.read() == big.data
    assert big.num_parts == NUM_PARTS


def test_a_killed_download_resumes(big: Big) -> None:
    big.proxy.add(on_shard("stall", skip=3))
    killed = big.start("cache.open_shard(names[0])")
    noise.wait_until(lambda: journal_lines(big.cache) == 3)
    killed.kill()
    big.end_faults()
    before = big.proxy.num_bytes_down
    assert big.read() == big.data
    assert big.num_parts == NUM_PARTS - 3
    assert big.proxy.num_bytes_down - before < 2 * PART_BYTES + 10_000


def test_one_downloads_the_others_wait_and_one_takes_over_when_it_is_killed(big: Big) -> None:
    big.proxy.add(stall := on_shard("stall", skip=2))
    first = big.start("cache.open_shard(names[0])")
    noise.wait_until(lambda: journal_lines(big.cache) == 2)
    code = "say('here')\nwith cache.open_shard(names[0]) as shard: say(shard.path)"
    others = [big.start(code) for _ in range(2)]
    assert [other.line() for other in others] == ["here"] * 2
    noise.wait_until(lambda: big.proxy.hits(stall) == NUM_PARTS - 2)
    big.end_faults()
    first.kill()
    [path] = {other.line() for other in others}
    for other in others:
        other.finish()
    assert Path(path).read_bytes() == big.data
    assert big.num_parts == NUM_PARTS - 2


def test_two_processes_at_once_download_one_copy(big: Big) -> None:
    big.proxy.latency_msec = 100
    code = "say('ready'); sys.stdin.readline(); say(cache.open_shard(names[0]).path)"
    readers = [big.start(code) for _ in range(2)]
    noise.start_at_once(readers)
    [path] = {reader.line() for reader in readers}
    for reader in readers:
        reader.finish()
    assert Path(path).read_bytes() == big.data
    assert big.num_parts == NUM_PARTS


def test_a_shard_of_one_part_is_one_request(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [1000])
    with ShardCache.open(behind(root, s3_proxy), at(tmp_path / "cache")) as cache:
        before = len(s3_proxy.requests)
        assert content(cache, SHARD) == (tmp_path / "data" / SHARD.shard).read_bytes()
        assert len(s3_proxy.requests) == before + 1


@pytest.mark.parametrize(
    "fault",
    [
        on_shard("reset", 3, at_byte=1_000_000),
        on_shard("truncate", 3, at_byte=1_000_000),
        on_shard("status", 3),
        Fault("status", 1, method="HEAD", path_contains="tfrecord"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.method}",
)
def test_transient_errors_are_retried(big: Big, fault: Fault) -> None:
    big.proxy.add(fault)
    assert big.read() == big.data
    assert big.proxy.hits(fault) == fault.times


def test_a_bit_flipped_in_transit_is_downloaded_once_more(big: Big) -> None:
    big.proxy.add(fault := on_shard("corrupt", 1, at_byte=77))
    assert big.read() == big.data
    assert (big.proxy.hits(fault), big.num_parts) == (1, 2 * NUM_PARTS)


AGAIN = "if the dataset has been rebuilt, reopen it"
CRC32C = "has crc32c [0-9a-f]{8} in two downloads, and the manifest states [0-9a-f]{8}"


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), StorageError, CRC32C),
        (lambda data: data[:-1], StorageError, "is 999 bytes long, and the manifest states 1,000"),
        (lambda _: b"", StorageError, "is 0 bytes long, and the manifest states 1,000"),
        (
            lambda data: data + b"x",
            StorageError,
            "is 1,001 bytes long, and the manifest states 1,000",
        ),
        (None, MissingError, "is in the manifest, but missing from the store"),
    ],
    ids=["flipped", "cut", "empty", "longer", "removed"],
)
def test_a_shard_that_differs_from_its_manifest(
    request: pytest.FixtureRequest,
    server_name: str,
    tmp_path: Path,
    change: Callable[[bytes], bytes] | None,
    error: type[StorageError],
    message: str,
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    root = put_dataset(server, tmp_path / "data", [1000])
    data = (tmp_path / "data" / SHARD.shard).read_bytes()
    uri = root.path(SHARD.shard)
    with ShardCache.open(root, at(tmp_path / "cache")) as cache:
        if change is None:
            delete_object(server, uri)
        else:
            put_object(server, uri, change(data))
        with pytest.raises(error, match=f"{uri} {message}: {AGAIN}"):
            cache.open_shard(SHARD)
        files = [path for path in (tmp_path / "cache").rglob("noise-*") if path.is_file()]
        assert {path.suffix for path in files} == {".lock"}
        put_object(server, uri, data)
        assert content(cache, SHARD) == data


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (
            Fault("status", None, path_contains="tfrecord"),
            ThrottledError,
            " cannot be read: .* 503",
        ),
        (on_shard("stall"), TimedOutError, ": .* did not respond"),
    ],
    ids=["throttled", "stalled"],
)
def test_a_store_that_keeps_failing_is_an_error_and_finished_parts_stay(
    big: Big, fault: Fault, error: type[StorageError], message: str
) -> None:
    remote = behind(big.root, big.proxy, read_timeout="1", deadline="1")
    with big.open() as cache, ShardCache(remote, cache.manifest, at(big.cache)) as hasty:
        fail_after(2, cache, big)
        big.proxy.add(fault)
        with pytest.raises(StorageError, match=f"tfrecord-00000-of-00001{message}") as caught:
            hasty.open_shard(SHARD)
        served = "while other objects are served" in str(caught.value)
        assert isinstance(caught.value, error) or served
        assert journal_lines(big.cache) == 2
        big.end_faults()
        assert content(cache, SHARD) == big.data
    assert big.num_parts == NUM_PARTS - 2


def fail_after(num_parts: int, cache: ShardCache, big: Big) -> None:
    """Have a download fail for good after some parts."""
    big.proxy.add(on_shard("status", status=403, skip=num_parts))
    with pytest.raises(StorageError, match="access denied"):
        cache.open_shard(SHARD)
    big.end_faults()


def test_parts_of_a_replaced_object(s3_server: StoreServer, big: Big, tmp_path: Path) -> None:
    root = put_dataset(s3_server, tmp_path / "data", [2 * PART_BYTES])
    uri, data = root.path(SHARD.shard), (tmp_path / "data" / SHARD.shard).read_bytes()
    put_object(s3_server, uri, bytes(len(data)))
    with big._replace(root=root).open() as cache:
        fail_after(1, cache, big)
        assert journal_lines(big.cache) == 1
        put_object(s3_server, uri, data)
        assert content(cache, SHARD) == data
    assert big.num_parts == 2


def test_a_part_lost_in_a_power_failure_costs_one_more_download(big: Big) -> None:
    with big.open() as cache:
        fail_after(2, cache, big)
        [part] = big.cache.rglob("*.part")
        assert part.stat().st_size == SIZE
        part.write_bytes(bytes(SIZE))
        assert content(cache, SHARD) == big.data
        assert noise.shards_in(big.cache) == [0]


@pytest.fixture(scope="module")
def journal_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "x.parts"


def write(path: Path, spans: list[tuple[int, int]]) -> PartJournal:
    """Write a new journal."""
    path.unlink(missing_ok=True)
    journal = PartJournal(str(path), "stamp")
    for span in spans:
        journal.add(*span)
    return journal


@given(st.lists(st.integers(0, 40), unique=True, max_size=10), st.integers(0, 400))
def test_a_journal_cut_anywhere(journal_file: Path, starts: list[int], cut: int) -> None:
    spans = [(10 * start, 10 * start + 10) for start in starts]
    journal = write(journal_file, spans)
    assert PartJournal(str(journal_file), "stamp").finished == spans

    data = journal_file.read_bytes()[:cut]
    journal_file.write_bytes(data)
    found = PartJournal(str(journal_file), "stamp").finished
    assert found == spans[: max(data.count(b"\n") - 1, 0)]
    journal.add(7, 8)
    assert PartJournal(str(journal_file), "stamp").finished == [*found, (7, 8)]
    assert PartJournal(str(journal_file), "other").finished == []


@given(st.integers(0, 3), st.integers(8, 60))
def test_a_flipped_byte_in_a_journal_ends_it(journal_file: Path, line: int, place: int) -> None:
    spans = [(1000 * number, 1000 * number + 999) for number in range(3)]
    write(journal_file, spans)
    lines = journal_file.read_bytes().splitlines(keepends=True)
    damaged = bytearray(lines[line])
    damaged[place % (len(damaged) - 1)] ^= 0x80
    lines[line] = bytes(damaged)
    journal_file.write_bytes(b"".join(lines))
    assert PartJournal(str(journal_file), "stamp").finished == spans[: max(line - 1, 0)]


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
def test_missing_spans_are_the_rest(num_bytes: int, spans: list[tuple[int, int]]) -> None:
    finished = [(min(span), min(max(span), num_bytes)) for span in spans if min(span) <= num_bytes]
    there = {place for start, stop in finished for place in range(start, stop)}
    missing = missing_spans(num_bytes, finished)
    rest = [place for place in range(num_bytes) if place not in there]
    assert [place for start, stop in missing for place in range(start, stop)] == rest
