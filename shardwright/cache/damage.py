"""Replace cached shards that something else than this cache has changed."""

from __future__ import annotations

import os
import secrets
import shutil
import stat

from shardwright.cache.eviction import LOCK, unlink
from shardwright.cache.files import crc32c_of, write_faults
from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.splits import ShardInfo
from shardwright.storage.downloads import download
from shardwright.storage.folder import Folder
from shardwright.storage.links import no_follow
from shardwright.storage.objects import head_object


def is_whole(path: str, info: ShardInfo) -> bool:
    """Return whether a shard is a file of its length."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == info.num_bytes


def drop_damaged(path: str, info: ShardInfo) -> bool:
    """Remove what is at a shard's path unless it is whole, and return whether there was something.

    Its lock goes, too: readers of the damaged file, perhaps in this process, may hold it for ever.

    Raises:
        StorageError: It cannot be removed.
    """
    folder, filename = os.path.split(path)
    aside = os.path.join(folder, naming.temporary_name(filename, secrets.token_hex(4)))
    try:
        os.rename(path, aside)  # of several processes, one succeeds
        if is_whole(aside, info):  # another process has replaced it meanwhile
            os.rename(aside, path)
            return True
        unlink(path + LOCK)
        if os.path.isdir(aside) and not os.path.islink(aside):
            shutil.rmtree(aside)
        else:
            os.unlink(aside)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return True


def refetch_shard(root: Folder, name: str, info: ShardInfo, path: str) -> bool:
    """Download a damaged shard again, into its file; return whether it then matches the manifest.

    Readers may have it open: they find its bytes replaced. If it does not match, it is removed. The
    caller holds the shard's shared lock.

    Raises:
        StorageError: The shard cannot be read, or the cache cannot be written.
    """
    if crc32c_of(path) == info.crc32c:  # another process has done it
        return True
    uri = root.path(name)
    found = head_object(uri, root.options)
    if found is not None and found.num_bytes == info.num_bytes:
        with write_faults(path), open(path, "r+b", buffering=0, opener=no_follow) as file:
            download(
                uri, root.options, file.fileno(), [(0, info.num_bytes)], etag=found.etag or None
            )
            os.fsync(file.fileno())
        if crc32c_of(path) == info.crc32c:
            return True
    unlink(path)
    return False
