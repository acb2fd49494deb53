"""Fixtures of running object stores, and access from outside by boto3 and google-cloud-storage."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.processes import ServerMissingError, start_gcs, start_moto, start_versitygw
from tests.servers.store_server import StoreServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """versitygw: S3 that refuses wrong credentials and checksums."""
    yield from _serve(start_versitygw(tmp_path_factory.mktemp("versitygw")))


@pytest.fixture(scope="session")
def moto_server() -> Iterator[StoreServer]:
    """moto: S3 that needs no program built."""
    yield from _serve(start_moto())


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """fake-gcs-server that needs a bearer token and denies objects with `denied/` in their name."""
    yield from _serve(start_gcs(tmp_path_factory.mktemp("gcs"), deny=True))


def _serve(starting: AbstractContextManager[StoreServer]) -> Iterator[StoreServer]:
    try:
        with starting as server:
            yield server
    except ServerMissingError as error:
        pytest.skip(str(error))


def new_bucket(server: StoreServer) -> str:
    """Make a bucket, and return its name; no other has it, in this process or another."""
    name = f"bucket-{os.getpid()}-{next(_numbers)}"
    server.make_bucket(name)
    return name


def upload_folder(server: StoreServer, folder: Path, uri_prefix: str) -> None:
    """Copy every file of a folder to `uri_prefix`/<its path in the folder>."""

    def upload(path: Path) -> None:
        uri = f"{uri_prefix.rstrip('/')}/{path.relative_to(folder).as_posix()}"
        put_object(server, uri, path.read_bytes())

    _for_each(upload, (path for path in folder.rglob("*") if path.is_file()))


def download_folder(server: StoreServer, uri_prefix: str, folder: Path) -> None:
    """Copy every object whose key begins with `uri_prefix`/ to a file in `folder`."""
    bucket, prefix = _split(server, uri_prefix.rstrip("/") + "/")
    store = f"{server.scheme}://{bucket}"

    def download(key: str) -> None:
        path = folder / key.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(get_object(server, f"{store}/{key}"))

    _for_each(download, list_keys(server, f"{store}/{prefix}"))


def put_object(server: StoreServer, uri: str, data: bytes) -> None:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        server.s3_client().put_object(Bucket=bucket, Key=key, Body=data)
    else:
        _blob(server, uri).upload_from_string(data, content_type="application/octet-stream")


def get_object(server: StoreServer, uri: str) -> bytes:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        return bytes(server.s3_client().get_object(Bucket=bucket, Key=key)["Body"].read())
    return bytes(_blob(server, uri).download_as_bytes())


def delete_object(server: StoreServer, uri: str) -> None:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        server.s3_client().delete_object(Bucket=bucket, Key=key)
    else:
        _blob(server, uri).delete()


def list_keys(server: StoreServer, uri_prefix: str) -> list[str]:
    """Return the sorted keys of all objects whose URI begins with `uri_prefix`."""
    return sorted(stamps_of(server, uri_prefix))


def stamps_of(server: StoreServer, uri_prefix: str) -> dict[str, tuple[Any, ...]]:
    """Return key -> values that change when an object is written again, even the same bytes."""
    bucket, prefix = _split(server, uri_prefix)
    if server.scheme == "s3":
        paginator = server.s3_client().get_paginator("list_objects_v2")
        pages = paginator.paginate(Bucket=bucket, Prefix=prefix)
        rows = [row for page in pages for row in page.get("Contents", ())]
        return {row["Key"]: (row["ETag"], row["Size"], row["LastModified"]) for row in rows}
    blobs = server.gcs_client().list_blobs(bucket, prefix=prefix)
    return {blob.name: (blob.etag, blob.generation, blob.size, blob.updated) for blob in blobs}


def _blob(server: StoreServer, uri: str) -> Any:
    bucket, key = _split(server, uri)
    return server.gcs_client().bucket(bucket).blob(key)


def _split(server: StoreServer, uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    assert scheme == server.scheme, f"{server.endpoint} serves {server.scheme}://, got {uri}"
    bucket, _, key = rest.partition("/")
    return bucket, key


def _for_each(action: Callable[[Any], None], items: Iterable[Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(action, items))


def service_account_file(server: StoreServer, folder: Path) -> Path:
    """Write a GOOGLE_APPLICATION_CREDENTIALS key file whose tokens the GCS server itself issues."""
    from tests.servers.dataflow.credentials import make_credentials

    credentials = make_credentials(folder)
    credentials.write_key_file(f"{server.endpoint}/token")
    return credentials.key_file
