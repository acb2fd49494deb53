"""Progress of a build as seen from outside: what is planned, what is done, how fast, what is left.

Everything follows from the plan and from when its files were last modified, so it is the same for
any runner, and for a watcher that begins late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

RECENT_SECONDS = 300.0
_FEWEST_RECENT = 4  # shards in the recent rate, so that one large shard does not decide it
STALLED_SECONDS = 300.0
_LISTED = 3  # slowest shards


class BuildPhase(StrEnum):
    """The state of an OUTPUT."""

    EMPTY = "empty"  # nothing of a build: it has not begun, or is planning
    PLANNING = "planning"  # bytes are in the spool, and there is no plan
    WRITING = "writing"
    PUBLISHING = "publishing"  # all shards are written, and there is no manifest
    PUBLISHED = "published"
    FAILED = "failed"  # it ended before it wrote shards, and left its rejects


_CHANGING = (BuildPhase.PLANNING, BuildPhase.WRITING, BuildPhase.PUBLISHING)


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A shard whose sidecar is in place.

    Attributes:
        name: Split and number, such as `train-00003-of-00012`.
        modified: When its sidecar was written, in seconds since 1970.
        num_records: Number of its records.
        num_bytes: Length of the shard.
        seconds: The time from its attempt's note to its sidecar, if a watcher saw the note.
    """

    name: str
    modified: float
    num_records: float
    num_bytes: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WriteRate:
    """Records and bytes a second over a period, in seconds."""

    seconds: float
    records_per_second: float
    bytes_per_second: float

    def to_json(self) -> dict[str, float]:
        return {
            "seconds": round(self.seconds, 1),
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second),
        }


class Amount(NamedTuple):
    """Shards, records and bytes; those of shards that were not read yet are estimated."""

    shards: int = 0
    records: int = 0
    num_bytes: int = 0


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The state of an OUTPUT at one time.

    Attributes:
        phase: Its state.
        planned: The plan, or what a published dataset holds; None before there is one.
        done: What is written.
        num_reused: Shards written before this run of the build.
        num_unread: Finished shards whose records, bytes and rejects are not read yet.
        rejects: Number of rejects by reason, of the plan and of the shards that were read.
        recent: Rate over the last minutes.
        overall: Rate since the plan was made.
        seconds_left: Time to the last shard at the recent rate; None if it is unknown.
        slowest: (shard, seconds) of the slowest shards that a watcher saw begin and end.
        writing: (shard, seconds so far) of the shards that are being written, longest first.
        seconds: Time since the plan was made; before, 0.
        idle_seconds: Time since OUTPUT last changed; None if nothing is in it.
        spooled_bytes: Bytes of INPUT that were copied to the spool.
        replaces: The build replaces a published dataset.
    """

    phase: BuildPhase
    planned: Amount | None = None
    done: Amount = NOTHING
    num_reused: int = 0
    num_unread: int = 0
    rejects: Mapping[str, int] = field(default_factory=dict)
    recent: WriteRate | None = None
    overall: WriteRate | None = None
    seconds_left: float | None = None
    slowest: Sequence[tuple[str, float]] = ()
    writing: Sequence[tuple[str, float]] = ()
    seconds: float = 0.0
    idle_seconds: float | None = None
    spooled_bytes: int = 0
    replaces: bool = False

    @property
    def is_stalled(self) -> bool:
        """True if nothing has changed for longer than a shard has ever taken, and five minutes."""
        if self.phase not in _CHANGING or self.idle_seconds is None:
            return False
        longest = max((seconds for _, seconds in self.slowest), default=0.0)
        return self.idle_seconds > max(STALLED_SECONDS, 2 * longest)

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": str(self.phase),
            "planned": self.planned and self.planned._asdict(),
            "done": self.done._asdict(),
            "reused_shards": self.num_reused,
            "unread_shards": self.num_unread,
            "rejects": dict(self.rejects),
            "recent_rate": self.recent and self.recent.to_json(),
            "overall_rate": self.overall and self.overall.to_json(),
            "seconds_left": self.seconds_left and round(self.seconds_left),
            "slowest": [_timed(*pair) for pair in self.slowest],
            "writing": [_timed(*pair) for pair in self.writing],
            "seconds": round(self.seconds, 1),
            "idle_seconds": self.idle_seconds and round(self.idle_seconds, 1),
            "stalled": self.is_stalled,
            "spooled_bytes": self.spooled_bytes,
            "replaces": self.replaces,
        }


def _timed(shard: str, seconds: float) -> dict[str, Any]:
    return {"shard": shard, "seconds": round(seconds, 1)}


def overall_rate(shards: Sequence[FinishedShard], start: float, now: float) -> WriteRate | None:
    """Return the rate of the shards finished since `start`; None if there are none."""
    new = [shard for shard in shards if shard.modified >= start]
    return _rate(new, now - start) if new else None


def recent_rate(shards: Sequence[FinishedShard], start: float, now: float) -> WriteRate | None:
    """Return the rate over the last five minutes, or longer if few shards ended in them.

    Args:
        shards: Finished shards in any order.
        start: When the plan was made; earlier shards are of an earlier run.
        now: The present time.
    """
    new = sorted(
        (shard for shard in shards if shard.modified >= start), key=lambda shard: shard.modified
    )
    if not new:
        return None
    since = start
    # The period may begin where an earlier shard ended; several may have ended at that time.
    counting = new[-_FEWEST_RECENT:][0].modified
    earlier = [shard.modified for shard in new if shard.modified < counting]
    if earlier:
        since = max(start, min(now - RECENT_SECONDS, earlier[-1]))
    counted = new if since == start else [shard for shard in new if shard.modified > since]
    return _rate(counted, now - since)


def _rate(shards: Sequence[FinishedShard], seconds: float) -> WriteRate:
    seconds = max(seconds, 1e-3)  # clocks of a store and of this machine differ a little
    return WriteRate(
        seconds,
        sum(shard.num_records for shard in shards) / seconds,
        sum(shard.num_bytes for shard in shards) / seconds,
    )


def time_left(records: int, rate: WriteRate | None) -> float | None:
    """Return the seconds that the remaining records take at a rate; None if it is unknown."""
    if rate is None or not rate.records_per_second or records <= 0:
        return None
    return records / rate.records_per_second


def slowest_of(shards: Sequence[FinishedShard]) -> list[tuple[str, float]]:
    """Return (shard, seconds) of the slowest shards, slowest first."""
    timed = [(shard.name, shard.seconds) for shard in shards if shard.seconds is not None]
    return sorted(timed, key=lambda pair: (-pair[1], pair[0]))[:_LISTED]
