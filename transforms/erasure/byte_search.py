"""Search bytes for ids, also for those of which a receipt has only hashes.

A receipt keeps the lengths of its ids, and 24 bits of a salted hash of their last bytes. Places
with such an end are few, and only there the bytes before it are hashed and compared. So a search
costs some ten nanoseconds a byte, and the receipt still has no part of an id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from shardwright.format.json_files import Count
from shardwright.transforms.erasure.wanted_ids import WantedIds

_SHORT, _LONG = 4, 8  # bytes of an end; shorter ids are found by chance, except in short texts
_TYPES: Mapping[int, np.dtype[Any]] = {_SHORT: np.dtype("<u4"), _LONG: np.dtype("<u8")}
_MAX_LENGTH = 1 << 20
_TAG_BITS, _FIRST_BITS = 24, 16
# Beside one of these an id is part of a longer name.
_IN_NAMES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./\\#% ")


class Ends(Struct, frozen=True):
    """The ends of the ids to search for, as a receipt has them.

    Attributes:
        ids: Their number.
        lengths: Their lengths, in bytes of UTF-8.
        tags: Hashes of their last bytes, by the number of bytes.
    """

    ids: Count
    lengths: tuple[Annotated[int, Meta(ge=1, le=_MAX_LENGTH)], ...]
    tags: dict[str, tuple[Annotated[int, Meta(ge=0, lt=1 << _TAG_BITS)], ...]]

    @classmethod
    def of(cls, salt: str, ids: Collection[str]) -> Ends:
        """Return the ends of ids. Ids below 4 bytes, and short words and numbers, have none."""
        texts = [each.encode("utf-8", "surrogatepass") for each in ids if _is_distinct(each)]
        tags: dict[int, set[int]] = {size: set() for size in _TYPES}
        for text in texts:
            size = _LONG if len(text) >= _LONG else _SHORT
            # 24 bits of 32 or 64: too few to compute the bytes from, and enough that one place in
            # 16 million matches by chance.
            tags[size].add(int(_first_bits(_hashes(salt, text[-size:], size, 0), _TAG_BITS)[0]))
        lengths = sorted({len(text) for text in texts})
        found = {str(size): tuple(sorted(each)) for size, each in tags.items()}
        return cls(len(texts), tuple(lengths), found)


NO_ENDS = Ends(0, (), {})


class ByteSearch:
    """A search for ids.

    Args:
        salt: The salt of the ends.
        ids: The ids.
        ends: Their ends.
    """

    def __init__(self, salt: str, ids: WantedIds, ends: Ends) -> None:
        self._salt, self._ids, self._lengths = salt, ids, ends.lengths
        found = ((size, ends.tags.get(str(size))) for size in _TYPES)
        self._tags = {size: np.array(tags, np.int64) for size, tags in found if tags}
        self._first = {}
        for size, tags in self._tags.items():
            # A table of 64 kB stays in the processor's cache, where a search in all tags would not
            # be faster than the bytes come.
            self._first[size] = np.zeros(1 << _FIRST_BITS, np.bool_)
            self._first[size][tags >> (_TAG_BITS - _FIRST_BITS)] = True

    @property
    def longest(self) -> int:
        """The length of the longest id in bytes, 0 without ids."""
        return max(self._lengths, default=0)

    def find(self, data: bytes, *, is_text: bool) -> set[str]:
        """Return the ids in some bytes that are not a part of a longer name.

        Args:
            data: The bytes; an id at the very start or end does not count.
            is_text: Ids of 4 to 7 bytes count, too: in other bytes they occur by chance.
        """
        return {
            name
            for size in self._tags
            if size == _LONG or is_text
            for end in self._ends_in(data, size)
            for name in self._before(data, end, size)
        }

    def _ends_in(self, data: bytes, size: int) -> Iterator[int]:
        # Words may begin at any byte, so the data is looked at once for each shift.
        for shift in range(min(size, len(data) - size + 1)):
            hashes = _hashes(self._salt, data, size, shift)
            places = np.flatnonzero(self._first[size][_first_bits(hashes, _FIRST_BITS)])
            tags = _first_bits(hashes[places], _TAG_BITS)
            places = places[np.isin(tags, self._tags[size])]
            yield from (places * size + shift + size).tolist()

    def _before(self, data: bytes, end: int, size: int) -> Iterator[str]:
        """Yield the ids that end at a place."""
        if end == len(data) or data[end] in _IN_NAMES:
            return
        for length in self._lengths:
            start = end - length
            if start < 1 or (length < _LONG) != (size == _SHORT):
                continue
            # In an example, the length precedes a text.
            if data[start - 1] in _IN_NAMES and data[start - 1] != length:
                continue
            try:
                name = data[start:end].decode()
            except UnicodeDecodeError:
                continue
            # The only exact test, of the whole name: all before it saves time.
            if name in self._ids:
                yield name


def _is_distinct(name: str) -> bool:
    num_bytes = len(name.encode("utf-8", "surrogatepass"))
    return num_bytes >= _LONG or (num_bytes >= _SHORT and not name.isalpha() and not name.isdigit())


def _hashes(salt: str, data: bytes, size: int, shift: int) -> NDArray[Any]:
    """Return the hash of each `size` bytes from `shift` on, one after the other."""
    kind = _TYPES[size]
    factor = int.from_bytes(hashlib.sha256(f"{salt}{size}".encode()).digest()[:size], "little") | 1
    words = np.frombuffer(data, kind, (len(data) - shift) // size, shift)
    # Multiplication by an odd number, modulo 2**32 or 2**64: one operation a word, and its top bits
    # depend on all bits below.
    return words * kind.type(factor)


def _first_bits(hashes: NDArray[Any], number: int) -> NDArray[np.int64]:
    shifted = hashes >> hashes.dtype.type(8 * hashes.dtype.itemsize - number)
    return shifted.astype(np.int64) if shifted.itemsize < 8 else shifted.view(np.int64)
