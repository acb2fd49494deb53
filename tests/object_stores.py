"""Fixtures of running object stores, and what a test does to one from outside: by boto3 and google-cloud-storage, not by obstore."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
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
    """fake-gcs-server that asks for a bearer token and denies objects whose name contains `denied/`."""
    yield from _serve(start_gcs(tmp_path_factory.mktemp("gcs"), deny=True))


def _serve(starting: AbstractContextManager[StoreServer]) -> Iterator[StoreServer]:
    try:
        server = starting.__enter__()
    except ServerMissingError as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        starting.__exit__(None, None, None)


def new_bucket(server: StoreServer) -> str:
    """The name of a bucket made now; no other has it, in this process or another."""
    name = f"bucket-{os.getpid()}-{next(_numbers)}"
    server.make_bucket(name)
    return name


def upload_folder(server: StoreServer, folder: Path, uri_prefix: str) -> None:
    """Copies every file under `folder` to `uri_prefix`/<its path in the folder>."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]

    def upload(path: Path) -> None:
        put_object(
            server,
            f"{uri_prefix.rstrip('/')}/{path.relative_to(folder).as_posix()}",
            path.read_bytes(),
        )

    _for_each(upload, files)


def download_folder(server: StoreServer, uri_prefix: str, folder: Path) -> None:
    """Copies every object whose key begins with `uri_prefix`/ to a file under `folder`."""
    bucket, prefix = _split(server, uri_prefix.rstrip("/") + "/")

    def download(key: str) -> None:
        path = folder / key.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(get_object(server, f"{server.scheme}://{bucket}/{key}"))

    _for_each(download, list_keys(server, f"{server.scheme}://{bucket}/{prefix}"))


def put_object(server: StoreServer, uri: str, data: bytes) -> None:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        _client(server).put_object(Bucket=bucket, Key=key, Body=data)
    else:
        _client(server).bucket(bucket).blob(key).upload_from_string(
            data, content_type="application/octet-stream"
        )


def get_object(server: StoreServer, uri: str) -> bytes:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        return bytes(_client(server).get_object(Bucket=bucket, Key=key)["Body"].read())
    return bytes(_client(server).bucket(bucket).blob(key).download_as_bytes())


def delete_object(server: StoreServer, uri: str) -> None:
    bucket, key = _split(server, uri)
    if server.scheme == "s3":
        _client(server).delete_object(Bucket=bucket, Key=key)
    else:
        _client(server).bucket(bucket).blob(key).delete()


def list_keys(server: StoreServer, uri_prefix: str) -> list[str]:
    """The keys, without the bucket, of all objects whose URI begins with `uri_prefix`, sorted."""
    bucket, prefix = _split(server, uri_prefix)
    if server.scheme == "s3":
        pages = (
            _client(server).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        )
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))
    return sorted(blob.name for blob in _client(server).list_blobs(bucket, prefix=prefix))


def _client(server: StoreServer) -> Any:
    return server.s3_client() if server.scheme == "s3" else server.gcs_client()


def _split(server: StoreServer, uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    assert scheme == server.scheme, (
        f"{uri} is not on the server at {server.endpoint}, which has {server.scheme}:// URIs"
    )
    bucket, _, key = rest.partition("/")
    return bucket, key


def _for_each(action: Any, items: list[Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(action, items))


def service_account_file(server: StoreServer, folder: Path) -> Path:
    """A key file, for GOOGLE_APPLICATION_CREDENTIALS, whose tokens are given out by the GCS server itself."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "test",
        "private_key_id": "key",
        "private_key": pem.decode(),
        "client_email": "tests@test.iam.gserviceaccount.com",
        "token_uri": f"{server.endpoint}/token",
    }
    path = folder / "service_account.json"
    path.write_text(json.dumps(account))
    return path
