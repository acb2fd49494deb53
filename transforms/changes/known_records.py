"""Compare listed references with the records that a dataset has.

A record is known by its id, and unchanged if the address and etag of its image, its label, the hash
of its features and a split that INPUT states are those of the index. So:

- A file or object is changed if its own etag is (a local file's is its modification time). A record
  in a tar, a TFRecord or another container has the container's etag: if that changes, all of its
  records count as changed. What a compressed container or Python had in the spool is compared by
  its name there, a hash of the container's address and etag, or by the bytes' own hash.
- An image whose etag is not looked up (`--size-column`) is compared by address and label alone.
- A record of a finished dataset is compared by where its image came from, as the index of both has
  it, and by its bytes: the lengths of record and image, and the image's checksum.
- An index of an older dataset has no hashes of features: then they are not compared, and a record
  without image and etag counts as changed.
- Records that a function (`--transform`) made are known by the id of their input: they are
  unchanged together, or else replaced together.
- If records that are not listed stay, a reference with the id of one but another address is another
  image: it must not replace the record, unless the user states ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.hashing import joined
from shardwright.transforms.record_states import are_spooled, places_of, states_of, with_features
from shardwright.transforms.references import HASH, ORIGIN, SUFFIX, keep_rows, set_column
from shardwright.transforms.text_hashes import hash128

_COLUMNS = ["id", "uri", "etag", "label", HASH, SUFFIX]
_CONTENT = ["image_length", "length", "crc32c"]
_READS_AT_ONCE = 16
_KINDS = {
    **dict.fromkeys(("keys", "more", "states", "places"), np.uint64),
    "rows": np.uint32,
    "splits": np.uint16,
}
_MOST_ROWS = 1 << 32


class Comparison(NamedTuple):
    """A batch of references, compared with the known records.

    Attributes:
        new: References whose ids are unknown.
        changed: Changed references, with the split that INPUT states, or else their records have.
        unchanged_rows: Numbers of the known records that are unchanged, uint32.
        changed_rows: Numbers of the records that those of `changed` replace, uint32.
    """

    new: pa.RecordBatch
    changed: pa.RecordBatch
    unchanged_rows: np.ndarray
    changed_rows: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class KnownRecords:
    """The records of a dataset, ordered by the hash of their ids; 30 bytes each, or 38.

    If a function made them, their ids are those of their inputs, and several may have one id.

    Attributes:
        keys: First halves of the hashes, ascending, uint64 [records].
        more: Their other halves, uint64 [records].
        states: Hashes of address, etag and label, of the bytes if `by_content`, and of the features
            if the index has such a hash; uint64 [records].
        rows: Numbers of the records: their places in the index of all shards, one shard after the
            other in the manifest's order, removed ones counted; uint32 [records].
        splits: Indices in `split_names`, uint16 [records].
        split_names: Names of the splits.
        num_rows: The rows of the index, removed ones included.
        longest_run: Most records with equal `keys`.
        with_labels: Labels are in `states`.
        by_content: Listings are of a finished dataset.
        num_unhashed: Records whose features are not compared, because an older version wrote them.
        places: Hashes of the addresses, uint64 [records], if a reference with the id of a record
            must have its address, too; else None.
    """

    keys: np.ndarray
    more: np.ndarray
    states: np.ndarray
    rows: np.ndarray
    splits: np.ndarray
    split_names: tuple[str, ...]
    num_rows: int
    longest_run: int
    with_labels: bool
    by_content: bool
    num_unhashed: int = 0
    places: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, ids: pa.Array) -> np.ndarray:
        """Return the first position of each id among the records, or -1, int64 [len(ids)]."""
        keys, more = hash128(ids)
        found = np.full(len(ids), -1)
        if not len(self):
            return found
        # In order: each search then begins where the last one ended, in the processor's cache.
        order = np.argsort(keys)
        first = np.empty_like(order)
        first[order] = np.searchsorted(self.keys, keys[order])
        for step in range(self.longest_run):
            at = np.minimum(first + step, len(self) - 1)
            candidates = (self.keys[at] == keys) & (found < 0)
            if not candidates.any():
                break
            found = np.where(candidates & (self.more[at] == more), at, found)
        return found

    def compare(self, batch: pa.RecordBatch, features: FeatureHashes) -> Comparison:
        """Compare references, which have a split only where INPUT states it, with the records."""
        found = self.find(batch.column("id"))
        known = found >= 0
        listed = keep_rows(batch, known)
        at = found[known]
        rows = _as_indexed(listed) if self.by_content else listed
        same = self._are_same(at, rows, features.of(listed))
        stated = listed.column("split")
        if stated.null_count < len(stated):
            # Null where INPUT states no split: such a record stays in the one that it has.
            moved = pc.fill_null(pc.not_equal(stated, self.splits_at(at)), False)
            same &= ~moved.to_numpy(zero_copy_only=False)
        changed = keep_rows(listed, ~same)
        splits = pc.coalesce(changed.column("split"), self.splits_at(at[~same]))
        return Comparison(
            keep_rows(batch, ~known),
            set_column(changed, "split", splits),
            self.rows_at(at[same]),
            self.rows_at(at[~same]),
        )

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of all records of the ids that `find` found, uint32."""
        found = list[np.ndarray]()
        while len(positions):  # those of one id follow each other
            found.append(self.rows[positions])
            after = positions[positions < len(self) - 1] + 1
            same = (self.keys[after] == self.keys[after - 1]) & (
                self.more[after] == self.more[after - 1]
            )
            positions = after[same]
        return joined(found, np.uint32)

    def are_elsewhere(self, changed: pa.RecordBatch) -> np.ndarray:
        """Return which changed references must not replace the records of their ids, bool [rows].

        Of a spool only names are known, which differ after any change of their container.
        """
        uris, etags = changed.column("uri"), changed.column("etag")
        if self.places is None:
            return np.zeros(len(uris), np.bool_)
        moved = places_of(uris, etags) != self.places[self.find(changed.column("id"))]
        result: np.ndarray = moved & ~are_spooled(etags).to_numpy(zero_copy_only=False)
        return result

    def splits_at(self, positions: np.ndarray) -> pa.Array:
        """Return the splits of the records at these positions."""
        return pa.array(self.split_names, pa.string()).take(pa.array(self.splits[positions]))

    def _are_same(
        self, positions: np.ndarray, rows: pa.RecordBatch, hashes: pa.Array
    ) -> np.ndarray:
        labels = rows.column("label") if self.with_labels else None
        content = [rows.column(name) for name in _CONTENT] if self.by_content else []
        places = places_of(rows.column("uri"), rows.column("etag"))
        states = states_of(places, rows.column("etag"), labels, content)
        known, hashed = self.states[positions], hashes.is_valid().to_numpy(zero_copy_only=False)
        # A record of an older dataset has a state without the hash of its features, so either may
        # match.
        with_hash = hashed & (known == with_features(states, hashes))
        result: np.ndarray = with_hash | ((known == states) & ~_is_unidentified(rows))
        return result


