"""fault_proxy.py before a small server: transparent without faults, and clean at every end."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.fault_proxy import FaultProxy, _Connection
from tests.servers.fault_upstream import (
    Upstream,
    ask,
    ask_once,
    connect,
    raw,
    read_to_end,
    wait_until,
)
from tests.servers.fault_upstream import running_upstream as running
from tests.servers.fault_wire import BUFFER_BYTES
from tests.support.random_tests import examples

FRAMINGS = ("/plain", "/chunked", "/until-close")
SIZES = (0, 1, 65_535, BUFFER_BYTES - 1, BUFFER_BYTES, 5_000_000)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running() as server:
        yield server


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    upstream.seen.clear()
    with FaultProxy(upstream.endpoint) as proxy:
        yield proxy


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """An upstream whose connections the test accepts itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def before(listener: socket.socket) -> FaultProxy:
    return FaultProxy(f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", SIZES)
def test_bodies_both_ways(proxy: FaultProxy, upstream: Upstream, size: int, framing: str) -> None:
    data, path = os.urandom(size), f"{framing}/a?b=%20c"
    connection = connect(proxy.endpoint)
    chunks = [data[:7], data[7:]] if size > 7 else [data] * (size > 0)
    body = iter(chunks) if framing == "/chunked" else data
    assert ask(connection, "PUT", path, body) == (200, b"")
    assert upstream.objects[path] == data
    assert ask(connection, "GET", path) == (200, data)
    connection.close()
    assert proxy.requests == upstream.seen == [("PUT", path), ("GET", path)]
    if framing != "/chunked":
        assert (proxy.num_bytes_up, proxy.num_bytes_down) == (size, size)


def test_answers_without_bodies_keep_the_connection(proxy: FaultProxy, upstream: Upstream) -> None:
    upstream.objects["/x"] = b"12345"
    connections = upstream.num_connections
    connection = connect(proxy.endpoint)
    assert ask(connection, "HEAD", "/x") == (200, b"")
    assert ask(connection, "GET", "/x", **{"If-None-Match": '"e"'}) == (304, b"")
    assert ask(connection, "DELETE", "/x") == (204, b"")
    assert ask(connection, "GET", "/none") == (404, b"")
    assert ask(connection, "GET", "/x") == (200, b"12345")
    connection.close()
    assert upstream.num_connections == connections + 1
    assert (proxy.num_connections, proxy.num_requests) == (1, 5)


def test_the_host_header_stays(proxy: FaultProxy) -> None:
    host = proxy.endpoint.removeprefix("http://").encode()
    assert ask_once(proxy, "GET", "/host") == (200, host)
    assert ask_once(proxy, "GET", "/host", Host="b.s3.example:9") == (200, b"b.s3.example:9")


def test_expect_continue(proxy: FaultProxy) -> None:
    head = b"PUT /%b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    client = raw(proxy, head % b"e")
    assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b"abc")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    client.sendall(b"GET /e HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert read_to_end(client).endswith(b"\r\n\r\nabc")
    assert read_to_end(raw(proxy, head % b"refused")).startswith(b"HTTP/1.1 403 Forbidden\r\n")


def test_an_early_answer_comes_before_the_end_of_the_upload(proxy: FaultProxy) -> None:
    client = raw(proxy, b"PUT /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
    assert client.recv(1000).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    client.sendall(b"defGET /host HTTP/1.1\r\nHost: again\r\nConnection: close\r\n\r\n")
    assert read_to_end(client).endswith(b"\r\n\r\nagain")


@examples(10)
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.integers(1, 40))
def test_chunks_cut_anywhere(upstream: Upstream, chunks: list[bytes], step: int) -> None:
    head = (
        b"PUT /cut HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    body = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    with FaultProxy(upstream.endpoint) as proxy:
        client = raw(proxy, head)
        for place in range(0, len(body), step):
            client.sendall(body[place : place + step])
        assert read_to_end(client).startswith(b"HTTP/1.1 200")
    assert upstream.objects["/cut"] == b"".join(chunks)


def test_a_client_leaves_its_upload(proxy: FaultProxy, upstream: Upstream) -> None:
    broken = upstream.num_broken_uploads
    raw(proxy, b"PUT /gone HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc").close()
    wait_until(lambda: upstream.num_broken_uploads == broken + 1)
    wait_until(lambda: proxy.num_in_flight == 0)
    assert "/gone" not in upstream.objects


def test_a_slow_client_holds_back_its_download(proxy: FaultProxy, upstream: Upstream) -> None:
    upstream.objects["/big"] = bytes(50_000_000)
    client = raw(proxy, b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n")
    wait_until(lambda: proxy.num_bytes_down > 0)
    assert proxy.num_in_flight == 1
    time.sleep(0.2)  # for bytes that should not come
    assert 0 < proxy.num_bytes_down < 40_000_000, "sockets and buffers hold no more"
    client.close()
    wait_until(lambda: proxy.num_in_flight == 0)


@pytest.mark.parametrize("reads", [False, True])
def test_clients_reset_at_any_moment(proxy: FaultProxy, reads: bool) -> None:
    requests = [
        b"GET /host HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"PUT /refused HTTP/1.1\r\nContent-Length: 9\r\n\r\n123",
    ]
    for number in range(100):
        client = raw(proxy, requests[number % 2])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if reads:  # and leaves while the proxy is about to end the connection itself
            client.recv(1)
        else:
            time.sleep(number % 30 / 20_000)
        client.close()
    wait_until(lambda: proxy.num_in_flight == 0)
    assert ask_once(proxy, "GET", "/host", Host="well")[1] == b"well"


def upstream_has_ended(connection: _Connection) -> bool:
    """Return whether a connection's upstream has ended its side."""
    return connection.upstream is not None and connection.upstream.ended


def test_an_upstream_ends_idle_connections(listener: socket.socket) -> None:
    """The client's connection stays, and the next request goes over a new one."""
    with before(listener) as proxy:
        connection = connect(proxy.endpoint)
        for _ in range(3):
            connection.request("GET", "/")
            accepted, _address = listener.accept()
            with accepted:
                assert accepted.recv(1000)
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                assert connection.getresponse().read() == b"ok"
            wait_until(lambda: upstream_has_ended(proxy.connections[0]))
        assert (proxy.num_connections, proxy.num_requests) == (1, 3)
        connection.close()


def test_a_message_that_is_no_http_is_reported(upstream: Upstream) -> None:
    proxy = FaultProxy(upstream.endpoint)
    assert read_to_end(raw(proxy, b"nonsense\r\n\r\n")) == b""
    with pytest.raises(RuntimeError, match="the fault proxy failed: ValueError"):
        proxy.close()


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:1", "", "http://", "127.0.0.1:80"])
def test_invalid_upstreams(endpoint: str) -> None:
    with pytest.raises(ValueError, match="the upstream must be http://HOST:PORT"):
        FaultProxy(endpoint)


def test_requests_wait_at_the_same_time_and_end_with_the_proxy(upstream: Upstream) -> None:
    with FaultProxy(upstream.endpoint, latency_msec=1e9) as proxy:
        clients = [raw(proxy, b"GET /host HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(64)]
        wait_until(lambda: proxy.num_in_flight == 64)
    assert [read_to_end(client) for client in clients] == [b""] * 64
    assert proxy.max_in_flight == 64
    assert "fault-proxy" not in [thread.name for thread in threading.enumerate()]
