"""Name the features by which records of two datasets differ, from some of the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.format.index import CHECKED, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.schema import INDEXED, PICTURES, Feature
from shardwright.inspect.example_check import Values
from shardwright.inspect.record_changes import RecordChanges
from shardwright.inspect.record_lookup import read_features
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

EXAMINED = 100  # records that are read for the names
_READS_AT_ONCE = 16
_Dataset = tuple[Folder, Manifest]


def can_compare_hashes(old: _Dataset, new: _Dataset) -> bool:
    """Return whether other hashes of features mean other features.

    The hash of a further image is of its address, and that of a function's result is of its input:
    in a copy of the dataset, or a build elsewhere, these may differ although the records do not.
    """
    schemas = [manifest.schema for _, manifest in (old, new)]
    names = [{each.name for each in schema.column_features} for schema in schemas]
    stored_elsewhere = any(
        "transforms" in manifest.settings
        or any(each.kind in PICTURES for each in manifest.schema.column_features)
        for _, manifest in (old, new)
    )
    return names[0] == names[1] and (old[0].uri == new[0].uri or not stored_elsewhere)


def changed_features(old: _Dataset, new: _Dataset, changes: RecordChanges) -> dict[str, int]:
    """Return the features that differ, with the number of records, by name.

    Only the first `EXAMINED` reannotated records are read, from both datasets.

    Raises:
        StorageError: A record cannot be read.
    """
    rows = changes.rows["reannotated"][:EXAMINED]
    ids = changes.new.ids.take(pa.array(rows))
    before = pc.index_in(ids, value_set=changes.old.ids.combine_chunks()).to_numpy()
    pairs = zip(_read_rows(*old, before), _read_rows(*new, rows), strict=True)
    found: Counter[str] = Counter()
    for first, second in pairs:
        for feature in new[1].schema.column_features:
            texts = _text_of(first, feature, old[1]), _text_of(second, feature, new[1])
            found[feature.name] += texts[0] != texts[1]
    return {name: number for name, number in found.items() if number}


def _read_rows(
    root: Folder, manifest: Manifest, rows: NDArray[np.int64]
) -> Iterator[Mapping[str, Values]]:
    """Yield the features of the records with these numbers in stored order."""
    folder, shards = root.below(manifest.folder), manifest.named_shards()
    ends = np.cumsum([info.num_live for _, info in shards])

    def read(row: int) -> Mapping[str, Values]:
        number = int(np.searchsorted(ends, row, side="right"))
        name, info = shards[number]
        place = row - int(ends[number]) + info.num_live
        columns = read_live_rows(folder, name, info, [*CHECKED])
        (found,) = columns.slice(place, 1).to_pylist()
        return read_features(folder, name, found)

    return map_reads(read, rows.tolist(), _READS_AT_ONCE)


def _text_of(values: Mapping[str, Values], feature: Feature, manifest: Manifest) -> str:
    """Return the values of a feature as text, by their names: numbers may differ."""
    first, *others = (values.get(stored.key, []) for stored in feature.stored)
    names: Sequence[str] = manifest.schema.names_of(feature) if feature.kind in INDEXED else ()
    shown = [names[each] if isinstance(each, int) and each < len(names) else each for each in first]
    return repr([shown, *others])
