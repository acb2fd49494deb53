"""Reading parts of one file: what comes, and by how many requests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwright.errors import MissingError
from shardwright.storage import Folder, StorageOptions
from tests.fault_proxy import FaultProxy
from tests.object_stores import new_bucket, put_object
from tests.servers.store_server import StoreServer

DATA = os.urandom(3 << 20)
NEAR = [(start, start + 50) for start in range(0, 100_000, 1000)]
FAR = [(0, 10), (2_500_000, 2_500_100)]
OVERLAPPING = [(100, 300), (200, 250), (100, 300)]


@pytest.mark.parametrize(("spans", "num_requests"), [(NEAR, 1), (FAR, 2), (OVERLAPPING, 1)])
def test_near_spans_of_an_object_come_by_one_request(
    s3_server: StoreServer, spans: list[tuple[int, int]], num_requests: int
) -> None:
    bucket = new_bucket(s3_server)
    put_object(s3_server, f"s3://{bucket}/data.bin", DATA)
    with FaultProxy(s3_server.endpoint) as proxy:
        folder = Folder(
            f"s3://{bucket}", StorageOptions.of({**s3_server.options, "endpoint": proxy.endpoint})
        )
        assert folder.read_ranges("data.bin", spans) == [DATA[start:stop] for start, stop in spans]
        assert len(proxy.requests) == num_requests
        with pytest.raises(MissingError, match=r"other\.bin: there is no such object"):
            folder.read_ranges("other.bin", spans)


@pytest.mark.parametrize("spans", [NEAR, FAR, OVERLAPPING, []])
def test_spans_of_a_file(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    (tmp_path / "data.bin").write_bytes(DATA)
    folder = Folder(str(tmp_path))
    assert folder.read_ranges("data.bin", spans) == [DATA[start:stop] for start, stop in spans]
    with pytest.raises(MissingError, match=r"other\.bin: there is no such file"):
        folder.read_ranges("other.bin", spans)
