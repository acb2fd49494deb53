"""A store that serves so many requests a second and refuses all others, read by many processes.

They depend on the machine's speed, so they are long; test_request_rate.py simulates the same. They
print what they measured: `python -m pytest -s --long FILE`.
"""

from __future__ import annotations

import bisect
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from shardwright.errors import ImageFault
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.write.image_reads import ImageLocation, read_remote_image
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import Bucket

START_SECONDS = 120  # for 16 processes to start on a busy machine


def read_for(
    seconds: float, uris: list[str], options: StorageOptions, start: Barrier, results: Any
) -> None:
    """Read images again and again as a build does; put when each was read, and the rejects."""
    served: list[float] = []

    def read(uri: str) -> str | None:
        try:
            read_remote_image(ImageLocation(uri, None, 1000, None), options)
        except ImageFault as rejected:
            return str(rejected)
        served.append(time.monotonic() - begun)
        return None

    def endless() -> Iterator[str]:
        while time.monotonic() < begun + seconds:
            yield from uris

    start.wait(START_SECONDS)
    begun = time.monotonic()
    rejects = [reject for reject in map_reads(read, endless()) if reject]
    results.put((sorted(served), rejects))


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_processes", "per_second", "seconds"),
    # Rates that a busy machine of half the speed serves, or it would be the limit.
    [(3, 100, 4), (16, 200, 12)],
)
def test_processes_share_what_the_store_serves(
    s3_bucket: Bucket, s3_proxy: FaultProxy, num_processes: int, per_second: int, seconds: float
) -> None:
    keys = s3_bucket.fill((f"{number:02d}" for number in range(50)), bytes(1000))
    uris = [f"{s3_bucket.uri}/{key}" for key in keys]
    options = s3_bucket.behind(s3_proxy).options()
    shares = []
    # Another test may take the machine for a second; processes that back off too far always do.
    while len(shares) < 5 and max(shares, default=0) < 0.9:
        refusal = Fault("status", None, beyond_per_second=per_second)
        s3_proxy.add(refusal)
        served = _served_a_second(num_processes, uris, options, seconds)
        print(
            f"\n{num_processes} processes, a store of {per_second} requests a second: served "
            f"{served:.0f} a second, refused {s3_proxy.hits(refusal)} of {s3_proxy.num_requests}"
        )
        s3_proxy.clear()
        wanted: float = per_second
        if served < 0.9 * wanted:
            # Refusals take processor time, too: a machine that serves few without them is the
            # limit.
            free = _served_a_second(num_processes, uris, options, seconds / 3)
            print(f"without refusals: served {free:.0f} a second")
            wanted = min(wanted, free / 4)
        shares.append(served / wanted if wanted else 0.0)  # a machine that stood still
    assert max(shares) >= 0.9


def _served_a_second(
    num_processes: int, uris: list[str], options: StorageOptions, seconds: float
) -> float:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(num_processes), context.Queue()
    given = (seconds, uris, options, start, results)
    processes = [context.Process(target=read_for, args=given) for _ in range(num_processes)]
    for process in processes:
        process.start()
    found = [results.get(timeout=2 * START_SECONDS) for _ in processes]
    for process in processes:
        process.join()
    assert not any(rejects for _, rejects in found)
    # In the first quarter, processes learn what the store serves.
    learned = seconds / 4
    counts = [bisect.bisect(times, seconds) - bisect.bisect(times, learned) for times, _ in found]
    return sum(counts) / (seconds - learned)
