"""Recognize a dataset that is up to date without a runner: importing Beam takes longer."""

from __future__ import annotations

from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.shards import LocalShards
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.storage.folder import Folder
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.publish.publication import publish
from shardwright.transforms.publish.written_shards import WrittenShards


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
        or options.root.num_bytes_of(naming.MANIFEST) is None
        or _lacks_shards(options.root)
    ):
        return False
    shards = LocalShards(job, with_plans=True)
    digests, finished, all_finished = [], WrittenShards(), True
    for state in shards.states(options.root, unpublished=False):
        digests.append(state[:2])
        if state.finished is None:
            all_finished = False
        else:
            finished.add(state.finished)
    clearance = shards.clear(digests)
    if not all_finished:
        return False
    PROGRESS.add_reused(images=shards.layout.num_records, shards=shards.layout.num_shards)
    publish(job.publication, finished, shards.layout, clearance)
    return True


def _lacks_shards(root: Folder) -> bool:
    """Return whether files of the manifest's shards are missing: the graph then plans them anyway.

    It takes two listings, where planning takes as long as listing INPUT.
    """
    wanted = {
        name
        for shard, _ in read_manifest(root).named_shards()
        for name in (shard.shard, shard.sidecar)
    }
    there = {
        *root.names(),
        *(f"{naming.INDEX_DIR}/{name}" for name in root.names(naming.INDEX_DIR)),
    }
    return not wanted <= there
