"""Note the attempt to write a shard, so that a retry knows if its process died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardwright.errors import MissingError
from shardwright.storage.folder import Folder
from transforms.plan.shard_plans import ShardPlan


def has_died(root: Folder, plan: ShardPlan) -> bool:
    """Return whether an earlier attempt to write this shard died, or is still at work elsewhere."""
    try:
        return root.read_bytes(plan.name.attempt) == plan.digest.encode()
    except MissingError:
        return False


@contextmanager
def noted_attempt(root: Folder, plan: ShardPlan) -> Iterator[None]:
    """Note an attempt at this shard in OUTPUT during the block.

    Any exception removes the note, too: only the death of this process leaves it there.
    """
    # Not synced to disk: it must survive this process, not a power failure.
    root.write_bytes(plan.name.attempt, plan.digest.encode(), sync=False)
    try:
        yield
    finally:
        root.remove(plan.name.attempt)
