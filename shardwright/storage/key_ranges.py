"""Cut the keys of a listing into ranges that can be listed in parallel.

A store lists keys in order, and from any key on, but does not say how many there are. So a range is
cut at a key that is spelled with the letters of the keys seen so far, halfway between its ends.
"""

from __future__ import annotations

import json
import string
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


class SeenKeys:
    """The keys seen so far: the letters that they are spelled with, and how all of them start.

    Keys that are still to be listed begin like those, so a range is cut there: above all keys there
    is nothing to list.
    """

    def __init__(self) -> None:
        self._letters = set(string.digits)
        self._start: str | None = None

    def add(self, *keys: str) -> None:
        """Add keys, such as the first and the last one of a page."""
        for key in keys:
            self._letters.update(key)
            # What all keys have in common: a cut before it would leave one side without keys.
            self._start = key if self._start is None else key[: _num_same(key, self._start)]

    def middle_of(self, keys: KeyRange) -> str | None:
        """Return a key to cut a range at, which begins after a key that was added."""
        return middle(keys.after or "", keys.up_to, self._start or "", self._letters)


def middle(low: str, high: str | None, start: str, letters: Iterable[str]) -> str | None:
    """Return a key to cut at, after `low` and before `high`; None if no letters spell one.

    Digits are cut among digits, other letters among other letters.

    Args:
        low: The key after which the range begins.
        high: The end of the range; None for all keys after `low`.
        start: The start of `low` and of the other keys.
        letters: The characters that keys have.
    """
    end = start if high is None else high
    # Letters below "/" could cut between `photos` and its placeholder `photos/`, listed as one.
    usable = sorted(letter for letter in letters if letter > "/")
    # The first letter at which a key can be above `low` and below `high`; deeper ones cut off less.
    for place in range(_num_same(low, end), len(low) + 1):
        above = [one for one in usable if one > low[place : place + 1]]
        cuts = [low[:place] + one for one in above if high is None or low[:place] + one < high]
        is_digit = low[place : place + 1].isdigit()
        # Numbered names are the usual case: halfway among digits halves them, halfway among all
        # letters would not.
        if cuts := [cut for cut in cuts if cut[-1].isdigit() == is_digit] or cuts:
            cut = cuts[len(cuts) // 2]
            return None if key_problem(cut) else cut
    return None


def _num_same(one: str, other: str) -> int:
    """Return the number of letters that two keys start with."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


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
            # Above the keys that were seen, which need not be listed again.
            cut = middle(found[-1], keys.up_to, prefix, letters)
            if cut is not None:
                unseen.append((KeyRange(found[-1], cut), False))
                unseen.append((KeyRange(cut, keys.up_to), True))
    ends = [None, *sorted(cut for cut in cuts if cut is not None), None]
    return [KeyRange(*pair) for pair in pairwise(ends)]
