"""Addresses: a local path, or a store and a key in it.

    /data/photos    file:///data/photos    ~/photos        local
    s3://BUCKET/KEY    gs://BUCKET/KEY    az://CONTAINER/KEY    https://HOST/PATH

Keys are taken as they are written; only in `https://` addresses is `%20` a space.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import unquote

from shardwright.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_STORES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "http": "http",
    "https": "https",
}
_BAD_SEGMENTS = frozenset({"", ".", ".."})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Address(NamedTuple):
    """An object's place.

    Attributes:
        store: Which store: `s3://BUCKET`, `https://HOST:PORT`.
        key: The object's name in it, without a leading slash; "" for all of the store.
    """

    store: str
    key: str

    @property
    def uri(self) -> str:
        return f"{self.store}/{self.key}" if self.key else self.store


def is_remote(uri: str) -> bool:
    """Whether an address names an object store, as opposed to a local path."""
    return "://" in uri and not uri.startswith("file://") and _SCHEME.match(uri) is not None


def parse_address(uri: str) -> Address:
    """Take a store's address apart.

    Raises:
        UsageError: Its scheme is not that of a store that is served, or it names no bucket.
    """
    match = _SCHEME.match(uri)
    scheme = _STORES.get(match[1].lower()) if match else None
    if match is None or scheme is None:
        known = ", ".join(f"{name}://" for name in dict.fromkeys(_STORES.values()))
        raise UsageError(
            f"{uri!r}: {match[0] if match else 'such'} addresses are not read or written; give a local path or one of {known}"
        )
    bucket, _, key = uri[match.end() :].partition("/")
    if not bucket:
        raise UsageError(f"{uri!r} names no bucket: write {scheme}://BUCKET/PREFIX")
    return Address(f"{scheme}://{bucket}", unquote(key) if scheme.startswith("http") else key)


def absolute(uri: str) -> str:
    """The one form of an address: an absolute local path, or a store's address without a slash at its end.

    Raises:
        UsageError: As `parse_address`; or a prefix that no client could ask for, such as `s3://bucket/a//b`.
    """
    if not is_remote(uri):
        return local_path(uri)
    store, key = parse_address(uri)
    key = key.rstrip("/")
    if key and (problem := key_problem(key)):
        raise UsageError(f"{uri!r} {problem}")
    return Address(store, key).uri


def local_path(uri: str) -> str:
    """An absolute local path for a path or `file://` address.

    Raises:
        UsageError: The address names a store.
    """
    if is_remote(uri):
        raise UsageError(f"{uri!r} is the address of a store, and this must be a local path")
    return os.path.abspath(os.path.expanduser(uri.removeprefix("file://")))


def join(root: str, relative: str) -> str:
    """`relative` below `root`; a dataset's files are always named with `/`."""
    return f"{root}/{relative}" if is_remote(root) else os.path.join(root, *relative.split("/"))


def key_problem(key: str) -> str | None:
    """Why the client cannot ask for an object of that name, or None: such objects can be listed, and not read."""
    if not _BAD_SEGMENTS.isdisjoint(key.split("/")):
        return "has an empty, '.' or '..' part in its name, which cannot be asked for: rename the object"
    if _CONTROL.search(key):
        return "has a control character in its name, which cannot be asked for: rename the object"
    return None
