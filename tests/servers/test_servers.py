"""The object stores of the tests refuse what the real ones refuse.

The tests of `shardwright.storage` read, write, list and delete on each of them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import obstore
import pytest
from botocore.exceptions import ClientError
from obstore.exceptions import PreconditionError

from tests.servers import processes
from tests.servers.clients import open_store
from tests.servers.processes import ServerFailedError, ServerMissingError
from tests.support import object_stores
from tests.support.buckets import Bucket
from tests.support.object_stores import delete_object, put_object, service_account_file


def test_folders_are_uploaded_and_downloaded(bucket: Bucket, tmp_path: Path) -> None:
    files = {name: name.encode() * 1000 for name in ("a.txt", "b/c.bin", "b/d e/f.txt")}
    for name, data in files.items():
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(data)
    prefix = f"{bucket.uri}/some/data"
    object_stores.upload_folder(bucket.server, tmp_path / "up", prefix)
    put_object(bucket.server, f"{prefix}-not/x", b"a key with the same start")
    assert bucket.keys() == ["some/data-not/x", *(f"some/data/{name}" for name in files)]
    delete_object(bucket.server, f"{prefix}/a.txt")
    down = tmp_path / "down"
    object_stores.download_folder(bucket.server, prefix, down)
    found = {str(path.relative_to(down)): path for path in down.rglob("*") if path.is_file()}
    del files["a.txt"]
    assert {name: path.read_bytes() for name, path in found.items()} == files


def test_s3_completes_an_upload_only_without_an_object(s3_bucket: Bucket) -> None:
    s3, upload = s3_bucket.server.s3_client(), {"Bucket": s3_bucket.name, "Key": "x"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"part")["ETag"]
    s3_bucket.put("x", b"first")
    complete = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}, "IfNoneMatch": "*"}
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.complete_multipart_upload(**upload, **complete)
    assert s3_bucket.pending() == ["x"]
    delete_object(s3_bucket.server, f"{s3_bucket.uri}/x")
    s3.complete_multipart_upload(**upload, **complete)
    assert s3_bucket.get("x") == b"part"


def test_conditions_on_reads_and_writes(bucket: Bucket) -> None:
    store = open_store(bucket.server, bucket.name)
    etag = obstore.put(store, "x", b"first")["e_tag"]
    listed = obstore.list(store).collect()[0]["e_tag"]
    assert obstore.head(store, "x")["e_tag"] == listed == etag
    assert bytes(obstore.get(store, "x", options={"if_match": etag}).bytes()) == b"first"
    obstore.put(store, "x", b"second")
    with pytest.raises(PreconditionError):
        obstore.get(store, "x", options={"if_match": etag})


@pytest.mark.long  # imports Beam with all its clients, which only the engines' tests need
def test_beam_reads_and_renames(
    s3_bucket: Bucket, gcs_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.io.aws.s3filesystem import S3FileSystem
    from apache_beam.io.gcp.gcsfilesystem import GCSFileSystem
    from apache_beam.options.pipeline_options import PipelineOptions

    key_file = service_account_file(gcs_bucket.server, tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_bucket.server.endpoint)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    names = {"endpoint": "endpoint_url", "region": "region_name"}
    given = {key: value for key, value in s3_bucket.server.options.items() if key != "allow_http"}
    s3 = PipelineOptions([f"--s3_{names.get(key, key)}={value}" for key, value in given.items()])
    for bucket, system in (
        (s3_bucket, S3FileSystem(s3)),
        (gcs_bucket, GCSFileSystem(PipelineOptions(["--project=test"]))),
    ):
        prefix = f"{bucket.uri}/beam"
        bucket.put("beam/x", b"read me")
        [match] = system.match([f"{prefix}/*"])
        assert [found.path for found in match.metadata_list] == [f"{prefix}/x"]
        with system.open(f"{prefix}/x") as file:
            assert file.read() == b"read me"
        system.rename([f"{prefix}/x"], [f"{prefix}/y"])
        assert bucket.keys() == ["beam/y"]


def test_a_server_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BINARIES", tmp_path)
    for starting in (processes.start_versitygw(tmp_path), processes.start_gcs(tmp_path)):
        with pytest.raises(ServerMissingError, match="is not built: run `make servers`"), starting:
            pass


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
    running = processes._running(lambda _: command, tmp_path / "log")
    message = r"ended with exit code 3[^$]*the reason"
    with pytest.raises(ServerFailedError, match=message), running:
        pass


def test_a_server_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_S", 0.2)
    code = "trap '' TERM; echo ready; while true; do sleep 1; done"
    with subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        processes._stop(process)
        assert process.returncode == -signal.SIGKILL
