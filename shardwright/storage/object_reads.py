"""Read objects, whole or in part, and check that they have not changed since they were listed."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import obstore
from obstore.exceptions import BaseError

from shardwright.errors import ChangedError, MissingError, StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import parse_address
from shardwright.storage.checksums import looks_like_md5, plain_etag
from shardwright.storage.clients import Client, client_for
from shardwright.storage.counters import COUNTERS
from shardwright.storage.faults import is_past_end, is_whole_answer
from shardwright.storage.local import FileInfo, check_length
from shardwright.storage.options import StorageOptions

_TRIES_FOR_CONTENT = 3


def client_and_key(uri: str, options: StorageOptions) -> tuple[Client, str]:
    """Return the client of an object's store, and the object's key. Raises as `client_for`."""
    store, key = parse_address(uri)
    return client_for(store, options), key


def read_object(
    uri: str,
    options: StorageOptions,
    *,
    num_bytes: int | None = None,
    etag: str | None = None,
    max_bytes: int | None = None,
    query: str | None = None,
) -> bytes:
    """Return a whole object, checked against its etag if that is an MD5.

    Args:
        uri: The object.
        options: Storage options.
        num_bytes: Its length when it was listed, or None.
        etag: Its etag when it was listed, or None.
        max_bytes: Do not read an object that is longer.
        query: The query of a signed URL.

    Raises:
        MissingError: It does not exist.
        ChangedError: It changed since it was listed, or three downloads do not match its MD5.
        StorageError: It cannot be read.
    """
    client, key = client_and_key(uri, options)
    objects = client.signed(query) if query else client.objects
    digests = []
    for _ in range(_TRIES_FOR_CONTENT):
        data, stated = client.call(
            uri, "read", lambda: _get(objects, key, uri, num_bytes, etag, max_bytes)
        )
        COUNTERS.add("bytes_read", len(data))
        # Of uploads in parts, and of other stores: only the length was compared.
        if not looks_like_md5(stated):
            return data
        # obstore passes a body with flipped bits, which TCP's checksum lets through now and then.
        digests.append(hashlib.md5(data, usedforsecurity=False).hexdigest())
        if digests[-1] == stated:
            client.etags_are_md5 = True
            return data
        COUNTERS.add("retries_content")
        # Two equal downloads are not damaged: the etag only looks like an MD5.
        if digests.count(digests[-1]) > 1 and not _is_md5(client, key):
            return data
    raise ChangedError(
        f"{uri} was damaged during the download (MD5 {digests[-1]}, the store has {stated}): "
        "try again"
    )


def _get(
    objects: Any,
    key: str,
    uri: str,
    num_bytes: int | None,
    etag: str | None,
    max_bytes: int | None,
) -> tuple[bytes, str]:
    result = obstore.get(objects, key)
    meta = result.meta
    there = plain_etag(meta["e_tag"])
    # Before the body is read, which may be large.
    if (etag and there and etag != there) or (num_bytes is not None and meta["size"] != num_bytes):
        raise ChangedError(f"{uri} has changed since it was listed")
    check_length(uri, meta["size"], max_bytes)
    return _whole(result, meta["size"]), there


def _whole(result: Any, num_bytes: int) -> bytes:
    """Return the body of an answer; obstore passes one that the server cut."""
    data = bytes(result.bytes())
    if len(data) != num_bytes:
        raise OSError(f"received {len(data)} of {num_bytes} bytes")  # `Client.call` retries it
    return data


class ObjectParts:
    """An object that is read in parts, all of the same version.

    Args:
        uri: Its address.
        options: Storage options.
        etag: The etag that it must have, or None for any.
        num_bytes: The length that it must have, or None for any.
    """

    def __init__(
        self,
        uri: str,
        options: StorageOptions,
        etag: str | None = None,
        num_bytes: int | None = None,
    ) -> None:
        self.uri, self.etag, self.num_bytes = uri, etag, num_bytes
        self.client, self.key = client_and_key(uri, options)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop); stores have no checksums of parts.

        Raises:
            MissingError: The object does not exist.
            ChangedError: It has another etag or length, or is too short.
            StorageError: It cannot be read.
        """
        data = self.client.call(self.uri, "read", functools.partial(self._get, start, stop))
        COUNTERS.add("bytes_read", len(data))
        return data

    def _get(self, start: int, stop: int) -> bytes:
        length = "" if self.num_bytes is None else f", or is not {self.num_bytes:,} bytes long"
        changed = ChangedError(f"{self.uri} has changed since it was listed{length}")
        try:
            result = obstore.get(self.client.objects, self.key, options={"range": (start, stop)})
        except (BaseError, OSError, ValueError) as error:
            if is_past_end(error):
                raise changed from None
            raise
        # Compared in each part: the object may be replaced between two of them, at the same length.
        there, size = plain_etag(result.meta["e_tag"]), result.meta["size"]
        is_other = bool(self.etag and there and there != self.etag)
        if is_other or size < stop or self.num_bytes not in (None, size):
            raise changed
        return _whole(result, stop - start)


def _is_md5(client: Client, key: str) -> bool:
    """Return whether the store reports that the etag is the content's MD5.

    With KMS or customer keys it is not. If that is unknown, return whether other etags were.
    """
    try:
        return peers.stated_content(client, key).etag is not None
    except StorageError:
        return client.etags_are_md5


def get_range(client: Client, key: str, offset: int, length: int) -> bytes:
    """Return `length` bytes from `offset` on, fewer at the end, as of a local file."""
    try:
        result = obstore.get(client.objects, key, options={"range": (offset, offset + length)})
        return bytes(result.bytes())
    except (BaseError, OSError, ValueError) as error:
        if is_past_end(error) or (
            is_whole_answer(error) and not obstore.head(client.objects, key)["size"]
        ):
            return b""
        raise


def head_object(uri: str, options: StorageOptions, query: str | None = None) -> FileInfo | None:
    """Return an object's metadata, or None if it does not exist; `query` is that of a signed URL.

    Raises:
        StorageError: The request failed.
    """
    client, key = client_and_key(uri, options)
    try:
        return head(client, uri, key, "read", query)
    except MissingError:
        return None


def head(client: Client, uri: str, key: str, verb: str, query: str | None = None) -> FileInfo:
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
        # A signature is of one method, GET.
        signed = client.signed(query)
        found = client.call(uri, verb, lambda: _get_metadata(signed, key))
    else:
        found = client.call(
            uri,
            verb,
            lambda: obstore.head(client.objects, key),
            explain=lambda: obstore.get(client.objects, key, options={"range": (0, 1)}),
        )
    etag = plain_etag(found["e_tag"]) or None
    return FileInfo(found["size"], found["last_modified"].timestamp(), etag)


def _get_metadata(objects: Any, key: str) -> Any:
    try:
        return obstore.get(objects, key, options={"range": (0, 1)}).meta
    except (BaseError, OSError, ValueError) as error:
        if is_past_end(error) or is_whole_answer(error):  # an empty object, or a simple server
            return obstore.get(objects, key).meta
        raise
