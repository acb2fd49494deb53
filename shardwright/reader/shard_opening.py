"""Open one shard: a local file of the length in the manifest, or a pinned file of the cache."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from functools import partial

from shardwright.cache.shard_cache import PinnedShard
from shardwright.errors import MissingError, StorageError
from shardwright.format.splits import ShardInfo
from shardwright.reader.corpus import ShardRef
from shardwright.sizes import counted
from shardwright.storage.links import no_follow

_MAX_OPEN = 256  # a quarter of the usual limit of 1,024 open files per process


def most_open() -> int:
    """Return the number of shards to have open at most, a quarter of the process's limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_OPEN if limit == resource.RLIM_INFINITY else min(_MAX_OPEN, max(limit // 4, 1))


def open_shard(ref: ShardRef) -> tuple[int, PinnedShard | None]:
    """Return a descriptor and, if remote, the pin in the cache; raise as `ShardFiles.open`."""
    if ref.source.cache is None:
        return _open_local(ref), None
    pinned = ref.source.cache.open_shard(ref.name)
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK  # a named pipe would wait for a writer
        return _open(pinned.path, partial(no_follow, pinned.path, flags)), pinned
    except BaseException:
        # Or the shard could never be evicted while this process lives.
        pinned.close()
        raise


def shard_fault(path: str, shard: ShardInfo, num_bytes: int | None) -> StorageError:
    """Return the error for a shard file of a wrong size; `num_bytes` is None for a missing file."""
    found = "is missing" if num_bytes is None else f"is {counted(num_bytes, 'byte')} long"
    return (MissingError if num_bytes is None else StorageError)(
        f"{path} {found}, and the manifest states {counted(shard.num_bytes, 'byte')} with "
        f"{counted(shard.num_records, 'record')}: "
        "copy the dataset again, or run its `shardwright build` command again"
    )


def _open_local(ref: ShardRef) -> int:
    try:
        descriptor = _open(ref.uri, partial(ref.source.root.open_descriptor, ref.name.shard))
    except MissingError as error:
        raise shard_fault(ref.uri, ref.info, None) from error
    # A file cut between two records has no broken record: only its length shows it.
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes != ref.info.num_bytes:
        os.close(descriptor)
        raise shard_fault(ref.uri, ref.info, num_bytes)
    return descriptor


def _open(path: str, opener: Callable[[], int]) -> int:
    try:
        return opener()
    except FileNotFoundError as error:
        raise MissingError(f"{path} is missing") from error
    except OSError as error:
        hint = ": raise `ulimit -n`" if error.errno == errno.EMFILE else ""
        raise StorageError(f"{path} cannot be read: {error.strerror or error}{hint}") from error


def close_shard(
    descriptor: int, pinned: PinnedShard | None, *, comes_again_in: float | None = None
) -> None:
    os.close(descriptor)
    if pinned is not None:
        pinned.close(comes_again_in=comes_again_in)


def close_all(opened: dict[int, PinnedShard | None]) -> None:
    """Close files that a `ShardFiles` left open when it was garbage-collected."""
    while opened:
        close_shard(*opened.popitem())
