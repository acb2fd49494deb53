"""Builds that are planned in this process, and go on wherever a test likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shardwright.format.index import ShardSummary
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.local.build import LocalShards
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.publish.publication import publish
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.write.clearance import Verdict, clear_here, judge
from shardwright.transforms.write.write_job import WriteJob
from shardwright.transforms.write.write_shards import _WriteFn

SHARDS_AT_ONCE = 2


@dataclass
class PlannedBuild:
    """A build up to the point where OUTPUT is cleared."""

    job: BuildJob
    shards: LocalShards
    plans: list[ShardPlan]
    rejects: Sequence[bytes]

    @classmethod
    def of(cls, *argv: str | Path) -> PlannedBuild:
        """Plan the build of a command line."""
        job = describe_job(parse_options([str(arg) for arg in argv]))
        shards = LocalShards(job, with_plans=True)
        return cls(job, shards, list(shards.plans()), shards.rejects.packed)

    def run(self, run: Callable[[Sequence[Callable[[], Any]]], list[Any]], output: Path) -> None:
        """Build into this folder.

        Args:
            run: Called with the bundles of one step after the other, returns their results.
            output: OUTPUT instead of that of the command line.
        """
        root, layout = Folder(str(output)), self.shards.layout
        judge_output = partial(
            judge,
            [(plan.name.shard, plan.digest) for plan in self.plans],
            request=replace(self.job.output_request, root=root),
            layout=layout,
            vocabularies=self.shards.vocabularies,
            tally=self.shards.rejects.tally,
            limits=self.job.options.limits,
        )
        [clearance] = run([partial(_clear, judge_output, self.rejects)])
        write = partial(
            write_bundle, job=replace(self.job.write_job, root=root), clearance=clearance
        )
        bundles = [
            partial(write, self.plans[first : first + SHARDS_AT_ONCE])
            for first in range(0, len(self.plans), SHARDS_AT_ONCE)
        ]
        summaries = [summary for written in run(bundles) for summary in written]
        publication = replace(self.job.publication, root=root)
        run([partial(publish, WrittenShards(summaries), publication, layout, clearance)])


def _clear(judge_output: Callable[[], Verdict], rejects: Sequence[bytes]) -> Clearance:
    return clear_here(judge_output(), rejects)


def write_bundle(
    plans: Sequence[ShardPlan], job: WriteJob, clearance: Clearance
) -> list[ShardSummary]:
    """Run the DoFn of WriteShards on a bundle, as a runner does."""
    function = _WriteFn()
    function.setup()
    try:
        function.start_bundle()
        found: list[Any] = [
            result for plan in plans for result in function.process(plan, job, clearance)
        ]
        found += [each.value for each in function.finish_bundle()]
    finally:
        function.teardown()
    return [result for result in found if isinstance(result, ShardSummary)]
