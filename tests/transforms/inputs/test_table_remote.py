"""Tables in stores, and of images in stores: paths, addresses and other buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import CredentialsError, StorageError
from shardwright.storage.options import StorageOptions
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket
from tests.support.helpers import TINY_PNG, make_files
from tests.support.listing_cases import listing

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)


def csv_of(*paths: str) -> bytes:
    return "".join(f"{line}\n" for line in ("path", *paths)).encode()


def put_images(bucket: Bucket, number: int) -> list[str]:
    """Put images and a table of them, in/t.csv, into a bucket; return their keys."""
    keys = bucket.fill((f"in/{index}.png" for index in range(number)), TINY_PNG)
    bucket.put("in/t.csv", csv_of(*(key.removeprefix("in/") for key in keys)))
    return keys


@BOTH
def test_each_object_is_requested_once(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = put_images(bucket, 100)
    found = listing(f"{bucket.uri}/in/t.csv", storage=bucket.behind(proxy).options())
    assert ([f"in/{row['id']}" for row in found.rows], found.rejects) == (keys, [])
    heads = [target for method, target in proxy.requests if method == "HEAD"]
    heads = [target for target in heads if "csv" not in target]
    assert len(heads) == len(set(heads)) == 100


@BOTH
def test_bad_rows_are_rejected(bucket: Bucket) -> None:
    folder = bucket.folder("in")
    folder.write_bytes("good.png", TINY_PNG)
    folder.write_bytes("empty.png", b"")
    other = f"{bucket.server.scheme}://no-such-bucket/x.png"
    odd = f"{bucket.uri}/a//b.png"
    no_part = "has an empty, '.' or '..' part in its name, which is not supported: rename the "
    scheme = (
        "is not an object's address (s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, "
        "https://HOST/PATH, without a password)"
    )
    no_bucket = f"bucket 'no-such-bucket' does not exist at {bucket.server.endpoint}: check the "
    expected = {
        "none.png": "missing_file: listed in the table, but there is no such object below "
        f"{bucket.uri}/in/: give --image-root, the folder that relative paths start from",
        "empty.png": "empty_file: the file has no bytes",
        other: f"missing_file: {other}: {no_bucket}name and the endpoint",
        odd: f"unreadable: {odd!r} {no_part}object",
        "hdfs://host/x.png": f"bad_value: row 5: hdfs://host/x.png {scheme}",
        "/nowhere/x.png": "missing_file: listed in the table, but there is no such file",
        "../../x.png": f"unreadable: '{bucket.uri}/in/../../x.png' {no_part}object",
        "s3x://b/x.png": f"bad_value: row 8: s3x://b/x.png {scheme}",
    }
    folder.write_bytes("t.csv", csv_of("good.png", *expected))
    found = listing(f"{bucket.uri}/in/t.csv", storage=bucket.options())
    assert (found.of("id"), found.details) == ([("good.png",)], expected)


def test_a_local_table_of_anything(s3_bucket: Bucket, gcs_bucket: Bucket, tmp_path: Path) -> None:
    make_files(tmp_path, "local.png")
    expected, texts = [("local.png", f"{tmp_path}/local.png")], []
    for bucket in (s3_bucket, gcs_bucket):
        bucket.put("a b.png", TINY_PNG)
        expected.append((f"{bucket.uri}/a b.png",) * 2)
        texts += [f"{bucket.uri}:{key}={value}" for key, value in bucket.server.options.items()]
    (tmp_path / "t.csv").write_bytes(csv_of(*(image_id for image_id, _ in expected)))
    found = listing(tmp_path / "t.csv", storage=StorageOptions.parse(texts))
    assert (found.of("id", "uri"), found.rejects) == (expected, [])


def test_with_a_size_column_no_object_is_requested(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("in/t.csv", b"path,size\n1.png,67\n2.png,68\n")
    options = s3_bucket.behind(s3_proxy).options()
    found = listing(f"{s3_bucket.uri}/in/t.csv", storage=options, columns={"size": "size"})
    assert (found.of("num_bytes", "etag"), found.rejects) == ([(67, None), (68, None)], [])
    assert "png" not in str(s3_proxy.requests)


@pytest.mark.long_but_first
@BOTH
def test_a_store_that_fails_altogether_rejects_nothing(bucket: Bucket, proxy: FaultProxy) -> None:
    put_images(bucket, 5)
    proxy.add(Fault("status", None, path_contains="png"))
    with pytest.raises(StorageError, match=r"cannot be read: .* returned 503"):
        listing(f"{bucket.uri}/in/t.csv", storage=bucket.behind(proxy).options(deadline="1"))


def test_wrong_credentials_for_the_images(s3_bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(csv_of(f"{s3_bucket.uri}/x.png"))
    message = r"rejected the credentials \(SignatureDoesNotMatch\)"
    with pytest.raises(CredentialsError, match=message):
        listing(tmp_path / "t.csv", storage=s3_bucket.options(secret_access_key="wrong"))


def test_a_folder_with_the_name_of_a_table(s3_bucket: Bucket) -> None:
    s3_bucket.put("in/t.csv/1.png", TINY_PNG)
    found = listing(f"{s3_bucket.uri}/in/t.csv", storage=s3_bucket.options())
    assert found.of("id") == [("1.png",)]


NEAR = {
    "x/a.JPG": "x/a.jpg", "x/b.jpg": "x/b.png", "x/c.jpg": "x/c", "x/d d.jpg": "x/dd.jpg",
    "x/e e.jpg": "x/e%20e.jpg", "f.png": "f.png ", "\u00e9.png": "e\u0301.png",
}  # fmt: skip


def test_a_name_that_differs_as_copied_names_do(tmp_path: Path, gcs_bucket: Bucket) -> None:
    table = csv_of(*NEAR.values(), "x/none.jpg")
    for name, data in {**dict.fromkeys(NEAR, TINY_PNG), "t.csv": table}.items():
        gcs_bucket.put(f"in/{name}", data)
        make_files(tmp_path, name, data=data)
    in_store = listing(f"{gcs_bucket.uri}/in/t.csv", storage=gcs_bucket.options())
    for listed in (listing(tmp_path / "t.csv"), in_store):
        assert listed.rows == []
        texts = listed.details.values()
        *found, last = (text.partition("there is no such ")[2] for text in texts)
        hints = [f": `{name.rpartition('/')[2]}` is there, so correct its name" for name in NEAR]
        accents = "`\u00e9.png` with accents as other code points (NFC, NFD)"
        hints[-1] = f": {accents} is there, so correct its name"
        assert [hint.lstrip("fileobjct") for hint in found] == hints
        assert "give --image-root, the folder that relative paths start from" in last
