"""The shards of a dataset in a cache, opened as a reader does."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence

from shardwright.cache.settings import CacheSettings
from shardwright.reader.corpus import DatasetSource, ShardRef
from shardwright.reader.shard_files import ShardFiles
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import FaultProxy
from tests.support.cached_datasets import SIZE, downloads

NUM_SHARDS = 12
IN_ORDER = [list(range(NUM_SHARDS))] * 5


class Reading:
    """The shards of a dataset's split in a cache, as a reader has them."""

    def __init__(
        self, root: Folder, settings: CacheSettings, *, at_a_time: int = 1, count: int | None = None
    ) -> None:
        self.source = DatasetSource.open(root, settings)
        names = self.source.manifest.shard_names("train")
        infos = self.source.manifest.splits["train"].shards
        both = zip(names, infos, strict=True)
        self.refs = [ShardRef(self.source, name, info, 0, 1) for name, info in both][:count]
        self.files = ShardFiles(self.refs, at_a_time=at_a_time)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.files.close()
        assert self.source.cache
        self.source.cache.close()

    def read(self, shard: int) -> bytes:
        with self.files.open(shard) as descriptor:
            return os.pread(descriptor, 2 * SIZE, 0)

    def read_epochs(self, orders: Sequence[Sequence[int]], *, window: int = 1) -> None:
        """Read each shard of each epoch, a window at a time; plan for the same epochs again."""
        shards = list(itertools.chain.from_iterable(orders))
        for start in range(0, len(shards), window):
            needed, later = shards[start : start + window], shards[start + window :]
            self.files.plan(needed, itertools.chain(later, itertools.cycle(shards)))
            for shard in needed:
                assert len(self.read(shard)) == SIZE


def numbers_downloaded(proxy: FaultProxy) -> list[int]:
    """Return the numbers of the shards that were downloaded, in order."""
    found = (re.search(r"tfrecord-(\d+)-of", target) for target in downloads(proxy))
    return [int(match[1]) for match in found if match]
