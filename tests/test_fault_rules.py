"""fault_proxy.py: every kind of fault does what it says, to the requests it says."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fault_proxy import Fault, FaultProxy
from tests.fault_upstream import (
    Upstream,
    ask,
    ask_once,
    connect,
    raw,
    read_to_end,
    running_upstream,
    wait_until,
)

DATA = bytes(range(256)) * 4000  # more than a piece of it is passed on at a time
HIT_AT = (0, 1, 9_999, 10_000, 500_000, len(DATA) - 1)
GET = b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        server.objects.update(
            {f"{framing}/data": DATA for framing in ("/plain", "/chunked", "/until-close")}
        )
        server.objects["/short"] = b"short"
        yield server


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    upstream.seen.clear()
    with FaultProxy(upstream.endpoint) as proxy:
        yield proxy


def test_status(proxy: FaultProxy, upstream: Upstream) -> None:
    codes = {503: b"SlowDown", 429: b"TooManyRequests", 500: b"InternalError", 403: b"AccessDenied"}
    connection = connect(proxy.endpoint)
    for status, code in codes.items():
        for method, body in (("GET", None), ("PUT", DATA), ("HEAD", None)):
            proxy.add(Fault("status", status=status))
            found, document = ask(connection, method, "/x", body)
            assert found == status
            assert (b"<Error><Code>" + code + b"</Code>" in document) == (method != "HEAD")
    connection.close()
    assert proxy.num_connections == 1
    assert upstream.seen == []


def test_status_tells_when_to_come_again(proxy: FaultProxy) -> None:
    proxy.add(Fault("status", status=429, retry_after_sec=7))
    connection = connect(proxy.endpoint)
    connection.request("GET", "/x")
    assert connection.getresponse().headers["Retry-After"] == "7"
    connection.close()


def test_status_before_an_upload_begins(proxy: FaultProxy) -> None:
    proxy.add(Fault("status"))
    client = raw(
        proxy, b"PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    )
    assert read_to_end(client).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PUT", DATA)])
def test_reset_before_the_upstream_is_asked(
    proxy: FaultProxy, upstream: Upstream, method: str, body: bytes | None
) -> None:
    proxy.add(fault := Fault("reset"))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        ask_once(proxy, method, "/plain/data", body)
    assert (proxy.hits(fault), upstream.seen) == (1, [])


@pytest.mark.parametrize("framing", ["/plain", "/chunked", "/until-close"])
@pytest.mark.parametrize("at_byte", HIT_AT)
def test_reset_and_truncate_in_the_body(proxy: FaultProxy, framing: str, at_byte: int) -> None:
    proxy.add(Fault("reset", at_byte=at_byte), Fault("truncate", at_byte=at_byte))
    client, received = raw(proxy, GET % f"{framing}/data".encode()), b""
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - what came before the reset is looked at
        while piece := client.recv(100_000):
            received += piece
    client.close()
    truncated = read_to_end(raw(proxy, GET % f"{framing}/data".encode()))
    for answer in (received, truncated):
        assert content(answer)[:at_byte] == DATA[:at_byte]
        assert len(content(answer)) == at_byte


def content(answer: bytes) -> bytes:
    """The body of an answer that may be chunked and that ends early."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return body
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        found += body[: int(size.split(b";")[0], 16)]
        body = body[int(size.split(b";")[0], 16) + 2 :]
    return found


def test_a_truncated_body_is_seen_by_a_client(proxy: FaultProxy) -> None:
    proxy.add(Fault("truncate", at_byte=1000))
    with pytest.raises(
        http.client.IncompleteRead, match=f"1000 bytes read, {len(DATA) - 1000} more expected"
    ):
        ask_once(proxy, "GET", "/plain/data")


@pytest.mark.parametrize(("at_byte", "seen"), [(None, 0), (0, 0), (1000, 1000)])
def test_stall_until_the_client_leaves(proxy: FaultProxy, at_byte: int | None, seen: int) -> None:
    proxy.add(fault := Fault("stall", at_byte=at_byte))
    client = raw(proxy, GET % b"/plain/data")
    client.settimeout(0.2)
    answer = b""
    with pytest.raises(TimeoutError):  # noqa: PT012
        while piece := client.recv(100_000):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200") == (at_byte is not None)
    assert content(answer) == DATA[:seen]
    assert (proxy.hits(fault), proxy.num_in_flight) == (1, 1)
    client.close()
    wait_until(lambda: proxy.num_in_flight == 0)


