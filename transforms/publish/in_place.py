"""Check that shards are still those that were written, just before they are published.

A runner may give up a worker that lives on, and write its shard elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.format.index import ShardSummary
from shardwright.storage.folder import Folder
from shardwright.storage.local import StatedFile


def check_in_place(root: Folder, summaries: Sequence[ShardSummary]) -> None:
    """Check the shards and sidecars by listings: lengths, and checksums if the store states them.

    Raises:
        BuildError: A late writer has replaced or removed one of them.
    """
    shards, sidecars = root.stated(), root.stated(naming.INDEX_DIR)
    for summary in summaries:
        sidecar = sidecars.get(summary.name.sidecar.rpartition("/")[2])
        if not _is(shards.get(summary.name.shard), summary.num_bytes, summary.crc32c) or not _is(
            sidecar, *(summary.sidecar or (None, None))
        ):
            raise BuildError(
                f"{root.path(summary.name.shard)} or its sidecar was replaced or removed while the "
                "build ended, such as by a worker that its runner gave up: run the build again"
            )


def _is(found: StatedFile | None, num_bytes: int | None, crc32c: int | None) -> bool:
    return (
        found is not None
        and num_bytes in (None, found.num_bytes)
        and (crc32c is None or found.crc32c in (None, crc32c))
    )
