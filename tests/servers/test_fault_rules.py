"""fault_proxy.py: the bytes and the requests that faults hit.

The tests of `shardwright.storage` depend on every kind, and on the number of hits.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.servers import fault_rules
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.fault_rules import Rules
from tests.servers.fault_upstream import Upstream, ask_once, connect, raw, read_to_end, wait_until
from tests.servers.fault_upstream import running_upstream as running
from tests.support.buckets import takes

DATA = bytes(range(256)) * 4000  # more than a piece of it is passed on at a time
HIT_AT = (0, 9_999, 10_000, len(DATA) - 1)
GET = b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
RESETS = (ConnectionResetError, BrokenPipeError)
in_every_framing = pytest.mark.parametrize("path", ["/plain/d", "/chunked/d", "/until-close/d"])


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running() as server:
        server.objects |= dict.fromkeys(("/plain/d", "/chunked/d", "/until-close/d"), DATA)
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
            proxy.add(Fault("status", status=status, retry_after_sec=7))
            connection.request(method, "/x", body)
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (status, "7")
            assert (b"<Code>" + code + b"</Code>" in answer.read()) == (method != "HEAD")
    connection.close()
    assert (proxy.num_connections, upstream.seen) == (1, [])


def received(proxy: FaultProxy, path: str, end: type[OSError] | None) -> bytes:
    """Return an answer up to its end, which must be `end`."""
    client, answer, found = raw(proxy, GET % path.encode()), b"", None
    try:
        while piece := client.recv(100_000):
            answer += piece
    except OSError as error:
        found = type(error)
    client.close()
    assert found is end
    return answer


def content(answer: bytes) -> bytes:
    """Return the body of an answer that may be chunked and may end early."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return body
    found = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        found, body = found + body[:size], body[size + 2 :]
    return found


@in_every_framing
@pytest.mark.parametrize("at_byte", HIT_AT)
def test_reset_and_truncate_in_the_body(proxy: FaultProxy, path: str, at_byte: int) -> None:
    proxy.add(Fault("reset", at_byte=at_byte), Fault("truncate", at_byte=at_byte))
    for end in (ConnectionResetError, None):
        assert content(received(proxy, path, end)) == DATA[:at_byte]


@pytest.mark.parametrize("at_byte", [None, 0, 1000])
def test_stall_until_the_client_leaves(proxy: FaultProxy, at_byte: int | None) -> None:
    proxy.add(fault := Fault("stall", at_byte=at_byte))
    with raw(proxy, GET % b"/plain/d") as client:
        wait_until(lambda: proxy.hits(fault) == 1)
        answer = b""
        while at_byte is not None and (b"\r\n\r\n" not in answer or len(content(answer)) < at_byte):
            answer += client.recv(100_000)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert answer.startswith(b"HTTP/1.1 200") == (at_byte is not None)
    assert content(answer) == DATA[: at_byte or 0]
    wait_until(lambda: proxy.num_in_flight == 0)


def assert_one_bit_apart(data: bytes, other: bytes, at_byte: int) -> None:
    assert (data[:at_byte], data[at_byte + 1 :]) == (other[:at_byte], other[at_byte + 1 :])
    assert (data[at_byte] ^ other[at_byte]).bit_count() == 1


@in_every_framing
@pytest.mark.parametrize("at_byte", HIT_AT)
def test_corrupt_flips_one_bit(proxy: FaultProxy, path: str, at_byte: int) -> None:
    proxy.add(Fault("corrupt", at_byte=at_byte))
    status, body = ask_once(proxy, "GET", path)
    assert status == 200
    assert_one_bit_apart(body, DATA, at_byte)
    assert ask_once(proxy, "GET", path) == (200, DATA)


@pytest.mark.parametrize(
    ("size", "chunked", "at_byte"),
    [*((len(DATA), chunked, at) for chunked in (False, True) for at in HIT_AT), (40, False, 0),
     (40, False, 39)],  # small ones come whole with their head
)  # fmt: skip
def test_corrupt_an_upload(
    proxy: FaultProxy, upstream: Upstream, size: int, chunked: bool, at_byte: int
) -> None:
    proxy.add(Fault("corrupt", at_byte=at_byte, upload=True))
    body = iter([DATA[:70_000], DATA[70_000:]]) if chunked else DATA[:size]
    assert ask_once(proxy, "PUT", "/up", body) == (200, b"")
    assert_one_bit_apart(upstream.objects["/up"], DATA[:size], at_byte)


