"""The shards of a dataset in a cache, opened as a reader does."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence

from shardwright.cache.settings import CacheSettings
from shardwright.reader.corpus import DatasetSource, ShardRef
from shardwright.reader.shard_files import ShardFiles
from shardwright.storage.folder import Folder
from tests.servers.fault_proxy import FaultProxy
from tests.support.cached_datasets import SIZE, downloads, wait_for_downloads_ahead

NUM_SHARDS = 12
IN_ORDER = [list(range(NUM_SHARDS))] * 5


def exit_code_of_fork(target: Callable[..., object], *args: object) -> int | None:
    """Run a function in a process that is forked; return its exit code, None if it hangs."""
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    child.join(60)
    exit_code = child.exitcode
    child.kill()
    return exit_code


class Reading:
    """The shards of a dataset's split in a cache, as a reader has them.

    Args:
        root: The dataset.
        settings: The cache.
        at_a_time: Number of shards needed at once.
        count: Number of shards, None for all.
    """

    def __init__(
        self,
        root: Folder,
        settings: CacheSettings,
        *,
        at_a_time: int = 1,
        count: int | None = None,
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
        file = self.files.open(shard)
        return os.pread(file.descriptor, 2 * SIZE, 0)

    def read_epochs(
        self, orders: Sequence[Sequence[int]], *, window: int = 1, waits: bool = True
    ) -> None:
        """Read each shard of each epoch, a window at a time; plan for the same epochs again.

        Args:
            orders: The shards of each epoch.
            window: Number of shards needed at once.
            waits: Wait for the downloads of a plan before reading its shards, so that the speed of
                threads does not decide how far ahead downloads are.
        """
        for _ in self.steps_of(orders, window=window, waits=waits):
            pass

    def steps_of(
        self, orders: Sequence[Sequence[int]], *, window: int = 1, waits: bool = True
    ) -> Iterator[list[int]]:
        """Read as `read_epochs`, and yield the shards of each window once they are read."""
        shards = list(itertools.chain.from_iterable(orders))
        for start in range(0, len(shards), window):
            needed, later = shards[start : start + window], shards[start + window :]
            self.files.plan(needed, itertools.chain(later, itertools.cycle(shards)))
            if waits:
                assert self.source.cache
                wait_for_downloads_ahead(self.source.cache)
            for shard in needed:
                assert len(self.read(shard)) == SIZE
            yield needed


def numbers_downloaded(proxy: FaultProxy) -> list[int]:
    """Return the numbers of the shards that were downloaded, in order."""
    found = (re.search(r"tfrecord-(\d+)-of", target) for target in downloads(proxy))
    return [int(match[1]) for match in found if match]
