"""Asking a store what it states of an object, without reading it."""

from __future__ import annotations

import obstore

from shardwright.storage.clients import Client
from shardwright.storage.etags import plain_etag
from shardwright.storage.local import StatedFile


def head(client: Client, uri: str, key: str, verb: str) -> StatedFile:
    """What the store states of an object. A refusal of a HEAD has no text, so that of a GET is told in its place.

    Args:
        client: The store's client.
        uri: The object, for messages.
        key: The same in its store.
        verb: What is to be done with it, for messages, as in `Client.call`.

    Raises:
        MissingError: There is none.
        StorageError: The store does not say.
    """
    found = client.call(
        uri,
        verb,
        lambda: obstore.head(client.objects, key),
        explain=lambda: obstore.get(client.objects, key, options={"range": (0, 1)}),
    )
    return StatedFile(found["size"], plain_etag(found["e_tag"]) or None)
