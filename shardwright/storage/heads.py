"""Read an object's metadata without its content."""

from __future__ import annotations

from typing import Any

import obstore
from obstore.exceptions import BaseError

from shardwright.storage.clients import Client
from shardwright.storage.etags import plain_etag
from shardwright.storage.faults import is_past_end, is_whole_answer
from shardwright.storage.local import StatedFile


def head(client: Client, uri: str, key: str, verb: str, query: str | None = None) -> StatedFile:
    """Return an object's metadata. Failed HEADs have no error text, so a GET explains them.

    Args:
        client: The store's client.
        uri: The object, for messages.
        key: Its key.
        verb: The operation, for messages, as in `Client.call`.
        query: The query of a signed URL, which allows no HEAD.

    Raises:
        MissingError: It does not exist.
        StorageError: The request failed.
    """
    if query:
        signed = client.signed(query)
        found = client.call(uri, verb, lambda: _get_metadata(signed, key))
    else:
        found = client.call(
            uri,
            verb,
            lambda: obstore.head(client.objects, key),
            explain=lambda: obstore.get(client.objects, key, options={"range": (0, 1)}),
        )
    return StatedFile(found["size"], plain_etag(found["e_tag"]) or None)


def _get_metadata(objects: Any, key: str) -> Any:
    try:
        return obstore.get(objects, key, options={"range": (0, 1)}).meta
    except (BaseError, OSError, ValueError) as error:
        if is_past_end(error) or is_whole_answer(error):  # an empty object, or a simple server
            return obstore.get(objects, key).meta
        raise
