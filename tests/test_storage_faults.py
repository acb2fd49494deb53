"""Stores that have a bad time: what passes is waited for and counted, what does not ends soon, each with its own error."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwright.errors import (
    ChangedError,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
    UnreadableError,
)
from shardwright.storage import Folder, StorageOptions
from shardwright.storage.clients import FIRST_CONTACT_SECONDS
from tests.buckets import Bucket, Counted, answering
from tests.fault_proxy import Fault, FaultProxy

BOTH = pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
DATA = os.urandom(100_000)
STATUSES = [
    (Fault("status", 1, status=status), str(status)) for status in (408, 429, 500, 502, 504)
]
WAITED_FOR = [
    (Fault("status", 1), "503"),
    (Fault("reset", 1), "connection"),
    (Fault("stall", 1), "timeout"),
]
IN_A_BODY = [
    (Fault("reset", 1, at_byte=50_000), "broken"),
    (Fault("truncate", 1, at_byte=50_000), "broken"),
    (Fault("truncate", 1, at_byte=0), "broken"),
    (Fault("stall", 1, at_byte=50_000), "timeout"),
]


def fault_id(value: object) -> str | None:
    return f"{value.kind}-{value.status}-{value.at_byte}" if isinstance(value, Fault) else None


def write(folder: Folder) -> object:
    folder.write_bytes("new", DATA)
    return folder.read_bytes("new") == DATA


def create(folder: Folder) -> object:
    folder.create_bytes("created", DATA)
    return folder.read_bytes("created") == DATA


def remove(folder: Folder) -> object:
    folder.remove("gone")
    return folder.num_bytes_of("gone") is None


def copy(folder: Folder) -> object:
    with folder.local_copy("x") as path, open(path, "rb") as file:
        return file.read() == DATA


# name -> (the method of the request that is hit, what is done, with the result True)
OPERATIONS: dict[str, tuple[str, Callable[[Folder], object]]] = {
    "read": ("GET", lambda folder: folder.read_bytes("x") == DATA),
    "range": ("GET", lambda folder: folder.read_range("x", 7, 90_000) == DATA[7:90_007]),
    "open": ("GET", lambda folder: folder.open_input("x").read() == DATA),
    "copy": ("GET", copy),
    "list": ("GET", lambda folder: folder.names() == ["gone", "x"]),
    "head": ("HEAD", lambda folder: folder.num_bytes_of("x") == len(DATA)),
    "write": ("PUT", write),
    "create": ("PUT", create),
    "remove": ("DELETE", remove),
}


CASES = [
    *(("s3_server", "read", fault, kind) for fault, kind in STATUSES),
    *(("s3_server", name, fault, kind) for name in OPERATIONS for fault, kind in WAITED_FOR[:2]),
    *(("s3_server", name, *WAITED_FOR[2]) for name in ("head", "list", "write")),
    *(("gcs_server", name, *WAITED_FOR[0]) for name in OPERATIONS),
    *(
        ("s3_server", name, fault, kind)
        for name in ("read", "range", "copy")
        for fault, kind in IN_A_BODY
    ),
    *(("gcs_server", "read", fault, kind) for fault, kind in IN_A_BODY),
]


@pytest.mark.parametrize(
    ("bucket", "operation", "fault", "kind"), CASES, ids=fault_id, indirect=["bucket"]
)
def test_what_passes_is_waited_for(
    bucket: Bucket, proxy: FaultProxy, operation: str, fault: Fault, kind: str
) -> None:
    bucket.put("x", DATA)
    bucket.put("gone", b"")
    method, operate = OPERATIONS[operation]
    folder = bucket.behind(proxy).folder(read_timeout="0.3")
    in_batches = operation == "remove" and bucket.server.scheme == "s3"
    proxy.add(hit := Fault(**{**vars(fault), "method": "POST" if in_batches else method}))
    counted, started = Counted(), time.monotonic()
    assert operate(folder)
    assert (proxy.hits(hit), counted.retries) == (fault.times, {kind: fault.times})
    assert time.monotonic() - started < 5


@BOTH
def test_counted_requests_and_bytes(bucket: Bucket, proxy: FaultProxy) -> None:
    folder = bucket.behind(proxy).folder()
    counted = Counted()
    folder.write_bytes("x", DATA)
    assert counted.all == {"requests": 1, "bytes_written": len(DATA)}
    proxy.add(Fault("status", 3, method="GET"))
    assert folder.read_bytes("x") + folder.read_range("x", 0, 10) == DATA + DATA[:10]
    assert folder.num_bytes_of("x") == len(DATA)
    assert counted.all == {
        "requests": 7,
        "bytes_written": len(DATA),
        "bytes_read": len(DATA) + 10,
        "retries_503": 3,
    }
    assert len(proxy.requests) == 7


@BOTH
def test_a_body_that_was_changed_on_its_way_is_read_again(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    bucket.put("x", DATA)
    proxy.add(Fault("corrupt", 1, method="GET", at_byte=50_000))
    counted = Counted()
    assert bucket.behind(proxy).folder().read_bytes("x") == DATA
    assert counted.retries == {"content": 1}


@BOTH
def test_a_body_that_is_never_what_the_store_states(bucket: Bucket, proxy: FaultProxy) -> None:
    bucket.put("x", DATA)
    proxy.add(Fault("corrupt", None, method="GET", path_contains="x", at_byte=50_000))
    with pytest.raises(
        ChangedError,
        match=rf"^{bucket.uri}/x arrives with another content than its store states \(MD5 \w+, stated",
    ):
        bucket.behind(proxy).folder().read_bytes("x")


def test_an_etag_that_is_no_md5_is_none(s3_bucket: Bucket) -> None:
    """As of objects that are encrypted with keys of their own."""
    headers = {
        "ETag": f'"{"0123456789abcdef" * 2}"',
        "x-amz-server-side-encryption": "aws:kms",
        "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
    }
    with answering(lambda _: (200, headers, DATA)) as endpoint:
        assert s3_bucket.at(endpoint).folder().read_bytes("x") == DATA


@BOTH
def test_an_empty_object_whose_head_is_refused_once(bucket: Bucket, proxy: FaultProxy) -> None:
    """What asks for the reason asks for a byte, and there is none."""
    bucket.put("empty", b"")
    proxy.add(Fault("status", 1, method="HEAD"))
    assert bucket.behind(proxy).folder().num_bytes_of("empty") == 0


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (
            Fault("status", None, status=503),
            ThrottledError,
            "cannot be read: {at} answers 503 SlowDown; tried for",
        ),
        (
            Fault("status", None, status=500),
            ThrottledError,
            "cannot be read: {at} answers 500 InternalError; tried for",
        ),
        (Fault("stall", None), TimedOutError, "{at} is silent; tried for"),
        (Fault("truncate", None, at_byte=9), TimedOutError, "{at} breaks off its answers"),
        (
            Fault("reset", None),
            UnreachableError,
            "nobody answers at {at}: check the endpoint (--storage-option endpoint=..., ",
        ),
    ],
    ids=fault_id,
)
def test_a_store_that_fails_for_good(
    s3_bucket: Bucket, s3_proxy: FaultProxy, fault: Fault, kind: type[StorageError], message: str
) -> None:
    s3_bucket.put("x", DATA)
    folder = s3_bucket.behind(s3_proxy).folder(deadline="0.5", read_timeout="0.3")
    assert folder.read_bytes("x") == DATA
    s3_proxy.add(fault)
    started = time.monotonic()
    with pytest.raises(StorageError) as caught:
        folder.read_bytes("x")
    assert 0.5 <= time.monotonic() - started < 4
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{s3_bucket.uri}/x")
    assert message.format(at=s3_proxy.endpoint) in str(caught.value)


def read_others(folder: Folder, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        assert folder.read_bytes("y") == b"y"


def test_one_object_that_fails_while_others_are_served(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    s3_bucket.put("y", b"y")
    folder = s3_bucket.behind(s3_proxy).folder(deadline="1")
    s3_proxy.add(Fault("status", None, path_contains="/x"))
    stop, started = threading.Event(), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(read_others, folder, stop)
        with pytest.raises(
            UnreadableError,
            match=rf"^{s3_bucket.uri}/x cannot be read: .* answers 503 SlowDown, while other objects are served$",
        ):
            folder.read_bytes("x")
        stop.set()
        others.result()
    assert 1 <= time.monotonic() - started < 4


def test_a_store_that_went_down_just_now_is_not_one_object_at_fault(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    """Requests that are on their way when a store goes down see others succeed, once."""
    s3_bucket.put("y", b"y")
    folder = s3_bucket.behind(s3_proxy).folder(deadline="2")
    s3_proxy.add(Fault("status", None, path_contains="/x"))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(folder.read_bytes, "x")
        time.sleep(0.2)
        assert folder.read_bytes("y") == b"y"
        with pytest.raises(ThrottledError, match="answers 503 SlowDown; tried for"):
            reading.result()


def test_a_store_that_others_gave_up_is_not_waited_for_anew(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    """Or each of a thousand requests in a queue would wait for minutes."""
    s3_bucket.put("y", b"y")
    folder = s3_bucket.behind(s3_proxy).folder(deadline="2")
    assert folder.read_bytes("y") == b"y"
    s3_proxy.add(Fault("status", None))
    seconds = []
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(ThrottledError, match="answers 503 SlowDown; tried for"):
            folder.read_bytes("x")
        seconds.append(time.monotonic() - started)
    assert seconds[1] < 1.5 < seconds[0]
    s3_proxy.clear()
    assert folder.read_bytes("y") == b"y"


def test_a_store_that_says_no_is_not_down(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    folder = s3_bucket.behind(s3_proxy).folder(deadline="1")
    s3_proxy.add(Fault("status", None, path_contains="/x"))
    stop = threading.Event()

    def ask_for_others() -> None:
        while not stop.wait(0.05):
            assert folder.num_bytes_of("missing") is None

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(ask_for_others)
        with pytest.raises(UnreadableError):
            folder.read_bytes("x")
        stop.set()
        others.result()


NOWHERE = ("http://127.0.0.1:9", "http://no-such-host.invalid")


def test_nobody_answers(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    def read(uri: str, endpoint: str) -> None:
        s3 = {"endpoint": endpoint, "access_key_id": "a", "secret_access_key": "b"}
        folder = Folder.at(
            uri,
            StorageOptions.of(
                s3 if uri.startswith("s3") else {"base_url": endpoint, "bearer_token": "t"}
            ),
        )
        where = (
            "endpoint=..., AWS_ENDPOINT_URL"
            if uri.startswith("s3")
            else "base_url=..., STORAGE_EMULATOR_HOST"
        )
        check = re.escape(f"check the endpoint (--storage-option {where}) and the network")
        with pytest.raises(
            UnreachableError,
            match=rf"^{uri}/x: nobody answers at {endpoint}: {check}; tried for \d s$",
        ):
            folder.read_bytes("x")

    def read_in_silence() -> None:
        with pytest.raises(
            TimedOutError, match=rf"^{s3_bucket.uri}/x: {s3_proxy.endpoint} is silent; tried for"
        ):
            s3_bucket.behind(s3_proxy).folder(read_timeout="2").read_bytes("x")

    s3_proxy.add(Fault("stall", None))
    started = time.monotonic()
    with ThreadPoolExecutor(5) as pool:
        waiting = [
            pool.submit(read, uri, endpoint)
            for uri in ("s3://bucket", "gs://bucket")
            for endpoint in NOWHERE
        ]
        for done in [pool.submit(read_in_silence), *waiting]:
            done.result()
    assert time.monotonic() - started < FIRST_CONTACT_SECONDS + 5


def test_a_store_without_ranges(s3_bucket: Bucket) -> None:
    headers = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": '"x"'}
    told = r"x: http://127.0.0.1:\d+ serves files whole only, and this needs a part of one$"
    with (
        answering(lambda _: (200, headers, DATA)) as endpoint,
        pytest.raises(StorageError, match=told),
    ):
        s3_bucket.at(endpoint).folder().read_range("x", 0, 5)
