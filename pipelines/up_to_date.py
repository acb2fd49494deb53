"""Recognize a dataset that is up to date without a runner: importing Beam takes longer."""

from __future__ import annotations

from collections import defaultdict

from pipelines.job import BuildJob
from pipelines.local_shards import LocalShards
from pipelines.runners import is_local
from shardwright.format import naming
from shardwright.format.manifest import read_json
from transforms.progress import PROGRESS
from transforms.publish.publication import publish
from transforms.publish.written_shards import WrittenShards
from transforms.write.clearance import clear, judge, place_rejects, write_placed
from transforms.write.shard_writing import find_finished


def publish_finished(job: BuildJob) -> bool:
    """Publish a finished dataset whose shards are all in place; return False if there is none.

    Its INPUT is planned in this process, so a build on other machines leaves that to its runner.

    Raises:
        ShardwrightError: As in the build: INPUT has changed, or there are too many rejects.
    """
    options = job.options
    if (
        not is_local(options.beam_args)
        or options.if_exists != "resume"
        or read_json(options.root, naming.MANIFEST) is None
    ):
        return False
    shards = LocalShards(job, with_plans=True)
    digests, finished, all_finished = [], WrittenShards(), True
    for plan in shards.plans():
        digests.append((plan.name.shard, plan.digest))
        summary = find_finished(options.root, plan, retry=False)
        if summary is None:
            all_finished = False
        else:
            finished.add(summary)
    verdict = judge(
        digests,
        request=job.output_request,
        layout=shards.layout,
        vocabularies=shards.vocabularies,
        tally=shards.rejects.tally,
        limits=options.limits,
    )
    placed = defaultdict(list)
    for packed in shards.rejects.packed:
        number, _ = place_rejects(packed, verdict)
        placed[number].append(packed)
    clearance = clear(verdict, dict(write_placed(each, verdict) for each in placed.items()))
    if not all_finished:
        return False
    PROGRESS.add_reused(images=shards.layout.num_records, shards=shards.layout.num_shards)
    publish(job.publication, finished, shards.layout, clearance)
    return True
