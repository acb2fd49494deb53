"""The manifests that the reader's cache keeps, and what a dataset and a build are called in it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time

from shardwright import naming
from shardwright.cache.eviction import CURRENT, read_current
from shardwright.cache.settings import CacheSettings
from shardwright.errors import (
    CredentialsError,
    NotADatasetError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from shardwright.manifest import Manifest, json_bytes, read_manifest
from shardwright.storage import Folder, parse_address

_OFFLINE = (UnreachableError, TimedOutError, ThrottledError, CredentialsError)
_LOG = logging.getLogger("shardwright.cache")


def dataset_folder(settings: CacheSettings, root: Folder) -> str:
    """Where the cache keeps a dataset: buckets of one name at two endpoints are two."""
    key = hashlib.blake2b(
        json.dumps([root.uri, _endpoint(root)]).encode(), digest_size=8
    ).hexdigest()
    return os.path.join(settings.folder, f"{naming.dataset_name_for(root.uri)}-{key}")


def _endpoint(root: Folder) -> str:
    """As far as it can be told without logging in, which a cache that is warm does not need."""
    store = parse_address(root.uri).store
    values = root.options.for_store(store)
    if store.startswith("s3://"):
        return (
            values.get("endpoint")
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
            or ""
        )
    if store.startswith("gs://"):
        return values.get("base_url") or os.environ.get("STORAGE_EMULATOR_HOST") or ""
    return values.get("endpoint") or values.get("account_name") or ""


def build_key(manifest: Manifest) -> str:
    """A name for what a dataset holds: another one as soon as one shard is another one."""
    shards = [
        [name, shard.index, shard.num_bytes, shard.crc32c]
        for name in sorted(manifest.splits)
        for shard in manifest.splits[name].shards
    ]
    text = json.dumps([manifest.fingerprint, manifest.name, shards])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def keep_manifest(folder: str, manifest: Manifest) -> None:
    """Keep it in the dataset's folder for when the store cannot be reached, and say which build is the newest.

    Raises:
        StorageError: It cannot be written.
    """
    local, data, build = Folder(folder), json_bytes(manifest.to_json()), build_key(manifest)
    if local.num_bytes_of(naming.MANIFEST) != len(data) or read_current(folder) != build:
        local.write_bytes(naming.MANIFEST, data)
        local.write_bytes(CURRENT, build.encode())


def read_manifest_or_cached(root: Folder, settings: CacheSettings) -> Manifest:
    """A dataset's manifest from its store, or, where that cannot be reached, from the cache, with a warning.

    A store that answers that there is no dataset is not one that cannot be reached.

    Raises:
        NotADatasetError: No finished dataset is there.
        StorageError: The store cannot be read, and the manifest is not in the cache.
    """
    try:
        return read_manifest(root)
    except _OFFLINE as error:
        folder = dataset_folder(settings, root)
        try:
            manifest = read_manifest(Folder(folder))
            kept = os.stat(os.path.join(folder, naming.MANIFEST)).st_mtime
        except (
            NotADatasetError,
            FileNotFoundError,
        ):  # the cache does not have it, or that of another release
            raise error from None
        _LOG.warning(
            "%s; going on offline with what the cache has of it (manifest of %s)",
            error,
            time.strftime("%F %H:%M", time.localtime(kept)),
        )
        return manifest
