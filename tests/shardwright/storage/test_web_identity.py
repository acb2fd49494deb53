"""S3 from Google machines: roles that trust the machine's service account."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardwright.errors import CredentialsError
from shardwright.storage import credentials
from shardwright.storage.credentials import Login, s3_login
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.servers.google_machine import ROLE, GoogleMachine, google_machine
from tests.servers.processes import ACCESS_KEY, SECRET_KEY
from tests.support.buckets import recording

AUDIENCE = "sts.amazonaws.com"


@pytest.fixture(autouse=True)
def _no_other_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if re.match("AWS_|GOOGLE_|GCE_", name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GoogleMachine]:
    """This machine as one of Google's; however busy, its metadata server answers in time."""
    for name in ("_PROBE_SECONDS", "_TOKEN_SECONDS"):
        monkeypatch.setattr(credentials, name, 100)
    with google_machine(**getattr(request, "param", {})) as machine:
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        yield machine


def test_requests_are_signed_with_the_keys_of_the_role(machine: GoogleMachine) -> None:
    with recording() as (endpoint, requests):
        options = StorageOptions.of({"endpoint": endpoint, **machine.options})
        folder = Folder.at("s3://bucket", options)
        assert [folder.read_bytes("x") for _ in range(3)] == [b"data"] * 3
    assert machine.tokens == [f"identity-0-for-{AUDIENCE}"]
    assert {request.headers["x-amz-security-token"] for request in requests} == {"session-0"}
    assert all("Credential=ASIA1/" in request.headers["authorization"] for request in requests)


@pytest.mark.parametrize("machine", [{"lifetime": timedelta(minutes=9)}], indirect=True)
def test_keys_are_exchanged_again_before_they_end(machine: GoogleMachine) -> None:
    provider: Any = s3_login("s3://bucket", machine.options).provider
    assert [provider()["token"] for _ in range(2)] == ["session-0", "session-1"]
    assert len(machine.tokens) == 2  # a token is not used twice: it may have ended, too


def test_lasting_keys_are_exchanged_once(machine: GoogleMachine) -> None:
    provider: Any = s3_login("s3://bucket", machine.options).provider
    assert [provider()["token"] for _ in range(3)] == ["session-0"] * 3


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause before a retry; no time passes."""
    seconds: list[float] = []
    monkeypatch.setattr(credentials, "time", SimpleNamespace(sleep=seconds.append))
    return seconds


@pytest.mark.parametrize("machine", [{"failures": 2}], indirect=True)
def test_a_metadata_server_that_is_not_ready(machine: GoogleMachine, pauses: list[float]) -> None:
    provider: Any = s3_login("s3://bucket", machine.options).provider
    assert provider()["token"] == "session-0"
    assert pauses == [0, 1, 2]


@pytest.mark.parametrize(
    ("role", "failures", "tries", "message"),
    [
        ("arn:aws:iam::1:role/another-role", 0, 1, "AccessDenied"),
        (ROLE, 9, 4, r"gave no identity token of this machine's service account \(try again\)"),
    ],
)
def test_roles_that_cannot_be_assumed(
    machine: GoogleMachine,
    pauses: list[float],
    role: str,
    failures: int,
    tries: int,
    message: str,
) -> None:
    machine.failures = failures
    options = StorageOptions.of({**machine.options, "role_arn": role})
    folder = Folder.at("s3://bucket", options)
    with pytest.raises(CredentialsError, match=f"could not obtain credentials: .*{message}"):
        folder.read_bytes("x")
    assert len(pauses) == tries


def test_elsewhere_the_usual_credentials_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that submits a job is not one of Google's."""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with recording() as (endpoint, requests):
        options = StorageOptions.of({"endpoint": endpoint, "role_arn": ROLE})
        Folder.at("s3://bucket", options).read_bytes("x")
    assert f"Credential={ACCESS_KEY}/" in requests[0].headers["authorization"]


def test_the_token_of_a_file_is_left_to_the_client(machine: GoogleMachine) -> None:
    values = {**machine.options, "web_identity_token_file": "/token"}
    assert s3_login("s3://bucket", values) == Login()
