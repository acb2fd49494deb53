"""Divide epochs into global batches, and each global batch over hosts.

A position counts places (slots for records) over all epochs, one after another. So one integer
states the progress of training, on any number of hosts. Everything here is integer arithmetic.

A pass is one iteration over a reader: `epochs` epochs. Passes follow one another without end, so
that iterating again reads the next epochs. Of passes without end each begins an epoch later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import index
from typing import SupportsIndex

import numpy as np

from shardwright.errors import UsageError
from shardwright.sizes import check_whole, counted

NO_END = 1 << 62  # more places than any training takes
Bounds = tuple[int, int | None]  # positions [start, stop) of a pass; stop is None for no end


class Remainder(StrEnum):
    """The policy for the last places of an epoch that do not fill a global batch."""

    DROP = "drop"  # leave them out; if shuffled, the next epoch leaves out others
    KEEP = "keep"  # a smaller batch, divided evenly over hosts
    PAD = "pad"  # a full batch, with a mask that is True for records
    CARRY = "carry"  # complete the batch with the next epoch's first places


@dataclass(frozen=True, slots=True)
class Step:
    """A global batch as one host sees it.

    Attributes:
        start: Position of the host's first place.
        num_places: Number of the host's places, from `start` on.
        num_rows: Rows of the host's batch: more than `num_places` if padded.
        next_position: Position of the next global batch.
        position: Position of this global batch, over all hosts.
    """

    start: int
    num_places: int
    num_rows: int
    next_position: int
    position: int


@dataclass(frozen=True)
class Steps:
    """The steps of a reader.

    Args:
        epoch_size: Places in an epoch, at least 1.
        global_batch_size: Rows of a batch, over all hosts.
        host_index: This host, from 0.
        host_count: Number of hosts.
        remainder: See `Remainder`.
        epochs: Number of epochs in a pass; None for a pass without end.

    Raises:
        UsageError: A number is out of range.
    """

    epoch_size: int
    global_batch_size: int
    host_index: int = 0
    host_count: int = 1
    remainder: Remainder = Remainder.DROP
    epochs: int | None = None

    def __post_init__(self) -> None:
        check_whole("global_batch_size", self.global_batch_size, 1)
        check_whole("host_count", self.host_count, 1)
        check_whole("host_index", self.host_index, 0)
        if self.epochs is not None:
            check_whole("epochs", self.epochs, 1)
        if self.host_index >= self.host_count:
            raise UsageError(
                f"host_index={self.host_index} must be below host_count={self.host_count}: "
                "hosts are counted from 0"
            )
        if self.global_batch_size % self.host_count:
            raise UsageError(
                f"global_batch_size={self.global_batch_size} must be a multiple of "
                f"host_count={self.host_count}: each host takes an equal part"
            )
        if self.remainder == Remainder.DROP and self.epoch_size < self.global_batch_size:
            raise UsageError(
                f"an epoch has {counted(self.epoch_size, 'record')}, fewer than "
                f"global_batch_size={self.global_batch_size}, and remainder='drop' drops "
                "incomplete batches: use a smaller batch, or remainder='keep', 'pad' or 'carry'"
            )

    @property
    def host_batch_size(self) -> int:
        return self.global_batch_size // self.host_count

    @property
    def has_static_rows(self) -> bool:
        """True if every batch has `host_batch_size` rows."""
        if self.remainder in (Remainder.DROP, Remainder.PAD):
            return True
        if self.remainder == Remainder.CARRY:
            return (
                self.epochs is None or self.epoch_size * self.epochs % self.global_batch_size == 0
            )
        return self.epoch_size % self.global_batch_size == 0

    @property
    def steps_per_epoch(self) -> int:
        """The number of global batches in a full epoch; with "carry", the average, rounded up."""
        return self._steps_in(self.epoch_size)

    @property
    def fewest_rows(self) -> int:
        """The rows of the smallest batch of any host; with "carry", of a pass's last one."""
        if self.has_static_rows:
            return self.host_batch_size
        return self._span % self.global_batch_size // self.host_count

    def pass_end(self, position: int) -> int | None:
        """Return the position after the pass that a position is in; None for no end."""
        if self.epochs is None:
            return None
        size = self.epochs * self.epoch_size
        return self.normalize(position) // size * size + size

    def following_pass(self, start: int) -> int:
        """Return where the pass after that one begins: if it has no end, an epoch later."""
        end = self.pass_end(start)
        return start - start % self.epoch_size + self.epoch_size if end is None else end

    def normalize(self, position: int) -> int:
        """Return the position, or the next epoch's start if no more batch begins in its epoch."""
        # Two positions, the end of an epoch and what "drop" leaves of it, are one: each pass and
        # each host must use the same.
        left = self.epoch_size - position % self.epoch_size
        return (
            position + left
            if self.remainder == Remainder.DROP and left < self.global_batch_size
            else position
        )

    def step_at(self, position: int) -> Step:
        """Return the global batch that begins at a position."""
        position = self.normalize(position)
        stop = position - position % self._span + self._span
        num_places = min(self.global_batch_size, stop - position)
        first, last = self._host_part(num_places)
        # A padded host may have rows and no places at all: every host still makes the step.
        num_rows = self.host_batch_size if self.remainder == Remainder.PAD else last - first
        return Step(
            position + first,
            last - first,
            num_rows,
            self.normalize(position + num_places),
            position,
        )

    def skip(self, position: int, num_steps: int) -> int:
        """Return the position `num_steps` global batches after `position`."""
        # So that skipping no steps from the dropped end of an epoch gives the next epoch's start.
        position = self.normalize(position)
        batch, span = self.global_batch_size, self._span
        # Only the span of `position` may be incomplete; all others have the same number of steps.
        first_span = self._steps_in(span - position % span)
        if num_steps < first_span:
            return self.normalize(position + num_steps * batch)
        spans, steps = divmod(num_steps - first_span, self._steps_in(span))
        return self.normalize(position - position % span + (1 + spans) * span + steps * batch)

    def position_after(self, bounds: Bounds, num_batches: int | None) -> int:
        """Return the position after that many batches of a pass, or after all of them.

        Raises:
            UsageError: The pass has no such number of batches, or no end.
        """
        start, stop = bounds
        if num_batches is None:
            if stop is None:
                raise UsageError(
                    "state_after() of an endless pass: give the number of batches taken"
                )
            return stop
        if isinstance(num_batches, np.integer):
            num_batches = int(num_batches)
        check_whole("num_batches", num_batches, 0)
        position = self.skip(start, num_batches)
        if stop is not None and position > stop:
            raise UsageError(
                f"state_after({num_batches}): this pass has fewer batches; count those of this "
                "pass alone, not of all passes"
            )
        return position

    def count_steps(self, position: int) -> int | None:
        """Return the number of global batches to the end of the pass; None for no end."""
        position = self.normalize(position)
        end = self.pass_end(position)
        if end is None:
            return None
        this_span = self._span - position % self._span
        rest = (end - position - this_span) // self._span
        return self._steps_in(this_span) + rest * self._steps_in(self._span)

    def is_whole(self, start: int) -> bool:
        """Return whether a pass that begins here has as many batches as those that follow it."""
        return self.count_steps(start) == self.count_steps(0)

    @property
    def _span(self) -> int:
        """The number of places that no batch goes beyond: an epoch's, or a pass's if carried."""
        if self.remainder != Remainder.CARRY:
            return self.epoch_size
        return NO_END if self.epochs is None else self.epoch_size * self.epochs

    def _steps_in(self, places: int) -> int:
        full, rest = divmod(places, self.global_batch_size)
        return full + (rest > 0 and self.remainder != Remainder.DROP)

    def _host_part(self, num_places: int) -> tuple[int, int]:
        """Return the host's part [first, last) of a batch's places; padding is at the end."""
        if self.remainder == Remainder.PAD:
            size = self.host_batch_size
            # Padding goes to the last hosts, so that the first records are at the same rows for any
            # number of hosts.
            return min(self.host_index * size, num_places), min(
                (self.host_index + 1) * size, num_places
            )
        # Parts of a short batch differ by at most one place, and every host knows all of them.
        return num_places * self.host_index // self.host_count, num_places * (
            self.host_index + 1
        ) // self.host_count


def checked_position(position: SupportsIndex) -> int:
    """Return a position that a user gave; raise `UsageError` if no training comes that far."""
    number = index(position)
    if not 0 <= number < NO_END:
        raise UsageError(
            f"position={number} must be at least 0 and below 2**62: pass one that "
            "state()['position'] gave"
        )
    return number
