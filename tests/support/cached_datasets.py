"""Datasets of a few shards of noise in object stores, for the tests of the reader's cache."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import google_crc32c
import numpy as np
import pyarrow as pa

from shardwright.cache.settings import CacheSettings
from shardwright.cache.shards import ShardCache
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.manifest import Manifest
from shardwright.format.naming import MANIFEST, ShardName
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests import ROOT
from tests.servers.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer
from tests.support.build_helpers import wait_for as wait_until  # noqa: F401 - for tests of readers
from tests.support.object_stores import new_bucket, upload_folder

SCHEMA = ExampleSchema((Feature("image", FeatureKind.IMAGE, Source.IMAGE),))
SIZE = 1000
_ROW = pa.Table.from_pylist(
    [dict.fromkeys(INDEX_SCHEMA.names, 0) | dict.fromkeys(("id", "format", "uri", "etag"), "")],
    INDEX_SCHEMA,
)


def write_dataset(folder: Path, sizes: Sequence[int], *, seed: int = 0) -> Manifest:
    """Write a dataset, `noise`, with one split. Its shards, of `sizes` bytes, are no TFRecords."""
    infos, root = [], Folder(str(folder))
    for index, num_bytes in enumerate(sizes):
        data = np.random.default_rng([seed, index]).bytes(num_bytes)
        facts: dict[str, Any] = {
            "num_records": int(num_bytes > 0),
            "num_bytes": num_bytes,
            "crc32c": google_crc32c.value(data),
            "digest": f"{seed}",
        }
        name = ShardName("noise", "train", index, len(sizes))
        root.write_bytes(name.shard, data)
        written = write_sidecar(root, ShardSummary(name=name, **facts), _ROW.slice(0, num_bytes))
        assert written.sidecar is not None
        num_bytes_of, crc32c_of = written.sidecar
        facts |= {"sidecar_bytes": num_bytes_of, "sidecar_crc32c": crc32c_of}
        infos.append(ShardInfo(index=index, **facts))
    manifest = Manifest(
        name="noise",
        version="1.0.0",
        schema=SCHEMA,
        splits={"train": SplitInfo("train", tuple(infos))},
        rejects={},
        num_inputs=len(infos),
        settings={},
        fingerprint=f"{seed}",
        provenance={},
    )
    root.write_bytes(MANIFEST, manifest.to_bytes())
    return manifest


def put_dataset(
    server: StoreServer, folder: Path, sizes: Sequence[int], *, uri: str = "", seed: int = 0
) -> Folder:
    """Write such a dataset to `folder`, and a copy to `uri`; by default, to a new bucket."""
    write_dataset(folder, sizes, seed=seed)
    return put_folder(server, folder, uri or f"{server.scheme}://{new_bucket(server)}/data/noise")


def put_folder(server: StoreServer, folder: Path | str, uri: str = "") -> Folder:
    """Copy a folder to `uri`; by default, to a new bucket."""
    uri = uri or f"{server.scheme}://{new_bucket(server)}/out"
    upload_folder(server, Path(folder), uri)
    return Folder.at(uri, StorageOptions.of(dict(server.options)))


def behind(root: Folder, endpoint: FaultProxy | str, **options: str) -> Folder:
    """Return the same dataset as reached through a proxy.

    Tests of a store that fails for good give a short `deadline` (seconds).
    """
    key = "base_url" if root.uri.startswith("gs://") else "endpoint"
    given = {name: value for _, name, value in root.options.settings}
    given[key] = endpoint.endpoint if isinstance(endpoint, FaultProxy) else endpoint
    return replace(root, options=StorageOptions.of({**given, **options}))


@contextmanager
def refusing(endpoint: str) -> Iterator[None]:
    """Hold the port of a closed server: connections are refused, and no other server gets it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections linger
        held.bind(("127.0.0.1", urlsplit(endpoint).port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # others may not share it
        yield


def at(folder: Path, max_bytes: int = 10**9) -> CacheSettings:
    return CacheSettings(str(folder), max_bytes)


def names_of(count: int) -> list[ShardName]:
    return [ShardName("noise", "train", index, count) for index in range(count)]


NAMES = names_of(4)


def content(cache: ShardCache, name: ShardName) -> bytes:
    """Open a shard and read all of its file."""
    with os.fdopen(cache.open_shard(name), "rb") as file:
        return file.read()


def touch(cache: ShardCache, *indexes: int) -> None:
    """Use shards of `NAMES`, one after another."""
    for index in indexes:
        os.close(cache.open_shard(NAMES[index]))
        time.sleep(0.02)  # so that the times of use differ


def wait_for_downloads_ahead(cache: ShardCache) -> None:
    """Wait until no download that `fetch` began is under way, or in the queue."""
    assert not wait(list(cache._coming.values()), 120).not_done


def shards_in(cache: Path) -> list[int]:
    """Return the numbers of the whole shards in a cache's folder."""
    found = (ShardName.parse(path.name) for path in cache.rglob("*.tfrecord-*"))
    return sorted(name.index for name in found if name)


def downloads(proxy: FaultProxy, text: str = "tfrecord") -> list[str]:
    """Return the target of every GET request with this text, in order."""
    return [target for method, target in proxy.requests if method == "GET" and text in target]


class ReaderProcess(subprocess.Popen[str]):
    """A process that has `cache`, `names`, and `say`, which prints a line at once."""

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.stdout
        assert self.stderr
        line = self.stdout.readline()
        assert line, self.stderr.read()
        return line.strip()

    def finish(self) -> str:
        """End its input and wait for it; return the rest of its output, warnings included."""
        out, err = self.communicate(timeout=60)
        assert self.returncode == 0, err
        return out + err

    def kill(self) -> None:
        """Kill it and wait for its end."""
        super().kill()
        self.communicate()


def start_reader(
    root: Folder, settings: CacheSettings, code: str, *, prefix: Sequence[str] = ()
) -> ReaderProcess:
    """Start a process that runs code with a cache; `prefix` comes before the command."""
    lines = [
        "import os, sys",
        "from shardwright.cache.settings import CacheSettings",
        "from shardwright.cache.shards import ShardCache",
        "from shardwright.storage.folder import Folder",
        "from shardwright.storage.options import StorageOptions",
        f"root = Folder({root.uri!r}, StorageOptions({root.options.settings!r}))",
        f"settings = {settings!r}",
        "cache = ShardCache(root, settings)",
        "names = cache.manifest.shard_names('train')",
        "say = lambda *words: print(*words, flush=True)",
        code,
    ]
    command = [*prefix, sys.executable, "-c", "\n".join(lines)]
    pipe: Any = subprocess.PIPE
    return ReaderProcess(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def start_at_once(readers: Sequence[ReaderProcess]) -> None:
    """Wait for "ready" from each, then send each a line."""
    assert [reader.line() for reader in readers] == ["ready"] * len(readers)
    for reader in readers:
        assert reader.stdin
        reader.stdin.write("\n")
        reader.stdin.flush()
