"""Listing stores: every key exactly once, whatever the folders are like, and whatever happens to a page on its way."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from shardwright.errors import DeniedError, MissingBucketError, StorageError, ThrottledError
from shardwright.storage import NO_OPTIONS
from shardwright.storage.clients import client_for
from shardwright.storage.listing import ObjectRow, first_page, list_folder, list_pages
from tests.buckets import Bucket, Counted, bucket_on
from tests.fault_proxy import Fault, FaultProxy

SHAPES = {
    "flat": [f"{number:05d}.png" for number in range(2100)],
    "few": [f"class {number % 3}/{number:04d}.png" for number in range(1200)],
    "large": [
        *(f"a/{number:04d}" for number in range(1010)),
        *(f"b/{number:04d}" for number in range(1010)),
        "c/1",
        "beside",
    ],
    "wide": [f"{number:04d}/x" for number in range(1010)],
    "nested": [f"train/{a}/{b}/{number:03d}" for a in "xy" for b in "pq" for number in range(260)]
    + ["train/loose", "z"],
    "thousand": [f"{number:03d}" for number in range(1000)],
    "one": ["x"],
}
PASSING = (
    Fault("status", 2, path_contains="list-type"),
    Fault("status", 1, status=429, path_contains="list-type"),
    Fault("status", 1, status=500, path_contains="list-type"),
    Fault("reset", 1, path_contains="list-type"),
    Fault("reset", 1, path_contains="list-type", at_byte=30_000),
    Fault("truncate", 1, path_contains="list-type", at_byte=30_000),
    Fault("stall", 1, path_contains="list-type", at_byte=30_000),
)


@pytest.fixture(scope="module", params=["s3_server", "gcs_server"])
def filled(request: pytest.FixtureRequest) -> Bucket:
    """A bucket with a prefix of each shape; not to be changed."""
    bucket = bucket_on(request, request.param)
    bucket.fill(f"{shape}/{key}" for shape, keys in SHAPES.items() for key in keys)
    return bucket


@pytest.fixture
def filled_proxy(filled: Bucket) -> Iterator[FaultProxy]:
    with FaultProxy(filled.server.endpoint) as running:
        yield running


def listed(bucket: Bucket, prefix: str, **options: str) -> Counter[str]:
    return Counter(row.key for page in list_pages(bucket.client(**options), prefix) for row in page)


def listing_threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("shardwright-list")
    ]


def assert_threads_end() -> None:
    deadline = time.monotonic() + 5
    while listing_threads():
        assert time.monotonic() < deadline, listing_threads()
        time.sleep(0.02)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_once(filled: Bucket, shape: str) -> None:
    assert listed(filled, shape) == Counter(f"{shape}/{key}" for key in SHAPES[shape])
    folders, loose = list_folder(filled.client(), shape)
    heads = [key.partition("/") for key in SHAPES[shape]]
    assert sorted(folders) == sorted({f"{shape}/{head}" for head, slash, _ in heads if slash})
    assert sorted(row.key for row in loose) == sorted(
        f"{shape}/{head}" for head, slash, _ in heads if not slash
    )
    assert_threads_end()


def test_a_whole_bucket_and_prefixes_that_only_begin_alike(filled: Bucket) -> None:
    everything = [f"{shape}/{key}" for shape, keys in SHAPES.items() for key in keys]
    assert listed(filled, "") == Counter(everything)
    assert (
        listed(filled, "fla")
        == listed(filled, "flat/0000")
        == listed(filled, "nowhere")
        == Counter()
    )
    assert listed(filled, "few/class 1") == Counter(
        key for key in everything if key.startswith("few/class 1/")
    )
    assert_threads_end()


def test_rows_tell_lengths_and_etags(filled: Bucket) -> None:
    wanted = ObjectRow("one/x", 1, hashlib.md5(b"x").hexdigest())
    assert list(list_pages(filled.client(), "one")) == [[wanted]]
    assert (list_folder(filled.client(), "one"), first_page(filled.client(), "one")) == (
        ([], [wanted]),
        [wanted],
    )


@pytest.mark.parametrize(
    "fault", PASSING, ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.at_byte}"
)
@pytest.mark.parametrize("skip", [0, 1])
def test_a_page_that_fails_is_asked_for_again(
    filled: Bucket, filled_proxy: FaultProxy, fault: Fault, skip: int
) -> None:
    hit = Fault(**{**vars(fault), "skip": skip})
    filled_proxy.add(hit)
    counted = Counted()
    assert listed(filled.behind(filled_proxy), "flat", read_timeout="0.5") == Counter(
        f"flat/{key}" for key in SHAPES["flat"]
    )
    assert (filled_proxy.hits(hit), sum(counted.retries.values())) == (fault.times, fault.times)


@pytest.mark.parametrize("shape", ["large", "nested"])
def test_parallel_listing_gets_over_faults(
    filled: Bucket, filled_proxy: FaultProxy, shape: str
) -> None:
    faults = [
        Fault(fault.kind, 1, skip=skip, at_byte=fault.at_byte, path_contains="list-type")
        for skip, fault in enumerate(PASSING, 1)
    ]
    filled_proxy.add(*faults)
    counted = Counted()
    assert listed(filled.behind(filled_proxy), shape) == Counter(
        f"{shape}/{key}" for key in SHAPES[shape]
    )
    assert sum(counted.retries.values()) == sum(map(filled_proxy.hits, set(faults))) > 0
    assert_threads_end()


def test_whoever_stops_early_stops_the_threads(filled: Bucket) -> None:
    pages = list_pages(filled.client(), "")
    next(pages)
    pages = list_pages(filled.client(), "large")
    assert next(pages)
    assert listing_threads()
    pages.close()  # type: ignore[attr-defined]
    assert_threads_end()


def test_an_error_in_one_folder_ends_all(filled: Bucket, filled_proxy: FaultProxy) -> None:
    filled_proxy.add(Fault("status", None, status=403, path_contains="few%2Fclass+1"))
    with pytest.raises(
        DeniedError,
        match=rf"^{filled.uri}/few/class 1: access denied: these credentials may not list it \(403 AccessDenied",
    ):
        listed(filled.behind(filled_proxy), "few")
    assert_threads_end()


def test_a_store_that_fails_for_good_ends_at_its_deadline(
    filled: Bucket, filled_proxy: FaultProxy
) -> None:
    bucket = filled.behind(filled_proxy)
    pages = list_pages(bucket.client(deadline="1"), "flat")
    assert len(next(pages)) == 1000
    filled_proxy.add(Fault("status", None, status=503))
    started = time.monotonic()
    with pytest.raises(
        ThrottledError,
        match=rf"^{bucket.uri}/flat cannot be listed: {filled_proxy.endpoint} answers 503 SlowDown; tried",
    ):
        list(pages)
    assert 1 <= time.monotonic() - started < 4


def test_what_cannot_be_listed(bucket: Bucket) -> None:
    missing = Bucket(bucket.server, "no-such-bucket")
    for list_ in (
        lambda: listed(missing, ""),
        lambda: list_folder(missing.client(), "a"),
        lambda: first_page(missing.client(), "a"),
    ):
        with pytest.raises(
            MissingBucketError,
            match=rf"^{missing.uri}(/a)?: there is no bucket 'no-such-bucket' at {bucket.server.endpoint}: ",
        ):
            list_()
    with pytest.raises(StorageError, match="a web server does not list its files"):
        list(list_pages(client_for("https://127.0.0.1:1", NO_OPTIONS), "a"))


@pytest.mark.parametrize("number", [6, 1200])
def test_names_that_nobody_can_ask_for_do_not_hide_the_others(
    gcs_bucket: Bucket, number: int
) -> None:
    keys = gcs_bucket.fill(f"few/{n % 3}/{n:04d}.png" for n in range(number))
    odd = [
        "few//b.png",
        "few/./x.png",
        "few/1/../y",
        "few/1//z",
        "few/2/\x01.png",
        "few/2/a\nb.png",
        "few/1/mark/",
        "few/..",
    ]
    for key in odd:
        gcs_bucket.put(key, b"" if key.endswith("/") else b"1")
    assert listed(gcs_bucket, "few") == Counter([*keys, *odd])
    assert list_folder(gcs_bucket.client(), "few")[0] == [
        "few/",
        "few/.",
        "few/0",
        "few/1",
        "few/2",
    ]
    assert_threads_end()


def test_names_that_nobody_can_ask_for_on_s3(moto_bucket: Bucket) -> None:
    keys = [f"few/{number}.png" for number in range(3)]
    odd = ["few//b.png", "few/./x.png", "few/1/../y", "few/2/\x01.png", "few/mark/"]
    for key in [*keys, *odd]:
        moto_bucket.put(key, b"" if key.endswith("/") else b"1")
    assert listed(moto_bucket, "few") == listed(moto_bucket, "") == Counter([*keys, *odd])
    assert moto_bucket.folder("few").names() == [
        "",
        ".",
        "0.png",
        "1",
        "1.png",
        "2",
        "2.png",
        "mark",
    ]
