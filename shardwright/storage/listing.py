"""List a store in pages and bounded memory, with several ranges of keys in parallel.

A page has at most 1,000 keys and takes one round trip, and the pages of a range come one after
another. So a lister that runs out of work takes half of the keys that another one has left.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import obstore
from obstore.exceptions import InvalidPathError

from shardwright.errors import StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import Address, key_problem
from shardwright.storage.cancellation import cancelable
from shardwright.storage.checksums import plain_etag
from shardwright.storage.clients import Client
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange, SeenKeys, cut_range

PAGE_KEYS = 1000
LONG_KEYS = PAGE_KEYS - 1  # a full first page may lack the folder's own placeholder
_LISTERS = 16  # ranges listed in parallel
_PAGES_ALONE = 2  # before threads start; a page of 1,000 keys does not say that more follow
_WAITING_PAGES = 64  # pages queued for the caller: 64,000 keys, about 30 MB


class ObjectRow(NamedTuple):
    """One object of a listing. `etag` has no quotes; it is "" if the store gives none."""

    key: str
    num_bytes: int
    etag: str
    modified: datetime | None = None


Page = list[ObjectRow]


def list_pages(client: Client, prefix: str, keys: KeyRange = ALL_KEYS) -> Iterator[Page]:
    """Yield every object below a prefix, or those in a range of keys, in pages and in no order.

    This includes objects whose names obstore cannot read.

    Raises:
        StorageError: The store cannot be listed.
    """
    list_after = partial(_pages, client, prefix)
    pages = list_after(keys.after)
    for _ in range(_PAGES_ALONE):
        page = next(pages, [])
        inside = page if keys == ALL_KEYS else _inside(page, keys)
        if inside:
            yield inside
        if not page or len(inside) < len(page):
            return
    # A page that is not full is the last one of a store that lists in order.
    if len(page) < PAGE_KEYS or not _can_be_cut(client):
        yield from pages
        return
    # From where the two pages ended; `pages` goes on with the rest of the first range.
    yield from list_in_parallel(list_after, pages, KeyRange(page[-1].key, keys.up_to))


def cut_prefix(client: Client, prefix: str, wanted: int) -> list[KeyRange]:
    """Return ranges of the keys below a prefix for so many workers, one if there are few keys.

    Raises:
        StorageError: As `list_pages`.
    """
    if not _can_be_cut(client):
        return [ALL_KEYS]

    def list_after(key: str | None) -> list[str]:
        return [row.key for row in next(_pages(client, prefix, key), [])]

    return cut_range(list_after, prefix and f"{prefix}/", LONG_KEYS, wanted)


def _can_be_cut(client: Client) -> bool:
    """Return whether a store lists in the order of its keys and from any key on.

    Azure's emulator and its accounts with a hierarchical namespace do not.
    """
    return client.scheme in ("s3", "gs")


def list_folder(client: Client, prefix: str) -> tuple[list[str], Page]:
    """Return the folders and the objects directly below a prefix.

    Folders are whole keys without a trailing slash.

    Raises:
        StorageError: As `list_pages`.
    """
    uri = _listable(client, prefix)
    try:
        found = client.call(
            uri, "list", lambda: obstore.list_with_delimiter(client.objects, prefix or None)
        )
    except InvalidPathError:
        return _folders_of((ObjectRow(*row) for row in peers.list_any_keys(client, prefix)), prefix)
    return list(found["common_prefixes"]), _rows(found["objects"], prefix)


def first_page(client: Client, prefix: str) -> Page:
    """Return at most 1,000 objects below a prefix, with one request. Raises as `list_pages`."""
    return next(_pages(client, prefix), [])


def _listable(client: Client, prefix: str) -> str:
    uri = Address(client.store, prefix).uri
    if client.scheme in ("http", "https"):
        raise StorageError(
            f"{uri}: a web server cannot be listed: use a folder or a bucket, "
            "or give the image URLs in a table"
        )
    return uri


def _pages(client: Client, prefix: str, after: str | None = None) -> Iterator[Page]:
    """Yield the pages of one prefix, in key order; a retry continues after the last key."""
    uri = _listable(client, prefix)
    if prefix and key_problem(prefix):  # a subfolder with a name that obstore cannot list
        yield from _any_pages(client, prefix, after)
        return
    stream: Any = None
    last = after

    def next_page() -> Any:
        nonlocal stream
        if stream is None:
            # From the last key on, so that a retry neither repeats nor loses keys.
            stream = obstore.list(client.objects, prefix or None, offset=last, chunk_size=PAGE_KEYS)
        try:
            return next(stream, None)
        except BaseException:
            stream = None  # after an error the stream only reports its end
            raise

    while True:
        try:
            found = client.call(uri, "list", next_page)
        except InvalidPathError:
            # One bad name must not hide the others: continue with a slower client that lists all.
            yield from _any_pages(client, prefix, last)
            return
        if not found:
            return
        last = found[-1]["path"]
        yield _rows(found, prefix)


def _any_pages(client: Client, prefix: str, last: str | None) -> Iterator[Page]:
    found = (ObjectRow(*row) for row in peers.list_any_keys(client, prefix, after=last))
    # As obstore does, leave out the placeholder object of the folder itself.
    rows = (row for row in found if row.key != f"{prefix}/")
    while page := list(islice(rows, PAGE_KEYS)):
        yield page


def _rows(found: Any, prefix: str) -> Page:
    """Return the rows below a prefix, without the folder's placeholder that some stores list."""
    return [
        ObjectRow(meta["path"], meta["size"], plain_etag(meta["e_tag"]), meta["last_modified"])
        for meta in found
        if meta["path"] != prefix
    ]


