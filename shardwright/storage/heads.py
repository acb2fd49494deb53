"""Read an object's metadata without its content."""

from __future__ import annotations

import obstore

from shardwright.storage.clients import Client
from shardwright.storage.etags import plain_etag
from shardwright.storage.local import StatedFile


def head(client: Client, uri: str, key: str, verb: str) -> StatedFile:
    """Return an object's metadata. Failed HEADs have no error text, so a GET explains them.

    Args:
        client: The store's client.
        uri: The object, for messages.
        key: Its key.
        verb: The operation, for messages, as in `Client.call`.

    Raises:
        MissingError: It does not exist.
        StorageError: The request failed.
    """
    found = client.call(
        uri,
        verb,
        lambda: obstore.head(client.objects, key),
        explain=lambda: obstore.get(client.objects, key, options={"range": (0, 1)}),
    )
    return StatedFile(found["size"], plain_etag(found["e_tag"]) or None)
