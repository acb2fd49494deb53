"""Find when the shards of a build were finished, from the modification times of their sidecars.

So it holds for every runner and for a build that was interrupted, and no worker has to report it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.storage.folder import Folder

MAX_POINTS = 60


class Finished(NamedTuple):
    """A shard, and when it was finished, in seconds since 1970 (UTC)."""

    at: float
    num_records: int
    num_bytes: int


def with_timing(root: Folder, manifest: Manifest) -> Manifest:
    """Return the manifest with `timing` in its provenance, unless a time is not known.

    Args:
        root: The folder of the finished shards.
        manifest: Their manifest, with the time of its creation.

    Raises:
        StorageError: The folder cannot be listed.
    """
    plan, provenance = root.info(naming.PLAN), manifest.provenance
    created = provenance.get("created")
    if plan is None or created is None:
        return manifest
    stamps = root.files(naming.INDEX_DIR)
    ended = []
    for split in manifest.splits:
        for name, shard in manifest.named_shards(split):
            stamp = stamps.get(name.sidecar.rpartition("/")[2])
            if stamp is not None:
                ended.append(Finished(stamp.modified, shard.num_records, shard.num_bytes))
    begun = datetime.fromisoformat(created).timestamp()
    timing = timing_of(begun, plan.modified, ended)
    return replace(manifest, provenance={**provenance, "timing": timing})


def timing_of(begun: float, planned: float, shards: Iterable[Finished]) -> dict[str, Any]:
    """Return how long planning and writing took, and how the number of written records grew.

    Args:
        begun: When the build was begun, in seconds since 1970.
        planned: When its plan was written.
        shards: All shards. Those finished before `begun` are of an earlier, interrupted run.

    Returns:
        Planning and writing in seconds; the number of shards of earlier runs; and `written`, at
        most about `MAX_POINTS` lists of the seconds since the plan, and the records and bytes that
        this run has written until then.
    """
    found = sorted(shards)
    # Both times are compared although the store's clock stamps one of them: a wrong clock only
    # changes the chart.
    own = [shard for shard in found if shard.at >= begun]
    records = num_bytes = 0
    grown = []
    for shard in own:
        records += shard.num_records
        num_bytes += shard.num_bytes
        grown.append([round(max(0.0, shard.at - planned), 2), records, num_bytes])
    step = -(-len(grown) // MAX_POINTS) or 1
    return {
        "planning_s": round(max(0.0, planned - begun), 2),
        "writing_s": grown[-1][0] if grown else 0.0,
        "reused_shards": len(found) - len(own),
        "written": [*grown[: len(grown) - 1 : step], *grown[-1:]],
    }