def _folders_of(rows: Iterator[ObjectRow], prefix: str) -> tuple[list[str], Page]:
    start = len(prefix) + 1 if prefix else 0
    folders, loose = set(), []
    for row in rows:
        head, slash, _ = row.key[start:].partition("/")
        if slash:
            folders.add(row.key[:start] + head)
        else:
            loose.append(row)
    return sorted(folders), loose


def _inside(page: Page, keys: KeyRange) -> Page:
    """Return the rows of a page up to the end of a range; none may be before its start."""
    low, inside = keys.after or "", []
    for row in page:
        # obstore leaves out the slash at the end of a name, such as of a folder's placeholder.
        key = row.key if row.key > low else f"{row.key}/"
        if key <= low:
            raise StorageError(
                f"the store lists {key!r} after {low!r}, so keys may be missing: its listings must "
                "be in the order of keys; or give the images in a table"
            )
        if keys.up_to is not None and key > keys.up_to:
            break
        inside.append(row)
        low = key
    return inside


def list_in_parallel(
    list_after: Callable[[str | None], Iterator[Page]],
    pages: Iterator[Page],
    keys: KeyRange,
    page_keys: int = PAGE_KEYS,
) -> Iterator[Page]:
    """Yield what is in a range, in pages and in no order.

    While a thread has no range, the others cut theirs after each page, and leave it the upper part.
    So the requests are at most two for each page, however the keys are distributed.

    Args:
        list_after: Yields the pages after a key, in key order.
        pages: Those of the range.
        keys: The range.
        page_keys: The keys of a page; one with fewer is the last.
    """
    lock, canceled, seen = threading.Lock(), threading.Event(), SeenKeys()
    # None ends a range; an error is raised again in the caller's thread.
    found = queue.Queue[Page | BaseException | None](_WAITING_PAGES)
    unlisted = 1  # ranges in work or waiting

    def give(page: Page | BaseException | None) -> None:
        while not canceled.is_set():  # a caller that stopped early takes no more pages
            with suppress(queue.Full):
                found.put(page, timeout=1)
                return

    def list_range(pages: Iterator[Page], keys: KeyRange) -> None:
        nonlocal unlisted
        try:
            for page in pages:
                inside = _inside(page, keys)
                give(inside)
                if canceled.is_set() or len(inside) < page_keys:
                    break
                keys = KeyRange(page[-1].key, keys.up_to)
                with lock:
                    seen.add(page[0].key, page[-1].key)
                    cut = seen.middle_of(keys) if unlisted < _LISTERS else None
                    unlisted += cut is not None
                if cut is not None:
                    pool.submit(
                        cancelable, canceled, list_range, list_after(cut), KeyRange(cut, keys.up_to)
                    )
                    keys = KeyRange(keys.after, cut)
            give(None)
        except BaseException as error:
            give(error)

    pool = ThreadPoolExecutor(_LISTERS, "shardwright-list")
    pool.submit(cancelable, canceled, list_range, pages, keys)
    try:
        while unlisted:
            page = found.get()
            if isinstance(page, BaseException):
                raise page
            if page is not None:
                yield page
                continue
            with lock:
                unlisted -= 1
    finally:
        canceled.set()
        pool.shutdown(wait=False, cancel_futures=True)
