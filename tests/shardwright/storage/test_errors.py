"""Errors of a store: each has its own type and message, within seconds, and on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
from shardwright.inspect import cli
from shardwright.storage import clients
from shardwright.storage.folder import Folder
from shardwright.storage.object_reads import ObjectParts, head_object, read_object
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import SERVERS, Answer, Bucket, Request, answering, takes
from tests.support.build_helpers import build
from tests.support.helpers import TINY_PNG, make_files

S3, GCS = "s3_server", "gcs_server"


@dataclass(frozen=True)
class Trouble:
    """A wrong request; its message has {uri}, {at} and {store} for object, endpoint and bucket."""

    server: str
    error: type[StorageError]
    message: str
    change: Mapping[str, str] = field(default_factory=dict)
    bucket: str = ""
    key: str = "set/x"
    is_whole: bool = True  # no more text follows the message

    def asked(self, bucket: Bucket) -> Bucket:
        return Bucket(bucket.server, self.bucket or bucket.name)

    def pattern(self, bucket: Bucket, uri: str) -> str:
        """Return the message as a regular expression; `uri` is one already."""
        at = re.escape(self.change.get("endpoint", bucket.server.endpoint))
        text = re.escape(self.message).replace(r"\{", "{").replace(r"\}", "}")
        text = text.format(uri=uri, at=at, store=self.asked(bucket).uri)
        return text + "$" * self.is_whole


MISSING = "{uri}: there is no such object"
NO_BUCKET = "{uri}: bucket 'no-such-bucket' does not exist at {at}: check the name and the endpoint"
DENIED = "{uri}: access denied: these credentials may not read it (403 AccessDenied from {at})"
REFUSED = (
    "{store}: {at} rejected the credentials (%s): check that they are for this store and have not "
    "expired"
)
NOBODY = (
    "{uri}: no response from {at}: check the endpoint (--storage-option endpoint=..., "
    "AWS_ENDPOINT_URL) and the network"
)
REGION = (
    "{store} is not in the configured region; it is in us-east-1: set --storage-option "
    "region=us-east-1 or AWS_REGION"
)


def refused(server: str, code: str, **change: str) -> Trouble:
    return Trouble(server, CredentialsError, REFUSED % code, change)


TROUBLES = {
    "key": refused(S3, "InvalidAccessKeyId", access_key_id="nobody"),
    "secret": refused(S3, "SignatureDoesNotMatch", secret_access_key="guess"),
    "token": refused(GCS, "AuthenticationRequired", bearer_token="guess"),
    "region": Trouble(S3, WrongRegionError, REGION, {"region": "eu-west-3"}),
    "anonymous": Trouble(S3, DeniedError, DENIED, {"anonymous": "true"}),
    "denied": Trouble(GCS, DeniedError, DENIED, key="denied/x"),
    "nobody": Trouble(
        S3, UnreachableError, NOBODY, {"endpoint": "http://127.0.0.1:9"}, is_whole=False
    ),
}
for _name in SERVERS:
    TROUBLES[f"object {_name}"] = Trouble(_name, MissingError, MISSING, key="set/none")
    TROUBLES[f"bucket {_name}"] = Trouble(
        _name, MissingBucketError, NO_BUCKET, bucket="no-such-bucket"
    )


@pytest.fixture
def trouble(request: pytest.FixtureRequest) -> Trouble:
    return TROUBLES[request.param]


READS: list[Callable[[Folder, str], object]] = [
    lambda folder, name: folder.read_bytes(name),
    lambda folder, name: folder.read_range(name, 0, 4),
    lambda folder, name: folder.open_input(name),
]
ASKED = [(trouble.server, name) for name, trouble in TROUBLES.items() if name != "nobody"]


@pytest.mark.long
@pytest.mark.parametrize(("bucket", "trouble"), ASKED, indirect=True)
def test_each_trouble_has_its_own_error(bucket: Bucket, trouble: Trouble) -> None:
    asked = trouble.asked(bucket)
    message = trouble.pattern(bucket, f"{asked.uri}/{trouble.key}")
    folder = asked.folder(**trouble.change)
    for read in READS:
        with pytest.raises(StorageError, match=f"^{message}") as caught, takes(0, 100):
            read(folder, trouble.key)
        assert type(caught.value) is trouble.error


def test_an_object_that_has_changed_since_it_was_listed(bucket: Bucket) -> None:
    uri, options = f"{bucket.uri}/x", bucket.options()
    bucket.put("x", b"old")
    found = head_object(uri, options)
    assert found is not None
    etag = found.etag
    assert read_object(uri, options, num_bytes=3, etag=etag) == b"old"
    bucket.put("x", b"new")
    for asked in ({"etag": etag}, {"etag": etag, "num_bytes": 3}, {"num_bytes": 4}):
        with pytest.raises(ChangedError, match=rf"^{uri} has changed since it was listed$"):
            read_object(uri, options, **asked)
    # A part of an archive that is shorter now ends in it, or begins behind its end.
    assert ObjectParts(uri, options, None).read(1, 3) == b"ew"
    for start, stop, listed in ((1, 3, etag), (1, 6, None), (10, 15, None)):
        with pytest.raises(ChangedError, match=rf"^{uri} has changed since it was listed$"):
            ObjectParts(uri, options, listed).read(start, stop)


def upload(folder: Folder) -> None:
    """Fail as the upload begins, or at its end if the store's refusal arrives in between."""
    with folder.open_sink("x"):
        pass


