"""Who asks a store, and where it is: found where each store's own tools find it, and told to nobody else."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import ClientError, CredentialsError, DeniedError, StorageError
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions, credentials
from shardwright.storage.clients import client_for
from tests.buckets import Answer, Bucket, Request, answering
from tests.object_stores import service_account_file
from tests.servers.processes import ACCESS_KEY, SECRET_KEY, TOKEN

_VARIABLE = re.compile("AWS_|GOOGLE_|GCE_|CLOUDSDK_|STORAGE_|BOTO")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has set up nothing."""
    for name in [name for name in os.environ if _VARIABLE.match(name)]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write_profile(path: Path, name: str = "work", **values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))


RIGHT = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}


def asks_well(bucket: Bucket, options: StorageOptions = NO_OPTIONS) -> bool:
    """Both by the fast client and by the stores' own ones."""
    folder = Folder.at(f"{bucket.uri}/set", options)
    folder.write_bytes("x", b"x")
    return folder.read_bytes("x") == b"x" and folder.abort_uploads() == []


@pytest.mark.parametrize("uri", ["s3://bucket", "gs://bucket"])
def test_nobody_waits_for_credentials_that_are_not_there(uri: str) -> None:
    started = time.monotonic()
    with pytest.raises(CredentialsError) as caught:
        Folder.at(uri).read_bytes("x")
    assert time.monotonic() - started < 5
    s3 = f"{uri}: no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give"
    gs = f"{uri}: no Google credentials: run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS, or give"
    assert (
        str(caught.value)
        == (s3 if uri.startswith("s3") else gs)
        + " --storage-option anonymous=true for a public bucket"
    )


