"""The GCS server: its additions to fake-gcs-server, by plain requests and by Google's client."""

from __future__ import annotations

import base64
import hashlib
import os
import urllib.error
from pathlib import Path
from typing import Any

import google_crc32c
import obstore
import pytest
from google.api_core.exceptions import BadRequest
from google.auth.exceptions import RefreshError
from google.cloud.storage import transfer_manager
from obstore.exceptions import PreconditionError, UnauthenticatedError

from tests.servers.clients import PART_BYTES, open_store
from tests.servers.processes import start_gcs
from tests.servers.store_server import StoreServer
from tests.support.buckets import Bucket
from tests.support.object_stores import new_bucket

MATCH = "x-goog-if-generation-match"


def send(
    server: StoreServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    """Return the status and body of the answer to a plain request."""
    try:
        return 200, server.request(method, path, body, **headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def crc32c(data: bytes) -> str:
    return encoded(google_crc32c.Checksum(data).digest())


def test_wrong_and_missing_tokens_are_refused(gcs_bucket: Bucket) -> None:
    server, name = gcs_bucket.server, gcs_bucket.name
    with pytest.raises(RefreshError):  # a 401 makes Google's client look for a new token
        server.gcs_client(token="wrong").bucket(name).blob("x").upload_from_string("x")
    with pytest.raises(UnauthenticatedError):
        obstore.put(open_store(server, name, bearer_token="wrong"), "x", b"x")
    for given in ("", "Bearer", "Bearer test-token2"):
        assert send(server, "GET", f"/{name}", Authorization=given)[0] == 401
        assert send(server, "POST", "/batch/storage/v1", Authorization=given)[0] == 401


def test_wrong_checksums_are_refused(gcs_bucket: Bucket) -> None:
    server, name = gcs_bucket.server, gcs_bucket.name
    requests = [
        ("PUT", f"/{name}/x"),
        ("POST", f"/upload/storage/v1/b/{name}/o?uploadType=media&name=x"),
    ]
    md5, crc = encoded(bytes(16)), encoded(bytes(4))
    hashes = (f"crc32c={crc}", f"crc32c={crc32c(b'x')},md5={md5}")
    for wrong in ({"Content-MD5": md5}, *({"x-goog-hash": value} for value in hashes)):
        assert [send(server, *request, b"x", **wrong)[0] for request in requests] == [400, 400]
    blob = server.gcs_client().bucket(name).blob("x")
    blob.md5_hash = md5
    with pytest.raises(BadRequest, match="doesn't match calculated MD5"):
        blob.upload_from_string(b"x")
    assert gcs_bucket.keys() == []
    right = encoded(hashlib.md5(b"x").digest())
    headers = {"Content-MD5": right, "x-goog-hash": f"crc32c={crc32c(b'x')}"}
    assert [send(server, *request, b"x", **headers)[0] for request in requests] == [200, 200]


def test_google_uploads_parts_and_chunks(gcs_bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * PART_BYTES + 1))
    bucket = gcs_bucket.server.gcs_client().bucket(gcs_bucket.name)
    threads: dict[str, Any] = {"worker_type": transfer_manager.THREAD, "max_workers": 2}
    upload = transfer_manager.upload_chunks_concurrently
    upload(str(path), bucket.blob("parts"), chunk_size=PART_BYTES, **threads)
    blob = bucket.get_blob("parts")
    # As on GCS, an object made of parts has no MD5.
    assert (blob.md5_hash, blob.crc32c) == (None, crc32c(path.read_bytes()))
    assert blob.download_as_bytes() == path.read_bytes()
    bucket.blob("twice").compose([blob, blob])
    twice = bucket.get_blob("twice")
    assert (twice.size, twice.md5_hash) == (2 * path.stat().st_size, None)
    assert bucket.rename_blob(blob, "renamed").name == "renamed"
    assert gcs_bucket.keys() == ["renamed", "twice"]


def tag(answer: bytes, name: str) -> str:
    return answer.decode().partition(f"<{name}>")[2].partition("<")[0]


def parts(etag: str, *numbers: int) -> bytes:
    part = f"<Part><PartNumber>%d</PartNumber><ETag>{etag}</ETag></Part>"
    listed = "".join(part % number for number in numbers)
    return f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()


def test_rules_of_parts(gcs_bucket: Bucket) -> None:
    server, path = gcs_bucket.server, f"/{gcs_bucket.name}/x"
    upload_id = tag(server.request("POST", f"{path}?uploads"), "UploadId")
    upload, etag = f"{path}?uploadId={upload_id}", hashlib.md5(b"x").hexdigest()
    wrong = {"x-goog-hash": f"crc32c={encoded(bytes(4))}"}
    assert send(server, "PUT", f"{upload}&partNumber=1", b"x", **wrong)[0] == 400
    for number in (1, 2):
        assert send(server, "PUT", f"{upload}&partNumber={number}", b"x")[0] == 200
    for body, code in (
        (parts(etag, 1, 2), "EntityTooSmall"),
        (parts(etag, 2, 1), "InvalidPartOrder"),
        (parts(etag, 3), "InvalidPart"),
        (parts(etag), "MalformedXML"),
        (parts("wrong", 1), "InvalidPart"),
    ):
        status, answer = send(server, "POST", upload, body)
        assert (status, tag(answer, "Code")) == (400, code)
    assert send(server, "POST", upload, parts(etag, 1), **{MATCH: "0"})[0] == 400
    assert gcs_bucket.keys() == []
    assert send(server, "POST", upload, parts(etag, 2))[0] == 200
    assert gcs_bucket.get("x") == b"x"
    assert send(server, "PUT", f"{upload}&partNumber=1", b"x")[0] == 404


def test_generations(gcs_bucket: Bucket) -> None:
    server, name = gcs_bucket.server, gcs_bucket.name
    store = open_store(server, name)
    first: Any = obstore.put(store, "x", b"first")
    second = obstore.put(store, "x", b"second", mode=first)
    with pytest.raises(PreconditionError):
        obstore.put(store, "x", b"third", mode=first)
    generation = str(first["version"])
    assert send(server, "DELETE", f"/{name}/x", None, **{MATCH: generation})[0] == 412
    path = f"/storage/v1/b/{name}/o/x?ifGenerationMatch={generation}"
    assert send(server, "DELETE", path)[0] == 412
    assert obstore.head(store, "x")["version"] == second["version"]


@pytest.mark.usefixtures("gcs_server")  # skipped with it
def test_a_server_without_a_token_or_denials() -> None:
    with start_gcs(token=None) as server:
        path = f"/{new_bucket(server)}/denied/x"
        assert send(server, "PUT", path, b"x", Authorization="")[0] == 200
        assert send(server, "GET", path, Authorization="Bearer anything")[0] == 200
    with pytest.raises(OSError, match="refused"):
        server.request("GET", "/")