def read_known(
    root: Folder, manifest: Manifest, *, by_content: bool = False, keeps_places: bool = False
) -> KnownRecords:
    """Return the records of a dataset by its index.

    Args:
        root: The dataset's folder.
        manifest: Its manifest. Rows that a shard lists as removed are left out.
        by_content: They will be compared with listings of a finished dataset.
        keeps_places: A reference with the id of a record must have its address, too.

    Raises:
        StorageError: A shard's index is missing or damaged.
        BuildError: Two records have one id, or there are more than 4,294,967,296.
    """
    # A function of `--transform` may store another label than INPUT has.
    is_made = "transforms" in manifest.settings
    names = () if is_made else manifest.schema.class_names
    labels = pa.array(names, pa.string()) if names else None
    folder, shards = root.below(manifest.folder), manifest.named_shards()
    num_rows = sum(info.num_records for _, info in shards)
    if num_rows > _MOST_ROWS:
        raise BuildError(f"{root} has {num_rows:,} records, but at most {_MOST_ROWS:,} can grow")
    numbers = {name: number for number, name in enumerate(manifest.splits)}
    columns, made = [*_COLUMNS, *(_CONTENT if by_content else [])], is_made and not by_content
    kinds = {key: kind for key, kind in _KINDS.items() if key != "places" or keeps_places}

    def read(shard: tuple[ShardName, ShardInfo]) -> dict[str, np.ndarray]:
        return _hashed(read_index_of(folder, *shard, columns), labels, made=made)

    parts, first, num_unhashed = [], 0, 0
    read_all = map_reads(read, shards, _READS_AT_ONCE)
    for (name, info), hashes in zip(shards, read_all, strict=True):
        kept = live_rows(info)
        num_unhashed += int(hashes["lacks_hash"][kept].sum())
        part = {key: each[kept] for key, each in hashes.items() if key in kinds}
        # Removed records count, too, because versions name rows by their numbers in the files.
        part["rows"] = (first + kept).astype(np.uint32)
        part["splits"] = np.full(len(kept), numbers[name.split], np.uint16)
        parts.append(part)
        first += info.num_records
    arrays = {key: joined([part[key] for part in parts], kind) for key, kind in kinds.items()}
    arrays, longest_run = _in_order(arrays)
    known = KnownRecords(
        **arrays,
        split_names=tuple(manifest.splits),
        num_rows=num_rows,
        longest_run=longest_run,
        with_labels=bool(names),
        by_content=by_content,
        num_unhashed=num_unhashed,
    )
    again = (known.keys[1:] == known.keys[:-1]) & (known.more[1:] == known.more[:-1])
    if again.any() and not made:
        raise BuildError(
            f"{root} has {again.sum():,} records with the id of another one, such as number "
            f"{int(known.rows[again.argmax()]):,}: build it again with --if-exists overwrite"
        )
    return known


