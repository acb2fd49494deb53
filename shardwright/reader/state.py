"""The passes of a reader, and its position as a small JSON object, the same on every host."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta

from shardwright.errors import UsageError
from shardwright.format.json_files import typed
from shardwright.reader.steps import NO_END, Steps

STATE_VERSION = 1
_Count = Annotated[int, Meta(ge=0, lt=NO_END)]


@dataclass(eq=False, slots=True)
class Pass:
    """One iteration over a reader.

    Attributes:
        start: Position of its first batch.
        stop: Position after its last batch; None for no end.
        position: Position of its next batch.
        is_ahead: A framework takes its batches ahead of the user's loop, so that `position` counts
            the batches made, not those the loop has had.
        is_ordered: They are taken in order.
    """

    start: int
    stop: int | None
    position: int
    is_ahead: bool = False
    is_ordered: bool = True


class Passes:
    """The passes of a reader: each begins after the one begun before it. Thread-safe.

    Attributes:
        next_start: The position where the next one begins.
        last: The one begun last; None if `position` or `go_to` say where the next one begins.

    Args:
        steps: Of the reader.
        position: Start of the first one.
    """

    def __init__(self, steps: Steps, position: int) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self.go_to(position)

    def go_to(self, position: int) -> None:
        """Have the next pass begin here; those after it are whole again."""
        self.next_start = self._steps.normalize(position)
        self.last: Pass | None = None

    def begin(self, *, is_ahead: bool = False) -> Pass:
        """Begin the next pass; the one after it begins at its end, if endless an epoch later."""
        with self._lock:
            start = self.next_start
            self.next_start = self._steps.following_pass(start)
            self.last = Pass(start, self._steps.pass_end(start), start, is_ahead)
            return self.last

    def resume(self, position: int, stop: int | None) -> Pass:
        """Begin a pass where a framework has restored an iterator; the next begins after it."""
        with self._lock:
            position = self._steps.normalize(position)
            self.next_start = self._steps.following_pass(position) if stop is None else stop
            self.last = Pass(position, stop, position, is_ahead=True)
            return self.last


@dataclass(frozen=True, slots=True)
class ReaderState:
    """The state that determines the next batch and all later ones.

    Attributes:
        dataset: Fingerprint of the dataset, the selected records and their weights.
        shuffle: True if the records are shuffled.
        seed: Seed of the order.
        window: Number of shards shuffled together; 0 if not shuffled.
        position: Number of places taken, over all epochs; see `steps`.
        epoch: `position` in whole epochs, for people; only compared when it is read back.
    """

    dataset: str
    shuffle: bool
    seed: int
    window: _Count
    position: _Count
    epoch: _Count

    def to_json(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, record: object) -> ReaderState:
        """Return the state in `record`; raise `UsageError` if it is not one."""
        if not isinstance(record, Mapping):
            raise UsageError(f"state={record!r} must be a dict from Reader.state()")
        version = record.get("version")
        if type(version) is not int or version != STATE_VERSION:
            raise UsageError(
                f"state has version {version!r}; this shardwright reads version {STATE_VERSION}"
            )
        try:
            return typed({**record}, cls)
        except ValueError as fault:
            raise UsageError(
                f"state was edited or truncated, Reader.state() never returns it: {fault}"
            ) from fault

    def check_same(self, other: ReaderState) -> None:
        """Raise `UsageError` if the reader to resume would give other batches.

        `other` is the state of that reader at the position of this one.
        """
        # First: of other records, the other fields mean nothing.
        if self.dataset != other.dataset:
            raise UsageError(
                "this state is of other records: resume with the same build of the dataset and "
                "the same split, `where` and `sampling`; if the dataset has grown since, with "
                "version= of that time, such as version=1 "
                f"(fingerprint {self.dataset[:12]}, not {other.dataset[:12]})"
            )
        for name in ("shuffle", "seed", "window"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise UsageError(
                    f"this state was saved with {name}={mine}, but the reader has {name}={its}: "
                    f"pass {name}={mine}"
                )
        if self.epoch != other.epoch:
            raise UsageError(
                f"state has position={self.position:,} and epoch={self.epoch:,}, but this reader "
                f"is in epoch {other.epoch:,} at that position: the state was edited"
            )
