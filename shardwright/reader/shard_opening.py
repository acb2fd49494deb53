"""Opening one shard: a file of the length that the manifest states, or one that the cache keeps."""

from __future__ import annotations

import errno
import os

from shardwright.cache import PinnedShard
from shardwright.errors import MissingError, StorageError
from shardwright.manifest import ShardInfo
from shardwright.reader.corpus import ShardRef


def open_shard(ref: ShardRef) -> tuple[int, PinnedShard | None]:
    """A descriptor, and what keeps the shard in the cache where it is in one. Raises as `ShardFiles.open`."""
    if ref.source.cache is None:
        return _open_local(ref), None
    pinned = ref.source.cache.open_shard(ref.name)
    try:
        return _open(pinned.path), pinned
    except BaseException:
        pinned.close()
        raise


def shard_fault(path: str, shard: ShardInfo, num_bytes: int | None) -> StorageError:
    """What is wrong with a shard's file of that length, None where there is none, and what to do about it."""
    found = "is missing" if num_bytes is None else f"is {num_bytes:,} bytes long"
    return (MissingError if num_bytes is None else StorageError)(
        f"{path} {found}, and the manifest states {shard.num_bytes:,} bytes with {shard.num_records:,} records: "
        "copy the dataset again, or run the `shardwright build` that made it again"
    )


def _open_local(ref: ShardRef) -> int:
    try:
        descriptor = _open(ref.uri)
    except MissingError as error:
        raise shard_fault(ref.uri, ref.info, None) from error
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes != ref.info.num_bytes:
        os.close(descriptor)
        raise shard_fault(ref.uri, ref.info, num_bytes)
    return descriptor


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
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
    """Close what was left open by `ShardFiles` that are gone."""
    while opened:
        close_shard(*opened.popitem())
