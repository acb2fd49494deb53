"""Write shards one after the other, each ended by a thread while the next one is begun.

Otherwise reading would pause while the last images arrive and, in a store, for about ten requests,
one after another, and the store's own copying.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pyarrow as pa

from shardwright.format.index import ShardSummary
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.rejects import Reject
from shardwright.transforms.write.shard_writing import write_records
from shardwright.transforms.write.write_job import WriteJob

Written = tuple[ShardSummary, list[Reject]]


class ShardsInTurn:
    """The shard that a thread is ending, and the next one.

    Args:
        thread: A pool of one thread, which the caller shuts down.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        # A plan made in this process leaves about 20 MB to Arrow, and images need it more.
        pa.default_memory_pool().release_unused()
        self._thread = thread
        self._ending: list[Future[Written]] = []  # at most one

    def write(self, plan: ShardPlan, job: WriteJob) -> list[Written]:
        """Write a shard; return the one before it, if there is one. Raise as `write_shard`."""
        try:
            finish = write_records(plan, job)
        finally:
            wait(self._ending)  # one at a time, and none goes on after a failed write
        # Submitted before the previous result is taken: if that raises, this shard is finished all
        # the same, so that no open upload is left behind.
        previous, self._ending = self._ending, [self._thread.submit(finish)]
        return [shard.result() for shard in previous]

    def finish(self) -> list[Written]:
        """Return the last shard, if there is one. Raise as `write_shard`."""
        return [shard.result() for shard in self._ending]
