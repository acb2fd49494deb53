"""Keep the manifest of each dataset in the reader's cache, name its folder, or remove all of it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress

from shardwright.cache.settings import CacheSettings
from shardwright.errors import LinkError, NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.storage.addresses import parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import Folder

_LOG = logging.getLogger("shardwright.cache")


def dataset_folder(settings: CacheSettings, root: Folder) -> str:
    """Return the cache's folder for a dataset, which differs by endpoint as well as address."""
    config = client_for(parse_address(root.uri).store, root.options).config
    keys = ("endpoint", "base_url", "account_name")
    endpoint = next((config[key] for key in keys if config.get(key)), "")
    key = hashlib.blake2b(json.dumps([root.uri, endpoint]).encode(), digest_size=8).hexdigest()
    return os.path.join(settings.folder, f"{naming.dataset_name_for(root.uri)}-{key}")


def build_key(manifest: Manifest) -> str:
    """Return a digest of a dataset's content, which changes if any shard does.

    Shards of later generations do not count: each has a folder of its own, which never changes.
    """
    shards = [
        # By content, not by time: a dataset that was built again with the same bytes keeps its
        # cached shards.
        [name, shard.index, shard.num_bytes, shard.crc32c]
        for name in sorted(manifest.splits)
        for shard in manifest.splits[name].shards
        if not shard.folder
    ]
    text = json.dumps([manifest.fingerprint, manifest.name, shards])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def keep_manifest(local: Folder, manifest: Manifest) -> None:
    """Write the manifest, by which `forget_dataset` knows a dataset.

    It may be impossible, as in the cache of another user.

    Raises:
        LinkError: The folder is a link.
    """
    try:
        local.write_if_new(naming.MANIFEST, manifest.to_bytes())
    except LinkError:
        raise
    except StorageError as error:
        _LOG.debug("a manifest is not cached: %s", error)


def forget_dataset(cache: str, root: Folder, fingerprints: Collection[str]) -> None:
    """Remove all files of a dataset from a cache, whatever address it was read by.

    Readers that have a shard open can read it to its end; another shard fails clearly, because the
    cache downloads it again and its dataset has changed.

    Args:
        cache: The cache's folder, which may be missing.
        root: The dataset's folder.
        fingerprints: The fingerprints of its versions. They tell the dataset if it was read by
            another address, such as that of a proxy.

    Raises:
        StorageError: A file cannot be removed.
    """
    for folder in list(_folders_of(cache, root, fingerprints)):
        # Under another name first, so that no reader writes into it meanwhile.
        removed = f"{folder}-{secrets.token_hex(4)}"
        try:
            os.rename(folder, removed)
            shutil.rmtree(removed)
        except OSError as error:
            raise StorageError(f"cannot remove {folder}: {error.strerror}") from error


def _folders_of(cache: str, root: Folder, fingerprints: Collection[str]) -> Iterator[str]:
    own = dataset_folder(CacheSettings(cache), root) if root.is_remote else None
    with suppress(FileNotFoundError), os.scandir(cache) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (
                # A cache's folder is named after an address. The same dataset may have been read by
                # others.
                entry.path == own or _fingerprint_in(entry.path) in fingerprints
            ):
                yield entry.path


def _fingerprint_in(folder: str) -> str:
    try:
        return read_manifest(Folder(folder)).fingerprint
    except (NotADatasetError, StorageError):
        return ""
