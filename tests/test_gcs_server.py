"""The GCS server: what it adds to fake-gcs-server, tried by plain requests and by Google's own client."""

from __future__ import annotations

import base64
import hashlib
import os
import urllib.error
from pathlib import Path

import google_crc32c
import obstore
import pytest
from google.api_core.exceptions import BadRequest, Forbidden
from google.auth.exceptions import RefreshError
from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

from tests.object_stores import delete_object, get_object, list_keys, new_bucket, put_object
from tests.servers.clients import PART_BYTES, open_store, upload_chunks
from tests.servers.processes import start_gcs
from tests.servers.store_server import StoreServer


@pytest.fixture
def gcs_bucket(gcs_server: StoreServer) -> str:
    return new_bucket(gcs_server)


def test_wrong_and_missing_tokens_are_refused(gcs_server: StoreServer) -> None:
    bucket = new_bucket(gcs_server)
    with pytest.raises(
        RefreshError
    ):  # Google's client answers a 401 by asking for a new token, and has no way to one
        gcs_server.gcs_client(token="wrong").bucket(bucket).blob("x").upload_from_string("x")
    with pytest.raises(UnauthenticatedError):
        obstore.put(open_store(gcs_server, bucket, bearer_token="wrong"), "x", b"x")
    for headers in (
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer test-token2"},
    ):
        assert _status(gcs_server, "GET", f"/{bucket}", **headers) == 401
        assert _status(gcs_server, "POST", "/batch/storage/v1", **headers) == 401


def test_wrong_checksums_are_refused_and_nothing_is_made(
    gcs_server: StoreServer, gcs_bucket: str
) -> None:
    wrong_md5, wrong_crc = base64.b64encode(bytes(16)).decode(), base64.b64encode(bytes(4)).decode()
    by_xml, by_json = (
        f"/{gcs_bucket}/x",
        f"/upload/storage/v1/b/{gcs_bucket}/o?uploadType=media&name=x",
    )
    for method, path in (("PUT", by_xml), ("POST", by_json)):
        assert _status(gcs_server, method, path, b"x", **{"Content-MD5": wrong_md5}) == 400
        assert (
            _status(gcs_server, method, path, b"x", **{"x-goog-hash": f"crc32c={wrong_crc}"}) == 400
        )
        assert (
            _status(
                gcs_server,
                method,
                path,
                b"x",
                **{"x-goog-hash": f"crc32c={_crc32c(b'x')},md5={wrong_md5}"},
            )
            == 400
        )
    blob = gcs_server.gcs_client().bucket(gcs_bucket).blob("x")
    blob.md5_hash = wrong_md5
    with pytest.raises(BadRequest, match="doesn't match calculated MD5"):
        blob.upload_from_string(b"x")
    assert list_keys(gcs_server, f"gs://{gcs_bucket}/") == []
    right = {
        "Content-MD5": base64.b64encode(hashlib.md5(b"x").digest()).decode(),
        "x-goog-hash": f"crc32c={_crc32c(b'x')}",
    }
    assert (
        _status(gcs_server, "PUT", by_xml, b"x", **right)
        == _status(gcs_server, "POST", by_json, b"x", **right)
        == 200
    )


def test_google_uploads_parts_and_chunks(
    gcs_server: StoreServer, gcs_bucket: str, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * PART_BYTES + 1))
    upload_chunks(gcs_server, gcs_bucket, "parts", path)
    bucket = gcs_server.gcs_client().bucket(gcs_bucket)
    blob = bucket.get_blob("parts")
    assert (blob.md5_hash, blob.crc32c) == (
        None,
        _crc32c(path.read_bytes()),
    )  # as on GCS: no MD5 of what is made of parts
    assert blob.download_as_bytes() == path.read_bytes()
    bucket.blob("twice").compose([blob, blob])
    assert bucket.get_blob("twice").size == 2 * path.stat().st_size
    assert bucket.get_blob("twice").md5_hash is None
    assert bucket.rename_blob(blob, "renamed").name == "renamed"
    assert list_keys(gcs_server, f"gs://{gcs_bucket}/") == ["renamed", "twice"]


