"""Cut the keys of a listing into ranges that can be listed in parallel.

A store lists keys in order, and from any key on, but does not say how many there are. So a range is
cut at a key that is spelled with the letters of the keys seen so far, halfway between its ends.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from shardwright.storage.addresses import key_problem


class KeyRange(NamedTuple):
    """The keys after `after`, up to and including `up_to`; None for no limit."""

    after: str | None = None
    up_to: str | None = None

    def __contains__(self, key: object) -> bool:
        return (
            isinstance(key, str)
            and (self.after is None or key > self.after)
            and (self.up_to is None or key <= self.up_to)
        )

    def to_text(self) -> str:
        """Return the range as text; "" for all keys."""
        return "" if self == ALL_KEYS else json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> KeyRange:
        """Return the range that `to_text` wrote."""
        return cls(*json.loads(text)) if text else ALL_KEYS


ALL_KEYS = KeyRange()


def middle(low: str, high: str | None, prefix: str, letters: Iterable[str]) -> str | None:
    """Return a key to cut at, after `low` and before `high`; None if no letters spell one.

    Args:
        low: A key below the prefix.
        high: The end of the range; None for the end of the prefix.
        prefix: The start of all keys.
        letters: The characters that keys have.
    """
    end = prefix if high is None else high
    shorter = min(len(low), len(end))
    same = next((place for place in range(shorter) if low[place] != end[place]), shorter)
    # Letters below "/" could cut between `photos` and its placeholder `photos/`, listed as one.
    usable = sorted(letter for letter in letters if letter > "/")
    for place in range(same, len(low) + 1):
        start = low[:place]
        cuts = [start + one for one in usable if one > low[place : place + 1]]
        if cuts := [cut for cut in cuts if high is None or cut < high]:
            cut = cuts[len(cuts) // 2]
            return None if key_problem(cut) else cut
    return None


def cut_range(
    list_after: Callable[[str | None], Sequence[str]], prefix: str, page_keys: int, wanted: int
) -> list[KeyRange]:
    """Return ranges that together are all keys, each with at least one key when it was cut.

    The same keys always give the same ranges. Each call of `list_after` either sees keys that no
    other has seen, or finds the upper half of a range empty.

    Args:
        list_after: Returns the first page of keys after a key, or of all, in order.
        prefix: The start of all keys.
        page_keys: The keys of a page; fewer mean that no more follow.
        wanted: The most ranges; those with more than a page of keys are halved in turn.
    """
    letters: set[str] = set()
    cuts: list[str | None] = []
    unseen: deque[tuple[KeyRange, bool]] = deque([(ALL_KEYS, True)])  # True if it begins at a cut
    while unseen and len(cuts) < wanted:
        keys, is_cut = unseen.popleft()
        found = [key for key in list_after(keys.after) if key in keys]
        if found and is_cut:
            cuts.append(keys.after)
        if len(found) >= page_keys:
            letters.update(found[0], found[-1])
            cut = middle(found[-1], keys.up_to, prefix, letters)
            if cut is not None:
                unseen.append((KeyRange(found[-1], cut), False))
                unseen.append((KeyRange(cut, keys.up_to), True))
    ends = [None, *sorted(cut for cut in cuts if cut is not None), None]
    return [KeyRange(*pair) for pair in pairwise(ends)]
