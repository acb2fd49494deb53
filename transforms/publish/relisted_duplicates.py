"""List near-duplicates again after records have left the dataset: their split becomes null.

The groups stay: they are of the images that the build found in INPUT. The statistics of the splits
are counted again, and examples of shared groups stay as long as both images are in the dataset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import read_index
from shardwright.format.manifest import Manifest
from shardwright.format.parquet import read_rows
from shardwright.format.stats_keys import Leak
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.near_duplicates import NEAR_KEYS, NEAR_LEAKS, NEAR_RECORDS


def with_relisted(root: Folder, manifest: Manifest) -> Manifest:
    """Write the list of near-duplicates, if there is one, and return the manifest that states it.

    Args:
        root: The dataset's folder, with all shards in place.
        manifest: Its manifest; its statistics may be those from before records have left.

    Raises:
        StorageError: The list or an index cannot be read.
    """
    if naming.NEAR_DUPLICATES not in manifest.files:
        return manifest
    rows = _with_splits(root, manifest, read_rows(root, naming.NEAR_DUPLICATES))
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd")
    data = buffer.getvalue().to_pybytes()
    root.write_if_new(naming.NEAR_DUPLICATES, data)
    found = _statistics(manifest, rows)
    splits = {}
    for name, split in manifest.splits.items():
        others = {key: value for key, value in split.stats.items() if key not in NEAR_KEYS}
        splits[name] = replace(split, stats={**others, **found[name]})
    files = {**manifest.files, naming.NEAR_DUPLICATES: FileContent.of(data)}
    return replace(manifest, splits=splits, files=files)


def _with_splits(root: Folder, manifest: Manifest, rows: pa.Table) -> pa.Table:
    """Return the list without the split of images that are not in the dataset any more."""
    listed = rows["id"].combine_chunks()
    stored = pa.array([], pa.string())
    for name, _ in manifest.named_shards():
        ids = read_index(root, name, ["id"])["id"].combine_chunks()
        stored = pa.concat_arrays([stored, ids.filter(pc.is_in(ids, value_set=listed))])
    gone = pc.invert(pc.is_in(rows["id"], value_set=stored))
    splits = pc.if_else(gone, pa.scalar(None, pa.string()), rows["split"])
    place = rows.schema.get_field_index("split")
    return rows.set_column(place, rows.schema.field("split"), splits)


def _statistics(manifest: Manifest, rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the keys of each split's statistics, as a build counts them."""
    names = list(manifest.splits)
    numbers = pc.index_in(rows["split"], value_set=pa.array(names, pa.string()))
    numbers = numbers.fill_null(-1).to_numpy()
    groups = rows["group"].to_numpy()
    num_groups = int(groups.max()) + 1 if len(groups) else 0
    places = (groups * len(names) + numbers)[numbers >= 0]
    counts = np.bincount(places, minlength=num_groups * len(names)).reshape(-1, len(names))
    shared = counts.T @ (counts > 0)
    there = set(rows["id"].filter(pc.is_valid(rows["split"])).to_pylist())
    found: dict[str, dict[str, Any]] = {}
    for here, name in enumerate(names):
        old = manifest.splits[name].stats.get(NEAR_LEAKS, {})
        leaks = {
            other: Leak(int(shared[here, number]), 0, _examples(old.get(other, {}), there))
            for number, other in enumerate(names)
            if number != here and shared[here, number]
        }
        found[name] = {NEAR_RECORDS: int(counts[:, here].sum())}
        if leaks:
            found[name][NEAR_LEAKS] = {other: leak.to_json() for other, leak in leaks.items()}
    return found


def _examples(leak: dict[str, Any], there: set[str]) -> tuple[tuple[str, str], ...]:
    pairs = (tuple(pair) for pair in leak.get("examples", ()))
    return tuple((mine, other) for mine, other in pairs if mine in there and other in there)
