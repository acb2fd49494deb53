"""Parse addresses: local paths, or a store and a key in it.

    /data/photos    file:///data/photos    ~/photos        local
    s3://BUCKET/KEY    gs://BUCKET/KEY    az://CONTAINER/KEY    https://HOST/PATH

Keys are taken literally, except that `https://` addresses are percent-decoded (`%20` is a space).
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
_LOGIN = re.compile(r"(?<=://)[^/\s'\"]*@")
# Of a signed URL, or as `redact` leaves it.
_QUERY = re.compile(r"(https?://[^\s?'\"]*)\?(?:\*{3}|[^\s'\"]*=[^\s'\"]*)", re.IGNORECASE)
HIDDEN = "***"  # stands for a secret
TEMPORARY_SUFFIX = ".tmp"
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/directory-bucket-naming-rules.html
_EXPRESS_SUFFIX = "--x-s3"
_BAD_SEGMENTS = frozenset({"", ".", ".."})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Address(NamedTuple):
    """An object's address.

    Attributes:
        store: The store: `s3://BUCKET`, `https://HOST:PORT`.
        key: The object's name in it, without a leading slash; "" for the whole store.
    """

    store: str
    key: str

    @property
    def uri(self) -> str:
        return f"{self.store}/{self.key}" if self.key else self.store


def is_remote(uri: str) -> bool:
    """Return whether an address is in a store, as opposed to a local path."""
    return "://" in uri and not uri.startswith("file://") and _SCHEME.match(uri) is not None


def parse_address(uri: str) -> Address:
    """Split a store's address into store and key.

    Raises:
        UsageError: The scheme or the kind of bucket is not supported, there is no bucket, or the
            address has a secret.
    """
    # Secrets are looked for before anything that quotes the address in a message.
    match = _SCHEME.match(uri)
    if ("@" in uri or "?" in uri) and (_LOGIN.search(uri) or _QUERY.search(uri)):
        raise UsageError(
            f"{redact(uri)!r}: addresses with a user name, a password or a query (signed URLs) are "
            "not supported: give credentials as --storage-option or in the environment"
        )
    scheme = _STORES.get(match[1].lower()) if match else None
    if match is None or scheme is None:
        known = ", ".join(f"{name}://" for name in dict.fromkeys(_STORES.values()))
        raise UsageError(
            f"{uri!r}: {match[0] if match else 'such'} addresses are not supported; "
            f"use a local path or one of {known}"
        )
    bucket, _, key = uri[match.end() :].partition("/")
    if not bucket:
        raise UsageError(f"{uri!r} has no bucket: write {scheme}://BUCKET/PREFIX")
    if scheme == "s3" and bucket.endswith(_EXPRESS_SUFFIX):
        raise UsageError(
            f"{uri!r} is in an S3 Express directory bucket, which is not supported: it lists in no "
            "order and its etags are no checksums; use a general purpose bucket"
        )
    # obstore encodes the path of a web address again; a key of a store is bytes, where %20 is three
    # characters.
    return Address(f"{scheme}://{bucket}", unquote(key) if scheme.startswith("http") else key)


def redact(text: str) -> str:
    """Return a text, such as a message, without passwords and queries in its addresses."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1?{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", text))


def absolute(uri: str) -> str:
    """Normalize an address: an absolute local path, or a store's without a trailing slash.

    Raises:
        UsageError: As `parse_address`; or the prefix is not supported, such as `s3://bucket/a//b`.
    """
    if not is_remote(uri):
        return local_path(uri)
    store, key = parse_address(uri)
    key = key.rstrip("/")
    if key and (problem := key_problem(key)):
        raise UsageError(f"{uri!r} {problem}")
    return Address(store, key).uri


def local_path(uri: str) -> str:
    """Return the absolute local path of a path or `file://` address.

    Raises:
        UsageError: The address is in a store, or has a null byte.
    """
    if is_remote(uri):
        raise UsageError(f"{uri!r} is in an object store, but must be a local path")
    if "\0" in uri:
        raise UsageError(f"{uri!r} has a null byte, which no path can have")
    return os.path.abspath(os.path.expanduser(uri.removeprefix("file://")))


def join(root: str, relative: str) -> str:
    """Return the address of `relative` below `root`. `relative` always has `/`."""
    return f"{root}/{relative}" if is_remote(root) else os.path.join(root, *relative.split("/"))


def temporary_name(filename: str, token: str) -> str:
    """Return the hidden name that a file has until it is complete."""
    return f".{filename}.{token}{TEMPORARY_SUFFIX}"


def is_temporary(filename: str) -> bool:
    return filename.startswith(".") and filename.endswith(TEMPORARY_SUFFIX)


def key_problem(key: str) -> str | None:
    """Return why an object of this name can be listed but not read by obstore, or None."""
    if not _BAD_SEGMENTS.isdisjoint(key.split("/")):
        return (
            "has an empty, '.' or '..' part in its name, which is not supported: rename the object"
        )
    if _CONTROL.search(key):
        return "has a control character in its name, which is not supported: rename the object"
    return None
