"""fault_proxy.py before a little server of our own: transparent until asked, and then each fault as it says."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fault_proxy import FaultProxy
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
from tests.fault_wire import BUFFER_BYTES

SIZES = (0, 1, 1000, 65_535, BUFFER_BYTES - 1, BUFFER_BYTES, 5_000_000)
FRAMINGS = ("/plain", "/chunked", "/until-close")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[FaultProxy]:
    upstream.seen.clear()
    with FaultProxy(upstream.endpoint) as proxy:
        yield proxy


class TestTransparent:
    @pytest.mark.parametrize("framing", FRAMINGS)
    @pytest.mark.parametrize("size", SIZES)
    def test_bodies_both_ways(
        self, proxy: FaultProxy, upstream: Upstream, size: int, framing: str
    ) -> None:
        data = os.urandom(size)
        connection = connect(proxy.endpoint)
        body: object = (
            iter([data[:7], data[7:]] if size > 7 else [data] * (size > 0))
            if framing == "/chunked"
            else data
        )
        assert ask(connection, "PUT", f"{framing}/a?b=%20c", body) == (200, b"")
        assert upstream.objects[f"{framing}/a?b=%20c"] == data
        assert ask(connection, "GET", f"{framing}/a?b=%20c") == (200, data)
        connection.close()
        assert (
            proxy.requests
            == upstream.seen
            == [("PUT", f"{framing}/a?b=%20c"), ("GET", f"{framing}/a?b=%20c")]
        )
        if framing != "/chunked":
            assert (proxy.num_bytes_up, proxy.num_bytes_down) == (size, size)

    def test_answers_without_bodies_keep_the_connection(
        self, proxy: FaultProxy, upstream: Upstream
    ) -> None:
        upstream.objects["/x"] = b"12345"
        before = upstream.num_connections
        connection = connect(proxy.endpoint)
        assert ask(connection, "HEAD", "/x") == (200, b"")
        assert ask(connection, "GET", "/x", **{"If-None-Match": '"e"'}) == (304, b"")
        assert ask(connection, "DELETE", "/x") == (204, b"")
        assert ask(connection, "GET", "/none") == (404, b"")
        assert ask(connection, "GET", "/x") == (200, b"12345")
        connection.close()
        assert (upstream.num_connections - before, proxy.num_connections, proxy.num_requests) == (
            1,
            1,
            5,
        )

    def test_the_host_header_stays(self, proxy: FaultProxy) -> None:
        assert ask_once(proxy, "GET", "/host") == (
            200,
            proxy.endpoint.removeprefix("http://").encode(),
        )
        assert ask_once(proxy, "GET", "/host", Host="b.s3.example:9") == (200, b"b.s3.example:9")

    def test_expect_continue(self, proxy: FaultProxy) -> None:
        head = b"PUT /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        client = raw(proxy, head)
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        client.sendall(b"GET /e HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert read_to_end(client).endswith(b"\r\n\r\nabc")

    def test_a_refused_expectation_ends_the_connection(self, proxy: FaultProxy) -> None:
        client = raw(
            proxy,
            b"PUT /refused HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        )
        assert read_to_end(client).startswith(b"HTTP/1.1 403 Forbidden\r\n")

    def test_an_early_answer_comes_before_the_end_of_the_upload(self, proxy: FaultProxy) -> None:
        client = raw(proxy, b"PUT /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
        assert client.recv(1000).startswith(b"HTTP/1.1 403 Forbidden\r\n")
        client.sendall(b"defGET /host HTTP/1.1\r\nHost: again\r\nConnection: close\r\n\r\n")
        assert read_to_end(client).endswith(b"\r\n\r\nagain")

    def test_pipelined_requests_are_answered_in_order(self, proxy: FaultProxy) -> None:
        requests = [b"GET /host HTTP/1.1\r\nHost: %d\r\n\r\n" % number for number in range(5)]
        requests.insert(2, b"PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab")
        requests.append(b"GET /p HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answers = read_to_end(raw(proxy, b"".join(requests))).split(b"HTTP/1.1 200 OK")
        assert [answer.rpartition(b"\r\n\r\n")[2] for answer in answers] == [
            b"",
            b"0",
            b"1",
            b"",
            b"2",
            b"3",
            b"4",
            b"ab",
        ]

    def test_an_answer_is_read_by_a_client_that_sends_no_more(self, proxy: FaultProxy) -> None:
        client = raw(proxy, b"GET /host HTTP/1.1\r\nHost: half\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert read_to_end(client).endswith(b"\r\n\r\nhalf")

    def test_concurrent_clients(self, proxy: FaultProxy) -> None:
        def one(number: int) -> bool:
            data = os.urandom(number * 20_011)
            connection = connect(proxy.endpoint)
            puts = [ask(connection, "PUT", f"/c{number}", data)[0] for _ in range(3)]
            gets = [ask(connection, "GET", f"/c{number}")[1] == data for _ in range(3)]
            connection.close()
            return puts == [200] * 3 and all(gets)

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(one, range(32)))
        assert proxy.num_in_flight == 0
        assert 1 < proxy.max_in_flight <= 16

    @given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.integers(1, 40))
    @settings(max_examples=30, deadline=None)
    def test_chunks_however_they_are_cut(self, chunks: list[bytes], step: int) -> None:
        body = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        with running_upstream() as upstream, FaultProxy(upstream.endpoint) as proxy:
            client = raw(
                proxy,
                b"PUT /p HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            for place in range(0, len(body), step):
                client.sendall(body[place : place + step])
            assert read_to_end(client).startswith(b"HTTP/1.1 200")
            assert upstream.objects["/p"] == b"".join(chunks)


class TestEnds:
    def test_a_client_that_leaves_breaks_its_upload_off(
        self, proxy: FaultProxy, upstream: Upstream
    ) -> None:
        before = upstream.num_broken_uploads
        raw(proxy, b"PUT /gone HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc").close()
        wait_until(lambda: upstream.num_broken_uploads == before + 1)
        wait_until(lambda: proxy.num_in_flight == 0)
        assert "/gone" not in upstream.objects

    def test_a_client_that_leaves_its_download(self, proxy: FaultProxy, upstream: Upstream) -> None:
        upstream.objects["/big"] = bytes(20_000_000)
        client = raw(proxy, b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n")
        client.recv(1000)
        assert proxy.num_in_flight == 1
        client.close()
        wait_until(lambda: proxy.num_in_flight == 0)
        assert 0 < proxy.num_bytes_down < 20_000_000

    @pytest.mark.parametrize("reads", [False, True])
    def test_clients_that_leave_by_a_reset_at_any_moment(
        self, proxy: FaultProxy, reads: bool
    ) -> None:
        requests = [
            b"GET /host HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            b"PUT /refused HTTP/1.1\r\nContent-Length: 9\r\n\r\n123",
        ]
        for number in range(300):
            client = raw(proxy, requests[number % 2])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if reads:  # and leaves while the proxy is about to end the connection itself
                client.recv(1)
            else:
                time.sleep(number % 30 / 20_000)
            client.close()
        wait_until(lambda: proxy.num_in_flight == 0)
        assert ask_once(proxy, "GET", "/host", Host="well")[1] == b"well"

    def test_a_download_waits_for_a_slow_client(
        self, proxy: FaultProxy, upstream: Upstream
    ) -> None:
        """Neither side is read ahead of the other by more than sockets and buffers hold."""
        upstream.objects["/slow"] = bytes(50_000_000)
        client = raw(proxy, b"GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        time.sleep(0.3)
        assert proxy.num_bytes_down < 20_000_000
        assert read_to_end(client).endswith(bytes(50_000_000))

    def test_no_upstream(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        with FaultProxy(f"127.0.0.1:{port}") as proxy:
            status, body = ask_once(proxy, "GET", "/x")
        assert status == 502
        assert b"the fault proxy cannot reach its upstream" in body

    def test_an_upstream_that_ends_idle_connections(self) -> None:
        """Servers do so without a word; the client's connection stays, and the next request goes over a new one."""
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            FaultProxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy,
        ):
            connection = connect(proxy.endpoint)
            for _ in range(3):
                connection.request("GET", "/")
                accepted, _address = listener.accept()
                with accepted:
                    assert accepted.recv(1000)
                    accepted.sendall(answer)
                    assert connection.getresponse().read() == b"ok"
                time.sleep(0.05)
            assert (proxy.num_connections, proxy.num_requests) == (1, 3)
            connection.close()

    def test_an_upstream_that_ends_without_an_answer(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            FaultProxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy,
        ):
            client = raw(proxy, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            accepted, _address = listener.accept()
            accepted.recv(1000)
            accepted.close()
            assert read_to_end(client) == b""

    def test_what_is_not_http_is_reported(self, upstream: Upstream) -> None:
        proxy = FaultProxy(upstream.endpoint)
        assert read_to_end(raw(proxy, b"nonsense\r\n\r\n")) == b""
        with pytest.raises(RuntimeError, match="the fault proxy failed: ValueError"):
            proxy.close()

    @pytest.mark.parametrize("endpoint", ["https://127.0.0.1:1", "", "http://"])
    def test_what_is_no_upstream(self, endpoint: str) -> None:
        with pytest.raises(ValueError, match="the upstream must be http://HOST:PORT"):
            FaultProxy(endpoint)

    def test_closing_ends_what_is_under_way(self, upstream: Upstream) -> None:
        with FaultProxy(upstream.endpoint, latency_msec=60_000) as proxy:
            client = raw(proxy, b"GET /host HTTP/1.1\r\nHost: h\r\n\r\n")
            wait_until(lambda: proxy.num_in_flight == 1)
        assert read_to_end(client) == b""
        assert "fault-proxy" not in [thread.name for thread in threading.enumerate()]

    def test_as_a_process(self, upstream: Upstream) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.fault_proxy",
            "--upstream",
            upstream.endpoint,
            "--latency-msec",
            "50",
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        ) as process:
            assert process.stdout
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            connection, started = connect(endpoint), time.monotonic()
            assert ask(connection, "GET", "/host", Host="process") == (200, b"process")
            assert time.monotonic() - started >= 0.05
            connection.close()
            process.terminate()


def test_latency_is_waited_for_by_all_at_once(proxy: FaultProxy) -> None:
    """64 clients with 30 ms: each round takes 30 ms and what 64 requests cost, not 64 times 30 ms."""
    proxy.latency_msec = 30
    barrier = threading.Barrier(64)

    def one(_number: int) -> list[float]:
        connection, times = connect(proxy.endpoint), []
        for _ in range(5):
            barrier.wait()
            started = time.monotonic()
            assert ask(connection, "GET", "/host", Host="h")[0] == 200
            times.append(time.monotonic() - started)
        connection.close()
        return times

    with ThreadPoolExecutor(64) as pool:
        rounds = list(zip(*pool.map(one, range(64)), strict=True))
    assert min(map(min, rounds)) >= 0.03
    assert sorted(map(max, rounds))[1] < 0.3, "seconds a round; a busy machine adds to 0.03-0.1"
    assert proxy.max_in_flight == 64
