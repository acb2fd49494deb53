"""Download large objects into local files: 8 MB parts, four at a time, each retried separately."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

import obstore

from shardwright.errors import ChangedError
from shardwright.storage.addresses import parse_address
from shardwright.storage.clients import Client, client_for
from shardwright.storage.counters import COUNTERS
from shardwright.storage.etags import plain_etag
from shardwright.storage.options import StorageOptions

PART_BYTES = 8 << 20
_PARTS_AT_A_TIME = 4  # 32 MB in memory


def download(
    uri: str,
    options: StorageOptions,
    descriptor: int,
    spans: Sequence[tuple[int, int]],
    *,
    etag: str | None = None,
    done: Callable[[int, int], None] | None = None,
) -> None:
    """Write parts of an object to a local file at the same offsets.

    Args:
        uri: The object.
        options: Storage options.
        descriptor: The local file, open for writing.
        spans: The byte ranges [start, stop) to download.
        etag: The etag that the object must have, or None for any.
        done: Called with [start, stop) of each written part, from several threads.

    Raises:
        MissingError, ChangedError, StorageError: As `read_object`.
    """
    store, key = parse_address(uri)
    client = client_for(store, options)
    parts = [
        (start, min(start + PART_BYTES, stop))
        for first, stop in spans
        for start in range(first, stop, PART_BYTES)
    ]
    with ThreadPoolExecutor(_PARTS_AT_A_TIME, thread_name_prefix="shardwright-download") as pool:
        waiting: list[Future[None]] = [
            pool.submit(_download_part, client, key, uri, descriptor, start, stop, etag, done)
            for start, stop in parts
        ]
        finished, unfinished = wait(waiting, return_when=FIRST_EXCEPTION)
        for future in unfinished:
            future.cancel()
    for future in finished:
        future.result()


def _download_part(
    client: Client,
    key: str,
    uri: str,
    descriptor: int,
    start: int,
    stop: int,
    etag: str | None,
    done: Callable[[int, int], None] | None,
) -> None:
    data = read_part(client, uri, key, start, stop, etag)
    view, place = memoryview(data), start
    while view:
        written = os.pwrite(descriptor, view, place)
        view, place = view[written:], place + written
    if done is not None:
        done(start, stop)


def read_part(client: Client, uri: str, key: str, start: int, stop: int, etag: str | None) -> bytes:
    """Return the bytes [start, stop) of an object with this etag, None for any.

    Raises as `download`.
    """
    data = client.call(
        uri, "read", functools.partial(_get_part, client, key, uri, start, stop, etag)
    )
    COUNTERS.add("bytes_read", len(data))
    return data


def _get_part(client: Client, key: str, uri: str, start: int, stop: int, etag: str | None) -> bytes:
    result = obstore.get(client.objects, key, options={"range": (start, stop)})
    there = plain_etag(result.meta["e_tag"])
    if etag and there and there != etag:
        raise ChangedError(f"{uri} changed while it was downloaded")
    data = bytes(result.bytes())
    if len(data) != stop - start:
        raise OSError(f"received {len(data)} of {stop - start} bytes")  # `call` retries it
    return data
