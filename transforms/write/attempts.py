"""Note the attempt to write a shard, so that a retry knows if its process died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardwright.errors import MissingError
from transforms.plan.shard_plans import ShardPlan
from transforms.write.write_job import WriteJob


def has_died(plan: ShardPlan, job: WriteJob) -> bool:
    """Return whether an earlier attempt to write this shard died, or is still at work elsewhere."""
    try:
        return job.may_crash and job.root.read_bytes(plan.name.attempt) == plan.digest.encode()
    except MissingError:
        return False


@contextmanager
def noted_attempt(plan: ShardPlan, job: WriteJob) -> Iterator[None]:
    """Note an attempt at this shard in OUTPUT during the block, if an image may crash.

    Any exception removes the note, too: only the death of this process leaves it there.
    """
    if not job.may_crash:
        yield
        return
    # Not synced to disk: it must survive this process, not a power failure.
    job.root.write_bytes(plan.name.attempt, plan.digest.encode(), sync=False)
    try:
        yield
    finally:
        job.root.remove(plan.name.attempt)
