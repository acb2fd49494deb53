"""fault_proxy.py between real clients and real object stores, which notice nothing."""

from __future__ import annotations

import os

import obstore
import pytest
from botocore.exceptions import ClientError

from tests.servers.clients import PART_BYTES, open_store
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket

SIZES = (0, 1, 80_000, 2 * PART_BYTES + 1)


@pytest.mark.long_but_first
def test_stores_and_their_clients_notice_nothing(bucket: Bucket, proxy: FaultProxy) -> None:
    through = bucket.behind(proxy)
    store = open_store(through.server, bucket.name)
    for size in SIZES:
        data = os.urandom(size)
        obstore.put(store, f"ours {size}", data, chunk_size=PART_BYTES)
        through.put(f"theirs {size}", data)
        assert bucket.get(f"ours {size}") == through.get(f"theirs {size}") == data
        for key in (f"ours {size}", f"theirs {size}"):
            assert bytes(obstore.get(store, key).bytes()) == data
    assert len(obstore.list(store).collect()) == 2 * len(SIZES)
    assert proxy.num_bytes_up >= 2 * sum(SIZES)
    assert len([target for _, target in proxy.requests if "partNumber=" in target]) == 3


def test_signatures_are_still_checked(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    through = s3_bucket.behind(s3_proxy)
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        through.server.s3_client(secret_access_key="wrong").list_buckets()
    s3_proxy.add(Fault("corrupt", None, at_byte=5_000, method="PUT", upload=True))
    refused = r"BadDigest|XAmzContentSHA256Mismatch|SignatureDoesNotMatch"
    with pytest.raises(ClientError, match=refused):
        through.put("x", bytes(10_000))
    assert s3_bucket.keys() == []
