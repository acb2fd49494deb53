"""Listing stores: every key exactly once, for all shapes of folders, and despite faults."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

import pytest

from shardwright.errors import DeniedError, MissingBucketError, StorageError, ThrottledError
from shardwright.storage.clients import client_for
from shardwright.storage.key_ranges import ALL_KEYS
from shardwright.storage.listing import ObjectRow, cut_prefix, first_page, list_folder, list_pages
from shardwright.storage.options import NO_OPTIONS
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.fault_upstream import wait_until
from tests.support.buckets import Bucket, Counted, PauseClock, bucket_on

SHAPES = {
    "flat": [f"{number:05d}.png" for number in range(2001)],
    "few": [f"class {number % 3}/{number:04d}.png" for number in range(1010)],
    "large": [*(f"{folder}/{number:04d}" for folder in "ab" for number in range(1010)), "c/1", "d"],
    "wide": [f"{number:04d}/x" for number in range(1001)],
    "nested": [f"train/{a}/{b}/{n:03d}" for a in "xy" for b in "pq" for n in range(260)]
    + ["train/loose", "z"],
    "long": [f"{'aé日'[number % 3]} {number}.png" for number in range(3500)],
    "thousand": [f"{number:03d}" for number in range(1000)],
    "one": ["x"],
}
MOST_REQUESTS = {"one": 1, "few": 2, "thousand": 1, "flat": 3, "long": 9}
EVERYTHING = [f"{shape}/{key}" for shape, keys in SHAPES.items() for key in keys]
# Without a stall: with its short timeout, a busy machine may exceed it in other requests, too.
TRANSIENT = (
    Fault("status"),
    Fault("reset", at_byte=30_000),
    Fault("truncate", at_byte=30_000),
    Fault("status", status=429),
    Fault("reset"),
    Fault("status", status=500),
)


@pytest.fixture(scope="module", params=["s3_server", "gcs_server"])
def filled(request: pytest.FixtureRequest) -> Bucket:
    """A bucket with a prefix of each shape, read only."""
    bucket = bucket_on(request, request.param)
    bucket.fill(EVERYTHING)
    return bucket


def listing_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("shardwright-list")]


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Check that no thread of a listing survives its test."""
    yield
    wait_until(lambda: not listing_threads())


@pytest.fixture
def filled_proxy(filled: Bucket) -> Iterator[FaultProxy]:
    with FaultProxy(filled.server.endpoint) as running:
        yield running
        wait_until(lambda: not listing_threads())  # without a proxy they would retry for minutes


def listed(bucket: Bucket, prefix: str, **options: str) -> Counter[str]:
    return Counter(row.key for page in list_pages(bucket.client(**options), prefix) for row in page)


def below(prefix: str) -> Counter[str]:
    return Counter(key for key in EVERYTHING if key.startswith(f"{prefix}/"))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_once(filled: Bucket, filled_proxy: FaultProxy, shape: str) -> None:
    assert listed(filled.behind(filled_proxy), shape) == below(shape)
    assert filled_proxy.num_requests <= MOST_REQUESTS.get(shape, 100)
    folders, loose = list_folder(filled.client(), shape)
    heads = [key.partition("/") for key in SHAPES[shape]]
    assert sorted(folders) == sorted({f"{shape}/{head}" for head, slash, _ in heads if slash})
    files = [f"{shape}/{head}" for head, slash, _ in heads if not slash]
    assert sorted(row.key for row in loose) == sorted(files)


def test_a_whole_bucket_and_parts_of_names(filled: Bucket) -> None:
    assert listed(filled, "") == Counter(EVERYTHING)
    assert [listed(filled, prefix) for prefix in ("fla", "flat/0000", "nowhere")] == [Counter()] * 3
    assert listed(filled, "few/class 1") == below("few/class 1")


def test_rows_have_lengths_and_etags(filled: Bucket) -> None:
    row, client = ObjectRow("one/x", 1, hashlib.md5(b"x").hexdigest()), filled.client()
    (page,) = list_pages(client, "one")
    folders, objects = list_folder(client, "one")
    assert folders == []
    for found in (page, objects, first_page(client, "one")):
        assert [each._replace(modified=None) for each in found] == [row]


