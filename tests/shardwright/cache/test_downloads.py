"""Shards on their way into the cache: shared by processes, checked, and what goes wrong."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from shardwright.cache import shards as cache_shards
from shardwright.cache.shards import PART, ShardCache
from shardwright.errors import MissingError, StorageError
from shardwright.storage.downloads import PART_BYTES
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import cached_datasets as noise
from tests.support.cached_datasets import NAMES, at, behind, content, downloads, touch
from tests.support.object_stores import delete_object, list_keys, put_object

NUM_PARTS = 3
BIG = (NUM_PARTS - 1) * PART_BYTES + 12_345
SHARD = noise.names_of(1)[0]
# Code of a reader's process: it reads the shard, and tells how long it is.
READ = "d = cache.open_shard(names[0]); say(os.fstat(d).st_size)"


class Big(NamedTuple):
    """A dataset of one shard of three parts, behind a proxy, and a cache."""

    root: Folder
    data: bytes
    proxy: FaultProxy
    cache: Path

    def read(self, **options: str) -> bytes:
        with ShardCache(behind(self.root, self.proxy, **options), at(self.cache)) as cache:
            return content(cache, SHARD)

    def start(self, code: str) -> noise.ReaderProcess:
        # Stalled requests last until the process is killed, however late that is.
        remote = behind(self.root, self.proxy, read_timeout="600")
        return noise.start_reader(remote, at(self.cache), code)


@pytest.fixture(scope="module")
def kept(s3_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, bytes]:
    folder = tmp_path_factory.mktemp("noise")
    root = noise.put_dataset(s3_server, folder, [BIG])
    return root, (folder / SHARD.shard).read_bytes()


@pytest.fixture
def big(kept: tuple[Folder, bytes], s3_proxy: FaultProxy, tmp_path: Path) -> Big:
    return Big(*kept, s3_proxy, tmp_path)


def on_shard(kind: str, times: int | None = None, **fields: int) -> Fault:
    """Return a fault of the requests for the shard's bytes."""
    return Fault(kind, times, method="GET", path_contains="tfrecord", **fields)  # type: ignore[arg-type]


def files_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("noise-*") if path.is_file())


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
def test_downloads_once(request: pytest.FixtureRequest, server_name: str, tmp_path: Path) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    data = tmp_path / "data"
    root = noise.put_dataset(server, data, [1000, 0, 20])
    with FaultProxy(server.endpoint) as proxy:
        for _ in range(2):
            with ShardCache(behind(root, proxy), at(tmp_path / "cache")) as cache:
                for name in noise.names_of(3):
                    assert content(cache, name) == (data / name.shard).read_bytes()
        assert len(downloads(proxy)) == 2, "an empty shard takes no request for its bytes"


def test_plain_http_addresses(moto_server: StoreServer, tmp_path: Path) -> None:
    root = noise.put_dataset(moto_server, tmp_path / "data", [1000] * 4)
    server = moto_server.s3_client()
    bucket = root.uri.split("/")[2]
    server.put_bucket_acl(Bucket=bucket, ACL="public-read")
    for key in list_keys(moto_server, f"s3://{bucket}/"):
        server.put_object_acl(Bucket=bucket, Key=key, ACL="public-read")
    web = Folder.at(f"{moto_server.endpoint}/{bucket}/data/noise")
    with ShardCache(web, at(tmp_path / "cache")) as cache:
        assert content(cache, NAMES[2]) == (tmp_path / "data" / NAMES[2].shard).read_bytes()


def test_processes_download_one_copy(big: Big) -> None:
    big.proxy.latency_msec = 100
    readers = [big.start(f"say('ready'); sys.stdin.readline(); {READ}") for _ in range(4)]
    noise.start_at_once(readers)
    assert [reader.line() for reader in readers] == [str(BIG)] * 4
    for reader in readers:
        reader.finish()
    assert len(downloads(big.proxy)) == NUM_PARTS
    assert files_in(big.cache) == [SHARD.shard]


