"""Do on S3 what obstore cannot. boto3 is slow to import, so it is imported on use."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardwright.errors import MissingPeerError, StorageError
from shardwright.storage.addresses import redact
from shardwright.storage.checksums import looks_like_md5, plain_etag, read_crc32c
from shardwright.storage.clients import Client
from shardwright.storage.faults import cause_of
from shardwright.storage.local import FileInfo

_UNSIGNED_KINDS = ("aws:kms", "aws:kms:dsse")  # encryptions whose etags are not MD5


def list_keys(client: Client, start: str, after: str) -> Iterator[tuple[str, int, str]]:
    """Yield (key, bytes, etag) of the objects whose keys begin with `start` and follow `after`."""
    with _faults(client):
        paginator = _boto3_client(client).get_paginator("list_objects_v2")
        for page in paginator.paginate(Bucket=_bucket(client), Prefix=start, StartAfter=after):
            yield from (
                (row["Key"], row["Size"], plain_etag(row.get("ETag")))
                for row in page.get("Contents", ())
            )


def stated_content(client: Client, key: str) -> FileInfo:
    """Return an object's length and checksums."""
    with _faults(client):
        head = _boto3_client(client).head_object(
            Bucket=_bucket(client), Key=key, ChecksumMode="ENABLED"
        )
    # A composite checksum is one of the parts' checksums, not of the content.
    whole = head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
    etag = plain_etag(head.get("ETag"))
    is_md5 = (
        looks_like_md5(etag)
        and head.get("ServerSideEncryption") not in _UNSIGNED_KINDS
        and "SSECustomerAlgorithm" not in head
    )
    return FileInfo(
        head["ContentLength"],
        etag=etag if is_md5 else None,
        crc32c=read_crc32c(head.get("ChecksumCRC32C") if whole else None),
    )


def list_old_versions(client: Client, prefix: str) -> list[tuple[str, str]]:
    """Return (key, version) of what is not current; [] for a bucket without versions."""
    with _faults(client):
        paginator = _boto3_client(client).get_paginator("list_object_versions")
        return [
            (row["Key"], row["VersionId"])
            for page in paginator.paginate(Bucket=_bucket(client), Prefix=prefix)
            for row in page.get("Versions", ())
            # Delete markers are not in `Versions`: they hold no bytes.
            if not row["IsLatest"]
        ]


def remove_version(client: Client, key: str, version: str) -> None:
    """Remove one version of an object."""
    with _faults(client):
        _boto3_client(client).delete_object(Bucket=_bucket(client), Key=key, VersionId=version)


def _bucket(client: Client) -> str:
    return client.store.removeprefix("s3://")


@contextmanager
def _faults(client: Client) -> Iterator[None]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise MissingPeerError(
            f"{client.store}: this needs boto3: pip install 'shardwright[aws]'"
        ) from None
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StorageError(f"{client.store}: {redact(str(error))}") from cause_of(error)


def _boto3_client(client: Client) -> Any:
    """Return a boto3 client, which threads may share, with the present keys."""
    keys = client.login.provider() if client.login.provider else {}
    return _client_with(
        client, *(keys.get(name) for name in ("access_key_id", "secret_access_key", "token"))
    )


@functools.lru_cache(maxsize=16)  # making one takes 0.1 s of CPU
def _client_with(client: Client, key: object, secret: object, token: object) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import Session as BotocoreSession

    config = client.config
    path_style = config.get("endpoint") and not config.get("virtual_hosted_style_request")
    no_profile = (
        {"profile": (None, None, None, None)} if key or config.get("skip_signature") else None
    )
    # With given keys no profile is loaded: the one that AWS_PROFILE names may not exist.
    session = boto3.session.Session(botocore_session=BotocoreSession(session_vars=no_profile))
    return session.client(
        "s3",
        endpoint_url=config.get("endpoint"),
        region_name=config.get("region"),
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(
            signature_version=UNSIGNED if config.get("skip_signature") else None,
            s3={"addressing_style": "path" if path_style else "auto"},
            connect_timeout=5,
            read_timeout=client.read_seconds,
            # The standard mode waits at most 1, 2, 4, ... seconds between attempts.
            retries={
                "mode": "standard",
                "max_attempts": max(1, min(6, int(math.log2(client.deadline + 1)) + 1)),
            },
        ),
    )
