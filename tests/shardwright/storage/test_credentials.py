"""Credentials and endpoints: found where each store's own tools find them, and shown to nobody."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardwright.errors import CredentialsError, DeniedError, StorageError
from shardwright.storage import credentials
from shardwright.storage.clients import client_for
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from tests.servers.dataflow.credentials import ACCOUNT
from tests.servers.google_machine import ROLE, GoogleMachine, google_machine
from tests.servers.processes import ACCESS_KEY, SECRET_KEY, TOKEN
from tests.support.buckets import Bucket, Request, answering, recording
from tests.support.object_stores import service_account_file

RIGHT = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
NOWHERE = "http://127.0.0.1:9"
GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_VARIABLE = re.compile("AWS_|GOOGLE_|GCE_|CLOUDSDK_|STORAGE_|BOTO")
SetEnv = Callable[..., None]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has set up nothing."""
    for name in [name for name in os.environ if _VARIABLE.match(name)]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def set_env(monkeypatch: pytest.MonkeyPatch) -> SetEnv:
    def set_all(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return set_all


def write_profile(path: Path, name: str = "work", **values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))


def at_endpoint(bucket: Bucket, **more: str) -> StorageOptions:
    """Return options with the endpoint of a bucket, and no credentials."""
    key = "endpoint" if bucket.server.scheme == "s3" else "base_url"
    return StorageOptions.of({key: bucket.server.endpoint, **more})


def has_access(bucket: Bucket, options: StorageOptions = NO_OPTIONS) -> bool:
    """Return whether both obstore and the stores' own clients have access."""
    folder = Folder.at(f"{bucket.uri}/set", options)
    folder.write_bytes("x", b"x")
    folder.stated_crc32c("x")  # by the store's own client
    return folder.read_bytes("x") == b"x"


