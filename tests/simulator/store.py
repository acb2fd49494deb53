"""A store in memory that speaks as obstore does: the code under test is all that is above obstore.

Each request is a moment at which others may run, the process may die, or the request or its reply
may be lost. Listings come in pages, each of its own moment, so they may miss what is written
meanwhile. The bucket keeps old versions, which only an erasure removes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from random import Random
from typing import Any, NamedTuple, TypeVar

import google_crc32c
from obstore.exceptions import AlreadyExistsError, GenericError

from shardwright.errors import StorageError
from tests.simulator.scheduler import Scheduler

T = TypeVar("T")


class Stored(NamedTuple):
    """An object: its bytes, its etag and when it was written."""

    data: bytes
    etag: str
    modified: float


@dataclass
class Store:
    """All objects of one bucket.

    Attributes:
        objects: The objects by key.
        old: (key, version) -> the bytes that an object had before.
    """

    objects: dict[str, Stored] = field(default_factory=dict)
    old: dict[tuple[str, str], bytes] = field(default_factory=dict)
    _sorted: list[str] | None = None

    def copy(self) -> Store:
        return Store(dict(self.objects), dict(self.old))

    def put(self, key: str, data: bytes, now: float) -> Stored:
        self.remove(key)
        etag = f"{google_crc32c.value(data):08x}{len(data):x}-1"  # as that of an upload in parts
        self.objects[key] = Stored(data, etag, now)
        return self.objects[key]

    def keys(self, start: str, after: str) -> list[str]:
        """Return the sorted keys that begin with `start` and follow `after`."""
        if self._sorted is None:
            self._sorted = sorted(self.objects)
        first = max(bisect_left(self._sorted, start), bisect_right(self._sorted, after))
        return self._sorted[first : bisect_left(self._sorted, start + chr(0x10FFFF))]

    def remove(self, key: str) -> None:
        self._sorted = None
        if (before := self.objects.pop(key, None)) is not None:
            self.old[key, f"v{len(self.old)}"] = before.data


class Requests:
    """The functions of `obstore`, and those of `s3_peer`, on a store.

    Args:
        scheduler: Decides what happens at each request.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.start(Store(), Random(0))

    def start(self, store: Store, random: Random) -> None:
        """Go on with another store, and choose the length of its pages."""
        self.store = store
        self._page = random.choice((1, 3, 10, 1000))
        # Called after an object is written, with its bytes, and before one is removed.
        self.watch: Callable[[str, bytes | None], None] = lambda *_: None

    def _do(self, verb: str, key: str, effect: Callable[[], T]) -> T:
        fate = self._scheduler.pause(f"{verb} {key}")
        if fate == "lost":
            raise GenericError(f"{verb} {key} timed out, and was not done")
        result = effect()
        if fate == "unanswered":
            raise GenericError(f"{verb} {key} timed out, and was done")
        return result

    def _find(self, key: str) -> Stored:
        if key not in self.store.objects:
            raise FileNotFoundError(f"{key} not found")
        return self.store.objects[key]

    def get(self, _: Any, key: str, *, options: Any = None) -> _Answer:
        def read() -> _Answer:
            found = self._find(key)
            start, stop = (options or {}).get("range", (0, len(found.data)))
            if options and start >= len(found.data):
                raise GenericError("range not satisfiable, status code: 416")
            return _Answer(_meta(key, found), found.data[start:stop])

        return self._do("get", key, read)

    def head(self, _: Any, key: str) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            found = _meta(key, self._find(key))
            return {**found, "last_modified": found["last_modified"].replace(microsecond=0)}

        return self._do("head", key, read)

    def get_range(self, _: Any, key: str, *, start: int, length: int) -> bytes:
        return self.get(_, key, options={"range": (start, start + length)}).bytes()

    def get_ranges(
        self, _: Any, key: str, *, starts: Sequence[int], ends: Sequence[int], coalesce: int = 0
    ) -> list[bytes]:
        del coalesce
        spans = list(zip(starts, ends, strict=True))
        return [self.get(_, key, options={"range": span}).bytes() for span in spans]

    def put(self, _: Any, key: str, data: Any, *, mode: str = "overwrite", **__: Any) -> Any:
        data = bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else b"".join(data)

        def write() -> dict[str, Any]:
            if mode == "create" and key in self.store.objects:
                raise AlreadyExistsError(f"{key} exists already, status code: 412")
            self.watch(key, data)
            return {
                "e_tag": f'"{self.store.put(key, data, self._scheduler.now).etag}"',
                "version": None,
            }

        return self._do("create" if mode == "create" else "put", key, write)

    def copy(self, _: Any, key: str, to: str) -> None:
        self._do("copy", to, lambda: self.store.put(to, self._find(key).data, self._scheduler.now))

    def delete(self, _: Any, keys: str | Sequence[str]) -> None:
        for key in [keys] if isinstance(keys, str) else self._scheduler.shuffled(keys):

            def remove(key: str = key) -> None:
                self.watch(key, None)
                self.store.remove(key)

            self._do("delete", key, remove)

    def list(
        self, _: Any, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50
    ) -> Iterator[list[dict[str, Any]]]:
        found = self._keys(f"{prefix}/" if prefix else "", offset or "")
        while chunk := [self._meta(key) for key in islice(found, chunk_size)]:
            yield [meta for meta in chunk if meta is not None]

    def list_with_delimiter(self, _: Any, prefix: str | None = None) -> dict[str, Any]:
        start = f"{prefix}/" if prefix else ""
        names = [key[len(start) :].partition("/") for key in self._keys(start, "")]
        folders = dict.fromkeys(start + name for name, slash, _ in names if slash)
        metas = [self._meta(start + name) for name, slash, _ in names if not slash]
        objects = [meta for meta in metas if meta is not None]
        return {"common_prefixes": list(folders), "objects": objects}

    def _keys(self, start: str, after: str) -> Iterator[str]:
        """Yield the keys that begin so, page by page: each shows the store at another moment."""
        is_end = False
        while not is_end:
            found = self._do("list", start, partial(self.store.keys, start, after))
            # Names with a dot come first, and in a real store all of them are on the first page.
            size = max(self._page, sum("/." in key for key in found))
            is_end = len(found) <= size
            yield from found[:size]
            after = found[size - 1] if not is_end else ""

    def _meta(self, key: str) -> dict[str, Any] | None:
        return _meta(key, self.store.objects[key]) if key in self.store.objects else None

    # What obstore cannot do, as `s3_peer` does it.

    def _do_as_peer(self, verb: str, key: str, effect: Callable[[], T]) -> T:
        try:
            return self._do(verb, key, effect)
        except GenericError as error:
            raise StorageError(str(error)) from error

    def list_old_versions(self, _: Any, prefix: str) -> list[tuple[str, str]]:
        found = self._do_as_peer("list old", prefix, lambda: list(self.store.old))
        return [each for each in found if each[0].startswith(prefix)]

    def remove_version(self, _: Any, key: str, version: str) -> None:
        self._do_as_peer("delete old", key, lambda: self.store.old.pop((key, version), None))


class _Answer(NamedTuple):
    """An answer to a GET."""

    meta: dict[str, Any]
    data: bytes

    def bytes(self) -> bytes:
        return self.data


def _meta(key: str, found: Stored) -> dict[str, Any]:
    modified = datetime.fromtimestamp(round(found.modified, 3), UTC)
    return {"path": key, "size": len(found.data), "e_tag": f'"{found.etag}"',
            "last_modified": modified}  # fmt: skip