def test_another_takes_over_from_one_that_is_killed(big: Big) -> None:
    big.proxy.add(stall := on_shard("stall", skip=1))
    first = big.start(READ)
    noise.wait_until(lambda: big.proxy.hits(stall) == NUM_PARTS - 1)
    [part] = big.cache.rglob(f"*{PART}")
    others = [big.start(f"say('here'); {READ}") for _ in range(2)]
    assert [other.line() for other in others] == ["here"] * 2
    big.proxy.clear()
    big.proxy.requests.clear()
    first.kill()
    assert [other.line() for other in others] == [str(BIG)] * 2
    for other in others:
        other.finish()
    assert len(downloads(big.proxy)) == NUM_PARTS
    assert not part.exists()
    assert big.read() == big.data


def test_a_long_wait_for_another_process_is_said(
    root: Folder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_shards, "_SAY_AFTER_SECONDS", 0)
    with ShardCache(root, at(tmp_path)) as cache, ThreadPoolExecutor(1) as pool:
        part = cache._path(NAMES[0]) + PART
        with cache_shards._locked(part):
            coming = pool.submit(content, cache, NAMES[0])
            noise.wait_until(
                lambda: f"waiting for another process that holds {part}" in caplog.text
            )
            assert not coming.done()
            cache.fetch(NAMES[:2])  # goes on with what nobody downloads
            noise.wait_for_downloads_ahead(cache)
            assert noise.shards_in(tmp_path) == [1]
        assert coming.result(timeout=60) == root.read_bytes(NAMES[0].shard)


def test_a_bit_flipped_in_transit_is_downloaded_once_more(big: Big) -> None:
    big.proxy.add(fault := on_shard("corrupt", 1, at_byte=77))
    assert big.read() == big.data
    assert (big.proxy.hits(fault), len(downloads(big.proxy))) == (1, 2 * NUM_PARTS)


AGAIN = "if the dataset has been rebuilt, reopen it"
CRC32C = "does not have the crc32c [0-9a-f]{8} of the manifest, in two downloads"
LENGTH = "has changed since it was listed, or is not 1,000 bytes long"