def request_for(uri: str, **options: str) -> Request:
    """Return the request that reads an object, from a server that takes any credentials."""
    with recording() as (endpoint, requests):
        key = "endpoint" if uri.startswith("s3") else "base_url"
        folder = Folder.at(uri, StorageOptions.of({key: endpoint, **options}))
        assert folder.read_bytes("x") == b"data"
    [request] = requests
    return request


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket", "AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
         "AWS_PROFILE, or"),
        ("gs://bucket", "Google credentials: run `gcloud auth application-default login`, or set "
         "GOOGLE_APPLICATION_CREDENTIALS, or"),
    ],
)  # fmt: skip
def test_missing_credentials_fail_at_once(uri: str, message: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        Folder.at(uri).read_bytes("x")
    public = "--storage-option anonymous=true for a public bucket"
    assert str(caught.value) == f"{uri}: no {message} {public}"


@pytest.mark.parametrize("endpoint", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3_from_the_environment(s3_bucket: Bucket, set_env: SetEnv, endpoint: str) -> None:
    set_env(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    set_env(**{"AWS_ENDPOINT_URL": NOWHERE, endpoint: s3_bucket.server.endpoint + "/"})
    assert has_access(s3_bucket)


def test_options_come_before_the_environment(s3_bucket: Bucket, set_env: SetEnv) -> None:
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION")
    set_env(**dict.fromkeys(keys, "wrong"), AWS_ENDPOINT_URL=NOWHERE)
    assert has_access(s3_bucket, s3_bucket.options())


OWN = {"access_key_id": "me", "secret_access_key": "s"}
AWS_KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s"}
SESSION = {"AWS_SESSION_TOKEN": "of the environment"}


@pytest.mark.parametrize(
    ("environment", "options", "token"),
    [
        # The session of the environment belongs to the environment's keys.
        (AWS_KEYS | SESSION, {}, "of the environment"), (SESSION, OWN, None),
        (SESSION, OWN | {"session_token": "mine"}, "mine"),
        # The machine that submits a job is not one of Google's.
        (AWS_KEYS | {"GCE_METADATA_HOST": "127.0.0.1:9"}, {"role_arn": ROLE}, None),
    ],
)  # fmt: skip
def test_keys_and_sessions(
    set_env: SetEnv, environment: dict[str, str], options: dict[str, str], token: str | None
) -> None:
    set_env(**environment)
    headers = request_for("s3://bucket", **options).headers
    assert headers.get("x-amz-security-token") == token
    assert "Credential=me/" in headers["authorization"]


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("chosen", "place"),
    [
        ("AWS_PROFILE", "elsewhere"), ("AWS_DEFAULT_PROFILE", ".aws/credentials"),
        ("option", ".aws/credentials"), ("default", "elsewhere"),
    ],
)  # fmt: skip
def test_profiles(s3_bucket: Bucket, home: Path, set_env: SetEnv, chosen: str, place: str) -> None:
    name = "default" if chosen == "default" else "work"
    write_profile(home / place, name, **RIGHT)
    write_profile(home / place, "other", aws_access_key_id="nobody", aws_secret_access_key="x")
    if place == "elsewhere":
        set_env(AWS_SHARED_CREDENTIALS_FILE=home / place)
    if chosen.startswith("AWS"):
        set_env(**{chosen: name})
    if chosen == "option":  # it comes before keys of the environment
        set_env(AWS_ACCESS_KEY_ID="wrong", AWS_SECRET_ACCESS_KEY="wrong")
    more = {"profile": name} if chosen == "option" else {}
    assert has_access(s3_bucket, at_endpoint(s3_bucket, **more))


def test_a_missing_profile(home: Path) -> None:
    write_profile(home / ".aws/credentials", **RIGHT)
    with pytest.raises(CredentialsError) as caught:
        client_for("s3://bucket", StorageOptions.of({"profile": "wrok"}))
    found = "could not obtain AWS credentials: The config profile (wrok) could not be found"
    assert str(caught.value) == f"s3://bucket: {found}"


def test_the_region_of_a_profile(s3_bucket: Bucket, home: Path, set_env: SetEnv) -> None:
    write_profile(home / ".aws/credentials", "default", **RIGHT)
    write_profile(home / ".aws/config", "default", region="eu-west-3")
    message = "is not in the configured region; it is in us-east-1"
    with pytest.raises(StorageError, match=message):
        Folder.at(s3_bucket.uri, at_endpoint(s3_bucket)).read_bytes("x")
    set_env(AWS_DEFAULT_REGION="us-east-1")
    assert has_access(s3_bucket, at_endpoint(s3_bucket, user_agent="another client"))


def test_expiring_keys_are_renewed_in_time(s3_bucket: Bucket, home: Path) -> None:
    """A process, as SSO helpers are, gives keys for nine minutes; ten before the end is due."""
    script, calls = home / "keys.py", home / "calls"
    expires = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    keys = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Expiration": expires}
    answer = json.dumps({"Version": 1, **keys})
    script.write_text(f"open({str(calls)!r}, 'a').write('x'); print({answer!r})")
    process = {"credential_process": f"{sys.executable} -S {script}"}
    write_profile(home / ".aws/config", "default", **process)
    assert has_access(s3_bucket, at_endpoint(s3_bucket))
    provider = client_for(s3_bucket.uri, at_endpoint(s3_bucket)).login.provider
    assert provider is not None
    before = len(calls.read_text())
    asked = datetime.now(UTC)
    given: Any = provider()
    assert len(calls.read_text()) == before + 1
    kept = timedelta(minutes=5)
    assert asked + kept <= given["expires_at"] <= datetime.now(UTC) + kept


@pytest.mark.parametrize(
    ("variable", "options"),
    [
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", {}), ("AWS_CONTAINER_CREDENTIALS_FULL_URI", {}),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", {}), ("AWS_WEB_IDENTITY_TOKEN_FILE", {"role_arn": ROLE}),
        ("", {"role_arn": ROLE, "web_identity_token_file": "/token"}),
    ],
)  # fmt: skip
def test_roles_are_left_to_the_client(
    set_env: SetEnv, variable: str, options: dict[str, str]
) -> None:
    set_env(**({variable: "/token"} if variable else {}))
    assert credentials.s3_login("s3://bucket", options) == credentials.Login()


def test_anonymous(s3_bucket: Bucket, gcs_bucket: Bucket) -> None:
    s3, gs = (at_endpoint(bucket, anonymous="true") for bucket in (s3_bucket, gcs_bucket))
    with pytest.raises(DeniedError, match="x: access denied: these credentials may not read it"):
        Folder.at(s3_bucket.uri, s3).read_bytes("x")
    with pytest.raises(CredentialsError, match="rejected the credentials"):
        Folder.at(gcs_bucket.uri, gs).read_bytes("x")
    for uri, options in ((s3_bucket.uri, s3), (gcs_bucket.uri, gs)):
        assert client_for(uri, options).config["skip_signature"] is True


def test_anonymous_needs_no_google_file(set_env: SetEnv) -> None:
    set_env(**{GOOGLE_FILE: "/nowhere.json"})
    assert "authorization" not in request_for("gs://public", anonymous="true").headers


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_emulator_of_the_environment(scheme: str, set_env: SetEnv) -> None:
    """No credentials, as with Google's own client; the address may lack a scheme."""
    name = f"emulated{len(scheme)}"
    with recording() as (endpoint, requests):
        set_env(STORAGE_EMULATOR_HOST=scheme + endpoint.removeprefix("http://"))
        assert Folder.at(f"gs://{name}").read_bytes("x") == b"data"
    [request] = requests
    assert (request.path, request.headers.get("authorization")) == (f"/{name}/x", None)


def external_account(endpoint: str, folder: Path) -> Path:
    (folder / "subject").write_text("subject")
    account = {
        "type": "external_account", "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{endpoint}/token", "credential_source": {"file": str(folder / "subject")},
    }  # fmt: skip
    (folder / "external.json").write_text(json.dumps(account))
    return folder / "external.json"


def signer(token: str) -> str:
    """Return the signer of a token, which Google takes as it is (google.aip.dev/auth/4111)."""
    claims = token.removeprefix("Bearer ").split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=="))["iss"])


@pytest.mark.parametrize(
    "found", [GOOGLE_FILE, "application_credentials", "service_account", "service_account_key"]
)
def test_service_account_keys(gcs_bucket: Bucket, home: Path, set_env: SetEnv, found: str) -> None:
    path = service_account_file(gcs_bucket.server, home)
    value = path.read_text() if found == "service_account_key" else str(path)
    if found.isupper():
        set_env(**{found: value})
    request = request_for(gcs_bucket.uri, **({} if found.isupper() else {found: value}))
    assert signer(request.headers["authorization"]) == ACCOUNT


def test_without_boto3(set_env: SetEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's client reads the metadata of an instance itself, if there is one."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    monkeypatch.setattr(credentials, "_PROBE_SECONDS", 100)  # on a busy machine, too
    with answering(lambda _: (401, {}, b"a token is needed")) as endpoint:
        set_env(GCE_METADATA_HOST=endpoint.removeprefix("http://"))
        assert credentials.s3_login("s3://bucket", {}) == credentials.Login()
    set_env(GCE_METADATA_HOST="127.0.0.1:9")
    with pytest.raises(CredentialsError, match="profiles and SSO need boto3"):
        credentials.s3_login("s3://bucket", {})


def test_workload_identity(gcs_bucket: Bucket, home: Path, set_env: SetEnv) -> None:
    set_env(**{GOOGLE_FILE: external_account(gcs_bucket.server.endpoint, home)})
    assert has_access(gcs_bucket, at_endpoint(gcs_bucket))


@pytest.mark.parametrize("place", [".config/gcloud", "elsewhere"])
def test_the_file_of_gcloud(gcs_bucket: Bucket, home: Path, set_env: SetEnv, place: str) -> None:
    if place == "elsewhere":
        set_env(CLOUDSDK_CONFIG=home / place)
    (home / place).mkdir(parents=True)
    path = home / place / "application_default_credentials.json"
    external_account(gcs_bucket.server.endpoint, home).rename(path)
    provider: Any = credentials.gcs_login("gs://bucket", {}).provider
    assert provider()["token"] == TOKEN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: .*No such file"), ("{", "cannot be read: .*Expecting"),
        ("[]", "cannot be read: .*list"), ('{"type": "external_account"}', "cannot be used: "),
    ],
)  # fmt: skip
def test_invalid_google_files(home: Path, set_env: SetEnv, text: str | None, message: str) -> None:
    path = home / "key.json"
    if text is not None:
        path.write_text(text)
    set_env(**{GOOGLE_FILE: path})
    start = f"^gs://bucket: the Google credentials file {path}"
    with pytest.raises(CredentialsError, match=f"{start} {message}"):
        client_for("gs://bucket", NO_OPTIONS)


def test_tokens_that_cannot_be_obtained(gcs_bucket: Bucket, home: Path, set_env: SetEnv) -> None:
    refusal = 400, {"Content-Type": "application/json"}, b'{"error": "invalid_grant"}'
    message = rf"^{gcs_bucket.uri}: could not obtain credentials: .*invalid_grant"
    with answering(lambda _: refusal) as endpoint:
        set_env(**{GOOGLE_FILE: external_account(endpoint, home)})
        folder = Folder.at(gcs_bucket.uri, at_endpoint(gcs_bucket))
        asks = (lambda: folder.read_bytes("x"), folder.names, lambda: folder.stated_crc32c("x"))
        for ask in asks:
            with pytest.raises(CredentialsError, match=message) as caught:
                ask()
            assert str(caught.value).count("invalid_grant") == 1


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
    assert machine.tokens == ["identity-0-for-sts.amazonaws.com"]
    assert {request.headers["x-amz-security-token"] for request in requests} == {"session-0"}
    assert all("Credential=ASIA1/" in request.headers["authorization"] for request in requests)


@pytest.mark.parametrize(
    ("machine", "sessions"),
    [({}, [0, 0, 0]), ({"lifetime": timedelta(minutes=9)}, [0, 1, 2])],
    indirect=["machine"],
)
def test_keys_are_exchanged_again_before_they_end(
    machine: GoogleMachine, sessions: list[int]
) -> None:
    provider: Any = credentials.s3_login("s3://bucket", machine.options).provider
    assert [provider()["token"] for _ in range(3)] == [f"session-{number}" for number in sessions]
    assert len(machine.tokens) == len(set(sessions))  # a token may have ended, too: not used twice


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause before a retry; no time passes."""
    seconds: list[float] = []
    monkeypatch.setattr(credentials, "time", SimpleNamespace(sleep=seconds.append))
    return seconds


@pytest.mark.parametrize("machine", [{"failures": 2}], indirect=True)
def test_a_metadata_server_that_is_not_ready(machine: GoogleMachine, pauses: list[float]) -> None:
    provider: Any = credentials.s3_login("s3://bucket", machine.options).provider
    assert (provider()["token"], pauses) == ("session-0", [0, 1, 2])


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
