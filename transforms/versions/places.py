"""Refuse an addition that would replace another image, which an append has just brought."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.format.index import read_live_rows
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.record_states import are_spooled
from shardwright.transforms.versions.changes import Shards, VersionChange

_COLUMNS = ["id", "uri", "etag"]
_READERS = 16


def check_places(root: Folder, change: VersionChange, kept: Shards, added: Shards) -> None:
    """Check additions against the records that other appends have added since `change.base`.

    The build has compared with `change.base` and made rejects of other images with known ids.
    Run again, it does so with those that came meanwhile. Of a spool only names are known.

    Args:
        root: The dataset's folder.
        change: The append.
        kept: The shards of the version that is the newest now.
        added: The shards of the append.

    Raises:
        BuildError: An added record has the id of one of them, but another address.
        StorageError: An index cannot be read.
    """
    if not change.keeps_places:
        return
    earlier = change.base.folders
    since = [(name, info) for name, info in kept if info.folder not in earlier]
    ours = _places(root, added)
    theirs = _places(root, since, ours["id"])
    both = ours.join(theirs, "id", right_suffix=" of theirs", join_type="inner")
    others = both.filter(pc.not_equal(both["uri"], both["uri of theirs"])).sort_by("id")
    if others.num_rows:
        first = others.slice(0, 1).to_pylist()[0]
        raise BuildError(
            f"another append to {root} has added {counted(others.num_rows, 'image')} meanwhile "
            f"with ids of this INPUT, such as {first['id']!r} from {first['uri of theirs']}, which "
            f"is {first['uri']} here: run this command again, which makes them rejects"
        )


def _places(root: Folder, shards: Shards, ids: pa.ChunkedArray | None = None) -> pa.Table:
    """Return id and address of the records, or those with some ids, whose addresses last."""

    def read(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        rows = read_live_rows(root, *shard, _COLUMNS)
        if ids is not None:
            rows = rows.filter(pc.is_in(rows["id"], value_set=ids))
        return rows.filter(pc.invert(are_spooled(rows["etag"]))).select(["id", "uri"])

    empty = pa.table({"id": pa.array([], pa.string()), "uri": pa.array([], pa.string())})
    tables = [empty, *map_reads(read, shards, _READERS)]
    return pa.concat_tables(tables, promote_options="default")