@pytest.mark.parametrize("framing", ["/plain", "/chunked", "/until-close"])
@pytest.mark.parametrize("at_byte", HIT_AT)
def test_corrupt_flips_one_bit(proxy: FaultProxy, framing: str, at_byte: int) -> None:
    proxy.add(Fault("corrupt", at_byte=at_byte))
    status, body = ask_once(proxy, "GET", f"{framing}/data")
    assert (status, len(body)) == (200, len(DATA))
    assert one_bit_apart(body, DATA, at_byte)
    assert ask_once(proxy, "GET", f"{framing}/data") == (200, DATA)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("at_byte", HIT_AT)
def test_corrupt_an_upload(
    proxy: FaultProxy, upstream: Upstream, at_byte: int, chunked: bool
) -> None:
    proxy.add(Fault("corrupt", at_byte=at_byte, upload=True))
    assert ask_once(
        proxy, "PUT", "/up", iter([DATA[:70_000], DATA[70_000:]]) if chunked else DATA
    ) == (200, b"")
    assert one_bit_apart(upstream.objects["/up"], DATA, at_byte)


def one_bit_apart(data: bytes, other: bytes, at_byte: int) -> bool:
    differ = [place for place in range(len(data)) if data[place] != other[place]]
    return (
        len(data) == len(other)
        and differ == [at_byte]
        and (data[at_byte] ^ other[at_byte]).bit_count() == 1
    )


@given(st.binary(min_size=1, max_size=40), st.data())
@settings(max_examples=50, deadline=None)
def test_a_fault_of_a_small_upload_is_at_its_byte(
    upload_proxy: tuple[FaultProxy, Upstream], body: bytes, drawn: st.DataObject
) -> None:
    """Those that come whole with their head take another way through the proxy."""
    proxy, upstream = upload_proxy
    at_byte = drawn.draw(st.integers(0, len(body) - 1))
    proxy.add(Fault("corrupt", at_byte=at_byte, upload=True))
    assert ask_once(proxy, "PUT", "/small", body) == (200, b"")
    assert one_bit_apart(upstream.objects["/small"], body, at_byte)


@pytest.fixture(scope="module")
def upload_proxy(upstream: Upstream) -> Iterator[tuple[FaultProxy, Upstream]]:
    with FaultProxy(upstream.endpoint) as proxy:
        yield proxy, upstream


@pytest.mark.parametrize("at_byte", [0, 10, 600_000])
def test_reset_an_upload(proxy: FaultProxy, upstream: Upstream, at_byte: int) -> None:
    proxy.add(fault := Fault("reset", at_byte=at_byte, upload=True))
    broken = upstream.num_broken_uploads
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        ask_once(proxy, "PUT", "/never", DATA)
    wait_until(lambda: upstream.num_broken_uploads == broken + 1)
    assert (proxy.hits(fault), proxy.num_bytes_up, "/never" in upstream.objects) == (
        1,
        at_byte,
        False,
    )


def test_stall_an_upload(proxy: FaultProxy, upstream: Upstream) -> None:
    proxy.add(fault := Fault("stall", at_byte=10, upload=True))
    with pytest.raises(TimeoutError):
        ask_once(proxy, "PUT", "/never", DATA, timeout=0.2)
    assert (proxy.hits(fault), "/never" in upstream.objects) == (1, False)


def test_the_answer_of_what_was_done_is_lost(proxy: FaultProxy, upstream: Upstream) -> None:
    proxy.add(fault := Fault("reset_after_upstream"))
    assert ask_once(proxy, "GET", "/missing")[0] == 404  # nothing was done
    assert proxy.hits(fault) == 0
    with pytest.raises(ConnectionResetError):
        ask_once(proxy, "PUT", "/done", DATA)
    assert upstream.objects["/done"] == DATA
    assert proxy.hits(fault) == 1
    assert ask_once(proxy, "GET", "/done") == (200, DATA)