def test_parts_are_held_to_their_rules(gcs_server: StoreServer, gcs_bucket: str) -> None:
    upload = f"/{gcs_bucket}/x?uploadId=" + _tag(
        gcs_server.request("POST", f"/{gcs_bucket}/x?uploads"), "UploadId"
    )
    wrong = base64.b64encode(bytes(4)).decode()
    assert (
        _status(
            gcs_server, "PUT", f"{upload}&partNumber=1", b"x", **{"x-goog-hash": f"crc32c={wrong}"}
        )
        == 400
    )
    for number in (1, 2):
        assert _status(gcs_server, "PUT", f"{upload}&partNumber={number}", b"x") == 200
    etag = hashlib.md5(b"x").hexdigest()
    for numbers, code in (
        ((1, 2), "EntityTooSmall"),
        ((2, 1), "InvalidPartOrder"),
        ((3,), "InvalidPart"),
        ((), "MalformedXML"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            gcs_server.request("POST", upload, _parts(etag, *numbers))
        assert (refused.value.code, _tag(refused.value.read(), "Code")) == (400, code)
    with pytest.raises(urllib.error.HTTPError) as refused:
        gcs_server.request("POST", upload, _parts("wrong", 1))
    assert _tag(refused.value.read(), "Code") == "InvalidPart"
    assert (
        _status(gcs_server, "POST", upload, _parts(etag, 1), **{"x-goog-if-generation-match": "0"})
        == 400
    )
    assert list_keys(gcs_server, f"gs://{gcs_bucket}/") == []
    assert _status(gcs_server, "POST", upload, _parts(etag, 2)) == 200
    assert get_object(gcs_server, f"gs://{gcs_bucket}/x") == b"x"
    assert _status(gcs_server, "PUT", f"{upload}&partNumber=1", b"x") == 404


def test_gcs_generations(gcs_server: StoreServer, gcs_bucket: str) -> None:
    store = open_store(gcs_server, gcs_bucket)
    first = obstore.put(store, "x", b"first")
    second = obstore.put(store, "x", b"second", mode=first)
    with pytest.raises(PreconditionError):
        obstore.put(store, "x", b"third", mode=first)
    assert (
        _status(
            gcs_server,
            "DELETE",
            f"/{gcs_bucket}/x",
            **{"x-goog-if-generation-match": str(first["version"])},
        )
        == 412
    )
    condition = f"?ifGenerationMatch={first['version']}"
    assert _status(gcs_server, "DELETE", f"/storage/v1/b/{gcs_bucket}/o/x{condition}") == 412
    assert obstore.head(store, "x")["version"] == second["version"]


def test_gcs_denies_some_names_and_still_lists_them(
    gcs_server: StoreServer, gcs_bucket: str
) -> None:
    uri = f"gs://{gcs_bucket}/a/denied/x"
    put_object(gcs_server, uri, b"x")
    assert list_keys(gcs_server, f"gs://{gcs_bucket}/a") == ["a/denied/x"]
    store = open_store(gcs_server, gcs_bucket)
    for action in (obstore.get, obstore.head, obstore.delete):
        with pytest.raises(PermissionDeniedError):
            action(store, "a/denied/x")
    for refused in (get_object, delete_object):
        with pytest.raises(Forbidden):
            refused(gcs_server, uri)


@pytest.mark.usefixtures("gcs_server")  # skipped with it
def test_a_server_without_a_token_or_denials_lets_every_request_pass() -> None:
    with start_gcs(token=None) as server:
        bucket = new_bucket(server)
        assert _status(server, "PUT", f"/{bucket}/denied/x", b"x", Authorization="") == 200
        assert _status(server, "GET", f"/{bucket}/denied/x", Authorization="Bearer anything") == 200
    with pytest.raises(OSError, match="refused"):
        server.request("GET", "/")


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def _status(
    server: StoreServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> int:
    try:
        server.request(method, path, body, **headers)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def _tag(answer: bytes, name: str) -> str:
    return answer.decode().partition(f"<{name}>")[2].partition("<")[0]


def _parts(etag: str, *numbers: int) -> bytes:
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number in numbers
    )
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
