"""What goes wrong with a store, each with its own error and message, within seconds; and the same from the command line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardwright import cli
from shardwright.errors import (
    ChangedError,
    CredentialsError,
    DeniedError,
    MissingBucketError,
    MissingError,
    StorageError,
    UnreachableError,
    WrongRegionError,
)
from shardwright.storage import Folder, StorageOptions, read_object
from tests.buckets import Answer, Bucket, Request, answering
from tests.build_helpers import build
from tests.fault_proxy import Fault, FaultProxy
from tests.helpers import TINY_PNG

SECONDS = 10


@dataclass(frozen=True)
class Trouble:
    """A way to ask a bucket wrongly.

    Attributes:
        server: The store's server.
        error: The error it must end with.
        told: What its message must hold, with {uri}, {at} and {store} for the object, the endpoint and the bucket.
        change: Storage options that are wrong.
        bucket: Another bucket's name.
        key: The object that is asked for.
    """

    server: str
    error: type[StorageError]
    told: str
    change: tuple[tuple[str, str], ...] = ()
    bucket: str = ""
    key: str = "set/x"


NOT_ACCEPTED = (
    "^{store}: {at} does not accept the credentials (%s): check that they are its, and valid$"
)
NO_BUCKET = "^{uri}: there is no bucket 'no-such-bucket' at {at}: check name and endpoint$"
TROUBLES = {
    "missing object": Trouble("s3_server", MissingError, "^{uri}: there is no such object$", key="set/none"),
    "missing object, moto": Trouble("moto_server", MissingError, "^{uri}: there is no such object$", key="set/none"),
    "missing object, GCS": Trouble("gcs_server", MissingError, "^{uri}: there is no such object$", key="set/none"),
    "missing bucket": Trouble("s3_server", MissingBucketError, NO_BUCKET, bucket="no-such-bucket"),
    "missing bucket, moto": Trouble("moto_server", MissingBucketError, NO_BUCKET, bucket="no-such-bucket"),
    "missing bucket, GCS": Trouble("gcs_server", MissingBucketError, NO_BUCKET, bucket="no-such-bucket"),
    "wrong key": Trouble("s3_server", CredentialsError, NOT_ACCEPTED % "InvalidAccessKeyId", (("access_key_id", "nobody"),)),
    "wrong secret": Trouble("s3_server", CredentialsError, NOT_ACCEPTED % "SignatureDoesNotMatch", (("secret_access_key", "guess"),)),
    "wrong token, GCS": Trouble("gcs_server", CredentialsError, NOT_ACCEPTED % "AuthenticationRequired", (("bearer_token", "guess"),)),
    "wrong region": Trouble(
        "s3_server", WrongRegionError,
        "^{store} is not in the region that was asked; it is in us-east-1: give --storage-option region=us-east-1, or set AWS_REGION$",
        (("region", "eu-west-3"),),
    ),
    "nobody there": Trouble(
        "s3_server", UnreachableError,
        "^{uri}: nobody answers at {at}: check the endpoint (--storage-option endpoint=..., AWS_ENDPOINT_URL) and the network",
        (("endpoint", "http://127.0.0.1:9"),),
    ),
    "denied, anonymous": Trouble(
        "s3_server", DeniedError, "^{uri}: access denied: these credentials may not read it (403 AccessDenied from {at})$",
        (("anonymous", "true"),),
    ),
    "denied, GCS": Trouble(
        "gcs_server", DeniedError, "^{uri}: access denied: these credentials may not read it (403 AccessDenied from {at})$", key="denied/x"
    ),
}  # fmt: skip


@pytest.fixture
def trouble(request: pytest.FixtureRequest) -> Trouble:
    return TROUBLES[request.param]


def matcher(told: str, uri: str, at: str) -> str:
    """The message as a regular expression: `^` and `$` mean what they do there, all else itself."""
    store = "/".join(uri.split("/")[:3])
    text = re.escape(told.strip("^$")).replace(r"\{", "{").replace(r"\}", "}")
    return (
        "^"
        + text.format(uri=re.escape(uri), at=re.escape(at), store=re.escape(store))
        + ("$" if told.endswith("$") else "")
    )


READS: dict[str, Callable[[Folder, str], object]] = {
    "read": lambda folder, name: folder.read_bytes(name),
    "range": lambda folder, name: folder.read_range(name, 0, 4),
    "open": lambda folder, name: folder.open_input(name),
}


ASKED = [
    (trouble.server, name, read)
    for name, trouble in TROUBLES.items()
    for read in READS
    if name != "nobody there"
]


@pytest.mark.parametrize(("bucket", "trouble", "read"), ASKED, indirect=["bucket", "trouble"])
def test_each_trouble_has_an_error_of_its_own(bucket: Bucket, trouble: Trouble, read: str) -> None:
    asked = Bucket(bucket.server, trouble.bucket or bucket.name)
    at = dict(trouble.change).get("endpoint", bucket.server.endpoint)
    started = time.monotonic()
    with pytest.raises(
        StorageError, match=matcher(trouble.told, f"{asked.uri}/{trouble.key}", at)
    ) as caught:
        READS[read](asked.folder(**dict(trouble.change)), trouble.key)
    assert type(caught.value) is trouble.error
    assert time.monotonic() - started < SECONDS


def test_an_object_that_has_changed_since_it_was_listed(bucket: Bucket) -> None:
    bucket.put("x", b"old")
    old = read_object(f"{bucket.uri}/x", bucket.options())
    assert read_object(f"{bucket.uri}/x", bucket.options(), num_bytes=3, etag=old.etag) == old
    bucket.put("x", b"new")
    for asked in ({"etag": old.etag}, {"etag": old.etag, "num_bytes": 3}, {"num_bytes": 4}):
        with pytest.raises(
            ChangedError, match=rf"^{bucket.uri}/x has changed since it was listed$"
        ):
            read_object(f"{bucket.uri}/x", bucket.options(), **asked)


@pytest.mark.parametrize(
    "operation", ["read", "head", "list", "write", "create", "remove", "remove_all", "upload"]
)
def test_denied(s3_bucket: Bucket, s3_proxy: FaultProxy, operation: str) -> None:
    """A refusal names what was asked, and what for."""
    s3_proxy.add(Fault("status", None, status=403))
    folder = s3_bucket.behind(s3_proxy).folder("set")
    operations: dict[str, Callable[[], object]] = {
        "read": lambda: folder.read_bytes("x"), "head": lambda: folder.num_bytes_of("x"), "list": folder.names,
        "write": lambda: folder.write_bytes("x", b""), "create": lambda: folder.create_bytes("x", b""),
        "remove": lambda: folder.remove("x"), "remove_all": lambda: folder.remove_all(["x", "y"]),
        "upload": lambda: folder.open_sink("x").__enter__(),
    }  # fmt: skip
    verb = {
        "head": "read",
        "create": "write",
        "remove": "read",
        "remove_all": "delete",
        "upload": "write",
    }.get(operation, operation)
    name = s3_bucket.uri + ("/set" if operation == "list" else "/set/x")
    with pytest.raises(
        DeniedError,
        match=rf"^{name}: access denied: these credentials may not {verb} it \(403 AccessDenied from",
    ):
        operations[operation]()


def answer_of(status: int, code: str) -> Callable[[Request], Answer]:
    document = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>so it is</Message><Region>eu-west-3</Region></Error>'
    return lambda _: (status, {"Content-Type": "application/xml"}, document.encode())


@pytest.mark.parametrize(
    ("status", "code", "error", "told"),
    [
        (400, "ExpiredToken", CredentialsError, "does not accept the credentials (ExpiredToken)"),
        (403, "ExpiredToken", CredentialsError, "does not accept the credentials (ExpiredToken)"),
        (403, "RequestTimeTooSkewed", CredentialsError, "does not accept the credentials (RequestTimeTooSkewed)"),
        (301, "PermanentRedirect", WrongRegionError, "is not in the region that was asked; give its --storage-option region=..., or set"),
        (400, "AuthorizationHeaderMalformed", WrongRegionError, "it is in eu-west-3: give --storage-option region=eu-west-3"),
        (403, "AllAccessDisabled", DeniedError, "access denied: these credentials may not "),
        (400, "InvalidRequest", StorageError, "answers 400 InvalidRequest"),
        (501, "NotImplemented", StorageError, "answers 501 NotImplemented"),
    ],
)  # fmt: skip
def test_answers_that_the_servers_here_do_not_give(
    s3_bucket: Bucket, status: int, code: str, error: type[StorageError], told: str
) -> None:
    with answering(answer_of(status, code)) as endpoint:
        folder = s3_bucket.at(endpoint).folder()
        for ask in (lambda: folder.read_bytes("x"), lambda: folder.num_bytes_of("x"), folder.names):
            with pytest.raises(StorageError, match=re.escape(told)) as caught:
                ask()
            assert type(caught.value) is error


@pytest.mark.parametrize("body", [b"<html><body>Where is it?</body></html>", b"not found", b""])
def test_an_endpoint_that_is_no_store(s3_bucket: Bucket, body: bytes) -> None:
    with answering(lambda _: (404, {"Content-Type": "text/html"}, body)) as endpoint:
        folder = s3_bucket.at(endpoint).folder()
        for ask in (folder.names, lambda: folder.read_bytes("x")):
            with pytest.raises(
                MissingError, match=rf"^{s3_bucket.uri}(/x)?: there is no such object$"
            ):
                ask()


@pytest.fixture
def images(bucket: Bucket) -> Bucket:
    bucket.put("images/cat/1.png", TINY_PNG)
    return bucket


def args_of(options: StorageOptions) -> list[str]:
    return [
        arg for _, key, value in options.settings for arg in ("--storage-option", f"{key}={value}")
    ]


COMMANDS = ("inspect", "build from", "build to")
BUILDS = (
    "missing bucket",
    "missing bucket, GCS",
    "wrong key",
    "wrong secret",
    "wrong token, GCS",
    "wrong region",
)
RUN = [
    *((TROUBLES[name].server, name, command) for name in BUILDS for command in COMMANDS),
    ("s3_server", "nobody there", "build from"),
]


@pytest.mark.parametrize(("bucket", "trouble", "command"), RUN, indirect=["bucket", "trouble"])
def test_the_command_line_says_it_in_one_line(
    images: Bucket,
    trouble: Trouble,
    command: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked = Bucket(images.server, trouble.bucket or images.name)
    options = args_of(asked.options(**dict(trouble.change)))
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "1.png").write_bytes(TINY_PNG)
    started = time.monotonic()
    if command == "inspect":
        code = cli.main(["inspect", f"{asked.uri}/set", *options])
    elif command == "build from":
        code = build(f"{asked.uri}/images", tmp_path / "out", *options)
    else:
        code = build(tmp_path / "in", f"{asked.uri}/set", *options)
    assert time.monotonic() - started < SECONDS + 5
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
    last = said.err.strip().splitlines()[-1]
    assert code in (1, 2), last
    at = dict(trouble.change).get("endpoint", images.server.endpoint)
    told = (
        matcher(trouble.told.strip("^$"), "URI", at)
        .strip("^$")
        .replace("URI", rf"{asked.uri}[^:]*")
    )
    assert re.search(told, last), last
    for secret in ("test-secret-key", "test-token", "guess"):
        assert secret not in said.err + said.out
