"""Passwords, keys and signed URLs: no message, file or pickle of a build has them."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.internal.cloudpickle import cloudpickle

import shardwright as sw
from shardwright.errors import ShardwrightError, UsageError
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.job.build import describe_job, prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.processes import temporary_folder
from shardwright.storage.addresses import parse_address, redact
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.object_reads import read_object
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from tests.servers.google_machine import google_machine
from tests.support.buckets import OBJECT_HEADERS, Answer, Bucket, Request, answering
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, reasons_of
from tests.support.object_stores import upload_folder

CANARY = "CANARYsecret42"


def text_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("url", [
    f"https://user:{CANARY}@host/a.png", f"https://{CANARY}@host/a.png",
    f"s3://key:{CANARY}@bucket/a.png", f"https://host/a.png?X-Amz-Signature={CANARY}",
    f"HTTPS://host/a.png?sig={CANARY}&x=1",
])  # fmt: skip
def test_addresses_with_secrets(url: str) -> None:
    assert CANARY not in redact(f"cannot read '{url}' (again)")
    assert redact(redact(url)) == redact(url)
    for written in (url, redact(url)):
        with pytest.raises(UsageError, match="are not supported: give credentials") as caught:
            parse_address(written)
        assert CANARY not in str(caught.value)


def test_addresses_without_secrets() -> None:
    for url in ("s3://bucket/a@b.png", "https://host/@a/b?c", "/data/a@b?c=d", "gs://b/x?y=z"):
        assert redact(url) == url
    assert parse_address("gs://b/x?y=z").key == "x?y=z"


@pytest.mark.long
@pytest.mark.parametrize("columns", ["path,label", "path,label,size"])
def test_a_build_never_shows_a_secret(
    tmp_path: Path,
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    make_images(tmp_path / "in", 6)
    size = ",70" if "size" in columns else ""
    paths = sorted(path.relative_to(tmp_path) for path in (tmp_path / "in").rglob("*.png"))
    sizes = [f",{(tmp_path / path).stat().st_size}" if size else "" for path in paths]
    rows = [f"{path},cat{length}" for path, length in zip(paths, sizes, strict=True)]
    rows += [
        f"https://user:{CANARY}@127.0.0.1:9/a.png,cat{size}",
        f"https://127.0.0.1:9/b.png?sig={CANARY},cat{size}",
        f"https://127.0.0.1:9/c.png?sig={CANARY},cat,1,2,3{size}",
    ]
    (tmp_path / "t.csv").write_text("\n".join([columns, *rows]) + "\n")
    options = [f"--storage-option=secret_access_key={CANARY}", "--max-reject-fraction=0.9"]
    options += [f"--storage-option=endpoint=http://u:{CANARY}@127.0.0.1:9"]
    assert build(tmp_path / "t.csv", tmp_path / "out", *options) == 0
    reasons = sorted(reasons_of(tmp_path / "out").values())
    assert reasons == ["bad_value", "bad_value", "unreadable"]
    assert CANARY.encode() not in text_of(tmp_path / "out")
    for argv in ([f"https://u:{CANARY}@h/x", "out"], ["in", f"https://h/x?k={CANARY}"],
                 ["in", "out", f"--labels=https://u:{CANARY}@h/x"],
                 ["in", "out", f"--storage-option={CANARY}"],
                 ["in", "out", f"--storage-option=timeout={CANARY}"],
                 ["in", "out", f"--image-root=s3://u:{CANARY}@h/x"]):  # fmt: skip
        monkeypatch.chdir(tmp_path)
        assert build(*argv) == 2
    told = "".join(capfd.readouterr()) + caplog.text
    assert "***" in told
    assert CANARY not in told


@pytest.mark.long
def test_a_role_stages_and_stores_no_secret(
    moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 read on a Google machine: neither the graph nor the dataset has the role's keys."""
    upload_folder(moto_bucket.server, make_images(tmp_path / "in", 6), f"{moto_bucket.uri}/in")
    pickles: list[bytes] = []
    dumps = pickler.dumps

    def note(thing: object, *options: Any, **named: Any) -> bytes:
        pickles.append(cloudpickle.dumps(thing))
        return bytes(dumps(thing, *options, **named))

    monkeypatch.setattr(pickler, "dumps", note)
    with google_machine(key=CANARY, secret=CANARY) as machine:
        for name, value in {**machine.environment, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        options = {"endpoint": moto_bucket.server.endpoint, "region": "us-east-1"}
        settings = {**options, **machine.options}.items()
        words = [f"--storage-option={key}={value}" for key, value in settings]
        argv = [f"{moto_bucket.uri}/in", str(tmp_path / "out"), *words]
        assert build(*argv) == 0
        assert read_manifest(Folder(str(tmp_path / "out"))).num_records == 6
        assert len(machine.sessions) == 1
        with temporary_folder():
            pipeline = beam.Pipeline()
            build_graph(pipeline, describe_job(parse_options(argv)))
            staged = pipeline.to_runner_api().SerializeToString()
    secrets = [CANARY, *machine.sessions, *machine.tokens]
    assert b"role_arn" in b"".join(pickles)
    for secret in (each.encode() for each in secrets):
        assert not [
            True for text in (staged, *pickles, text_of(tmp_path / "out")) if secret in text
        ]


@pytest.mark.long
def test_errors_and_pickles_of_options(tmp_path: Path) -> None:
    texts = [f"secret_access_key={CANARY}", f"access_key_id={CANARY}",
             f"endpoint=http://u:{CANARY}@127.0.0.1:1", f"proxy_url=http://u:{CANARY}@127.0.0.1:1",
             "deadline=1"]  # fmt: skip
    options = StorageOptions.parse(texts)
    assert CANARY not in repr(options)
    with pytest.raises(ShardwrightError) as caught:
        files_of("s3://bucket/a", options).read_bytes("s3://bucket/a")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    with answering(lambda _: (403, {}, b"")) as endpoint, pytest.raises(ShardwrightError) as caught:
        read_object(f"{endpoint}/a", NO_OPTIONS, query=f"sig={CANARY}")
    assert CANARY in str(caught.value.__context__)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    (tmp_path / "t.csv").write_text(f"path\nhttps://u:{CANARY}@h/a.png\n")
    job = describe_job(parse_options([str(tmp_path / "t.csv"), str(tmp_path / "out")]))
    assert CANARY.encode() not in pickle.dumps(job.source)


def staged_graph(argv: list[str]) -> bytes:
    with temporary_folder():
        pipeline = beam.Pipeline("FnApiRunner")
        build_graph(pipeline, prepare_job(parse_options(argv)))
        return bytes(pipeline.to_runner_api().SerializeToString())


@contextmanager
def serving_signed(folder: Path) -> Iterator[tuple[str, list[Request]]]:
    """Yield the endpoint of a server of a folder's files that wants signatures, and requests."""
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        path, _, query = request.path.partition("?")
        if request.method != "GET" or not query.startswith(f"sig={CANARY}%2F"):
            return 403, {}, b""
        data = (folder / unquote(path).lstrip("/")).read_bytes()
        if "Range" not in request.headers:
            return 200, OBJECT_HEADERS, data
        return 206, {**OBJECT_HEADERS, "Content-Range": f"bytes 0-0/{len(data)}"}, data[:1]

    with answering(answer) as endpoint:
        yield endpoint, requests


@pytest.mark.long
@pytest.mark.parametrize("columns", ["path,label", "path,label,size"])
def test_signed_urls_are_read_and_stored_without_their_queries(
    tmp_path: Path,
    columns: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    paths = sorted(make_images(tmp_path / "in", 9).rglob("*.png"))
    (tmp_path / "in" / "copy.png").write_bytes(paths[0].read_bytes())
    sized = "size" in columns

    def write_table(name: str, rows: dict[str, Path]) -> None:
        lines = [f"{row},cat" + f",{path.stat().st_size}" * sized for row, path in rows.items()]
        (tmp_path / name).write_text("\n".join([columns, *lines]) + "\n")

    def sign(signature: str) -> None:
        urls = {path: f"{endpoint}/{path.relative_to(tmp_path)}" for path in paths[:6]}
        rows = {f"{url}?sig={CANARY}%2F{signature}&x=1": path for path, url in urls.items()}
        rows |= {f"{endpoint}/denied.png?sig=no{CANARY}": paths[0]} if sized else {}
        write_table("1.csv", rows)

    given = [f"{tmp_path}/*.csv", str(tmp_path / "out"), "--max-reject-fraction=0.9"]
    given += ["--duplicates=drop", *["--size-column=size"] * sized]
    local = [*paths[6:], tmp_path / "in" / "copy.png"]
    write_table("2.csv", {str(path.relative_to(tmp_path)): path for path in local})
    with serving_signed(tmp_path) as (endpoint, requests):
        sign("first")
        assert build(*given) == 0
        assert CANARY.encode() not in staged_graph([*given, "--if-exists=overwrite"])
        sign("second")
        assert build(*given) == 0
    assert sw.open(given[1]).splits["train"].num_records == 9
    rejects = sorted(reasons_of(tmp_path / "out").values())
    assert rejects == ["dropped_duplicate", *["unreadable"] * sized]
    assert {request.method for request in requests} == {"GET"}
    told = "".join(capfd.readouterr()) + caplog.text
    assert f"{endpoint}/in/".encode() in text_of(tmp_path / "out")
    assert CANARY.encode() not in text_of(tmp_path / "out")
    assert CANARY not in told
    assert "up to date" in told
    assert ("access denied: a signed URL may have expired (403" in told) == sized