def test_latency_comes_on_top(proxy: FaultProxy) -> None:
    proxy.latency_msec = 40
    proxy.add(
        Fault("latency", 1, latency_msec=100),
        Fault("latency", None, latency_msec=20),
        Fault("status", 2),
    )
    times = []
    for status in (503, 503, 200):
        started = time.monotonic()
        assert ask_once(proxy, "GET", "/short")[0] == status
        times.append(time.monotonic() - started)
    for taken, least in zip(times, (0.16, 0.06, 0.06), strict=True):
        assert least <= taken < least + 0.2


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [
        (Fault("status"), "500 200 200 200 200 200"),
        (Fault("status", 2), "500 500 200 200 200 200"),
        (Fault("status", None), "500 500 500 500 500 500"),
        (Fault("status", 0), "200 200 200 200 200 200"),
        (Fault("status", None, method="PUT"), "200 500 200 200 500 200"),
        (Fault("status", 1, method="PUT", skip=1), "200 200 200 200 500 200"),
        (Fault("status", None, path_contains="?part=2"), "200 200 500 200 200 500"),
        (Fault("status", None, method="GET", path_contains="?part=2"), "200 200 500 200 200 500"),
        (Fault("status", None, skip=4), "200 200 200 200 500 500"),
    ],
    ids=str,
)
def test_which_requests_are_hit(
    proxy: FaultProxy, upstream: Upstream, fault: Fault, statuses: str
) -> None:
    upstream.objects.update({"/a": b"a", "/a?part=2": b"2"})
    requests = [("GET", "/a", None), ("PUT", "/a", b"b"), ("GET", "/a?part=2", None)] * 2
    fault = Fault(**{**vars(fault), "status": 500})
    proxy.add(fault)
    assert [str(ask_once(proxy, *request)[0]) for request in requests] == statuses.split()
    assert proxy.hits(fault) == statuses.count("500")
    assert proxy.requests == [request[:2] for request in requests]
    proxy.clear()
    assert ask_once(proxy, *requests[-1]) == (200, b"2")


def test_the_first_fault_wins_and_the_next_follows(proxy: FaultProxy) -> None:
    proxy.add(Fault("status", 1, status=429), Fault("status", 1, status=500))
    assert [ask_once(proxy, "GET", "/short")[0] for _ in range(3)] == [429, 500, 200]


@pytest.mark.parametrize("kind", ["reset", "truncate", "stall", "corrupt"])
def test_a_body_without_that_byte_is_no_hit(proxy: FaultProxy, kind: str) -> None:
    fault = Fault(kind, at_byte=5)  # type: ignore[arg-type]
    proxy.add(fault)
    assert ask_once(proxy, "GET", "/short", timeout=1) == (200, b"short")
    assert ask_once(proxy, "HEAD", "/plain/data", timeout=1) == (200, b"")
    assert proxy.hits(fault) == 0
    with connect_and_get(proxy, b"/plain/data") as client:
        assert client.recv(20)
        wait_until(lambda: proxy.hits(fault) == 1)


def connect_and_get(proxy: FaultProxy, path: bytes) -> socket.socket:
    return raw(proxy, GET % path)


def test_times_holds_for_requests_at_the_same_time(proxy: FaultProxy) -> None:
    proxy.latency_msec = 50
    proxy.add(Fault("status", 3))
    answers = [raw(proxy, GET % b"/short") for _ in range(10)]
    assert sum(read_to_end(answer).startswith(b"HTTP/1.1 503") for answer in answers) == 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("truncate", {}, "truncate needs at_byte"),
        ("corrupt", {}, "corrupt needs at_byte"),
        ("status", {"at_byte": 3}, "status has no use for at_byte=3"),
        ("reset_after_upstream", {"at_byte": 0}, "reset_after_upstream has no use for at_byte=0"),
        ("truncate", {"at_byte": 3, "upload": True}, "upload=True is for reset, stall and corrupt"),
        ("reset", {"upload": True}, "upload=True is for reset, stall and corrupt with at_byte"),
        ("latency", {}, "latency needs latency_msec"),
    ],
)
def test_faults_that_make_no_sense(kind: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fault(kind, **options)  # type: ignore[arg-type]