OPERATIONS: dict[str, tuple[str, Callable[[Folder], object]]] = {
    "read": ("read", lambda folder: folder.read_bytes("x")),
    "head": ("read", lambda folder: folder.num_bytes_of("x")),
    "list": ("list", lambda folder: folder.names()),
    "write": ("write", lambda folder: folder.write_bytes("x", b"")),
    "create": ("write", lambda folder: folder.create_bytes("x", b"")),
    "remove": ("read", lambda folder: folder.remove("x")),
    "remove_all": ("delete", lambda folder: folder.remove_all(["x", "y"])),
    "upload": ("write", upload),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_denied_operations(s3_bucket: Bucket, s3_proxy: FaultProxy, name: str) -> None:
    s3_proxy.add(Fault("status", None, status=403))
    verb, operate = OPERATIONS[name]
    uri = s3_bucket.uri + ("/set" if name == "list" else "/set/x")
    message = rf"these credentials may not {verb} it \(403 AccessDenied from"
    with pytest.raises(DeniedError, match=rf"^{uri}: access denied: {message}"):
        operate(s3_bucket.behind(s3_proxy).folder("set"))


def answer_of(status: int, code: str) -> Callable[[Request], Answer]:
    document = f"<Error><Code>{code}</Code><Region>eu-west-3</Region></Error>"
    return lambda _: (status, {"Content-Type": "application/xml"}, document.encode())


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (400, "ExpiredToken", CredentialsError, "rejected the credentials (ExpiredToken)"),
        (403, "ExpiredToken", CredentialsError, "rejected the credentials (ExpiredToken)"),
        (403, "RequestTimeTooSkewed", CredentialsError, "credentials (RequestTimeTooSkewed)"),
        (301, "PermanentRedirect", WrongRegionError, "is not in the configured region; set "
         "--storage-option region=... or AWS"),
        (400, "AuthorizationHeaderMalformed", WrongRegionError, "it is in eu-west-3: set "
         "--storage-option region=eu-west-3"),
        (403, "AllAccessDisabled", DeniedError, "access denied: these credentials may not "),
        (400, "InvalidRequest", StorageError, "returned 400 InvalidRequest"),
        (501, "NotImplemented", StorageError, "returned 501 NotImplemented"),
    ],
)  # fmt: skip
def test_answers_that_the_test_servers_do_not_give(
    s3_bucket: Bucket, status: int, code: str, error: type[StorageError], message: str
) -> None:
    with answering(answer_of(status, code)) as endpoint:
        folder = s3_bucket.at(endpoint).folder()
        for ask in (lambda: folder.read_bytes("x"), lambda: folder.num_bytes_of("x"), folder.names):
            with pytest.raises(StorageError, match=re.escape(message)) as caught:
                ask()
            assert type(caught.value) is error


@pytest.mark.parametrize("body", [b"<html><body>Where is it?</body></html>", b"not found", b""])
def test_an_endpoint_that_is_no_store(s3_bucket: Bucket, body: bytes) -> None:
    with answering(lambda _: (404, {"Content-Type": "text/html"}, body)) as endpoint:
        folder = s3_bucket.at(endpoint).folder()
        for ask, uri in (
            (folder.names, folder.uri),
            (lambda: folder.read_bytes("x"), folder.path("x")),
        ):
            with pytest.raises(MissingError, match=rf"^{uri}: there is no such object$"):
                ask()


RUN = [
    *((TROUBLES[name].server, name, command) for command in ("inspect", "build from", "build to")
      for name in ("secret", "token", "bucket s3_server")),
    (GCS, "bucket gcs_server", "inspect"), (GCS, "bucket gcs_server", "build to"),
    (S3, "key", "inspect"), (S3, "region", "build to"), (S3, "nobody", "build from"),
]  # fmt: skip


@pytest.mark.parametrize(("bucket", "trouble", "command"), RUN, indirect=["bucket", "trouble"])
def test_the_last_line_of_a_command_is_the_error(
    bucket: Bucket,
    trouble: Trouble,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(clients, "FIRST_CONTACT_SECONDS", 0.5)
    bucket.put("images/cat/1.png", TINY_PNG)
    images = make_files(tmp_path / "in", "cat/1.png")
    asked = trouble.asked(bucket)
    options = bucket.args(**trouble.change)
    with takes(0, 150):
        if command == "inspect":
            code = cli.main(["inspect", f"{asked.uri}/set", *options])
        elif command == "build from":
            code = build(f"{asked.uri}/images", tmp_path / "out", *options)
        else:
            code = build(images, f"{asked.uri}/set", *options)
    out, err = capfd.readouterr()
    last = err.strip().splitlines()[-1]
    assert code in (1, 2), last
    assert re.search(trouble.pattern(bucket, rf"{asked.uri}[^:]*").removesuffix("$"), last), last
    for text in ("Traceback", "test-secret-key", "test-token", "guess"):
        assert text not in err + out
