"""Find what a dataset has of some ids: records, lists that name them, and names of their own.

An erasure copies the newest version without these records and removes all else (`remains.py`). So
no published file is changed, and no kind of file can be overlooked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format import naming
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import read_index_of, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import read_rows
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import INDEXED, WORDS, Feature, erased_name
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import generation_folders
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.features.conversions import UNKNOWN
from shardwright.transforms.inputs.formats.copied import has_ids, ids_of_inputs
from shardwright.transforms.promotion import read_in_place
from shardwright.transforms.references import SUFFIX
from shardwright.transforms.rejects import REJECTED_LABELS

Numbers: TypeAlias = Mapping[str, set[int]]
"""Numbers of class names and words by feature name."""

_READERS = 16
_RECORDS_AT_ONCE = 100  # in memory


@dataclass(frozen=True, slots=True)
class Found:
    """The records and names that a dataset has of some ids.

    Attributes:
        ids: Those of the ids that it has, also in lists alone.
        num_records: Records of the newest version that go.
        must_copy: A generation of the newest version has one of them, or a name goes.
        names: Numbers of the names that no other record of the newest version has.
    """

    ids: frozenset[str]
    num_records: int
    must_copy: bool
    names: Numbers


def finished_generations(root: Folder) -> dict[str, Manifest]:
    """Return the manifests of the finished generations on disk by folder, also of unnamed ones.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: A manifest is damaged.
        StorageError: A folder cannot be read.
    """
    below = {folder: root.below(folder) for folder in ("", *generation_folders(root))}
    there = {name: each for name, each in below.items() if each.info(naming.MANIFEST) is not None}
    return {folder: read_in_place(each) for folder, each in there.items()}  # the first may be gone


def find(root: Folder, newest: Manifest, ids: frozenset[str], *, keep_names: bool = False) -> Found:
    """Return what the finished generations of a dataset have of some ids.

    With `keep_names`, no name goes.

    Raises:
        BuildError: A build is replacing the dataset.
        StorageError: An index, a list or a shard is damaged, or cannot be read.
        UsageError: The newest version would have no record left.
    """
    wanted, live = pa.array(sorted(ids), pa.string()), dict(newest.named_shards())
    found, lost = dict[str, set[str]](), defaultdict[str, set[int]](set)
    num_records = 0
    for folder, manifest in finished_generations(root).items():
        below, here = root.below(folder), found.setdefault(folder, set())
        features = [one for one in manifest.schema.features if one.kind in INDEXED]
        for name, rows, index in _rows_with(below, manifest, wanted):
            here |= ids & ids_of(index)
            for feature, number in _numbers_in(below, name, index, features):
                lost[feature].add(number)
            if info := live.get(replace(name, folder=folder)):
                num_records += len(np.setdiff1d(rows, info.removed_rows))
        for path, listed in tables_in(below, ("", naming.REJECTS_DIR)):
            if ids & listed:
                here |= ids & listed
                if path != naming.NEAR_DUPLICATES:
                    _add_rejected(lost, manifest, features)
    if num_records and num_records == newest.num_records:
        raise UsageError(
            f"no record of {root} would be left: remove the dataset itself, with its caches and "
            "the old versions of its objects"
        )
    names = {} if keep_names else _without_used(root, newest, wanted, lost)
    must_copy = any(found.get(folder) for folder in newest.folders) or bool(names)
    return Found(frozenset().union(*found.values()), num_records, must_copy, names)


def _rows_with(
    below: Folder, manifest: Manifest, wanted: pa.Array
) -> Iterator[tuple[ShardName, np.ndarray, pa.Table]]:
    """Yield the shards of a generation that have records of these ids, with their rows."""

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, np.ndarray, pa.Table]:
        index = read_index_of(below, *shard)
        rows = np.flatnonzero(has_ids(index, wanted))
        return shard[0], rows, index.take(rows)

    looked = map_reads(look, manifest.named_shards(), _READERS)
    yield from ((name, rows, index) for name, rows, index in looked if len(rows))


def tables_in(below: Folder, folders: Sequence[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield the tables in some folders of a build, and the ids that they name.

    Raises:
        StorageError: A folder or a table cannot be read.
    """
    tables = [path for path in naming.build_outputs(below, folders) if path.endswith(".parquet")]
    found = map_reads(lambda path: ids_of(read_rows(below, path)), tables, _READERS)
    yield from zip(tables, found, strict=True)


def ids_of(rows: pa.Table) -> set[str]:
    """Return the ids in the columns of a table, and those of the inputs of records."""
    columns = [rows[name] for name in ("id", "keeper") if name in rows.column_names]
    columns += [ids_of_inputs(rows)] if SUFFIX in rows.column_names else []
    return {name for column in columns for name in column.to_pylist()}


def _add_rejected(lost: Numbers, manifest: Manifest, features: Iterable[Feature]) -> None:
    """Add the numbers of the names that a reject may have had, which its row does not say."""
    for feature in features:
        if feature == manifest.schema.label:
            for split in manifest.splits.values():
                lost[feature.name].update(map(int, split.stats.get(REJECTED_LABELS, ())))
        elif not feature.names:  # those of the user's schema stay
            lost[feature.name].update(range(len(manifest.schema.names_of(feature))))


def _without_used(root: Folder, newest: Manifest, wanted: pa.Array, lost: Numbers) -> Numbers:
    """Return the numbers of those names that no record has that stays."""
    features = [one for one in newest.schema.features if one.kind in INDEXED]
    left = {one.name: _named(newest, one, lost[one.name]) for one in features}
    for name, info in newest.named_shards():
        features = [one for one in features if left[one.name]]
        if not features:  # each shard may have the last name that is looked for
            break
        index = read_live_rows(root, name, info)
        index = index.filter(pc.invert(has_ids(index, wanted)))
        if features == [newest.schema.label]:
            left[features[0].name].difference_update(index["label"].unique().to_pylist())
        else:
            for feature, number in _numbers_in(root, name, index, features):
                left[feature].discard(number)
    return {feature: numbers for feature, numbers in left.items() if numbers}


def _named(newest: Manifest, feature: Feature, numbers: Iterable[int]) -> set[int]:
    """Return the numbers whose names say something: neither placeholders nor the numbers."""
    names = dict(enumerate(newest.schema.names_of(feature)))
    unknown = UNKNOWN if feature.kind in WORDS else ""
    return {
        number
        for number in numbers
        if names.get(number, "") not in (str(number), erased_name(number), unknown, "")
    }


def _numbers_in(
    below: Folder, name: ShardName, index: pa.Table, features: Sequence[Feature]
) -> Iterator[tuple[str, int]]:
    """Yield the features and numbers of the names that some records of a shard have."""
    for rows in index.select(["offset", "length"]).to_batches(_RECORDS_AT_ONCE) if features else ():
        starts, lengths = (column.to_numpy() for column in rows.columns)
        spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        for frame in below.read_ranges(name.shard, list(spans)):
            with suppress(ExampleFault):  # a damaged record goes, or stops the copy
                values = parse_example(frame[HEADER_BYTES:-FOOTER_BYTES])
                for feature in features:
                    for number in values.get(feature.stored[0].key, ()):
                        yield feature.name, int(number)