@pytest.mark.parametrize("server_name", ["s3_server", "moto_server", "gcs_server"])
@pytest.mark.parametrize(("change", "error", "message"), [
    pytest.param(lambda data: bytes([data[0] ^ 1]) + data[1:], StorageError, CRC32C, id="flipped"),
    pytest.param(lambda data: data[:-1], StorageError, LENGTH, id="cut"),
    # An emulator answers with all of an empty object, as a server without ranges does.
    pytest.param(lambda _: b"", StorageError, f"{LENGTH}|: .* range requests.*", id="empty"),
    pytest.param(lambda data: data + b"x", StorageError, LENGTH, id="longer"),
    pytest.param(None, MissingError, "in the manifest, but missing from the store", id="removed"),
])  # fmt: skip
def test_a_shard_that_differs_from_its_manifest(
    request: pytest.FixtureRequest,
    server_name: str,
    tmp_path: Path,
    change: Callable[[bytes], bytes] | None,
    error: type[StorageError],
    message: str,
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    root = noise.put_dataset(server, tmp_path / "data", [1000])
    data = (tmp_path / "data" / SHARD.shard).read_bytes()
    uri = root.path(SHARD.shard)
    with ShardCache(root, at(tmp_path / "cache")) as cache:
        if change is None:
            delete_object(server, uri)
        else:
            put_object(server, uri, change(data))
        with pytest.raises(error, match=f"{uri} ?(is )?({message}): {AGAIN}"):
            cache.open_shard(SHARD)
        assert files_in(tmp_path / "cache") == []
        put_object(server, uri, data)
        assert content(cache, SHARD) == data


def test_in_the_background_and_open_shard_raises_what_failed(
    s3_server: StoreServer, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    others = set(threading.enumerate())
    root = noise.put_dataset(s3_server, tmp_path / "data", [1000] * 4)
    delete_object(s3_server, root.path(NAMES[3].shard))
    with ShardCache(behind(root, s3_proxy), at(tmp_path / "cache")) as cache:
        cache.fetch(NAMES)
        noise.wait_for_downloads_ahead(cache)
        assert noise.shards_in(tmp_path / "cache") == [0, 1, 2]
        before = len(s3_proxy.requests)
        cache.fetch(NAMES[:2])
        touch(cache, 0, 1, 2)
        assert len(s3_proxy.requests) == before
        with pytest.raises(
            MissingError, match=f"tfrecord-00003-of-00004 is in the manifest, but .*: {AGAIN}"
        ):
            cache.open_shard(NAMES[3])
    threads = set(threading.enumerate()) - others
    assert [thread.name for thread in threads if "shardwright-cache" in thread.name] == []


@pytest.mark.parametrize("end", ["", "cache.close(); os._exit(0)"])
def test_ending_while_the_store_fails(
    root: Folder, s3_proxy: FaultProxy, tmp_path: Path, end: str
) -> None:
    s3_proxy.add(Fault("status", None, status=503, path_contains="tfrecord"))
    remote = behind(root, s3_proxy, deadline="1000")
    code = f"cache.fetch(names); say('going'); sys.stdin.readline(); {end}"
    reader = noise.start_reader(remote, at(tmp_path), code)
    assert reader.line() == "going"
    noise.wait_until(lambda: len(s3_proxy.requests) > 9)
    assert reader.finish() == "", "long before the deadline"


def in_mounted(folder: Path, mount: str, root: Folder, cache: Path, code: str) -> str:
    """Run a reader's code where `mount` has mounted something at `folder`, and return its words."""
    folder.mkdir(exist_ok=True)
    prefix = ["unshare", "-rm", "sh", "-c", f'{mount} {folder} && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("cannot mount a disk here")
    return noise.start_reader(root, at(cache), code, prefix=prefix).finish()


ON_A_FULL_DISK = """
there = lambda: say([number for number in range(4) if os.path.exists(cache._path(names[number]))])
for name in names[:3]:
    os.close(cache.open_shard(name))
there()
open("DISK/other", "wb").write(bytes(900_000))
os.close(cache.open_shard(names[3]))
there()
for number in (0, 3):
    os.unlink(cache._path(names[number]))
open("DISK/more", "wb").write(bytes(2_000_000))
try:
    cache.open_shard(names[1])
except Exception as error:
    say(error)
"""


def test_a_full_disk_evicts_until_nothing_is_left(s3_server: StoreServer, tmp_path: Path) -> None:
    remote = noise.put_dataset(s3_server, tmp_path / "data", [1_500_000] * 4)
    disk = tmp_path / "disk"
    code = ON_A_FULL_DISK.replace("DISK", str(disk))
    mount = "mount -t tmpfs -o size=4M none"
    first, second, error = in_mounted(disk, mount, remote, disk / "cache", code).splitlines()
    assert (first, second) == ("[0, 2]", "[0, 3]"), "what was read last makes room"
    assert error.startswith(f"the disk of the cache at {disk}/cache is full: 1.5 MB are needed")


def test_a_cache_that_cannot_be_written(root: Folder, tmp_path: Path) -> None:
    """A read-only disk, or the cache of another user: what is there is read."""
    cache = tmp_path / "cache"
    with ShardCache(root, at(cache)) as warm:
        touch(warm, 0)
        warm.index(NAMES[0])
    code = f"""{READ}; cache.index(names[1])
try:
    cache.open_shard(names[1])
except Exception as error:
    say(error)
"""
    mount = f"mount --bind {cache} {cache} && mount -o remount,ro,bind"
    size, message = in_mounted(cache, mount, root, cache, code).splitlines()
    assert size == "1000"
    assert message.startswith(f"cannot write {cache}/")
    assert message.endswith(
        ".part: Read-only file system: set SHARDWRIGHT_CACHE to a folder of your own"
    )
