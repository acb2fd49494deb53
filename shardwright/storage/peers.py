"""Do what obstore cannot: list unsupported names, abort multipart uploads, read checksums.

This takes the stores' own Python clients, which are slow and heavy, so they are imported on use:
boto3 for S3; for GCS google-auth's session, with the JSON API for objects and the XML API for
uploads (https://cloud.google.com/storage/docs/multipart-uploads).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from shardwright.errors import CredentialsError, MissingError, MissingPeerError, StorageError
from shardwright.storage.clients import Client
from shardwright.storage.etags import looks_like_md5, plain_etag

_GOOGLE = "https://storage.googleapis.com"
_UNSIGNED_KINDS = ("aws:kms", "aws:kms:dsse")  # encryptions whose etags are not MD5


class StatedContent(NamedTuple):
    """An object's length in bytes and its checksums, as its store reports them.

    `md5` is in hexadecimal. A checksum that the store does not keep is None.
    """

    num_bytes: int
    crc32c: int | None
    md5: str | None


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
    start = f"{prefix}/" if prefix else ""
    if client.scheme == "s3":
        with _peer_faults(client):
            paginator = _boto3_client(client).get_paginator("list_objects_v2")
            for page in paginator.paginate(
                Bucket=_name(client), Prefix=start, StartAfter=after or ""
            ):
                yield from (
                    (row["Key"], row["Size"], plain_etag(row.get("ETag")))
                    for row in page.get("Contents", ())
                )
    elif client.scheme == "gs":
        query = {
            "prefix": start,
            "startOffset": after or "",
            "fields": "items(name,size,md5Hash,kmsKeyName),nextPageToken",
        }
        for page in _google_pages(client, query):
            rows = (
                (row["name"], int(row["size"]), _google_etag(row)) for row in page.get("items", ())
            )
            yield from (row for row in rows if row[0] != after)
    else:
        raise StorageError(f"{client.store} has an object whose name is not supported: rename it")


def abort_uploads(client: Client, prefix: str, wanted: Callable[[str], bool]) -> list[str]:
    """Abort incomplete multipart uploads below a prefix: the store bills their hidden parts.

    Args:
        client: The store's client.
        prefix: Without a trailing slash, or a whole key.
        wanted: Returns whether to abort the uploads of a key.

    Returns:
        The keys of the aborted uploads.

    Raises:
        StorageError: As `list_any_keys`.
    """
    if client.scheme == "s3":
        return _abort_s3_uploads(client, prefix, wanted)
    return _abort_google_uploads(client, prefix, wanted) if client.scheme == "gs" else []


def stated_content(client: Client, key: str) -> StatedContent:
    """Return an object's length and checksums from its store.

    Raises:
        StorageError: As `list_any_keys`.
    """
    if client.scheme == "s3":
        with _peer_faults(client):
            head = _boto3_client(client).head_object(
                Bucket=_name(client), Key=key, ChecksumMode="ENABLED"
            )
        whole = head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        etag = plain_etag(head.get("ETag"))
        is_md5 = (
            looks_like_md5(etag)
            and head.get("ServerSideEncryption") not in _UNSIGNED_KINDS
            and "SSECustomerAlgorithm" not in head
        )
        return StatedContent(
            head["ContentLength"],
            _crc32c(head.get("ChecksumCRC32C") if whole else None),
            etag if is_md5 else None,
        )
    if client.scheme == "gs":
        row = _google_json(
            client,
            f"/storage/v1/b/{_name(client)}/o/{quote(key, safe='')}",
            {"fields": "size,crc32c,md5Hash"},
        )
        return _stated(row)
    raise MissingPeerError(f"{client.store}: this kind of store does not report checksums")


def stated_below(client: Client, prefix: str) -> dict[str, StatedContent]:
    """Return name -> content of each GCS object directly below a prefix.

    Raises as `list_any_keys`.
    """
    start = f"{prefix}/" if prefix else ""
    query = {
        "prefix": start,
        "delimiter": "/",
        "fields": "items(name,size,crc32c,md5Hash),nextPageToken",
    }
    rows = (row for page in _google_pages(client, query) for row in page.get("items", ()))
    return {row["name"][len(start) :]: _stated(row) for row in rows}


def _stated(row: dict[str, str]) -> StatedContent:
    return StatedContent(int(row["size"]), _crc32c(row.get("crc32c")), _google_etag(row) or None)


def _name(client: Client) -> str:
    return client.store.partition("://")[2]


def _crc32c(text: str | None) -> int | None:
    return int.from_bytes(base64.b64decode(text), "big") if text else None


@contextmanager
def _peer_faults(client: Client) -> Iterator[None]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise MissingPeerError(
            f"{client.store}: this needs boto3: pip install 'shardwright[aws]'"
        ) from None
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StorageError(f"{client.store}: {error}") from error


def _boto3_client(client: Client) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import Session as BotocoreSession

    config = client.config
    keys = (
        client.login.provider()
        if client.login.provider
        else {**config, "token": config.get("session_token")}
    )
    path_style = config.get("endpoint") and not config.get("virtual_hosted_style_request")
    no_profile = (
        {"profile": (None, None, None, None)}
        if keys.get("access_key_id") or config.get("skip_signature")
        else None
    )
    # With given keys no profile is loaded: the one that AWS_PROFILE names may not exist.
    session = boto3.session.Session(botocore_session=BotocoreSession(session_vars=no_profile))
    return session.client(
        "s3",
        endpoint_url=config.get("endpoint"),
        region_name=config.get("region"),
        aws_access_key_id=keys.get("access_key_id"),
        aws_secret_access_key=keys.get("secret_access_key"),
        aws_session_token=keys.get("token"),
        config=Config(
            signature_version=UNSIGNED if config.get("skip_signature") else None,
            s3={"addressing_style": "path" if path_style else "auto"},
            connect_timeout=5,
            read_timeout=client.read_seconds,
            retries={"mode": "standard", "max_attempts": _attempts_within(client.deadline)},
        ),
    )


def _attempts_within(seconds: float) -> int:
    """Return how many attempts boto3 may make within a deadline, 1 to 6.

    Its standard mode waits at most 1, 2, 4, ... seconds between attempts.
    """
    return max(1, min(6, int(math.log2(seconds + 1)) + 1))


def _abort_s3_uploads(client: Client, prefix: str, wanted: Callable[[str], bool]) -> list[str]:
    aborted = []
    with _peer_faults(client):
        s3 = _boto3_client(client)
        for page in s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=_name(client), Prefix=prefix
        ):
            for upload in page.get("Uploads", ()):
                if wanted(upload["Key"]):
                    # It may have been completed, or aborted elsewhere, since the listing.
                    with suppress(s3.exceptions.NoSuchUpload):
                        s3.abort_multipart_upload(
                            Bucket=_name(client), Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        aborted.append(upload["Key"])
    return aborted


def _google_etag(row: dict[str, str]) -> str:
    """Return the object's etag in the XML API, "" for composed and KMS-encrypted objects."""
    return (
        base64.b64decode(row["md5Hash"]).hex()
        if row.get("md5Hash") and not row.get("kmsKeyName")
        else ""
    )


