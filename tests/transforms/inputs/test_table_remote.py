"""Tables in stores, and of images in stores: paths, addresses and other buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import CredentialsError, StorageError, UsageError
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.image_paths import resolve_paths, split_queries
from shardwright.transforms.rejects import Reject
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import detect, list_source

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
NONE = dict.fromkeys(ROLE_COLUMNS)
ROOT = "s3://bucket/data/set"


def csv_of(*paths: str) -> bytes:
    return "".join(f"{line}\n" for line in ("path", *paths)).encode()


def listed(
    uri: str | Path, options: StorageOptions, **columns: str
) -> tuple[list[dict[str, Any]], list[Reject]]:
    parts = list(list_source(detect(str(uri), {**NONE, **columns}, storage=options)))
    return rows_of(parts), rejects_of(parts)


def put_images(bucket: Bucket, number: int) -> list[str]:
    """Put images and a table of them, in/t.csv, into a bucket; return their keys."""
    keys = bucket.fill((f"in/{index}.png" for index in range(number)), TINY_PNG)
    bucket.put("in/t.csv", csv_of(*(key.removeprefix("in/") for key in keys)))
    return keys


@pytest.mark.parametrize(("written", "relative", "uri"), [
    ("a.png", "a.png", f"{ROOT}/a.png"),
    ("b/ü #%41?.png", "b/ü #%41?.png", f"{ROOT}/b/ü #%41?.png"),
    ("./a.png", "a.png", f"{ROOT}/a.png"),
    ("b/./a.png", "b/a.png", f"{ROOT}/b/a.png"),
    ("b//a.png", "b/a.png", f"{ROOT}/b/a.png"),
    ("b/../a.png", "a.png", f"{ROOT}/a.png"),
    ("../a.png", "../a.png", "s3://bucket/data/a.png"),
    ("../../a.png", "../../a.png", "s3://bucket/a.png"),
    ("../set/a.png", "a.png", f"{ROOT}/a.png"),
    ("../../../a.png", "../../../a.png", f"{ROOT}/../../../a.png"),
    (f"{ROOT}/a.png", "a.png", f"{ROOT}/a.png"),
    (f"{ROOT}2/a.png", f"{ROOT}2/a.png", f"{ROOT}2/a.png"),
    ("s3://other/a.png", "s3://other/a.png", "s3://other/a.png"),
    ("gs://other/a//b.png", "gs://other/a//b.png", "gs://other/a//b.png"),
    ("https://host/a%20b.png", "https://host/a%20b.png", "https://host/a%20b.png"),
    ("hdfs://host/a.png", "hdfs://host/a.png", "hdfs://host/a.png"),
    ("/local/a.png", "/local/a.png", "/local/a.png"),
    ("file:///local/a.png", "/local/a.png", "/local/a.png"),
    ("/local/../b//a.png", "/b/a.png", "/b/a.png"),
    ("~/a.png", "~/a.png", f"{ROOT}/~/a.png"),
    ("a:b.png", "a:b.png", f"{ROOT}/a:b.png"),
    ("", "", ""),
])  # fmt: skip
def test_paths_below_a_prefix(written: str, relative: str, uri: str) -> None:
    for beside in ([], ["x.png", "./odd.png"]):  # plain paths take a faster way
        found = resolve_paths(pa.array([written, *beside]), ROOT)
        assert [column[0].as_py() for column in found] == [relative, uri]


def test_queries_are_split_off() -> None:
    plain = ["a.png?b=c", "s3://bucket/a.png?b=c", "https://host/a.png", "https://host/a?b", ""]
    assert split_queries(pa.array(plain)) == (pa.array(plain), None)
    signed = ["HTTPS://host/a b.png?X-Amz-Signature=a%2Fb&c=?", "http://host/?a=\n"]
    paths, queries = split_queries(pa.array([*plain, *signed]))
    assert paths.to_pylist() == [*plain, "HTTPS://host/a b.png", "http://host/"]
    assert queries is not None
    hidden = resolve_paths(pa.array(signed), ROOT)[1].to_pylist()
    assert hidden == ["HTTPS://host/a b.png?***", "http://host/?***"]
    assert queries.to_pylist() == [None] * 5 + ["X-Amz-Signature=a%2Fb&c=?", "a=\n"]


@BOTH
def test_each_object_is_requested_once(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = put_images(bucket, 100)
    rows, rejects = listed(f"{bucket.uri}/in/t.csv", bucket.behind(proxy).options())
    assert ([f"in/{row['id']}" for row in rows], rejects) == (keys, [])
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
        "none.png": (
            "missing_file",
            f"listed in the table, but there is no such object below {bucket.uri}/in/: give "
            "--image-root, the folder that relative paths start from",
        ),
        "empty.png": ("empty_file", "the file has no bytes"),
        other: ("missing_file", f"{other}: {no_bucket}name and the endpoint"),
        odd: ("unreadable", f"{odd!r} {no_part}object"),
        "hdfs://host/x.png": ("bad_value", f"row 5: hdfs://host/x.png {scheme}"),
        "/nowhere/x.png": ("missing_file", "listed in the table, but there is no such file"),
        "../../x.png": ("unreadable", f"'{bucket.uri}/in/../../x.png' {no_part}object"),
        "s3x://b/x.png": ("bad_value", f"row 8: s3x://b/x.png {scheme}"),
    }
    folder.write_bytes("t.csv", csv_of("good.png", *expected))
    rows, rejects = listed(f"{bucket.uri}/in/t.csv", bucket.options())
    assert [row["id"] for row in rows] == ["good.png"]
    assert {row.id: (str(row.reason), row.detail) for row in rejects} == expected


def test_a_denied_object_is_a_reject(gcs_bucket: Bucket) -> None:
    gcs_bucket.put("in/denied/x.png", TINY_PNG)
    gcs_bucket.put("in/t.csv", csv_of("denied/x.png"))
    rows, [reject] = listed(f"{gcs_bucket.uri}/in/t.csv", gcs_bucket.options())
    assert (rows, str(reject.reason)) == ([], "unreadable")
    denied = "access denied: these credentials may not read it (403 AccessDenied"
    assert reject.detail.startswith(f"{gcs_bucket.uri}/in/denied/x.png: {denied}")


def test_a_local_table_of_anything(s3_bucket: Bucket, gcs_bucket: Bucket, tmp_path: Path) -> None:
    make_files(tmp_path, "local.png")
    expected, texts = [("local.png", f"{tmp_path}/local.png")], []
    for bucket in (s3_bucket, gcs_bucket):
        bucket.put("a b.png", TINY_PNG)
        expected.append((f"{bucket.uri}/a b.png",) * 2)
        texts += [f"{bucket.uri}:{key}={value}" for key, value in bucket.server.options.items()]
    (tmp_path / "t.csv").write_bytes(csv_of(*(image_id for image_id, _ in expected)))
    rows, rejects = listed(tmp_path / "t.csv", StorageOptions.parse(texts))
    assert ([(row["id"], row["uri"]) for row in rows], rejects) == (expected, [])


def test_with_a_size_column_no_object_is_requested(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("in/t.csv", b"path,size\n1.png,67\n2.png,68\n")
    options = s3_bucket.behind(s3_proxy).options()
    rows, rejects = listed(f"{s3_bucket.uri}/in/t.csv", options, size="size")
    found = [(row["num_bytes"], row["etag"]) for row in rows]
    assert (found, rejects) == ([(67, None), (68, None)], [])
    assert "png" not in str(s3_proxy.requests)


@pytest.mark.long_but_first
@BOTH
def test_a_store_that_fails_altogether_rejects_nothing(bucket: Bucket, proxy: FaultProxy) -> None:
    put_images(bucket, 5)
    proxy.add(Fault("status", None, path_contains="png"))
    with pytest.raises(StorageError, match=r"cannot be read: .* returned 503"):
        listed(f"{bucket.uri}/in/t.csv", bucket.behind(proxy).options(deadline="1"))


def test_wrong_credentials_for_the_images(s3_bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(csv_of(f"{s3_bucket.uri}/x.png"))
    message = r"rejected the credentials \(SignatureDoesNotMatch\)"
    with pytest.raises(CredentialsError, match=message):
        listed(tmp_path / "t.csv", s3_bucket.options(secret_access_key="wrong"))


@BOTH
def test_a_missing_table(bucket: Bucket) -> None:
    table = f"{bucket.uri}/in/t.csv"
    message = f"^INPUT {table} does not exist: there are no objects below it$"
    with pytest.raises(UsageError, match=message):
        detect(table, NONE, storage=bucket.options())
    bucket.put("in/t.csv/1.png", TINY_PNG)  # a folder may have such a name
    rows, _ = listed(table, bucket.options())
    assert [row["id"] for row in rows] == ["1.png"]


NEAR = {
    "x/a.JPG": "x/a.jpg", "x/b.jpg": "x/b.png", "x/c.jpg": "x/c", "x/d d.jpg": "x/dd.jpg",
    "x/e e.jpg": "x/e%20e.jpg", "f.png": "f.png ", "\u00e9.png": "e\u0301.png",
}  # fmt: skip


def test_a_name_that_differs_as_copied_names_do(tmp_path: Path, gcs_bucket: Bucket) -> None:
    table = csv_of(*NEAR.values(), "x/none.jpg")
    for name, data in {**dict.fromkeys(NEAR, TINY_PNG), "t.csv": table}.items():
        gcs_bucket.put(f"in/{name}", data)
        make_files(tmp_path, name, data=data)
    in_store = listed(f"{gcs_bucket.uri}/in/t.csv", gcs_bucket.options())
    for rows, rejects in (listed(tmp_path / "t.csv", StorageOptions()), in_store):
        assert rows == []
        *found, last = (reject.detail.partition("there is no such ")[2] for reject in rejects)
        hints = [f": `{name.rpartition('/')[2]}` is there, so correct its name" for name in NEAR]
        accents = "`\u00e9.png` with accents as other code points (NFC, NFD)"
        hints[-1] = f": {accents} is there, so correct its name"
        assert [hint.lstrip("fileobjct") for hint in found] == hints
        assert "give --image-root, the folder that relative paths start from" in last
