"""Save the position of a reader as a small JSON object, the same on every host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from shardwright.errors import UsageError
from shardwright.reader.steps import NO_END, Bounds

STATE_VERSION = 1


class Cursor:
    """The position of a reader's next iteration.

    Attributes:
        position: It counts the batches made.
        ahead: The pass of these batches, if a framework takes them ahead of the user's loop.
    """

    position = 0
    ahead: Bounds | None = None

    def move(self, position: int, ahead: Bounds | None = None) -> None:
        """Set the position and the pass."""
        self.position, self.ahead = position, ahead


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
    window: int
    position: int
    epoch: int = 0

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
        kinds = {
            "dataset": str,
            "shuffle": bool,
            "seed": int,
            "window": int,
            "position": int,
            "epoch": int,
        }
        for field in fields(cls):
            value = record.get(field.name)
            is_out = (
                isinstance(value, int)
                and not 0 <= value < NO_END
                and field.name in ("window", "position", "epoch")
            )
            # `type`, not `isinstance`: True would pass as a seed.
            if type(value) is not kinds[field.name] or is_out:
                raise UsageError(
                    f"state has {field.name}={value!r}, which Reader.state() never returns: "
                    "the state was edited or truncated"
                )
        return cls(**{field.name: record[field.name] for field in fields(cls)})

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
