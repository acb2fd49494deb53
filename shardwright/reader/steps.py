"""Global batches: which places of the endless row of epochs each step takes, and which of them are this host's.

A position counts the places of all epochs one after another, so one whole number says how far training has come, on any
number of hosts. Everything here is arithmetic on whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shardwright.errors import UsageError


class Remainder(StrEnum):
    """What becomes of the last places of an epoch, where they do not fill a global batch."""

    DROP = "drop"  # left out; another order in the next epoch leaves out others
    KEEP = "keep"  # a smaller batch, shared out evenly
    PAD = "pad"  # a full batch, and a mask that says which rows are records
    CARRY = "carry"  # the batch goes on with the next epoch's first places


@dataclass(frozen=True, slots=True)
class Step:
    """One global batch as one host sees it.

    Attributes:
        start: Position of the host's first place.
        num_places: The host's places, from `start` on.
        num_rows: Rows of the host's batch: more than `num_places` where it is padded.
        next_position: Where the next global batch begins.
        position: Where this one begins, on all hosts.
    """

    start: int
    num_places: int
    num_rows: int
    next_position: int
    position: int


@dataclass(frozen=True)
class Steps:
    """The steps of a reading.

    Args:
        epoch_size: Places in an epoch, 1 or more.
        global_batch_size: Rows of a global batch over all hosts.
        host_index: This host, from 0.
        host_count: All hosts.
        remainder: See `Remainder`.
        epochs: How many; None for no end.

    Raises:
        UsageError: A number breaks its rule.
    """

    epoch_size: int
    global_batch_size: int
    host_index: int = 0
    host_count: int = 1
    remainder: Remainder = Remainder.DROP
    epochs: int | None = None

    def __post_init__(self) -> None:
        check_whole("epoch_size", self.epoch_size, 1)
        check_whole("global_batch_size", self.global_batch_size, 1)
        check_whole("host_count", self.host_count, 1)
        check_whole("host_index", self.host_index, 0)
        if self.epochs is not None:
            check_whole("epochs", self.epochs, 1)
        if self.remainder not in list(Remainder):
            raise UsageError(f"remainder={self.remainder!r} must be one of {', '.join(Remainder)}")
        if self.host_index >= self.host_count:
            raise UsageError(
                f"host_index={self.host_index} must be below host_count={self.host_count}: hosts are counted from 0"
            )
        if self.global_batch_size % self.host_count:
            raise UsageError(
                f"global_batch_size={self.global_batch_size} must be a multiple of host_count={self.host_count}: "
                "each host takes an equal part"
            )
        if self.remainder == Remainder.DROP and self.epoch_size < self.global_batch_size:
            raise UsageError(
                f"an epoch has {self.epoch_size:,} records, fewer than global_batch_size={self.global_batch_size}, and remainder='drop' "
                "leaves out what does not fill a batch: give a smaller batch, or remainder='keep', 'pad' or 'carry'"
            )

    @property
    def host_batch_size(self) -> int:
        return self.global_batch_size // self.host_count

    @property
    def has_static_rows(self) -> bool:
        """Whether every batch has `host_batch_size` rows."""
        if self.remainder in (Remainder.DROP, Remainder.PAD):
            return True
        if self.remainder == Remainder.CARRY:
            return (
                self.epochs is None or self.epoch_size * self.epochs % self.global_batch_size == 0
            )
        return self.epoch_size % self.global_batch_size == 0

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of an epoch that is read from its start; where batches are carried over, of the average one, rounded up."""
        full, rest = divmod(self.epoch_size, self.global_batch_size)
        return full + (rest > 0 and self.remainder != Remainder.DROP)

    @property
    def end(self) -> int | None:
        """The position after the last epoch, None for no end."""
        return None if self.epochs is None else self.epochs * self.epoch_size

    def normalize(self, position: int) -> int:
        """The position itself, or the next epoch's start where no batch begins any more in its epoch."""
        left = self.epoch_size - position % self.epoch_size
        return (
            position + left
            if self.remainder == Remainder.DROP and left < self.global_batch_size
            else position
        )

    def step_at(self, position: int) -> Step | None:
        """The global batch that begins at a position; None at the end."""
        position = self.normalize(position)
        if self.end is not None and position >= self.end:
            return None
        stop = self._stop(position)
        num_places = min(self.global_batch_size, stop - position)
        first, last = self._host_part(num_places)
        num_rows = self.host_batch_size if self.remainder == Remainder.PAD else last - first
        return Step(
            position + first,
            last - first,
            num_rows,
            self.normalize(position + num_places),
            position,
        )

    def skip(self, position: int, num_steps: int) -> int:
        """The position after `num_steps` global batches from `position` on, or the end."""
        position = self.normalize(position)
        batch, size = self.global_batch_size, self.epoch_size
        if self.remainder == Remainder.CARRY:
            return self._clip(position + num_steps * batch)
        first_epoch = self._steps_in(size - position % size)
        if num_steps < first_epoch:
            return self._clip(position + num_steps * batch)
        epochs, steps = divmod(num_steps - first_epoch, self.steps_per_epoch)
        return self._clip(position - position % size + (1 + epochs) * size + steps * batch)

    def count_steps(self, position: int) -> int | None:
        """Global batches from a position to the end, None for no end."""
        if self.end is None:
            return None
        position = self.normalize(position)
        left = self.end - position
        if left <= 0:
            return 0
        if self.remainder == Remainder.CARRY:
            return -(-left // self.global_batch_size)
        this_epoch = self.epoch_size - position % self.epoch_size
        return (
            self._steps_in(this_epoch)
            + (left - this_epoch) // self.epoch_size * self.steps_per_epoch
        )

    def _steps_in(self, places: int) -> int:
        full, rest = divmod(places, self.global_batch_size)
        return full + (rest > 0 and self.remainder != Remainder.DROP)

    def _clip(self, position: int) -> int:
        position = self.normalize(position)
        return position if self.end is None else min(position, self.end)

    def _stop(self, position: int) -> int:
        """Where a batch from `position` on must end: its epoch, or all epochs."""
        if self.remainder != Remainder.CARRY:
            return position - position % self.epoch_size + self.epoch_size
        return position + self.global_batch_size if self.end is None else self.end

    def _host_part(self, num_places: int) -> tuple[int, int]:
        """The host's part [first, last) of a global batch; where padded, the fillers are all at the end of the last hosts' parts."""
        if self.remainder == Remainder.PAD:
            size = self.host_batch_size
            return min(self.host_index * size, num_places), min(
                (self.host_index + 1) * size, num_places
            )
        return num_places * self.host_index // self.host_count, num_places * (
            self.host_index + 1
        ) // self.host_count


def check_whole(name: str, value: object, least: int) -> None:
    """Raises `UsageError` where the argument `name` is not a whole number, `least` or more."""
    if type(value) is not int or value < least:
        raise UsageError(f"{name}={value!r} must be a whole number, {least} or more")
