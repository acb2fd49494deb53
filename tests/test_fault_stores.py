"""fault_proxy.py between real clients and real object stores."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import obstore
import pytest
from botocore.exceptions import ClientError
from obstore.store import GCSStore, S3Store

from tests.fault_proxy import Fault, FaultProxy
from tests.object_stores import get_object, new_bucket, put_object
from tests.servers.store_server import StoreServer

SIZES = (0, 1, 80_000, 600_000, 5_000_000)
RETRY: Any = {
    "max_retries": 3,
    "backoff": {
        "init_backoff": timedelta(milliseconds=5),
        "max_backoff": timedelta(milliseconds=20),
        "base": 2,
    },
}


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy


def behind(proxy: FaultProxy, server: StoreServer) -> StoreServer:
    """The server, as reached through the proxy."""
    key = "endpoint" if server.scheme == "s3" else "base_url"
    return dataclasses.replace(
        server, endpoint=proxy.endpoint, options={**server.options, key: proxy.endpoint}
    )


def store_of(server: StoreServer, bucket: str, **client_options: Any) -> Any:
    options: Any = {key: value for key, value in server.options.items() if key != "allow_http"}
    kind: Any = S3Store if server.scheme == "s3" else GCSStore
    return kind(
        bucket,
        config=options,
        client_options={"allow_http": True, **client_options},
        retry_config=RETRY,
    )


@pytest.mark.parametrize("name", ["s3_server", "moto_server", "gcs_server"])
def test_stores_and_their_clients_notice_nothing(name: str, request: pytest.FixtureRequest) -> None:
    server: StoreServer = request.getfixturevalue(name)
    bucket = new_bucket(server)
    with FaultProxy(server.endpoint) as proxy:
        through = behind(proxy, server)
        store = store_of(through, bucket)
        for size in SIZES:
            data, uri = os.urandom(size), f"{server.scheme}://{bucket}/"
            obstore.put(store, f"ours {size}", data)
            put_object(through, f"{uri}theirs {size}", data)
            assert (
                get_object(server, f"{uri}ours {size}")
                == get_object(through, f"{uri}theirs {size}")
                == data
            )
            assert (
                bytes(obstore.get(store, f"ours {size}").bytes())
                == bytes(obstore.get(store, f"theirs {size}").bytes())
                == data
            )
        assert len([entry for batch in obstore.list(store) for entry in batch]) == 2 * len(SIZES)
        assert proxy.num_bytes_up >= 2 * sum(SIZES)


def test_a_multipart_upload(s3_server: StoreServer, proxy: FaultProxy) -> None:
    bucket, data = new_bucket(s3_server), os.urandom(12_000_000)
    with obstore.open_writer(
        store_of(behind(proxy, s3_server), bucket), "m", buffer_size=5 << 20
    ) as writer:
        writer.write(data)
    assert get_object(s3_server, f"s3://{bucket}/m") == data
    assert len([target for _, target in proxy.requests if "partNumber=" in target]) == 3


def test_wrong_keys_are_still_refused(s3_server: StoreServer, proxy: FaultProxy) -> None:
    client = behind(proxy, s3_server).s3_client(secret_access_key="wrong")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.list_buckets()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 2),
        Fault("status", 2, status=429),
        Fault("reset"),
        Fault("reset", at_byte=100_000),
        Fault("truncate", at_byte=100_000),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.at_byte}",
)
def test_obstore_gets_over_it(s3_server: StoreServer, proxy: FaultProxy, fault: Fault) -> None:
    bucket, data = new_bucket(s3_server), os.urandom(600_000)
    put_object(s3_server, f"s3://{bucket}/k", data)
    proxy.add(fault)
    assert bytes(obstore.get(store_of(behind(proxy, s3_server), bucket), "k").bytes()) == data
    assert proxy.hits(fault) == fault.times
    assert len(proxy.requests) == 1 + proxy.hits(fault)


def test_a_corrupt_download_is_what_was_stored_but_for_a_bit(
    s3_server: StoreServer, proxy: FaultProxy
) -> None:
    bucket = new_bucket(s3_server)
    put_object(s3_server, f"s3://{bucket}/k", bytes(1000))
    proxy.add(Fault("corrupt", at_byte=500))
    assert bytes(obstore.get(store_of(behind(proxy, s3_server), bucket), "k").bytes()) == bytes(
        500
    ) + b"\1" + bytes(499)


def test_a_corrupt_upload_is_refused(s3_server: StoreServer, proxy: FaultProxy) -> None:
    bucket = new_bucket(s3_server)
    proxy.add(Fault("corrupt", None, at_byte=5_000, method="PUT", upload=True))
    with pytest.raises(
        ClientError, match=r"BadDigest|XAmzContentSHA256Mismatch|SignatureDoesNotMatch"
    ):
        put_object(behind(proxy, s3_server), f"s3://{bucket}/boto3", bytes(10_000))
    with pytest.raises(obstore.exceptions.BaseError, match=r"BadDigest|XAmzContentSHA256Mismatch"):
        obstore.put(store_of(behind(proxy, s3_server), bucket), "obstore", bytes(10_000))
    assert [entry for batch in obstore.list(store_of(s3_server, bucket)) for entry in batch] == []


def test_a_stall_needs_a_read_timeout(s3_server: StoreServer, proxy: FaultProxy) -> None:
    bucket, data = new_bucket(s3_server), os.urandom(600_000)
    put_object(s3_server, f"s3://{bucket}/k", data)
    proxy.add(fault := Fault("stall", at_byte=1000))
    started = time.monotonic()
    store = store_of(behind(proxy, s3_server), bucket, read_timeout=timedelta(milliseconds=300))
    assert bytes(obstore.get(store, "k").bytes()) == data
    assert 0.3 <= time.monotonic() - started < 5
    assert proxy.hits(fault) == 1


def test_a_put_whose_answer_is_lost(s3_server: StoreServer, proxy: FaultProxy) -> None:
    """The object is there. Who only wants to make it cannot know that it was this request that did."""
    bucket = new_bucket(s3_server)
    store = store_of(behind(proxy, s3_server), bucket)
    proxy.add(fault := Fault("reset_after_upstream", None, method="PUT", path_contains="lost"))
    with pytest.raises(obstore.exceptions.BaseError):
        obstore.put(store, "lost", b"first", mode="create")
    assert proxy.hits(fault) >= 1
    proxy.clear()
    assert get_object(s3_server, f"s3://{bucket}/lost") == b"first"
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "lost", b"second", mode="create")


def test_a_completion_whose_answer_is_lost(s3_server: StoreServer, proxy: FaultProxy) -> None:
    bucket, data = new_bucket(s3_server), os.urandom(6_000_000)
    proxy.add(fault := Fault("reset_after_upstream", method="POST", path_contains="uploadId="))
    with obstore.open_writer(
        store_of(behind(proxy, s3_server), bucket), "m", buffer_size=5 << 20
    ) as writer:
        writer.write(data)
    assert proxy.hits(fault) == 1
    assert (
        len(
            [
                target
                for method, target in proxy.requests
                if method == "POST" and "uploadId=" in target
            ]
        )
        == 2
    )
    assert get_object(s3_server, f"s3://{bucket}/m") == data


def test_rounds_of_64_requests_with_latency(s3_server: StoreServer, proxy: FaultProxy) -> None:
    bucket = new_bucket(s3_server)
    put_object(s3_server, f"s3://{bucket}/k", bytes(100))
    store = store_of(behind(proxy, s3_server), bucket)

    async def one_round() -> float:
        started = time.monotonic()
        await asyncio.gather(*(obstore.get_async(store, "k") for _ in range(64)))
        return time.monotonic() - started

    async def rounds() -> list[float]:
        return [await one_round() for _ in range(8)]

    proxy.latency_msec = 30
    seconds = sorted(asyncio.run(rounds()))
    assert seconds[0] >= 0.03
    assert seconds[3] < 0.2, f"{seconds}: a busy machine adds to 0.03-0.06"
    assert proxy.max_in_flight == 64
