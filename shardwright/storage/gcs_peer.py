"""Do on Google Cloud Storage what obstore cannot, with google-auth's session, imported on use.

https://cloud.google.com/storage/docs/json_api
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from shardwright.errors import CredentialsError, MissingError, MissingPeerError
from shardwright.storage.checksums import read_crc32c
from shardwright.storage.clients import Client
from shardwright.storage.credentials import GOOGLE_SCOPE, google_message
from shardwright.storage.local import FileInfo

_GOOGLE = "https://storage.googleapis.com"
_CONNECT_SECONDS = 5.0


def soft_delete_seconds(client: Client) -> int:
    """Return how long a bucket keeps deleted objects, 0 if it does not. Raises `StorageError`."""
    row = _json(client, _bucket_path(client), {"fields": "softDeletePolicy"})
    return int(row.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))


def list_keys(client: Client, start: str, after: str) -> Iterator[tuple[str, int, str]]:
    """Yield (key, bytes, etag) of the objects whose keys begin with `start` and follow `after`."""
    query = {
        "prefix": start,
        "startOffset": after,
        "fields": "items(name,size,md5Hash,kmsKeyName),nextPageToken",
    }
    for row in _rows(client, query):
        if row["name"] != after:  # `startOffset` includes its key
            yield row["name"], int(row["size"]), _etag(row)


def stated_content(client: Client, key: str) -> FileInfo:
    """Return an object's length and checksums."""
    return _info(_json(client, _object_path(client, key), {"fields": "size,crc32c,md5Hash"}))


def list_checksums(client: Client, start: str) -> dict[str, FileInfo]:
    """Return name -> length and checksum of each object directly below a start of keys.

    Raises:
        StorageError: google-auth is not installed, or the request failed.
    """
    query = {"prefix": start, "delimiter": "/", "fields": "items(name,size,crc32c),nextPageToken"}
    return {row["name"][len(start) :]: _info(row) for row in _rows(client, query)}


def list_old_versions(client: Client, prefix: str) -> list[tuple[str, str]]:
    """Return (key, generation) of what is not current; [] for a bucket without versions."""
    fields = "items(name,generation,timeDeleted),nextPageToken"
    query = {"prefix": prefix, "versions": "true", "fields": fields}
    return [
        (row["name"], str(row["generation"]))
        for row in _rows(client, query)
        if "timeDeleted" in row
    ]


def remove_version(client: Client, key: str, version: str) -> None:
    """Remove one generation of an object."""
    with suppress(MissingError):
        _request(client, "DELETE", _object_path(client, key), {"generation": version})


def _etag(row: dict[str, str]) -> str:
    """Return the object's etag in the XML API, "" for composed and KMS-encrypted objects."""
    return (
        base64.b64decode(row["md5Hash"]).hex()
        if row.get("md5Hash") and not row.get("kmsKeyName")
        else ""
    )


def _info(row: dict[str, str]) -> FileInfo:
    crc32c = read_crc32c(row.get("crc32c"))
    return FileInfo(int(row["size"]), etag=_etag(row) or None, crc32c=crc32c)


def _rows(client: Client, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    token: str | None = ""
    while token is not None:
        page = _json(client, f"{_bucket_path(client)}/o", {**query, "pageToken": token})
        yield from page.get("items", ())
        token = page.get("nextPageToken")


def _json(client: Client, path: str, query: dict[str, str]) -> dict[str, Any]:
    return dict(_request(client, "GET", path, query).json())


def _request(client: Client, method: str, path: str, query: dict[str, str]) -> Any:
    """Return a successful response; transient errors are retried. Raises `StorageError`."""
    url = str(client.config.get("base_url") or _GOOGLE).rstrip("/") + path

    def ask() -> Any:
        # A session for each request, because several threads ask and sessions are not thread-safe;
        # credentials are shared.
        answer = _session(client).request(
            method, url, params=query, timeout=(_CONNECT_SECONDS, client.read_seconds)
        )
        if not answer.ok:
            # `fault_of` parses the status and the code out of this text, as of obstore's errors.
            raise OSError(
                f"{method} {path} failed with status code: {answer.status_code} {answer.text[:500]}"
            )
        return answer

    with _faults(client):
        return client.call(client.store, "delete" if method == "DELETE" else "list", ask)


@contextmanager
def _faults(client: Client) -> Iterator[None]:
    try:
        import google.auth.transport.requests  # noqa: F401 - for `_session`
        from google.auth.exceptions import GoogleAuthError
    except ImportError:
        raise MissingPeerError(
            f"{client.store}: this needs google-auth and requests: pip install 'shardwright[gcp]'"
        ) from None
    try:
        yield
    except GoogleAuthError as error:
        raise CredentialsError(
            f"{client.store}: could not obtain credentials: {google_message(error)}"
        ) from error


def _session(client: Client) -> Any:
    import requests
    from google.auth.transport.requests import AuthorizedSession

    if client.config.get("skip_signature"):
        return requests.Session()
    return AuthorizedSession(_credentials(client))


@functools.lru_cache(maxsize=16)  # they keep their token until it expires
def _credentials(client: Client) -> Any:
    import google.auth
    from google.oauth2.credentials import Credentials
    from google.oauth2.service_account import Credentials as ServiceAccount

    config, scopes = client.config, [GOOGLE_SCOPE]
    if "bearer_token" in config:
        return Credentials(config["bearer_token"])
    path = config.get("application_credentials") or config.get("service_account")
    if path:
        return google.auth.load_credentials_from_file(path, scopes=scopes)[0]
    if "service_account_key" in config:
        import json

        return ServiceAccount.from_service_account_info(
            json.loads(str(config["service_account_key"])), scopes=scopes
        )
    return google.auth.default(scopes=scopes)[0]


def _bucket_path(client: Client) -> str:
    return f"/storage/v1/b/{client.store.removeprefix('gs://')}"


def _object_path(client: Client, key: str) -> str:
    return f"{_bucket_path(client)}/o/{quote(key, safe='')}"