@pytest.mark.parametrize("at_byte", [0, 10, 600_000])
def test_reset_an_upload(proxy: FaultProxy, upstream: Upstream, at_byte: int) -> None:
    proxy.add(fault := Fault("reset", at_byte=at_byte, upload=True))
    broken = upstream.num_broken_uploads
    with pytest.raises(RESETS):
        ask_once(proxy, "PUT", "/never", DATA)
    wait_until(lambda: upstream.num_broken_uploads == broken + 1)
    assert (proxy.hits(fault), proxy.num_bytes_up) == (1, at_byte)
    assert "/never" not in upstream.objects


def test_reset_after_upstream(proxy: FaultProxy, upstream: Upstream) -> None:
    proxy.add(fault := Fault("reset_after_upstream"))
    assert ask_once(proxy, "GET", "/missing")[0] == 404  # nothing was done
    assert proxy.hits(fault) == 0
    with pytest.raises(ConnectionResetError):
        ask_once(proxy, "PUT", "/done", DATA)
    assert (upstream.objects["/done"], proxy.hits(fault)) == (DATA, 1)
    assert ask_once(proxy, "GET", "/done") == (200, DATA)


def test_latency_adds_up(proxy: FaultProxy) -> None:
    faults = [Fault("latency", 1, latency_msec=100), Fault("latency", None, latency_msec=20)]
    rules = Rules()
    rules.add(faults)
    assert [rules.claim("GET", "/x") for _ in range(2)] == [(120, None), (20, None)]
    proxy.latency_msec = 40
    proxy.add(*faults, Fault("status", 1))
    for status, least in ((503, 0.16), (200, 0.06)):
        with takes(least, 100):
            assert ask_once(proxy, "GET", "/short")[0] == status


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [
        (Fault("status"), "500 200 200 200 200 200"),
        (Fault("status", 2), "500 500 200 200 200 200"),
        (Fault("status", None), "500 500 500 500 500 500"),
        (Fault("status", None, method="PUT"), "200 500 200 200 500 200"),
        (Fault("status", 1, method="PUT", skip=1), "200 200 200 200 500 200"),
        (Fault("status", None, path_contains="?part=2"), "200 200 500 200 200 500"),
        (Fault("status", None, skip=4), "200 200 200 200 500 500"),
    ],
    ids=str,
)
def test_requests_hit(proxy: FaultProxy, upstream: Upstream, fault: Fault, statuses: str) -> None:
    upstream.objects.update({"/a": b"a", "/a?part=2": b"2"})
    requests = [("GET", "/a", None), ("PUT", "/a", b"b"), ("GET", "/a?part=2", None)] * 2
    fault = Fault(**{**vars(fault), "status": 500})
    proxy.add(fault)
    assert [str(ask_once(proxy, *request)[0]) for request in requests] == statuses.split()
    assert proxy.hits(fault) == statuses.count("500")
    assert proxy.requests == [request[:2] for request in requests]
    proxy.clear()
    assert ask_once(proxy, *requests[-1]) == (200, b"2")


@pytest.mark.parametrize("kind", ["reset", "truncate", "stall", "corrupt"])
def test_a_body_without_that_byte_is_no_hit(proxy: FaultProxy, kind: str) -> None:
    proxy.add(fault := Fault(kind, at_byte=5))  # type: ignore[arg-type]
    assert ask_once(proxy, "GET", "/short") == (200, b"short")
    assert ask_once(proxy, "HEAD", "/plain/d") == (200, b"")
    assert proxy.hits(fault) == 0
    with raw(proxy, GET % b"/plain/d") as client:
        assert client.recv(20)
        wait_until(lambda: proxy.hits(fault) == 1)


def test_requests_beyond_a_number_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(fault_rules, "time", SimpleNamespace(monotonic=lambda: now))
    rules = Rules()
    rules.add([Fault("status", None, beyond_per_second=50, path_contains="x")])
    passed = []
    for _ in range(3):  # a burst of a tenth of a second after a pause, and then 50 a second
        passed.append([rules.claim("GET", "/x")[1] is None for _ in range(8)].count(True))
        now += 0.04
    assert passed == [6, 2, 2]
    assert rules.claim("GET", "/y")[1] is None


def test_times_holds_for_concurrent_requests(proxy: FaultProxy) -> None:
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
        ("truncate", {"at_byte": 3, "upload": True}, "upload=True needs reset, stall or corrupt"),
        ("reset", {"upload": True}, "upload=True needs reset, stall or corrupt with at_byte"),
        ("latency", {}, "latency needs latency_msec"),
    ],
)
def test_invalid_faults(kind: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fault(kind, **options)  # type: ignore[arg-type]
