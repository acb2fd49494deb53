"""Find which records of two datasets are new, gone or changed, from their indexes alone.

The features by which records differ are named from some of the records. How far two distributions
of one property differ is a number from 0 (equal) to 1 (disjoint).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.fail_on import CHANGES as CHANGES
from shardwright.format.example import Values
from shardwright.format.index import INDEX_SCHEMA, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import INDEXED, PICTURES, Feature
from shardwright.format.splits import ShardInfo
from shardwright.inspect.show import read_record
from shardwright.reader.selection import INDEXES_AT_A_TIME
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

NUMBERS = ("width", "height", "image_length")
_COLUMNS = ("id", "length", "crc32c", "label", "features", *NUMBERS)
EXAMINED = 100  # records that are read for the names
_READERS = 16
_Dataset = tuple[Folder, Manifest]


def read_rows(root: Folder, manifest: Manifest, columns: Sequence[str] = _COLUMNS) -> pa.Table:
    """Return columns of the index rows of all splits, in file order, and the column `split`.

    All of them are held in memory. Ids are `large_string`: those of one dataset may exceed 2 GB.

    Raises:
        StorageError: An index is missing, unreadable or damaged.
    """
    folder = root.below(manifest.folder)

    def read(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        rows = read_live_rows(folder, *shard, list(columns))
        return rows.append_column("split", pa.repeat(shard[0].split, len(rows)))

    schema = pa.schema([*map(INDEX_SCHEMA.field, columns), ("split", pa.string())])
    tables = map_reads(read, manifest.named_shards(), INDEXES_AT_A_TIME)
    rows = pa.concat_tables([schema.empty_table(), *tables])
    if "id" in columns:
        place = rows.schema.get_field_index("id")
        rows = rows.set_column(place, "id", rows["id"].cast(pa.large_string()))
    return rows


def measured(rows: pa.Table, name: str) -> NDArray[Any]:
    """Return a column of sizes or lengths, without those of records that have no image."""
    values: NDArray[Any] = rows[name].drop_null().to_numpy()
    return values[values > 0]


class RecordChanges(NamedTuple):
    """The rows that differ, by the kind of change.

    Attributes:
        old, new: The rows of both datasets.
        rows: Row numbers by change, ascending: in `old` for "gone", else in `new`.
        num_same: Number of records that are in both, unchanged.
    """

    old: pa.Table
    new: pa.Table
    rows: dict[str, NDArray[np.int64]]
    num_same: int

    def of(self, change: str, most: int | None = None) -> pa.Table:
        """Return change, split and id of the first records of a change, in stored order."""
        numbers = self.rows[change][:most]
        rows = (self.old if change == "gone" else self.new).select(["split", "id"])
        return rows.take(pa.array(numbers)).add_column(0, "change", pa.repeat(change, len(numbers)))


def compare_rows(
    old: pa.Table,
    new: pa.Table,
    class_names: Sequence[Sequence[str]],
    *,
    with_features: bool,
) -> RecordChanges:
    """Return how the records of `new` differ from those of `old` with the same ids.

    An image is compared by length and CRC32C, a record without an image by its length, a label by
    its class name, all other features by their hash if both have it.

    Args:
        old, new: The rows of both datasets.
        class_names: The class names of both; without them labels are compared as numbers.
        with_features: Other hashes mean other features.
    """
    places = pc.index_in(new["id"], value_set=old["id"].combine_chunks())
    is_known = places.is_valid().to_numpy()
    known, places = np.flatnonzero(is_known), places.drop_null().to_numpy()
    if not all(class_names):
        class_names = ((), ())
    before = _named(old, class_names[0]).take(places)
    after = _named(new, class_names[1]).take(known)

    def unequal(name: str) -> NDArray[np.bool_]:
        found = pc.fill_null(pc.not_equal(before[name], after[name]), False)
        return np.asarray(found.to_numpy(), np.bool_)

    lengths = pc.max_element_wise(before["image_length"], after["image_length"])
    image_differs = unequal("crc32c") | unequal("image_length")
    differs = {
        "changed": np.where(lengths.to_numpy() > 0, image_differs, unequal("length")),
        "relabeled": unequal("label"),
        "reannotated": with_features & unequal("features"),
        "moved": unequal("split"),
    }
    is_gone = np.ones(old.num_rows, np.bool_)
    is_gone[places] = False
    rows = {"new": np.flatnonzero(~is_known), "gone": np.flatnonzero(is_gone)}
    rows |= {change: known[mask] for change, mask in differs.items()}
    num_same = int((~np.logical_or.reduce(list(differs.values()))).sum())
    return RecordChanges(old, new, rows, num_same)


def _named(rows: pa.Table, class_names: Sequence[str]) -> pa.Table:
    """Return rows without ids, with the names of labels; without names, their numbers."""
    label = rows["label"]
    if class_names:
        label = pc.fill_null(pc.take(pa.array(class_names, pa.string()), label), "")
    else:
        label = pc.fill_null(label, -1)
    return rows.drop_columns(["id", "label"]).append_column("label", label)


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
    ids = changes.of("reannotated", EXAMINED)["id"]
    before = pc.index_in(ids, value_set=changes.old["id"].combine_chunks()).to_numpy()
    sides = [
        map_reads(partial(read_record, root.below(manifest.folder), manifest), numbers, _READERS)
        for (root, manifest), numbers in ((old, before.tolist()), (new, rows.tolist()))
    ]
    found: Counter[str] = Counter()
    for first, second in zip(*sides, strict=True):
        for feature in new[1].schema.column_features:
            texts = (
                _text_of(first.features, feature, old[1]),
                _text_of(second.features, feature, new[1]),
            )
            found[feature.name] += texts[0] != texts[1]
    return {name: number for name, number in found.items() if number}


def _text_of(values: Mapping[str, Values], feature: Feature, manifest: Manifest) -> str:
    """Return the values of a feature as text, by their names: numbers may differ."""
    first, *others = (values.get(stored.key, []) for stored in feature.stored)
    names: Sequence[str] = manifest.schema.names_of(feature) if feature.kind in INDEXED else ()
    shown = [names[each] if isinstance(each, int) and each < len(names) else each for each in first]
    return repr([shown, *others])


def share_drift(old: Mapping[str, int], new: Mapping[str, int]) -> float | None:
    """Return the total variation distance of two distributions over classes, None without records.

    It is the share of records that would have to change class to make the shares equal.
    """
    before, after = sum(old.values()), sum(new.values())
    if not (before and after):
        return None
    changes = (abs(old.get(name, 0) / before - new.get(name, 0) / after) for name in {*old, *new})
    return sum(changes) / 2


def number_drift(old: NDArray[np.int64], new: NDArray[np.int64]) -> float | None:
    """Return the Kolmogorov-Smirnov distance of two samples, None if one is empty.

    It is the largest difference, at any value, between the shares of records up to that value.
    """
    if not (len(old) and len(new)):
        return None
    old, new = np.sort(old), np.sort(new)
    values = np.unique(np.concatenate([old, new]))
    before = np.searchsorted(old, values, "right") / len(old)
    after = np.searchsorted(new, values, "right") / len(new)
    return float(np.abs(before - after).max())
