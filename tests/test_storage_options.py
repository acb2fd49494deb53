"""What a user says of stores: which keys there are, what their values may be, and for which buckets they hold."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions
from shardwright.storage.clients import DEADLINE_SECONDS, client_for
from shardwright.storage.options import parse_bool, parse_seconds
from tests.buckets import Bucket
from tests.build_helpers import build, make_images


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("region=eu-west-3", ("", "region", "eu-west-3")),
        ("REGION=x", ("", "region", "x")),
        ("endpoint=http://minio:9000", ("", "endpoint", "http://minio:9000")),
        ("endpoint_url=http://[::1]:9000/", ("", "endpoint", "http://[::1]:9000/")),
        ("anonymous=TRUE", ("", "skip_signature", "TRUE")),
        ("no_sign_request=1", ("", "skip_signature", "1")),
        ("path_style=true", ("", "virtual_hosted_style_request", "false")),
        ("path_style=no", ("", "virtual_hosted_style_request", "true")),
        ("secret_access_key=a=b:c//d s3://x", ("", "secret_access_key", "a=b:c//d s3://x")),
        ("service_account_key={\n}", ("", "service_account_key", "{\n}")),
        ("session_token=", ("", "session_token", "")),
        ("s3://bucket:region=x", ("s3://bucket", "region", "x")),
        ("s3a://bucket:region=x", ("s3://bucket", "region", "x")),
        ("gs://b.c-d_e:anonymous=yes", ("gs://b.c-d_e", "skip_signature", "yes")),
        ("https://host:8443:user_agent=me", ("https://host:8443", "user_agent", "me")),
        ("deadline=2.5s", ("", "deadline", "2.5s")),
    ],
)
def test_settings(text: str, setting: tuple[str, str, str]) -> None:
    assert StorageOptions.parse([text]).settings == (setting,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "region",
            "--storage-option 'region' must be KEY=VALUE, or s3://BUCKET:KEY=VALUE for one bucket",
        ),
        ("=x", "--storage-option '' must be KEY=VALUE"),
        ("", "--storage-option '' must be KEY=VALUE"),
        ("secret key=hidden", "--storage-option 'secret key' must be KEY=VALUE"),
        ("s3://bucket/a:region=x", "--storage-option 's3://bucket/a:region' must be KEY=VALUE"),
        ("regoin=x", "--storage-option 'regoin' is no option of a store; did you mean 'region'?"),
        ("secret_acces_key=hidden", "is no option of a store; did you mean 'secret_access_key'?"),
        ("qqq=x", "--storage-option 'qqq' is no option of a store; some keys are "),
        ("anonymous=maybe", "--storage-option skip_signature='maybe' must be true or false"),
        ("path_style=2", "--storage-option path_style='2' must be true or false"),
        ("allow_http=", "--storage-option allow_http='' must be true or false"),
        (
            "timeout=soon",
            "--storage-option timeout='soon' must be a number of seconds above 0, such as 30",
        ),
        (
            "deadline=0",
            "--storage-option deadline='0' must be a number of seconds above 0, such as 30",
        ),
        (
            "read_timeout=-1",
            "--storage-option read_timeout='-1' must be a number of seconds above 0, such as 30",
        ),
        ("hdfs://host:region=x", "'hdfs://host': hdfs:// addresses are not read or written"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        StorageOptions.parse([text])
    assert told in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_bucket_s_own_options_come_first_and_later_ones_win() -> None:
    options = StorageOptions.parse(
        ["s3://a:region=of-a", "region=1", "region=2", "s3://b:endpoint=http://b", "timeout=9"]
    )
    assert options.for_store("s3://a") == {"region": "of-a", "timeout": "9"}
    assert options.for_store("s3://b") == {"region": "2", "endpoint": "http://b", "timeout": "9"}
    assert options.for_store("gs://a") == {"region": "2", "timeout": "9"}
    assert NO_OPTIONS.for_store("s3://a") == {}


def test_from_python() -> None:
    options = StorageOptions.of(
        {"endpoint": "http://x", "anonymous": True, "deadline": 3, "s3://b:region": "r"}
    )
    assert options == StorageOptions.parse(
        ["endpoint=http://x", "anonymous=True", "deadline=3", "s3://b:region=r"]
    )
    assert StorageOptions.of(options) is options
    assert StorageOptions.of(None) == StorageOptions.of({}) == NO_OPTIONS
    with pytest.raises(
        UsageError,
        match="--storage-option 'endpiont' is no option of a store; did you mean 'endpoint'",
    ):
        StorageOptions.of({"endpiont": "http://x"})


@given(st.text(max_size=20))
def test_any_value_comes_through(value: str) -> None:
    assert StorageOptions.parse([f"s3://b:secret_access_key={value}"]).for_store("s3://b") == {
        "secret_access_key": value
    }


def test_values() -> None:
    assert [parse_bool("k", text) for text in ("true", "False", "1", "0", "YES", "no")] == [
        True,
        False,
    ] * 3
    assert [parse_seconds("k", text) for text in ("3", "0.5", " 2 s")] == [
        timedelta(seconds=number) for number in (3, 0.5, 2)
    ]


def test_what_becomes_of_them() -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    client = client_for(
        "s3://bucket",
        StorageOptions.of(
            {**keys, "endpoint": "http://127.0.0.1:9/", "deadline": "7", "path_style": "true"}
        ),
    )
    assert (client.endpoint, client.deadline, client.config["virtual_hosted_style_request"]) == (
        "http://127.0.0.1:9",
        7,
        False,
    )
    plain = client_for("s3://bucket", StorageOptions.of({**keys, "region": "eu-west-3"}))
    assert (plain.endpoint, plain.deadline, plain.config["region"]) == (
        "the AWS endpoint",
        DEADLINE_SECONDS,
        "eu-west-3",
    )
    assert client_for("s3://bucket", StorageOptions.of({**keys, "region": "eu-west-3"})) is plain, (
        "one client for each"
    )


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_no_file_of_a_dataset_holds_a_secret(bucket: Bucket, tmp_path: Path) -> None:
    arguments = [
        text
        for key, value in bucket.server.options.items()
        for text in ("--storage-option", f"{key}={value}")
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "none.png").write_bytes(b"")
    assert (
        build(
            make_images(tmp_path / "in", 3),
            f"{bucket.uri}/set",
            "--max-reject-fraction",
            "0.5",
            *arguments,
        )
        == 0
    )
    keys = bucket.keys()
    assert "set/manifest.json" in keys
    for key in keys:
        data = bucket.get(key)
        for secret in ("test-secret-key", "test-token", "test-access-key"):
            assert secret.encode() not in data, key
