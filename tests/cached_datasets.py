"""Datasets of a few shards of noise in object stores, for the tests of the reader's cache."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from shardwright.cache import CacheSettings, ShardCache
from shardwright.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.manifest import Manifest, ShardInfo, SplitInfo, write_json
from shardwright.naming import MANIFEST, ShardName
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage import Folder, StorageOptions
from tests.object_stores import new_bucket, upload_folder
from tests.servers.store_server import StoreServer

SCHEMA = ExampleSchema((Feature("image", FeatureKind.IMAGE, Source.IMAGE),))
ROOT = Path(__file__).parent.parent


def write_dataset(folder: Path, sizes: Sequence[int], *, seed: int = 0) -> Manifest:
    """A dataset, `noise`, whose one split has shards of these numbers of bytes. They are no TFRecord files."""
    infos, root = [], Folder(str(folder))
    for index, num_bytes in enumerate(sizes):
        data = np.random.default_rng([seed, index]).bytes(num_bytes)
        info = ShardInfo(
            index=index,
            num_records=1,
            num_bytes=num_bytes,
            crc32c=google_crc32c.value(data),
            digest=f"{seed}",
        )
        name = ShardName("noise", "train", index, len(sizes))
        root.write_bytes(name.shard, data)
        summary = ShardSummary(
            name=name, num_records=1, num_bytes=num_bytes, crc32c=info.crc32c, digest=info.digest
        )
        write_sidecar(root, summary, INDEX_SCHEMA.empty_table())
        infos.append(info)
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
    write_json(root, MANIFEST, manifest.to_json())
    return manifest


def put_dataset(
    server: StoreServer,
    folder: Path,
    sizes: Sequence[int],
    *,
    uri: str | None = None,
    seed: int = 0,
) -> Folder:
    """The same in a bucket of its own, or where `uri` says."""
    write_dataset(folder, sizes, seed=seed)
    uri = uri or f"{server.scheme}://{new_bucket(server)}/data/noise"
    upload_folder(server, folder, uri)
    return Folder.at(uri, StorageOptions.of(dict(server.options)))


def behind(root: Folder, endpoint: str, **options: str) -> Folder:
    """The same dataset by way of a proxy, given up after 2 seconds."""
    key = "base_url" if root.uri.startswith("gs://") else "endpoint"
    values = {name: value for _, name, value in root.options.settings}
    return replace(
        root, options=StorageOptions.of({**values, key: endpoint, "deadline": "2", **options})
    )


def at(folder: Path, max_bytes: int = 10**9) -> CacheSettings:
    return CacheSettings(str(folder), max_bytes)


def names_of(count: int) -> list[ShardName]:
    return [ShardName("noise", "train", index, count) for index in range(count)]


NAMES = names_of(4)
SIZE = 1000


def touch(cache: ShardCache, *indexes: int) -> None:
    """Use shards of `NAMES`, one after another."""
    for index in indexes:
        cache.open_shard(NAMES[index]).close()
        time.sleep(0.02)  # so that the times of use differ


def shards_in(cache: Path) -> list[int]:
    """Which whole shards a cache's folder holds."""
    found = (ShardName.parse(path.name) for path in cache.rglob("noise-train.tfrecord-*"))
    return sorted(name.index for name in found if name)


def start_reader(root: Folder, settings: CacheSettings, code: str) -> subprocess.Popen[str]:
    """Another process that has `cache`, `names` and `say`, a function that prints a line at once; its input is open."""
    lines = [
        "import sys, time",
        "from shardwright.cache import ShardCache",
        "from shardwright.cache.settings import CacheSettings",
        "from shardwright.storage import Folder, StorageOptions",
        f"root = Folder({root.uri!r}, StorageOptions({root.options.settings!r}))",
        f"cache = ShardCache.open(root, CacheSettings({settings.folder!r}, {settings.max_bytes!r}))",
        "names = cache.manifest.shard_names('train')",
        "say = lambda *words: print(*words, flush=True)",
        code,
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    pipe: Any = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout
    assert process.stderr
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


def finish(process: subprocess.Popen[str]) -> str:
    """End its input, and wait for it; what it still printed, and its warnings."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out + err


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
