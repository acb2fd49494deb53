"""The object stores that other tests lean on: each does what the real one does, and refuses what the real one refuses."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from apache_beam.io.aws.s3filesystem import S3FileSystem
from apache_beam.io.gcp.gcsfilesystem import GCSFileSystem
from apache_beam.options.pipeline_options import PipelineOptions
from botocore.exceptions import ClientError
from obstore.exceptions import PermissionDeniedError, PreconditionError

from tests.object_stores import (
    delete_object,
    download_folder,
    get_object,
    list_keys,
    new_bucket,
    put_object,
    service_account_file,
    upload_folder,
)
from tests.servers import processes
from tests.servers.clients import PART_BYTES, Boto3, Client, Google, Obstore, open_store
from tests.servers.processes import (
    ServerFailedError,
    ServerMissingError,
    start_gcs,
    start_versitygw,
)
from tests.servers.store_server import StoreServer

SERVERS = ("s3_server", "moto_server", "gcs_server")
CLIENTS: tuple[tuple[str, Callable[[StoreServer, str], Client]], ...] = (
    ("s3_server", Boto3), ("s3_server", Obstore), ("moto_server", Boto3), ("moto_server", Obstore),
    ("gcs_server", Google), ("gcs_server", Obstore),
)  # fmt: skip
ODD_KEYS = (
    "a",
    "a.b/c",
    "sp ace/ü😀.jpg",
    "per%20cent#?&+=.jpg",
    "quo'te\"[b]{c}|~*.jpg",
    "x/a/b",
    "x/a.b",
)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=CLIENTS, ids=lambda pair: f"{pair[0]}-{pair[1].__name__}")
def store(request: pytest.FixtureRequest) -> tuple[Client, StoreServer, str]:
    server = request.getfixturevalue(request.param[0])
    bucket = new_bucket(server)
    return request.param[1](server, bucket), server, bucket


def test_objects_are_put_read_by_range_copied_and_deleted(
    store: tuple[Client, StoreServer, str],
) -> None:
    client, _, _ = store
    client.put("f/one", b"0123456789")
    client.put("f/one", b"9876543210")  # takes the place of the first
    client.put("f/empty", b"")
    assert client.get("f/one") == b"9876543210"
    assert client.get("f/empty") == b""
    assert client.get_range("f/one", 2, 5) == b"765"
    client.copy("f/one", "f/two")
    assert client.get("f/two") == b"9876543210"
    client.delete("f/one", "f/empty")
    assert client.keys("") == ["f/two"]


def test_an_object_is_created_once(store: tuple[Client, StoreServer, str]) -> None:
    client, _, _ = store
    assert client.create("once", b"first")
    assert not client.create("once", b"second")
    assert client.get("once") == b"first"


@pytest.mark.parametrize(
    "client",
    [pair for pair in CLIENTS if pair[0] != "moto_server"],
    ids=lambda pair: pair[1].__name__,
)
def test_one_of_many_creators_wins(
    client: tuple[str, Callable[[StoreServer, str], Client]], request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(client[0])
    bucket = new_bucket(server)
    creators = [client[1](server, bucket) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            key = f"key-{number}"
            made = list(pool.map(lambda n, key=key: creators[n].create(key, b"%d" % n), range(4)))
            assert creators[0].get(key) == b"%d" % made.index(True)
            assert made.count(True) == 1


def test_listings_give_every_key_in_byte_order_over_pages(
    store: tuple[Client, StoreServer, str],
) -> None:
    client, _, _ = store
    for number in range(20):
        client.put(f"n/{number:02}", b"x")
        client.put(f"m/{number:02}/x", b"x")
    for key in ODD_KEYS:
        client.put(key, key.encode())
    all_keys = sorted(
        [*ODD_KEYS, *(f"n/{n:02}" for n in range(20)), *(f"m/{n:02}/x" for n in range(20))]
    )
    assert client.keys("") == all_keys
    assert client.keys("n/") == [f"n/{n:02}" for n in range(20)]
    assert client.folders("m/") == [f"m/{n:02}/" for n in range(20)]
    assert client.folders("") == ["a.b/", "m/", "n/", "sp ace/", "x/"]
    assert [client.get(key) for key in ODD_KEYS] == [key.encode() for key in ODD_KEYS]


def test_parts_become_one_object_and_an_upload_given_up_leaves_nothing(
    store: tuple[Client, StoreServer, str],
) -> None:
    client, server, bucket = store
    data = os.urandom(2 * PART_BYTES + 1)
    client.put_parts("large", data)
    assert client.get("large") == data
    pending: list[list[str]] = []
    client.give_up("never", lambda: pending.append(server.pending_uploads(bucket)))
    assert pending == [["never"]]
    assert server.pending_uploads(bucket) == []
    assert client.keys("") == ["large"]


def test_folders_go_up_and_come_down(server: StoreServer, tmp_path: Path) -> None:
    folder = tmp_path / "up"
    for name in ("a.txt", "b/c.bin", "b/d e/f.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 1000)
    prefix = f"{server.scheme}://{new_bucket(server)}/some/data"
    upload_folder(server, folder, prefix)
    put_object(server, f"{prefix}-not/x", b"a key that begins alike")
    assert list_keys(server, f"{prefix}/") == [
        "some/data/a.txt",
        "some/data/b/c.bin",
        "some/data/b/d e/f.txt",
    ]
    delete_object(server, f"{prefix}/a.txt")
    download_folder(server, prefix, tmp_path / "down")
    (folder / "a.txt").unlink()
    assert _files(tmp_path / "down") == _files(folder)


def test_s3_refuses_wrong_credentials(s3_server: StoreServer) -> None:
    bucket = new_bucket(s3_server)
    for changes in ({"secret_access_key": "wrong"}, {"access_key_id": "wrong"}):
        with pytest.raises(ClientError, match=r"SignatureDoesNotMatch|InvalidAccessKeyId"):
            s3_server.s3_client(**changes).list_objects_v2(Bucket=bucket)
        with pytest.raises(PermissionDeniedError):
            obstore.put(open_store(s3_server, bucket, **changes), "x", b"x")


def test_s3_refuses_wrong_checksums(s3_server: StoreServer) -> None:
    wrong = (
        {"ContentMD5": base64.b64encode(bytes(16)).decode()},
        {"ChecksumCRC32C": base64.b64encode(bytes(4)).decode()},
    )
    bucket = new_bucket(s3_server)
    for checksum in wrong:
        with pytest.raises(ClientError, match=r"BadDigest|did not match"):
            s3_server.s3_client().put_object(Bucket=bucket, Key="x", Body=b"x", **checksum)
    assert list_keys(s3_server, f"s3://{bucket}/") == []


def test_s3_completes_an_upload_only_where_no_object_is(s3_server: StoreServer) -> None:
    s3, bucket = s3_server.s3_client(), new_bucket(s3_server)
    upload = {"Bucket": bucket, "Key": "x"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"part")["ETag"]
    put_object(s3_server, f"s3://{bucket}/x", b"first")
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
    assert s3_server.pending_uploads(bucket) == ["x"]
    delete_object(s3_server, f"s3://{bucket}/x")
    s3.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
    assert get_object(s3_server, f"s3://{bucket}/x") == b"part"


def test_buckets_and_objects_that_are_not_there(server: StoreServer) -> None:
    for bucket, key in (("no-such-bucket", "x"), (new_bucket(server), "x")):
        with pytest.raises(FileNotFoundError):
            obstore.get(open_store(server, bucket), key)
    with pytest.raises(Exception, match="NoSuchBucket"):
        obstore.list(open_store(server, "no-such-bucket")).collect()
    with pytest.raises(Exception, match="NoSuchBucket"):
        obstore.put(open_store(server, "no-such-bucket"), "x", b"x")


def test_conditions_on_reads_and_writes(server: StoreServer) -> None:
    store = open_store(server, new_bucket(server))
    first = obstore.put(store, "x", b"first")
    assert (
        obstore.head(store, "x")["e_tag"]
        == obstore.list(store).collect()[0]["e_tag"]
        == first["e_tag"]
    )
    assert bytes(obstore.get(store, "x", options={"if_match": first["e_tag"]}).bytes()) == b"first"
    obstore.put(store, "x", b"second")
    with pytest.raises(PreconditionError):
        obstore.get(store, "x", options={"if_match": first["e_tag"]})


def test_beam_reads_and_renames(
    s3_server: StoreServer, gcs_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    monkeypatch.setenv(
        "GOOGLE_APPLICATION_CREDENTIALS", str(service_account_file(gcs_server, tmp_path))
    )
    keys = [
        f"--s3_{key}={s3_server.options[key]}" for key in ("access_key_id", "secret_access_key")
    ]
    s3_options = [
        *keys,
        f"--s3_endpoint_url={s3_server.endpoint}",
        f"--s3_region_name={s3_server.options['region']}",
    ]
    for server, bucket, system in (
        (s3_server, new_bucket(s3_server), S3FileSystem(PipelineOptions(s3_options))),
        (gcs_server, new_bucket(gcs_server), GCSFileSystem(PipelineOptions(["--project=test"]))),
    ):
        prefix = f"{server.scheme}://{bucket}/beam"
        put_object(server, f"{prefix}/x", b"read me")
        assert [found.path for found in system.match([f"{prefix}/*"])[0].metadata_list] == [
            f"{prefix}/x"
        ]
        with system.open(f"{prefix}/x") as file:
            assert file.read() == b"read me"
        system.rename([f"{prefix}/x"], [f"{prefix}/y"])
        assert list_keys(server, prefix) == ["beam/y"]


def test_a_server_that_is_not_built_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "BINARIES", tmp_path)
    for starting in (start_versitygw(tmp_path), start_gcs(tmp_path)):
        with pytest.raises(ServerMissingError, match="is not built: run `make servers`"), starting:
            pass


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
    with (
        pytest.raises(ServerFailedError, match=r"ended with exit code 3[^$]*the reason"),
        processes._running(lambda _: command, tmp_path / "log"),
    ):
        pass


def test_a_server_that_ignores_the_request_to_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "STOP_S", 0.2)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    started = time.monotonic()
    processes._stop(process)
    assert process.returncode == -9
    assert time.monotonic() - started < 10
    process.stdout.close()


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