def live_rows(info: ShardInfo) -> np.ndarray:
    """Return the numbers of a shard's rows that are not removed, int64 [rows]."""
    live = info.live_rows
    return np.arange(info.num_records) if live is None else live.astype(np.int64)


def _in_order(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Return the columns of records ordered by their ids, and the most records with equal `keys`.

    That is 1, unless the first halves of hashes collide or a function made several of an input.
    """
    order = np.argsort(arrays["keys"])
    longest = _longest_run(arrays["keys"][order])
    if longest > 1:  # for records with one id to be neighbors
        order = np.lexsort((arrays["more"], arrays["keys"]))
    return {key: each[order] for key, each in arrays.items()}, longest


def _longest_run(ordered: np.ndarray) -> int:
    """Return the most equal neighbors: 1, unless the first halves of hashes collide."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    return int(np.diff(np.append(starts, len(ordered))).max(initial=1))


def _hashed(table: pa.Table, class_names: pa.Array | None, *, made: bool) -> dict[str, np.ndarray]:
    """Return both halves of the ids' hashes, the states and the places, of the rows of an index."""
    columns = (column.combine_chunks() for column in table.columns)
    ids, uris, etags, numbers, features, suffixes, *content = columns
    ids = without_suffixes(ids, suffixes) if made else ids
    labels = None
    if class_names is not None:
        labels = pa.DictionaryArray.from_arrays(numbers.cast(pa.int32()), class_names)
    places = places_of(uris, etags)
    states = states_of(places, etags, labels, content)
    keys, more = hash128(ids)
    return {
        "keys": keys,
        "more": more,
        "states": with_features(states, features),
        "places": places,
        "lacks_hash": features.is_null().to_numpy(zero_copy_only=False),
    }


def without_suffixes(ids: pa.Array, suffixes: pa.Array) -> pa.Array:
    """Return the ids of the inputs of records: without as many characters at their ends."""
    for length in pc.unique(suffixes.drop_null()).to_pylist():
        if length:
            # A loop over lengths, of which a function has few, instead of one over ids.
            shorter = pc.utf8_slice_codeunits(ids, 0, -length)
            ids = pc.if_else(pc.fill_null(pc.equal(suffixes, length), False), shorter, ids)
    return ids


def _as_indexed(copied: pa.RecordBatch) -> pa.RecordBatch:
    """Return records of a finished dataset with the columns of its index that are compared."""
    origins = copied.column(ORIGIN)
    for name in ("uri", "etag", "length", "crc32c"):
        copied = set_column(copied, name, pc.struct_field(origins, name))
    return set_column(copied, "image_length", copied.column("num_bytes"))


def _is_unidentified(batch: pa.RecordBatch) -> np.ndarray:
    """Return which references have neither an image nor an etag, bool [rows]."""
    empty = pc.equal(batch.column("num_bytes"), 0)
    result: np.ndarray = pc.and_(empty, batch.column("etag").is_null()).to_numpy(
        zero_copy_only=False
    )
    return result
