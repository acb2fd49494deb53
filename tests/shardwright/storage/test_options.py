"""Storage options: keys, values, and the buckets for which they hold."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from shardwright.errors import ClientError, UsageError
from shardwright.storage.clients import client_for
from shardwright.storage.folder import Folder
from shardwright.storage.options import (
    AZURE_KEYS,
    GCS_KEYS,
    NO_OPTIONS,
    S3_KEYS,
    StorageOptions,
    parse_bool,
    parse_seconds,
    typed,
)
from tests.servers.processes import SECRET_KEY
from tests.support.buckets import Bucket


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("region=eu-west-3", ("", "region", "eu-west-3")),
        ("REGION=x", ("", "region", "x")),
        ("endpoint_url=http://[::1]:9000/", ("", "endpoint", "http://[::1]:9000/")),
        ("anonymous=TRUE", ("", "skip_signature", "TRUE")),
        ("no_sign_request=1", ("", "skip_signature", "1")),
        ("path_style=true", ("", "virtual_hosted_style_request", "false")),
        ("path_style=no", ("", "virtual_hosted_style_request", "true")),
        ("secret_access_key=a=b:c//d s3://x", ("", "secret_access_key", "a=b:c//d s3://x")),
        ("service_account_key={\n}", ("", "service_account_key", "{\n}")),
        ("session_token=", ("", "session_token", "")),
        ("s3a://bucket:region=x", ("s3://bucket", "region", "x")),
        ("gs://b.c-d_e:anonymous=yes", ("gs://b.c-d_e", "skip_signature", "yes")),
        ("https://host:8443:user_agent=me", ("https://host:8443", "user_agent", "me")),
        ("deadline=2.5s", ("", "deadline", "2.5s")),
        ("sts_endpoint=http://x", ("", "endpoint_url_sts", "http://x")),
    ],
)
def test_settings(text: str, setting: tuple[str, str, str]) -> None:
    assert StorageOptions.parse([text]).settings == (setting,)


@pytest.mark.parametrize(
    ("store", "keys"),
    [(S3Store, S3_KEYS - {"profile"}), (GCSStore, GCS_KEYS), (AzureStore, AZURE_KEYS)],
)
def test_the_client_knows_every_key(store: Any, keys: frozenset[str]) -> None:
    told = []
    for key in keys:
        try:
            store("bucket", config={key: typed(key, "true")})
        except (BaseError, ValueError) as error:
            told.append(str(error))
    assert not [text for text in told if "is not valid for store" in text]


SECONDS = "must be a number of seconds above 0, such as 30"


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("region", "'region'", "must be KEY=VALUE, or s3://BUCKET:KEY=VALUE for one bucket"),
        ("=x", "", "must be KEY=VALUE"),
        ("", "", "must be KEY=VALUE"),
        ("secret key=hidden", "'secret key'", "must be KEY=VALUE"),
        ("s3://bucket/a:region=x", "'s3://bucket/a:region'", "must be KEY=VALUE"),
        ("regoin=x", "'regoin'", "is unknown; did you mean 'region'?"),
        ("secret_acces_key=hidden", "'secret_acces_key'", "is unknown; did you mean "
         "'secret_access_key'?"),
        ("hidden", "", "must be KEY=VALUE"), ("hid/den=", "", "must be KEY=VALUE"),
        ("hidden=", "", "is unknown; known keys include "),
        ("s3://u:hidden@bucket:region=x", "'s3://***@bucket:region'", "must be KEY=VALUE"),
        ("qqq=x", "", "is unknown; known keys include "),
        ("anonymous=maybe", "skip_signature", "must be true or false"),
        ("path_style=2", "path_style", "must be true or false"),
        ("allow_http=", "allow_http", "must be true or false"),
        ("timeout=soon", "timeout", SECONDS),
        ("deadline=0", "deadline", SECONDS),
        ("read_timeout=-1", "read_timeout", SECONDS),
        ("connect_timeout=x", "connect_timeout", SECONDS),
    ],
)  # fmt: skip
def test_invalid_options(text: str, key: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        StorageOptions.parse([text])
    assert str(caught.value).startswith(" ".join(filter(None, ["--storage-option", key, message])))
    assert "hidden" not in str(caught.value)


def test_an_unsupported_scheme() -> None:
    with pytest.raises(UsageError, match="'hdfs://host': hdfs:// addresses are not supported"):
        StorageOptions.parse(["hdfs://host:region=x"])


def test_a_bucket_s_own_options_come_first_and_later_ones_win() -> None:
    options = StorageOptions.parse(
        ["s3://a:region=of-a", "region=1", "region=2", "s3://b:endpoint=http://b", "timeout=9"]
    )
    assert options.for_store("s3://a") == {"region": "of-a", "timeout": "9"}
    assert options.for_store("s3://b") == {"region": "2", "endpoint": "http://b", "timeout": "9"}
    assert options.for_store("gs://a") == {"region": "2", "timeout": "9"}
    assert NO_OPTIONS.for_store("s3://a") == {}


def test_options_from_python() -> None:
    given = {"endpoint": "http://x", "anonymous": True, "deadline": 3, "s3://b:region": "r"}
    texts = ["endpoint=http://x", "anonymous=True", "deadline=3", "s3://b:region=r"]
    options = StorageOptions.of(given)
    assert options == StorageOptions.parse(texts)
    assert StorageOptions.of(options) is options
    assert StorageOptions.of(None) == StorageOptions.of({}) == NO_OPTIONS


@given(st.text(max_size=20))
def test_any_value(value: str) -> None:
    options = StorageOptions.parse([f"s3://b:secret_access_key={value}"])
    assert options.for_store("s3://b") == {"secret_access_key": value}


def test_values() -> None:
    texts = ("true", "False", "1", "0", "YES", "no")
    assert [parse_bool("k", text) for text in texts] == [True, False] * 3
    seconds = {text: parse_seconds("k", text) for text in ("3", "0.5", " 2 s")}
    assert [value / timedelta(seconds=1) for value in seconds.values()] == [3, 0.5, 2]


def test_the_client_of_options() -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    own = {"endpoint": "http://127.0.0.1:9/", "deadline": "7", "path_style": "true"}
    client = client_for("s3://bucket", StorageOptions.of({**keys, **own}))
    assert (client.endpoint, client.deadline) == ("http://127.0.0.1:9", 7)
    assert client.config["virtual_hosted_style_request"] is False
    aws = {**keys, "region": "eu-west-3"}
    plain = client_for("s3://bucket", StorageOptions.of(aws))
    assert (plain.endpoint, plain.deadline) == ("the AWS endpoint", 180)
    assert plain.config["region"] == "eu-west-3"
    assert client_for("s3://bucket", StorageOptions.of(aws)) is plain


@pytest.mark.parametrize(
    "changes", [{"proxy_url": "::", "read_timeout": "1"}, {"checksum_algorithm": "crc99"}]
)
def test_options_that_exclude_each_other(s3_bucket: Bucket, changes: dict[str, str]) -> None:
    message = f"^{s3_bucket.uri}: invalid storage options: "
    with pytest.raises(ClientError, match=message) as caught:
        s3_bucket.client(**changes)
    assert SECRET_KEY not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    keys = ("access_key_id", "secret_access_key", "session_token", "sse_kms_key_id", "sas_key")
    settings = [(scope, key, f"hidden-{key}") for scope in ("", "s3://b") for key in keys]
    shown = ("", "endpoint", "http://minio:9000")
    options = StorageOptions((*settings, ("", "bearer_token", "hidden"), shown))
    folder = Folder.at("s3://bucket", options)
    for text in (repr(options), str(options), repr(folder), str(folder)):
        assert "hidden" not in text
    assert "StorageOptions(access_key_id=***, secret_access_key=***, " in repr(options)
    assert "s3://b:access_key_id=***, " in repr(options)
    assert repr(options).endswith(", bearer_token=***, endpoint=http://minio:9000)")
    assert pickle.loads(pickle.dumps(options)) == options
