"""Tables in stores, and of images in stores: paths, addresses, other buckets, and what a look at each object tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.arguments import ROLES
from shardwright.errors import CredentialsError, StorageError, UsageError
from shardwright.storage import StorageOptions
from tests.buckets import Bucket
from tests.fault_proxy import Fault, FaultProxy
from tests.helpers import TINY_PNG, make_files, rejects_of, rows_of
from transforms.inputs.detection import detect_source, list_source
from transforms.inputs.tables.table_references import resolve_paths
from transforms.inputs.tables.table_source import TableSource
from transforms.rejects import Reject

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
NONE = dict.fromkeys(ROLES)
ROOT = "s3://bucket/data/set"


def csv_of(*paths: str) -> bytes:
    return "".join(f"{line}\n" for line in ("path", *paths)).encode()


def listed(
    uri: str, options: StorageOptions, **columns: str
) -> tuple[list[dict[str, Any]], list[Reject]]:
    parts = list(list_source(detect_source(uri, {**NONE, **columns}, storage=options)))
    return rows_of(parts), rejects_of(parts)


@pytest.mark.parametrize(
    ("written", "relative", "uri"),
    [
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
    ],
)
def test_paths_below_a_prefix(written: str, relative: str, uri: str) -> None:
    for beside in ([], ["x.png", "./odd.png"]):  # what needs no look takes a faster way
        found = resolve_paths(pa.array([written, *beside]), ROOT)
        assert [column[0].as_py() for column in found] == [relative, uri]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_of_every_kind(bucket: Bucket, suffix: str) -> None:
    names = ["cat/1.png", "dog/ü 2.png"]
    for name in names:
        bucket.folder("in").write_bytes(name, TINY_PNG)
    rows = [
        {"path": name, "label": name[:3], "n": str(number)} for number, name in enumerate(names)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    separator = "\t" if suffix == "tsv" else ","
    data = {
        "parquet": sink.getvalue().to_pybytes(),
        "jsonl": "".join(
            f'{{"path": "{row["path"]}", "label": "{row["label"]}", "n": "{row["n"]}"}}\n'
            for row in rows
        ).encode(),
    }.get(
        suffix,
        "".join(
            separator.join(row) + "\n"
            for row in (["path", "label", "n"], *(row.values() for row in rows))
        ).encode(),
    )
    bucket.folder("in").write_bytes(f"t.{suffix}", data)
    source = detect_source(f"{bucket.uri}/in/t.{suffix}", NONE, storage=bucket.options())
    assert isinstance(source, TableSource)
    assert source.describe().startswith(
        f"a {source.format} table at {bucket.uri}/in/t.{suffix}, columns image='path', label='label'"
    )
    rows_found, rejects = listed(f"{bucket.uri}/in/t.{suffix}", bucket.options())
    assert ([(row["id"], row["uri"], row["num_bytes"], row["label"]) for row in rows_found], rejects) == (
        [(name, f"{bucket.uri}/in/{name}", len(TINY_PNG), name[:3]) for name in names], []
    )  # fmt: skip
    assert all(row["etag"] for row in rows_found)


@BOTH
def test_each_object_is_looked_at_once(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = bucket.fill((f"in/{number}.png" for number in range(100)), TINY_PNG)
    bucket.folder("in").write_bytes("t.csv", csv_of(*(key.removeprefix("in/") for key in keys)))
    through = bucket.behind(proxy)
    rows, rejects = listed(f"{bucket.uri}/in/t.csv", through.options())
    assert ([f"in/{row['id']}" for row in rows], rejects) == (keys, [])
    heads = [
        target for method, target in proxy.requests if method == "HEAD" and "csv" not in target
    ]
    assert len(heads) == len(set(heads)) == 100


@BOTH
def test_what_a_look_tells(bucket: Bucket) -> None:
    folder = bucket.folder("in")
    folder.write_bytes("good.png", TINY_PNG)
    folder.write_bytes("empty.png", b"")
    other = f"{bucket.server.scheme}://no-such-bucket/x.png"
    odd = f"{bucket.uri}/a//b.png"
    paths = [
        "good.png",
        "none.png",
        "empty.png",
        other,
        odd,
        "hdfs://host/x.png",
        "/nowhere/x.png",
        "../../x.png",
        "s3x://b/x.png",
    ]
    folder.write_bytes("t.csv", csv_of(*paths))
    rows, rejects = listed(f"{bucket.uri}/in/t.csv", bucket.options())
    assert [row["id"] for row in rows] == ["good.png"]
    told = {reject.id: (str(reject.reason), reject.detail) for reject in rejects}
    scheme = "is no address of an object (s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH)"
    at = bucket.server.endpoint
    assert told == {
        "none.png": ("missing_file", "named in the table, but there is no such object"),
        "empty.png": ("empty_file", "the file has no bytes"),
        other: (
            "missing_file",
            f"{other}: there is no bucket 'no-such-bucket' at {at}: check name and endpoint",
        ),
        odd: (
            "unreadable",
            f"{odd!r} has an empty, '.' or '..' part in its name, which cannot be asked for: rename the object",
        ),
        "hdfs://host/x.png": ("bad_value", f"row 5: hdfs://host/x.png {scheme}"),
        "/nowhere/x.png": ("missing_file", "named in the table, but there is no such file"),
        "../../x.png": ("unreadable", told["../../x.png"][1]),
        "s3x://b/x.png": ("bad_value", f"row 8: s3x://b/x.png {scheme}"),
    }
    assert "has an empty, '.' or '..' part in its name" in told["../../x.png"][1]


def test_a_denied_object_is_a_reject(gcs_bucket: Bucket) -> None:
    gcs_bucket.put("in/denied/x.png", TINY_PNG)
    gcs_bucket.put("in/t.csv", csv_of("denied/x.png"))
    rows, [reject] = listed(f"{gcs_bucket.uri}/in/t.csv", gcs_bucket.options())
    assert (rows, str(reject.reason)) == ([], "unreadable")
    assert reject.detail.startswith(
        f"{gcs_bucket.uri}/in/denied/x.png: access denied: these credentials may not read it (403 AccessDenied"
    )


def test_a_local_table_of_objects_and_files_anywhere(
    s3_bucket: Bucket, gcs_bucket: Bucket, tmp_path: Path
) -> None:
    make_files(tmp_path, "local.png")
    texts = [
        f"{at.uri}:{key}={value}"
        for at in (s3_bucket, gcs_bucket)
        for key, value in at.server.options.items()
    ]
    for bucket in (s3_bucket, gcs_bucket):
        bucket.put("a b.png", TINY_PNG)
    uris = [f"{s3_bucket.uri}/a b.png", f"{gcs_bucket.uri}/a b.png"]
    (tmp_path / "t.csv").write_bytes(csv_of("local.png", *uris))
    rows, rejects = listed(str(tmp_path / "t.csv"), StorageOptions.parse(texts))
    assert ([(row["id"], row["uri"]) for row in rows], rejects) == (
        [("local.png", f"{tmp_path}/local.png"), *((uri, uri) for uri in uris)], []
    )  # fmt: skip


def test_a_size_column_spares_every_look(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("in/t.csv", b"path,size\n1.png,67\n2.png,68\n")
    rows, rejects = listed(
        f"{s3_bucket.uri}/in/t.csv", s3_bucket.behind(s3_proxy).options(), size="size"
    )
    assert ([(row["num_bytes"], row["etag"]) for row in rows], rejects) == (
        [(67, None), (68, None)],
        [],
    )
    assert not [target for _, target in s3_proxy.requests if "png" in target]


@BOTH
def test_a_store_that_fails_altogether_is_no_reject(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = bucket.fill((f"in/{number}.png" for number in range(5)), TINY_PNG)
    bucket.folder("in").write_bytes("t.csv", csv_of(*(key.removeprefix("in/") for key in keys)))
    proxy.add(Fault("status", None, path_contains="png"))
    with pytest.raises(StorageError, match=r"cannot be read: .* answers 503"):
        listed(f"{bucket.uri}/in/t.csv", bucket.behind(proxy).options(deadline="1"))


def test_images_of_a_store_that_nobody_may_ask(s3_bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(csv_of(f"{s3_bucket.uri}/x.png"))
    with pytest.raises(
        CredentialsError, match=r"does not accept the credentials \(SignatureDoesNotMatch\)"
    ):
        listed(str(tmp_path / "t.csv"), s3_bucket.options(secret_access_key="wrong"))


@BOTH
def test_a_table_that_is_not_there(bucket: Bucket) -> None:
    with pytest.raises(
        UsageError,
        match=rf"^INPUT {bucket.uri}/in/t.csv does not exist: there are no objects below it$",
    ):
        detect_source(f"{bucket.uri}/in/t.csv", NONE, storage=bucket.options())
    bucket.put("in/t.csv/1.png", TINY_PNG)  # a folder may be called like that
    rows, _ = listed(f"{bucket.uri}/in/t.csv", bucket.options())
    assert [row["id"] for row in rows] == ["1.png"]
