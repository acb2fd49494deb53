"""Faults of stores: transient ones are retried and counted, others end soon with their error."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from obstore.exceptions import BaseError, NotSupportedError

from shardwright.errors import (
    ChangedError,
    CredentialsError,
    DeniedError,
    MissingBucketError,
    MissingError,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
    UnreadableError,
    UnsupportedError,
    WrongRegionError,
)
from shardwright.inspect import cli
from shardwright.storage import clients
from shardwright.storage.clients import FIRST_CONTACT_SECONDS
from shardwright.storage.faults import fault_of
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.storage.uploads import PART_BYTES
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import (
    SERVERS,
    Bucket,
    Counted,
    PauseClock,
    answering,
    on_s3_and_gcs,
    recording,
    timeout_for,
)
from tests.support.build_helpers import build
from tests.support.helpers import TINY_PNG, make_files

DATA = os.urandom(100_000)
PARTS = os.urandom(PART_BYTES + 1_000_000)
S3, GCS = "s3_server", "gcs_server"
Act = Callable[[Folder], object]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PauseClock:
    return PauseClock(monkeypatch)


def wrote(write: Callable[[Folder], object], data: bytes = DATA) -> Act:
    """Return an operation that writes the file "new", and whether it has the data then."""
    return lambda folder: (write(folder), folder.read_bytes("new"))[1] == data


def removed(remove: Callable[[Folder], object]) -> Act:
    return lambda folder: (remove(folder), folder.num_bytes_of("gone"))[1] is None


def copy(folder: Folder) -> bool:
    with folder.local_copy("x") as file:
        return file.read() == DATA


def upload(folder: Folder, data: bytes = DATA) -> None:
    with folder.open_sink("new") as sink:
        sink.write([data])


# name -> (method of the request that is hit, verb of its messages, operation that returns True)
OPERATIONS: dict[str, tuple[str, str, Act]] = {
    "read": ("GET", "read", lambda folder: folder.read_bytes("x") == DATA),
    "range": ("GET", "read", lambda folder: folder.read_range("x", 7, 90_000) == DATA[7:90_007]),
    "open": ("GET", "read", lambda folder: folder.open_input("x").read() == DATA),
    "copy": ("GET", "read", copy),
    "list": ("GET", "list", lambda folder: folder.names() == ["gone", "x"]),
    "head": ("HEAD", "read", lambda folder: folder.num_bytes_of("x") == len(DATA)),
    "write": ("PUT", "write", wrote(lambda folder: folder.write_bytes("new", DATA))),
    "create": ("PUT", "write", wrote(lambda folder: folder.create_bytes("new", DATA))),
    "remove": ("DELETE", "read", removed(lambda folder: folder.remove("gone"))),
    "remove_all": ("DELETE", "delete", removed(lambda folder: folder.remove_all(["gone"]))),
    "upload": ("PUT", "write", wrote(upload)),
    "parts": ("PUT", "write", wrote(lambda folder: upload(folder, PARTS), PARTS)),
}
THROTTLED, RESET, STALL = Fault("status", 1), Fault("reset", 1), Fault("stall", 1)
IN_A_BODY = [
    (Fault("reset", 1, at_byte=50_000), "broken"),
    (Fault("truncate", 1, at_byte=50_000), "broken"),
    (Fault("truncate", 1, at_byte=0), "broken"),
    (Fault("stall", 1, at_byte=50_000), "timeout"),
]
PART: dict[str, Any] = {"method": "PUT", "path_contains": "partNumber=1"}
COMPLETE: dict[str, Any] = {"method": "POST", "path_contains": "uploadId="}
IN_UPLOADS = [
    *(Fault("status", 1, status=status, **PART) for status in (500, 503, 429)),
    Fault("status", 1, method="POST", path_contains="uploads"), Fault("reset", 1, **PART),
    Fault("reset", 1, **COMPLETE), Fault("reset", 1, at_byte=2_000_000, upload=True, **PART),
    Fault("reset_after_upstream", 1, **PART), Fault("stall", 1, **PART),
    Fault("status", 1, **COMPLETE), Fault("reset_after_upstream", 1, **COMPLETE),
    Fault("status", 1, method="HEAD"), Fault("status", 1, method="GET"),
]  # fmt: skip
SIMPLE = [name for name in OPERATIONS if name not in ("upload", "parts")]
CASES = [
    *((S3, "read", Fault("status", 1, status=n), str(n)) for n in (408, 429, 500, 502, 504)),
    *((server, name, THROTTLED, "503") for name in SIMPLE for server in (S3, GCS)),
    *((S3, name, RESET, "connection") for name in SIMPLE),
    *((S3, name, STALL, "timeout") for name in ("head", "list", "write")),
    *((S3, name, *fault) for name in ("read", "range", "copy") for fault in IN_A_BODY),
    *((GCS, "read", *fault) for fault in IN_A_BODY),
    # Some of them are retried by obstore, which does not count.
    *((S3, "parts", fault, None) for fault in IN_UPLOADS),
    *((GCS, "parts", fault, None) for fault in IN_UPLOADS[-5:]),
]


@pytest.mark.long_but_first
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("bucket", "name", "fault", "kind"), CASES, ids=str, indirect=["bucket"])
def test_transient_errors_are_retried(
    bucket: Bucket, proxy: FaultProxy, name: str, fault: Fault, kind: str | None
) -> None:
    bucket.put("x", DATA)
    bucket.put("gone", b"")
    method, _, operate = OPERATIONS[name]
    method = "POST" if method == "DELETE" and bucket.server.scheme == "s3" else method
    proxy.add(hit := Fault(**{**vars(fault), "method": fault.method or method}))
    counted = Counted()
    # A busy machine may need more than a second for a part.
    timeout = "4" if fault.path_contains and fault.kind == "stall" else timeout_for(fault)
    assert operate(bucket.behind(proxy).folder(read_timeout=timeout))
    assert (proxy.hits(hit), bucket.pending()) == (1, [])
    if kind is not None:
        assert list(counted.retries) == [kind]
        # With the short timeout, a busy machine may exceed it in other requests, too.
        assert counted.retries[kind] == 1 or fault.kind == "stall"


@pytest.mark.parametrize("name", OPERATIONS)
def test_denied_operations(s3_bucket: Bucket, s3_proxy: FaultProxy, name: str) -> None:
    s3_proxy.add(Fault("status", None, status=403))
    _, verb, operate = OPERATIONS[name]
    uri, counted = s3_bucket.uri + ("/set$" if name == "list" else r"/set/\w+$"), Counted()
    message = rf"these credentials may not {verb} it \(403 AccessDenied from {s3_proxy.endpoint}\)"
    with pytest.raises(DeniedError, match=rf"access denied: {message}$") as caught:
        operate(s3_bucket.behind(s3_proxy).folder("set"))
    assert re.match(uri, str(caught.value).partition(": access")[0])
    assert counted.retries == {}


class Trouble(NamedTuple):
    """A wrong request; its message begins so, with {uri}, {at} and {store} of the request."""

    server: str
    error: type[StorageError]
    message: str
    change: Mapping[str, str]
    bucket: str = ""
    prefix: str = "set"

    def asked(self, bucket: Bucket) -> Bucket:
        return Bucket(bucket.server, self.bucket or bucket.name)

    def text(self, asked: Bucket, uri: str) -> str:
        at = self.change.get("endpoint", asked.server.endpoint)
        return self.message.format(uri=uri, at=at, store=asked.uri)


MISSING = "{uri}: there is no such object"
NO_BUCKET = "{uri}: bucket 'none-such' does not exist at {at}: check the name and the endpoint"
DENIED = "{uri}: access denied: these credentials may not read it (403 AccessDenied from {at})"
NOBODY = (
    "{uri}: no response from {at}: check the endpoint (--storage-option endpoint=..., "
    "AWS_ENDPOINT_URL) and the network"
)
REGION = (
    "{store} is not in the configured region; it is in us-east-1: set --storage-option "
    "region=us-east-1 or AWS_REGION"
)


def refused(server: str, code: str, option: str) -> Trouble:
    check = "check that they are for this store and have not expired"
    message = f"{{store}}: {{at}} rejected the credentials ({code}): {check}"
    return Trouble(server, CredentialsError, message, {option: "guess"})


TROUBLES = {
    "key": refused(S3, "InvalidAccessKeyId", "access_key_id"),
    "secret": refused(S3, "SignatureDoesNotMatch", "secret_access_key"),
    "token": refused(GCS, "AuthenticationRequired", "bearer_token"),
    "region": Trouble(S3, WrongRegionError, REGION, {"region": "eu-west-3"}),
    "anonymous": Trouble(S3, DeniedError, DENIED, {"anonymous": "true"}),
    "denied": Trouble(GCS, DeniedError, DENIED, {}, prefix="denied"),
    "nobody": Trouble(S3, UnreachableError, NOBODY, {"endpoint": "http://127.0.0.1:9"}),
}
for server in SERVERS:
    TROUBLES[f"object {server}"] = Trouble(server, MissingError, MISSING, {})
    TROUBLES[f"bucket {server}"] = Trouble(
        server, MissingBucketError, NO_BUCKET, {}, bucket="none-such"
    )


@pytest.fixture
def trouble(request: pytest.FixtureRequest) -> Trouble:
    return TROUBLES[request.param]


@pytest.mark.long
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("bucket", "trouble"), [(one.server, name) for name, one in TROUBLES.items()], indirect=True
)
def test_each_trouble_has_its_own_error(bucket: Bucket, trouble: Trouble) -> None:
    asked, counted = trouble.asked(bucket), Counted()
    for name in ("read", "range", "open"):
        with pytest.raises(trouble.error) as caught:
            OPERATIONS[name][2](asked.folder(trouble.prefix, **trouble.change))
        text = trouble.text(asked, f"{asked.uri}/{trouble.prefix}/x")
        assert str(caught.value).startswith(text)
        assert type(caught.value) is trouble.error
    assert bool(counted.retries) is (trouble.error is UnreachableError)


RUN = [
    *((TROUBLES[name].server, name, command) for command in ("inspect", "build from", "build to")
      for name in ("secret", "token", "bucket s3_server")),
    (GCS, "bucket gcs_server", "build to"), (S3, "region", "build to"),
    (S3, "nobody", "build from"),
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
    if command == "inspect":
        code = cli.main(["inspect", f"{asked.uri}/set", *options])
    elif command == "build from":
        code = build(f"{asked.uri}/images", tmp_path / "out", *options)
    else:
        code = build(images, f"{asked.uri}/set", *options)
    out, err = capfd.readouterr()
    last = err.strip().splitlines()[-1]
    assert code in (1, 2), last
    assert asked.uri in last
    assert trouble.text(asked, uri="") in last
    for text in ("Traceback", "test-secret-key", "test-token", "guess"):
        assert text not in err + out


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        *((status, "ExpiredToken", CredentialsError, "rejected the credentials (ExpiredToken)")
          for status in (400, 403)),
        (403, "RequestTimeTooSkewed", CredentialsError, "credentials (RequestTimeTooSkewed)"),
        (301, "PermanentRedirect", WrongRegionError, "is not in the configured region; set "
         "--storage-option region=... or AWS"),
        (400, "AuthorizationHeaderMalformed", WrongRegionError, "it is in eu-west-3: set "
         "--storage-option region=eu-west-3"),
        (403, "AllAccessDisabled", DeniedError, "access denied: these credentials may not "),
        (400, "InvalidRequest", StorageError, "returned 400 InvalidRequest"),
        (501, "NotImplemented", StorageError, "returned 501 NotImplemented"),
        # An endpoint that is no store.
        *((404, body, MissingError, ": there is no such object")
          for body in ("<html><body>Where is it?</body></html>", "not found", "")),
    ],
)  # fmt: skip
def test_answers_that_the_test_servers_do_not_give(
    s3_bucket: Bucket, status: int, code: str, error: type[StorageError], message: str
) -> None:
    document = f"<Error><Code>{code}</Code><Region>eu-west-3</Region></Error>".encode()
    body = code.encode() if status == 404 else document
    with answering(lambda _: (status, {"Content-Type": "application/xml"}, body)) as endpoint:
        folder = s3_bucket.at(endpoint).folder()
        asks = [lambda: folder.read_bytes("x"), folder.names]
        for ask in asks if status == 404 else [*asks, lambda: folder.num_bytes_of("x")]:
            with pytest.raises(StorageError, match=re.escape(message)) as caught:
                ask()
            assert type(caught.value) is error


@on_s3_and_gcs
def test_counted_requests_and_bytes(bucket: Bucket, proxy: FaultProxy) -> None:
    folder = bucket.behind(proxy).folder()
    counted = Counted()
    folder.write_bytes("x", DATA)
    assert counted.all == {"requests": 1, "bytes_written": len(DATA)}
    proxy.add(Fault("status", 3, method="GET"))
    assert folder.read_bytes("x") + folder.read_range("x", 0, 10) == DATA + DATA[:10]
    assert folder.num_bytes_of("x") == len(DATA)
    num_bytes = {"bytes_written": len(DATA), "bytes_read": len(DATA) + 10}
    assert counted.all == {"requests": 7, **num_bytes, "retries_503": 3}
    assert len(proxy.requests) == 7


@on_s3_and_gcs
def test_a_corrupt_body_is_read_again(bucket: Bucket, proxy: FaultProxy) -> None:
    bucket.put("x", DATA)
    proxy.add(Fault("corrupt", 1, method="GET", at_byte=50_000))
    counted = Counted()
    assert bucket.behind(proxy).folder().read_bytes("x") == DATA
    assert counted.retries == {"content": 1}
    proxy.add(Fault("corrupt", None, method="GET", path_contains="x", at_byte=50_000))
    message = r"was damaged during the download \(MD5 \w+, the store has \w+\): try again"
    with pytest.raises(ChangedError, match=rf"^{bucket.uri}/x {message}"):
        bucket.behind(proxy).folder().read_bytes("x")


def test_an_etag_of_an_encrypted_object_is_no_md5(s3_bucket: Bucket) -> None:
    encryption = {"x-amz-server-side-encryption": "aws:kms"}
    with recording(ETag=f'"{"0123456789abcdef" * 2}"', **encryption) as (endpoint, _):
        assert s3_bucket.at(endpoint).folder().read_bytes("x") == b"data"


@on_s3_and_gcs
@pytest.mark.parametrize("key", ["photos/oauth2/x", "computeMetadata/token request (ü).jpg"])
def test_a_name_like_that_of_a_login_is_no_login(
    bucket: Bucket, proxy: FaultProxy, key: str
) -> None:
    """A request that breaks off is retried; without credentials it would end at once."""
    bucket.put(key, DATA)
    proxy.add(Fault("reset", 1, method="GET"))
    counted = Counted()
    assert bucket.behind(proxy).folder().read_bytes(key) == DATA
    assert sum(counted.retries.values()) == 1


@on_s3_and_gcs
def test_the_head_of_an_empty_object_is_refused_once(bucket: Bucket, proxy: FaultProxy) -> None:
    """The request for the reason asks for a byte, and there is none."""
    bucket.put("empty", b"")
    proxy.add(Fault("status", 1, status=500, method="HEAD"), Fault("status", 1, method="HEAD"))
    assert bucket.behind(proxy).folder().num_bytes_of("empty") == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault("status", None), ThrottledError, " cannot be read: {at} returned 503 SlowDown; tr"),
        (Fault("status", None, status=500), ThrottledError,
         " cannot be read: {at} returned 500 InternalError; tried for"),
        (Fault("stall", None), TimedOutError, ": {at} did not respond; tried for"),
        (Fault("truncate", None, at_byte=9), TimedOutError,
         ": {at} closed the connection mid-response"),
        (Fault("reset", None), UnreachableError,
         ": no response from {at}: check the endpoint (--storage-option endpoint=..., "),
    ],
    ids=str,
)  # fmt: skip
def test_a_permanent_failure(
    s3_bucket: Bucket,
    s3_proxy: FaultProxy,
    clock: PauseClock,
    fault: Fault,
    error: type[StorageError],
    message: str,
) -> None:
    s3_bucket.put("x", DATA)
    # The first pause ends it: a stall takes its whole timeout at each try.
    folder = s3_bucket.behind(s3_proxy).folder(deadline="0.04", read_timeout=timeout_for(fault))
    assert folder.read_bytes("x") == DATA
    s3_proxy.add(fault)
    with pytest.raises(StorageError) as caught, clock.takes(0.04, 0.11):
        folder.read_bytes("x")
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{s3_bucket.uri}/x" + message.format(at=s3_proxy.endpoint))


BUCKET = "s3://bucket"
REFUSAL = "GET x failed with status code: 503 <Code>SlowDown</Code>"
SERVED = "while other objects are served$"


def client_without_a_store(deadline: str) -> clients.Client:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    return clients.Client(BUCKET, StorageOptions.of({**keys, "deadline": deadline}))


def succeed() -> None:
    """Respond with success."""


def miss() -> None:
    raise FileNotFoundError("Object at location y not found")


@pytest.mark.parametrize(
    ("answer", "a_try", "most_tries", "error", "end", "least", "most"),
    [
        (succeed, 20, 1000, UnreadableError, SERVED, 30, 45),  # it is the fault of this one
        (succeed, 1, 1000, UnreadableError, SERVED, 100, 120),  # overload is waited for
        (miss, 1, 1000, UnreadableError, SERVED, 100, 120),  # an answer is service, too
        # The store went down just now: requests under way see others succeed, once.
        (succeed, 1, 1, ThrottledError, r"; tried for 1\d\d s$", 100, 120),
    ],
)
def test_only_overload_and_outages_are_waited_for(
    clock: PauseClock,
    answer: Callable[[], None],
    a_try: int,
    most_tries: int,
    error: type[StorageError],
    end: str,
    least: float,
    most: float,
) -> None:
    client, tries = client_without_a_store(deadline="100"), itertools.count()

    def refuse() -> None:
        for _ in range(a_try if next(tries) < most_tries else 0):
            with suppress(MissingError):
                client.call(f"{BUCKET}/y", "read", answer)
        raise OSError(REFUSAL)

    message = f"^{BUCKET}/x cannot be read: .* returned 503 SlowDown.*{end}"
    with pytest.raises(error, match=message) as caught, clock.takes(least, most):
        client.call(f"{BUCKET}/x", "read", refuse)
    assert type(caught.value) is error


def test_a_process_that_was_halted_tries_again(clock: PauseClock) -> None:
    """While others succeed, too: by the clock, the first try has used up all time of the object."""
    client, tries = client_without_a_store(deadline="100"), itertools.count()

    def read() -> str:
        client.call(f"{BUCKET}/y", "read", succeed)
        if next(tries):
            return "read"
        clock.now += 600
        client.call(f"{BUCKET}/y", "read", succeed)
        raise OSError(REFUSAL)

    assert client.call(f"{BUCKET}/x", "read", read) == "read"


def test_requests_keep_to_the_rate_that_a_store_serves(clock: PauseClock) -> None:
    client, refused, free_at = client_without_a_store(deadline="1"), 0, clock.now

    def read() -> None:
        nonlocal refused, free_at
        if clock.now < free_at:
            refused += 1
            raise OSError(REFUSAL)
        free_at = clock.now + 0.05

    for _ in range(400):
        client.call(f"{BUCKET}/x", "read", read)
    assert 0 < refused < 100


def test_a_store_that_others_gave_up(
    s3_bucket: Bucket, s3_proxy: FaultProxy, clock: PauseClock
) -> None:
    """Without this, each of a thousand requests in a queue would wait for minutes."""
    s3_bucket.put("y", b"y")
    folder = s3_bucket.behind(s3_proxy).folder(deadline="40")
    assert folder.read_bytes("y") == b"y"
    s3_proxy.add(fault := Fault("status", None))
    for least, most, least_hits, most_hits in ((40, 60, 5, 100), (0, 5, 2, 4)):
        before, message = s3_proxy.hits(fault), "returned 503 SlowDown; tried for"
        with pytest.raises(ThrottledError, match=message), clock.takes(least, most):
            folder.read_bytes("x")
        assert least_hits <= s3_proxy.hits(fault) - before <= most_hits
    s3_proxy.clear()
    assert folder.read_bytes("y") == b"y"


@pytest.mark.parametrize(
    ("error", "message", "kind", "passes", "answered"),
    [
        (FileNotFoundError("Object at location x not found"),
         MissingError("{uri}: there is no such object"), "404", False, True),
        (OSError("GET x failed with status code: 425 "),
         ThrottledError("{uri} cannot be read: {at} returned 425"), "425", True, True),
        (OSError("GET x failed with status code: 426 "),
         StorageError("{uri} cannot be read: {at} returned 426"), "426", False, True),
        (BaseError("Could not parse path: a//x"),
         StorageError("'{uri}' has a name that the storage client does not support: rename the "
                      "object"), "name", False, True),
        (NotSupportedError("Operation\nnot supported"),
         UnsupportedError("{uri}: {at} does not support this operation (Operation)"),
         "unsupported", False, True),
        (BaseError("redirect without LOCATION"),
         WrongRegionError("s3://bucket is not in the configured region; set --storage-option "
                          "region=... or AWS_REGION"), "301", False, True),
        (OSError("error sending request for url (http://store)"),
         TimedOutError("{uri}: {at} did not respond, or became unreachable"), "timeout", True,
         False),
        (BaseError("error reading a body from connection\nend of file"),
         TimedOutError("{uri}: {at} closed the connection mid-response (error reading a body from "
                       "connection)"), "broken", True, True),
    ],
)  # fmt: skip
def test_errors_that_the_test_servers_do_not_give(
    error: Exception, message: StorageError, kind: str, passes: bool, answered: bool
) -> None:
    fault = fault_of(error, "s3://bucket/x", "read", "http://store")
    assert fault is not None
    assert str(fault.error) == str(message).format(uri="s3://bucket/x", at="http://store")
    assert (type(fault.error), fault.kind) == (type(message), kind)
    assert (fault.passes, fault.answered) == (passes, answered)


def test_nobody_answers(s3_bucket: Bucket, s3_proxy: FaultProxy, clock: PauseClock) -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    stores = {
        "s3://bucket": ("endpoint", "AWS_ENDPOINT_URL", keys),
        "gs://bucket": ("base_url", "STORAGE_EMULATOR_HOST", {"bearer_token": "t"}),
    }

    def read(uri: str, endpoint: str) -> None:
        option, variable, login = stores[uri]
        folder = Folder.at(uri, StorageOptions.of({option: endpoint, **login}))
        check = f"check the endpoint (--storage-option {option}=..., {variable}) and the network"
        message = rf"^{uri}/x: no response from {endpoint}: {re.escape(check)}; tried for \d+ s$"
        with pytest.raises(UnreachableError, match=message):
            folder.read_bytes("x")

    # A label of 64 letters is no host's, so nobody is asked for its address.
    for endpoint in ("http://127.0.0.1:9", f"http://{'x' * 64}.invalid"):
        for uri in stores:
            with clock.takes(2, 2 * FIRST_CONTACT_SECONDS):
                read(uri, endpoint)
    s3_proxy.add(Fault("stall", None))
    message = rf"^{s3_bucket.uri}/x: {s3_proxy.endpoint} did not respond; tried for"
    with pytest.raises(TimedOutError, match=message), clock.takes(2, 2 * FIRST_CONTACT_SECONDS):
        s3_bucket.behind(s3_proxy).folder(read_timeout="0.2").read_bytes("x")


@pytest.mark.parametrize(
    ("headers", "read", "lacks"),
    [
        ({}, lambda folder: folder.read_range("x", 0, 5), "range requests"),
        (
            {"Transfer-Encoding": "chunked"},
            lambda folder: folder.read_bytes("x"),
            "answers with a Content-Length",
        ),
    ],
)
def test_a_server_that_cannot_serve_a_dataset(
    headers: dict[str, str], read: Callable[[Folder], object], lacks: str, s3_bucket: Bucket
) -> None:
    """An error at once: no retry would change it."""
    message = rf"x: http://127.0.0.1:\d+ does not support {lacks}.*, which are needed: set the"
    with recording(**headers) as (endpoint, requests):
        for folder in (s3_bucket.at(endpoint).folder(), Folder(endpoint, StorageOptions())):
            with pytest.raises(UnsupportedError, match=message):
                read(folder)
    assert len(requests) <= 3  # one looks whether the object is empty
