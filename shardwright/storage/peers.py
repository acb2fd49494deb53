"""Do what obstore cannot: list unsupported names, remove old versions, read checksums.

This takes the stores' own Python clients (`s3_peer`, `gcs_peer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shardwright.errors import MissingPeerError, StorageError
from shardwright.storage import gcs_peer, s3_peer
from shardwright.storage.clients import Client
from shardwright.storage.local import FileInfo

_PEERS: dict[str, Any] = {"s3": s3_peer, "gs": gcs_peer}


class OldVersion(NamedTuple):
    """A version of an object that is no longer the current one.

    Attributes:
        key: The object.
        version: Its version.
        fault: Why it could not be removed, "" if it is gone.
    """

    key: str
    version: str
    fault: str = ""


def list_any_keys(
    client: Client, prefix: str, after: str | None = None
) -> Iterator[tuple[str, int, str]]:
    """Yield (key, bytes, etag) of every object below a prefix, in key order, with any name.

    Args:
        client: The store's client.
        prefix: Without a trailing slash; "" for all.
        after: Only list keys after this one.

    Raises:
        StorageError: The store's own client is not installed, or fails.
    """
    peer = _peer(client, " has an object whose name is not supported: rename it")
    yield from peer.list_keys(client, f"{prefix}/" if prefix else "", after or "")


def remove_old_versions(
    client: Client, prefix: str, wanted: Callable[[str], bool]
) -> Iterator[OldVersion]:
    """Remove the versions of objects below a prefix that are no longer the current ones.

    Args:
        client: The store's client.
        prefix: The start of the keys.
        wanted: Returns whether to remove those of a key.

    Raises:
        StorageError: As `list_any_keys`, or the store cannot list versions.
    """
    peer = _peer(client, ": old versions of objects cannot be listed here")
    for key, version in peer.list_old_versions(client, prefix):
        if wanted(key):
            try:
                peer.remove_version(client, key, version)
            # One that is kept under a retention rule does not stop the removal of the others.
            except StorageError as error:
                yield OldVersion(key, version, str(error))
            else:
                yield OldVersion(key, version)


def stated_content(client: Client, key: str) -> FileInfo:
    """Return an object's length and CRC32C, and its etag if that is its MD5, from its store.

    Raises:
        StorageError: As `list_any_keys`.
    """
    peer = _peer(client, ": this kind of store does not report checksums")
    found: FileInfo = peer.stated_content(client, key)
    return found


def _peer(client: Client, problem: str) -> Any:
    """Return the module of a store's own client; if it has none, raise `MissingPeerError`."""
    if client.scheme not in _PEERS:
        raise MissingPeerError(f"{client.store}{problem}")
    return _PEERS[client.scheme]