@pytest.mark.long_but_first
@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("shape", ["large", "few", "flat", "long", "nested"])
def test_failed_pages_are_retried(
    filled: Bucket, filled_proxy: FaultProxy, shape: str, skip: int
) -> None:
    faults = [
        Fault(**{**vars(fault), "times": 1, "skip": number, "path_contains": "list-type"})
        for number, fault in enumerate(TRANSIENT, skip)
    ]
    filled_proxy.add(*faults)
    counted = Counted()
    assert listed(filled.behind(filled_proxy), shape, read_timeout="120") == below(shape)
    assert sum(counted.retries.values()) == sum(map(filled_proxy.hits, faults)) > 0


@pytest.mark.long_but_first
@pytest.mark.parametrize("wanted", [1, 4])
def test_ranges_are_all_keys(filled: Bucket, wanted: int) -> None:
    client = filled.client()
    ranges = cut_prefix(client, "long", wanted)
    pages = [chain(*list_pages(client, "long", one)) for one in ranges]
    found = [[row.key for row in rows] for rows in pages]
    assert min(wanted, 2) <= len(found) <= wanted
    assert all(found)
    assert Counter(chain(*found)) == below("long")
    assert cut_prefix(client, "one", wanted) == [ALL_KEYS]


def test_an_early_end_stops_the_threads(filled: Bucket) -> None:
    pages = list_pages(filled.client(), "")
    next(pages)
    pages = list_pages(filled.client(), "long")
    assert len(list(islice(pages, 3))) == 3
    assert listing_threads()
    pages.close()  # type: ignore[attr-defined]


def test_an_error_in_one_range_ends_all(filled: Bucket, filled_proxy: FaultProxy) -> None:
    filled_proxy.add(Fault("status", None, status=403, path_contains="start-after=long"))
    message = r"access denied: these credentials may not list it \(403 AccessDenied"
    with pytest.raises(DeniedError, match=rf"^{filled.uri}/long: {message}"):
        listed(filled.behind(filled_proxy), "long")


def test_a_permanent_failure_ends_at_its_deadline(
    filled: Bucket, filled_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, clock = filled.behind(filled_proxy), PauseClock(monkeypatch)
    pages = list_pages(bucket.client(deadline="1"), "flat")
    assert len(next(pages)) == 1000
    filled_proxy.add(Fault("status", None, status=503))
    message = f"cannot be listed: {filled_proxy.endpoint} returned 503 SlowDown; tried"
    with pytest.raises(ThrottledError, match=f"^{bucket.uri}/flat {message}"), clock.takes(1, 10):
        list(pages)


def test_missing_buckets(bucket: Bucket) -> None:
    missing = Bucket(bucket.server, "no-such-bucket")
    client = missing.client()
    message = f"bucket 'no-such-bucket' does not exist at {bucket.server.endpoint}: "
    for list_ in (lambda: listed(missing, "a"), lambda: list_folder(client, "a")):
        with pytest.raises(MissingBucketError, match=rf"^{missing.uri}/a: {message}"):
            list_()
    with pytest.raises(MissingBucketError, match=rf"^{missing.uri}: {message}"):
        first_page(client, "")


def test_a_web_server_is_not_listed() -> None:
    with pytest.raises(StorageError, match="a web server cannot be listed"):
        list(list_pages(client_for("https://127.0.0.1:1", NO_OPTIONS), "a"))


@pytest.mark.parametrize(
    ("bucket", "number"),
    [("gcs_server", 6), ("gcs_server", 1010), ("moto_server", 6)],
    indirect=["bucket"],
)
def test_invalid_names_do_not_hide_the_others(bucket: Bucket, number: int) -> None:
    keys = bucket.fill(f"few/{n % 3}/{n:04d}.png" for n in range(number))
    odd = [
        "few//b.png", "few/./x.png", "few/1/../y", "few/2/\x01.png", "few/1/mark/",
        # moto refuses these.
        "few/1//z", "few/2/a\nb.png", "few/..",
    ][: 8 if bucket.server.scheme == "gs" else 5]  # fmt: skip
    for key in odd:
        bucket.put(key, b"" if key.endswith("/") else b"1")
    assert listed(bucket, "few") == listed(bucket, "") == Counter([*keys, *odd])
    folders = ["few/", "few/.", "few/0", "few/1", "few/2"]
    assert list_folder(bucket.client(), "few")[0] == folders
    top = {key.split("/")[1] for key in (*keys, *odd)}
    assert bucket.folder("few").names() == sorted(top)