@pytest.mark.parametrize("endpoint", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3_by_the_environment(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(endpoint, s3_bucket.server.endpoint + "/")
    assert asks_well(s3_bucket)


def test_options_come_before_the_environment(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.setenv(name, "wrong")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert asks_well(s3_bucket, s3_bucket.options())


class Listener:
    """Answers every request with an object, and keeps its headers."""

    def __init__(self) -> None:
        self.said: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        self.said.append(request)
        return 200, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": '"x"'}, b"data"


@pytest.mark.parametrize(("options", "token"), [({}, None), ({"session_token": "mine"}, "mine")])
def test_a_session_of_the_environment_is_not_that_of_keys_from_options(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], token: str | None
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    listener = Listener()
    with answering(listener) as endpoint:
        assert s3_bucket.at(endpoint).folder(**options).read_bytes("x") == b"data"
    [request] = listener.said
    assert request.headers.get("x-amz-security-token") == token
    assert f"Credential={ACCESS_KEY}/" in request.headers["authorization"]


def test_a_session_of_the_environment(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "me",
        "SECRET_ACCESS_KEY": "s",
        "SESSION_TOKEN": "mine",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    listener = Listener()
    with answering(listener) as endpoint:
        assert (
            Folder.at(s3_bucket.uri, StorageOptions.of({"endpoint": endpoint})).read_bytes("x")
            == b"data"
        )
    assert [request.headers["x-amz-security-token"] for request in listener.said] == ["mine"]


@pytest.mark.parametrize("chosen", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "option", "default"])
@pytest.mark.parametrize("place", [".aws/credentials", "elsewhere"])
def test_profiles(
    s3_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, place: str
) -> None:
    name = "default" if chosen == "default" else "work"
    write_profile(home / place, name, **RIGHT)
    write_profile(home / place, "other", aws_access_key_id="nobody", aws_secret_access_key="x")
    if place == "elsewhere":
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / place))
    if chosen.startswith("AWS"):
        monkeypatch.setenv(chosen, name)
    if chosen == "option":  # it comes before keys of the environment
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    options = {
        "endpoint": s3_bucket.server.endpoint,
        **({"profile": name} if chosen == "option" else {}),
    }
    assert asks_well(s3_bucket, StorageOptions.of(options))


def test_a_profile_that_is_not_there(home: Path) -> None:
    write_profile(home / ".aws/credentials", **RIGHT)
    with pytest.raises(
        CredentialsError,
        match=r"^s3://bucket: AWS credentials cannot be found: The config profile \(wrok\) could not be found$",
    ):
        client_for("s3://bucket", StorageOptions.of({"profile": "wrok"}))


def test_the_region_of_a_profile(
    s3_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(home / ".aws/credentials", "default", **RIGHT)
    write_profile(home / ".aws/config", "default", region="eu-west-3")
    options = StorageOptions.of({"endpoint": s3_bucket.server.endpoint})
    with pytest.raises(
        StorageError, match="is not in the region that was asked; it is in us-east-1"
    ):
        Folder.at(s3_bucket.uri, options).read_bytes("x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert asks_well(s3_bucket, StorageOptions.of({"endpoint": s3_bucket.server.endpoint + "/"}))


def test_keys_that_expire_are_asked_for_again_before(s3_bucket: Bucket, home: Path) -> None:
    """By a process, as SSO helpers are: its keys last nine minutes, and ten before the end they are renewed."""
    script, calls = home / "keys.py", home / "calls"
    expires = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    answer = json.dumps(
        {
            "Version": 1,
            "AccessKeyId": ACCESS_KEY,
            "SecretAccessKey": SECRET_KEY,
            "Expiration": expires,
        }
    )
    script.write_text(f"open({str(calls)!r}, 'a').write('x'); print({answer!r})")
    write_profile(home / ".aws/config", "default", credential_process=f"{sys.executable} {script}")
    options = StorageOptions.of({"endpoint": s3_bucket.server.endpoint})
    assert asks_well(s3_bucket, options)
    provider = client_for(s3_bucket.uri, options).login.provider
    assert provider is not None
    before = len(calls.read_text())
    given: Any = provider()
    assert len(calls.read_text()) == before + 1
    assert timedelta(minutes=4) < given["expires_at"] - datetime.now(UTC) <= timedelta(minutes=5)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_roles_are_left_to_the_client(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/token")
    assert credentials.s3_login("s3://bucket", {}) == credentials.Login()


def test_anonymous(s3_bucket: Bucket, gcs_bucket: Bucket) -> None:
    s3 = StorageOptions.of({"endpoint": s3_bucket.server.endpoint, "anonymous": "true"})
    with pytest.raises(DeniedError, match="x: access denied: these credentials may not read it"):
        Folder.at(s3_bucket.uri, s3).read_bytes("x")
    gs = StorageOptions.of({"base_url": gcs_bucket.server.endpoint, "anonymous": "true"})
    with pytest.raises(CredentialsError, match="does not accept the credentials"):
        Folder.at(gcs_bucket.uri, gs).read_bytes("x")
    assert (
        client_for(s3_bucket.uri, s3).config["skip_signature"]
        is client_for(gcs_bucket.uri, gs).config["skip_signature"]
        is True
    )


def test_anonymous_needs_no_file_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    listener = Listener()
    with answering(listener) as endpoint:
        options = StorageOptions.of({"anonymous": "true", "base_url": endpoint})
        assert Folder.at("gs://public", options).read_bytes("x") == b"data"
    assert [request.headers.get("authorization") for request in listener.said] == [None]


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_emulator_of_the_environment(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Google's own client: it asks without credentials, and takes an address without a scheme."""
    listener, name = Listener(), f"emulated{len(scheme)}"
    with answering(listener) as endpoint:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", scheme + endpoint.removeprefix("http://"))
        assert Folder.at(f"gs://{name}").read_bytes("x") == b"data"
    assert [(request.path, request.headers.get("authorization")) for request in listener.said] == [
        (f"/{name}/x", None)
    ]


def external_account(server: Any, folder: Path) -> Path:
    (folder / "subject").write_text("subject")
    source = {"file": str(folder / "subject")}
    account = {
        "type": "external_account", "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": f"{server.endpoint}/token", "credential_source": source,
    }  # fmt: skip
    (folder / "external.json").write_text(json.dumps(account))
    return folder / "external.json"


def signer(token: str) -> str:
    """Who signed a token of his own, which Google takes as it is (https://google.aip.dev/auth/4111)."""
    claims = token.removeprefix("Bearer ").split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=="))["iss"])


@pytest.mark.parametrize(
    "found",
    [
        "GOOGLE_APPLICATION_CREDENTIALS",
        "application_credentials",
        "service_account",
        "service_account_key",
    ],
)
def test_keys_of_service_accounts(
    gcs_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    path = service_account_file(gcs_bucket.server, home)
    value = path.read_text() if found == "service_account_key" else str(path)
    if found.isupper():
        monkeypatch.setenv(found, value)
    listener = Listener()
    with answering(listener) as endpoint:
        options = StorageOptions.of(
            {"base_url": endpoint, **({} if found.isupper() else {found: value})}
        )
        assert Folder.at(gcs_bucket.uri, options).read_bytes("x") == b"data"
    assert [signer(request.headers["authorization"]) for request in listener.said] == [
        "tests@test.iam.gserviceaccount.com"
    ]


def test_workload_identity(gcs_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "GOOGLE_APPLICATION_CREDENTIALS", str(external_account(gcs_bucket.server, home))
    )
    assert asks_well(gcs_bucket, StorageOptions.of({"base_url": gcs_bucket.server.endpoint}))


@pytest.mark.parametrize("place", [".config/gcloud", "elsewhere"])
def test_the_file_of_gcloud(
    gcs_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "elsewhere":
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(home / place))
    (home / place).mkdir(parents=True)
    external_account(gcs_bucket.server, home).rename(
        home / place / "application_default_credentials.json"
    )
    provider = credentials.gcs_login("gs://bucket", {}).provider
    assert provider is not None
    assert provider()["token"] == TOKEN


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "list"),
        ('{"type": "external_account"}', ""),
    ],
)
def test_google_files_that_cannot_be_used(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, told: str
) -> None:
    path = home / "key.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(
        CredentialsError,
        match=rf"^gs://bucket: the Google credentials file {path} cannot be (read|used): .*{told}",
    ):
        client_for("gs://bucket", NO_OPTIONS)


def test_tokens_that_cannot_be_had(
    gcs_bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(
        lambda _: (400, {"Content-Type": "application/json"}, b'{"error": "invalid_grant"}')
    ) as endpoint:
        monkeypatch.setenv(
            "GOOGLE_APPLICATION_CREDENTIALS",
            str(external_account(gcs_bucket.at(endpoint).server, home)),
        )
        folder = Folder.at(
            gcs_bucket.uri, StorageOptions.of({"base_url": gcs_bucket.server.endpoint})
        )
        for ask in (lambda: folder.read_bytes("x"), folder.names, folder.abort_uploads):
            started = time.monotonic()
            with pytest.raises(
                CredentialsError,
                match=rf"^{gcs_bucket.uri}: credentials cannot be had: .*invalid_grant",
            ):
                ask()
            assert time.monotonic() - started < 10


def test_options_of_one_bucket_alone(s3_bucket: Bucket, gcs_bucket: Bucket) -> None:
    texts = [
        f"{at.uri}:{key}={value}"
        for at in (s3_bucket, gcs_bucket)
        for key, value in at.server.options.items()
    ]
    options = StorageOptions.parse(texts)
    assert asks_well(s3_bucket, options)
    assert asks_well(gcs_bucket, options)
    with pytest.raises(CredentialsError, match=r"^s3://another: no AWS credentials"):
        Folder.at("s3://another", options).read_bytes("x")


def test_secrets_are_told_to_nobody(s3_bucket: Bucket) -> None:
    options = s3_bucket.options(session_token="hidden-1", sse_kms_key_id="hidden-2").settings
    every = StorageOptions(
        (
            *options,
            ("", "bearer_token", TOKEN),
            ("s3://b", "secret_access_key", "hidden-3"),
            ("", "sas_key", "hidden-4"),
        )
    )
    shown = (
        repr(every)
        + str(every)
        + repr(Folder.at(s3_bucket.uri, every))
        + str(Folder.at(s3_bucket.uri, every))
    )
    for secret in (SECRET_KEY, TOKEN, ACCESS_KEY, "hidden"):
        assert secret not in shown
    assert "secret_access_key=***" in shown
    assert f"endpoint={s3_bucket.server.endpoint}" in shown
    assert pickle.loads(pickle.dumps(every)) == every


@pytest.mark.parametrize(
    "changes", [{"proxy_url": "::", "read_timeout": "1"}, {"checksum_algorithm": "crc99"}]
)
def test_options_that_do_not_go_together(s3_bucket: Bucket, changes: dict[str, str]) -> None:
    with pytest.raises(
        ClientError, match=rf"^{s3_bucket.uri}: its options cannot be used: "
    ) as caught:
        s3_bucket.client(**changes)
    assert SECRET_KEY not in str(caught.value)
