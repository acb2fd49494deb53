"""How far a reading has come, as a small JSON object that is the same on every host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from shardwright.errors import UsageError

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReaderState:
    """What decides the next batch, and all that follow it.

    Attributes:
        dataset: Fingerprint of the records that are read: of what dataset, which of them, under which weights.
        shuffle: Whether they are shuffled.
        seed: Of their order.
        window: How many shards are shuffled with each other; 0 where none are.
        position: Places of all epochs that have been taken; see `steps`.
        epoch: `position` in whole epochs, for people; it is not read back.
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
        """Raises `UsageError` where `record` is not a state."""
        if not isinstance(record, Mapping):
            raise UsageError(f"state={record!r} must be what Reader.state() gave, a dict")
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
            negative = (
                isinstance(value, int)
                and value < 0
                and field.name in ("window", "position", "epoch")
            )
            if type(value) is not kinds[field.name] or negative:
                raise UsageError(
                    f"state has {field.name}={value!r}, which Reader.state() never gives: it was changed or cut"
                )
        return cls(**{field.name: record[field.name] for field in fields(cls)})

    def check_same(self, other: ReaderState) -> None:
        """Raises `UsageError` where `other`, the reader that is to go on from this state, would give other batches."""
        if self.dataset != other.dataset:
            raise UsageError(
                "this state is of other records than the ones to be read: it needs the same dataset as it was built, and the same split, "
                f"`where` and `sampling` (fingerprint {self.dataset[:12]}, not {other.dataset[:12]})"
            )
        for name in ("shuffle", "seed", "window"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise UsageError(
                    f"this state was taken with {name}={mine}, and the reader has {name}={its}: give {name}={mine}"
                )
