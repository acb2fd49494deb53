"""List a store in pages and bounded memory, with several prefixes in parallel where possible.

A page has at most 1,000 keys and takes one round trip, and the pages of a prefix come one after
another. So a prefix with a few large folders is listed folder by folder, in parallel.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import obstore
from obstore.exceptions import InvalidPathError

from shardwright.errors import StorageError
from shardwright.storage import peers
from shardwright.storage.addresses import Address, key_problem
from shardwright.storage.clients import Client
from shardwright.storage.etags import plain_etag

_PAGE_KEYS = 1000
_LISTERS = 16  # prefixes listed in parallel
_MOST_FOLDERS = 16  # with more folders on one page, a request per folder costs more than it saves
_WAITING_PAGES = 64  # pages queued for the caller: 64,000 keys, about 30 MB


class ObjectRow(NamedTuple):
    """One object of a listing. `etag` has no quotes; it is "" if the store gives none."""

    key: str
    num_bytes: int
    etag: str


Page = list[ObjectRow]


def list_pages(client: Client, prefix: str) -> Iterator[Page]:
    """Yield every object below a prefix, in pages and in no order.

    This includes objects whose names obstore cannot read.

    Raises:
        StorageError: The store cannot be listed.
    """
    pages = _pages(client, prefix)
    first = next(pages, [])
    if not _worth_splitting(first, prefix):
        yield first
        yield from pages
        return
    lister = _ParallelLister(client)
    try:
        yield from lister.run(prefix)
    finally:
        lister.stop()


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


def _pages(client: Client, prefix: str) -> Iterator[Page]:
    """Yield the pages of one prefix, in key order; a retry continues after the last key."""
    uri = _listable(client, prefix)
    if prefix and key_problem(prefix):  # a subfolder with a name that obstore cannot list
        yield from _any_pages(client, prefix, None)
        return
    stream: Any = None
    last: str | None = None

    def next_page() -> Any:
        nonlocal stream
        if stream is None:
            stream = obstore.list(
                client.objects, prefix or None, offset=last, chunk_size=_PAGE_KEYS
            )
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
    while page := list(islice(rows, _PAGE_KEYS)):
        yield page


def _rows(found: Any, prefix: str) -> Page:
    """Return the rows below a prefix, without the folder's placeholder that some stores list."""
    return [
        ObjectRow(meta["path"], meta["size"], plain_etag(meta["e_tag"]))
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


def _worth_splitting(page: Page, prefix: str) -> bool:
    if len(page) < _PAGE_KEYS:
        return False
    start = len(prefix) + 1 if prefix else 0
    folders = {head for head, slash, _ in (row.key[start:].partition("/") for row in page) if slash}
    return 0 < len(folders) <= _MOST_FOLDERS


class _ParallelLister:
    """Threads that take prefixes from a stack, queue their pages and push their folders."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Last in, first out: the deepest folders first, so the stack stays small.
        self._prefixes: queue.LifoQueue[str | None] = queue.LifoQueue()
        self._pages: queue.Queue[Page | BaseException | None] = queue.Queue(_WAITING_PAGES)
        self._unlisted = 0  # prefixes in the stack or in work; the listing ends at 0
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, prefix: str) -> Iterator[Page]:
        self._add([prefix])
        for number in range(_LISTERS):
            threading.Thread(
                target=self._work, daemon=True, name=f"shardwright-list-{number}"
            ).start()
        while (found := self._pages.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found

    def stop(self) -> None:
        self._stopped = True
        for _ in range(_LISTERS):
            self._prefixes.put(None)

    def _add(self, prefixes: list[str]) -> None:
        with self._lock:
            self._unlisted += len(prefixes)
        for prefix in prefixes:
            self._prefixes.put(prefix)

    def _work(self) -> None:
        while (prefix := self._prefixes.get()) is not None and not self._stopped:
            try:
                self._list(prefix)
            except BaseException as error:  # raised again in the caller's thread
                self._give(error)
                return
            with self._lock:
                self._unlisted -= 1
                done = not self._unlisted
            if done:
                self._give(None)

    def _list(self, prefix: str) -> None:
        pages = _pages(self._client, prefix)
        first = next(pages, [])
        if _worth_splitting(first, prefix):
            folders, loose = list_folder(self._client, prefix)
            self._give(loose)
            self._add(folders)
            return
        self._give(first)
        for page in pages:
            if self._stopped:
                return
            self._give(page)

    def _give(self, found: Page | BaseException | None) -> None:
        while not self._stopped:  # a caller that stopped early takes no more pages
            try:
                self._pages.put(found, timeout=1)
                return
            except queue.Full:
                continue