def _google_session(client: Client) -> Any:
    try:
        import google.auth
        import requests
        from google.auth.transport.requests import AuthorizedSession
        from google.oauth2.credentials import Credentials
        from google.oauth2.service_account import Credentials as ServiceAccount
    except ImportError:
        raise MissingPeerError(
            f"{client.store}: this needs google-auth and requests: pip install 'shardwright[gcp]'"
        ) from None
    config, scopes = client.config, ["https://www.googleapis.com/auth/devstorage.read_write"]
    if config.get("skip_signature"):
        return requests.Session()
    if "bearer_token" in config:
        return AuthorizedSession(Credentials(config["bearer_token"]))
    path = config.get("application_credentials") or config.get("service_account")
    if path:
        return AuthorizedSession(google.auth.load_credentials_from_file(path, scopes=scopes)[0])
    if "service_account_key" in config:
        import json

        return AuthorizedSession(
            ServiceAccount.from_service_account_info(
                json.loads(str(config["service_account_key"])), scopes=scopes
            )
        )
    return AuthorizedSession(google.auth.default(scopes=scopes)[0])


@contextmanager
def _google_faults(client: Client) -> Iterator[None]:
    try:
        from google.auth.exceptions import GoogleAuthError
    except ImportError:
        raise MissingPeerError(
            f"{client.store}: this needs google-auth and requests: pip install 'shardwright[gcp]'"
        ) from None
    try:
        yield
    except GoogleAuthError as error:
        raise CredentialsError(f"{client.store}: could not obtain credentials: {error}") from error


def _google_request(client: Client, method: str, path: str, query: dict[str, str]) -> Any:
    """Return a successful response; transient errors are retried. Raises `StorageError`."""
    url = str(client.config.get("base_url") or _GOOGLE).rstrip("/") + path

    def ask() -> Any:
        answer = _google_session(client).request(
            method, url, params=query, timeout=client.read_seconds
        )
        if not answer.ok:
            # `fault_of` parses the status and the code out of this text, as of obstore's errors.
            raise OSError(
                f"{method} {path} failed with status code: {answer.status_code} {answer.text[:500]}"
            )
        return answer

    with _google_faults(client):
        return client.call(client.store, "delete" if method == "DELETE" else "list", ask)


def _google_json(client: Client, path: str, query: dict[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = _google_request(client, "GET", path, query).json()
    return content


def _google_pages(client: Client, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    token: str | None = ""
    while token is not None:
        page = _google_json(
            client, f"/storage/v1/b/{_name(client)}/o", {**query, "pageToken": token}
        )
        yield page
        token = page.get("nextPageToken")


def _abort_google_uploads(client: Client, prefix: str, wanted: Callable[[str], bool]) -> list[str]:
    aborted = []
    for key, upload_id in _google_uploads(client, prefix):
        if wanted(key):
            with suppress(MissingError):  # completed, or aborted elsewhere, since the listing
                _google_request(
                    client, "DELETE", f"/{_name(client)}/{quote(key)}", {"uploadId": upload_id}
                )
                aborted.append(key)
    return aborted


def _google_uploads(client: Client, prefix: str) -> list[tuple[str, str]]:
    """Return (key, id) of the unfinished uploads below a prefix, from pages of 1,000.

    https://cloud.google.com/storage/docs/xml-api/get-bucket-uploads
    """
    found: list[tuple[str, str]] = []
    query = {"uploads": "", "prefix": prefix}
    while True:
        text = _google_request(client, "GET", f"/{_name(client)}", query).text
        page = ElementTree.fromstring(text)
        for upload in page.iterfind("{*}Upload"):
            found.append((_text_in(upload, "Key"), _text_in(upload, "UploadId")))
        if _text_in(page, "IsTruncated") != "true":
            return found
        query |= {
            "key-marker": _text_in(page, "NextKeyMarker"),
            "upload-id-marker": _text_in(page, "NextUploadIdMarker"),
        }


def _text_in(element: ElementTree.Element, tag: str) -> str:
    """Return the text of a child in any namespace, "" without one."""
    return element.findtext(f"{{*}}{tag}") or ""
