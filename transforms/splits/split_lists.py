"""Split references by lists of ids (`--split-ids`), for official and earlier splits."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.json_files import load_json
from shardwright.format.naming import is_split_name
from shardwright.sizes import counted
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.hashing import hash64
from shardwright.transforms.inputs.columns import ROLE_COLUMNS, as_text, canonical_splits
from shardwright.transforms.inputs.tables.table_files import (
    read_table_file,
    read_table_schema,
    table_format,
)
from shardwright.transforms.references import keep_rows, reject_rows, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.splits.split_rules import SplitFractions, units_of

_SALT = "shardwright/listed"
_MAX_JSON_BYTES = 4 << 30  # some 100 million ids; more belong in a table
_ID_COLUMNS = (*ROLE_COLUMNS["id"], *ROLE_COLUMNS["image"])
_Rows = Iterator[tuple[pa.Array, pa.Array]]  # ids, splits


@dataclass(frozen=True, slots=True)
class SplitLists:
    """The files of listed ids.

    Attributes:
        files: (split, absolute path or address); the split is None if the file provides it.
        storage: Storage options for reading the files.
    """

    files: tuple[tuple[str | None, str], ...]
    storage: StorageOptions = NO_OPTIONS

    @classmethod
    def parse(cls, values: Sequence[str], storage: StorageOptions = NO_OPTIONS) -> SplitLists:
        """Parse values of `--split-ids`: FILE, or SPLIT=FILE.

        Raises:
            UsageError: The file does not exist, or it is a list without splits.
        """
        files = []
        for value in values:
            split, equals, path = value.partition("=")
            is_named = equals and is_split_name(split)
            named = (split, absolute(path)) if is_named else (None, absolute(value))
            if named[0] is None and _is_list(named[1]):
                raise UsageError(
                    f"--split-ids {value} has ids only: give their split, as in "
                    f"--split-ids test={value}"
                )
            try:
                found = files_of(named[1], storage).num_bytes_of(named[1])
            except StorageError as error:
                raise UsageError(f"--split-ids {value} cannot be read: {error}") from error
            if found is None:
                raise UsageError(f"--split-ids {value}: there is no file {named[1]}")
            files.append(named)
        return cls(tuple(files), storage)


class ListedIds:
    """A table of ids and their splits, about 20 bytes and the text of each id on every worker.

    Args:
        ids: Ids, strings [ids].
        splits: Their splits, strings [ids].

    Raises:
        BuildError: An id is in two splits.
    """

    def __init__(self, ids: pa.Array, splits: pa.Array) -> None:
        hashes = hash64(ids, _SALT)
        # Stable, so that of two lines with one id the first one stays.
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._ids, self._splits = (
            hashes[order],
            ids.take(pa.array(order)),
            splits.take(pa.array(order)),
        )
        self._drop_repeated()
        _, runs = np.unique(self._hashes, return_counts=True)
        # 1, unless 64-bit hashes of different ids collide: `find` compares this many candidates.
        self._longest_run = int(runs.max(initial=1))

    def __len__(self) -> int:
        return len(self._ids)

    def _drop_repeated(self) -> None:
        same = np.zeros(len(self._ids), bool)
        same[1:] = pc.equal(self._ids[1:], self._ids[:-1]).to_numpy(zero_copy_only=False)
        torn = same.copy()
        torn[1:] &= pc.not_equal(self._splits[1:], self._splits[:-1]).to_numpy(zero_copy_only=False)
        if torn.any():
            row = int(torn.argmax())
            both = f"{self._splits[row - 1]} and {self._splits[row]}"
            raise BuildError(
                f"--split-ids puts {counted(int(torn.sum()), 'id')} in two splits, such as "
                f"{str(self._ids[row])!r} in {both}: keep one"
            )
        if same.any():
            kept = pa.array(~same)
            self._hashes, self._ids, self._splits = (
                self._hashes[~same],
                self._ids.filter(kept),
                self._splits.filter(kept),
            )

    def find(self, ids: pa.Array) -> np.ndarray:
        """Return the position of each id in the list, or -1, as int64 [len(ids)]."""
        found = np.full(len(ids), -1)
        if not len(self):
            return found
        first = np.searchsorted(self._hashes, hash64(ids, _SALT))
        for step in range(self._longest_run):
            # Beyond the end it looks at the last id again, which changes nothing.
            at = np.minimum(first + step, len(self) - 1)
            found = np.where(
                pc.equal(self._ids.take(pa.array(at)), ids).to_numpy(zero_copy_only=False),
                at,
                found,
            )
        return found

    def splits_at(self, positions: np.ndarray) -> pa.Array:
        """Return the splits of the ids at these positions, null at -1."""
        return self._splits.take(pa.array(positions, mask=positions < 0))

    def ids_without(self, positions: np.ndarray) -> list[str]:
        """Return the ids at all other positions."""
        others = np.ones(len(self), bool)
        others[positions] = False
        return self._ids.filter(pa.array(others)).to_pylist()


def stated_splits(
    batch: pa.RecordBatch,
    ids: ListedIds | None,
    *,
    given: bool,
    grouped: SplitFractions | None = None,
) -> pa.RecordBatch:
    """Return references with a split only where the source (`given`), a list or a group states one.

    A group states the split that `grouped` draws for it, if that is the rule: so a record whose
    group was corrected is where the others of its group are.
    """
    if given:
        return batch
    if ids is not None:
        return set_column(batch, "split", ids.splits_at(ids.find(batch.column("id"))))
    nulls = pa.nulls(batch.num_rows, pa.string())
    if grouped is None:
        return set_column(batch, "split", nulls)
    drawn = pc.if_else(batch.column("group").is_valid(), grouped.choose(units_of(batch)), nulls)
    return set_column(batch, "split", drawn)


def take_listed(batch: pa.RecordBatch, ids: ListedIds) -> Iterator[pa.RecordBatch]:
    """Yield the listed rows, if any, with their split."""
    found = ids.find(batch.column("id"))
    listed = keep_rows(batch, found >= 0)
    if listed.num_rows:
        yield set_column(listed, "split", ids.splits_at(found[found >= 0]))


def take_others(batch: pa.RecordBatch, ids: ListedIds) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are not listed, if any."""
    others = keep_rows(batch, ids.find(batch.column("id")) < 0)
    if others.num_rows:
        yield others


def find_used(batch: pa.RecordBatch, ids: ListedIds) -> np.ndarray:
    """Return the positions of the listed ids that the batch has."""
    found = np.unique(ids.find(batch.column("id")))
    return found[found >= 0]


def reject_unused(used: np.ndarray, ids: ListedIds, known: KnownFile | None) -> Iterator[Reject]:
    """Yield a reject for each listed id not at a `used` position, and not of a `known` record."""
    unused = pa.array(ids.ids_without(used), pa.string())
    if known is not None:
        unused = unused.filter(pa.array(known.open().find(unused) < 0))
    detail = "--split-ids lists this id, but INPUT has no image with it"
    for image_id in unused.to_pylist():
        yield Reject(image_id, "", RejectReason.UNUSED_ID, detail)


def reject_others(batch: pa.RecordBatch) -> Iterator[Reject]:
    """Yield a reject for each row, because neither --split-ids nor --split gives its split."""
    detail = (
        "--split-ids does not list this id: set --split, such as --split train, "
        "to assign the ids that are not listed"
    )
    yield from reject_rows(batch, np.ones(batch.num_rows, bool), RejectReason.UNKNOWN_SPLIT, detail)


def read_lists(lists: SplitLists) -> ListedIds:
    """Read the ids of all files.

    Raises:
        BuildError: A file cannot be read, has no ids or no splits, or an id is in two splits.
    """
    ids, splits = [pa.array([], pa.string())], [pa.array([], pa.string())]
    for split, path in lists.files:
        for file_ids, file_splits in _read_file(path, split, lists.storage):
            kept = pc.is_valid(file_ids)
            ids.append(file_ids.filter(kept))
            splits.append(
                file_splits.filter(kept) if split else canonical_splits(file_splits.filter(kept))
            )
    whole = pa.concat_arrays(splits)
    for name in pc.unique(whole).to_pylist():
        if name is None or not is_split_name(name):
            raise BuildError(
                f"--split-ids has the invalid split name {name!r}; "
                "use letters, digits and underscores"
            )
    return ListedIds(pa.concat_arrays(ids), whole)


def _is_list(path: str) -> bool:
    """Return whether a file has one id per line."""
    return table_format(path) is None and not path.lower().endswith(".json")


def _read_file(path: str, split: str | None, storage: StorageOptions) -> _Rows:
    if table_format(path) is not None:
        yield from _read_table(path, split, storage)
        return
    try:
        data = files_of(path, storage).read_bytes(path)
        rows = (
            list(_of_json(load_json(data.removeprefix(BOM_UTF8), max_bytes=_MAX_JSON_BYTES), split))
            if path.lower().endswith(".json")
            else _of_lines(data.decode().removeprefix("\ufeff"), split)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BuildError(
            f"--split-ids {path} cannot be read ({error}): expected one id per line, a table, "
            f'or JSON such as {{"test": ["id", ...]}}'
        ) from error
    if not rows:
        raise BuildError(f"--split-ids {path} lists no ids")
    yield (
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.string()),
    )


def _of_lines(text: str, split: str | None) -> list[tuple[str, str | None]]:
    return [(line.strip(), split) for line in text.split("\n") if line.strip()]


def _of_json(content: Any, split: str | None) -> Iterable[tuple[str, str | None]]:
    """Yield (id, split) from one of four forms.

    These are {split: [id, ...]}, {id: split}, [{"id": ..., "split": ...}, ...] and, with a known
    split, [id, ...].
    """
    if isinstance(content, list):
        for item in content:
            yield (
                (str(item["id"]), split or item["split"])
                if isinstance(item, dict)
                else (str(item), split)
            )
        return
    for key, value in content.items():
        if isinstance(value, list):
            yield from ((str(item), key) for item in value if split in (None, key))
        else:
            yield key, value


def _read_table(path: str, split: str | None, storage: StorageOptions) -> _Rows:
    kind = table_format(path) or ""
    schema = read_table_schema(path, kind, storage)
    id_column = _column(schema, _ID_COLUMNS) or (schema.names[0] if len(schema) == 1 else None)
    split_column = None if split else _column(schema, ROLE_COLUMNS["split"])
    if id_column is None or (split is None and split_column is None):
        lacks = "ids (id, image, path, ...)" if id_column is None else "splits (split, subset, ...)"
        raise BuildError(
            f"--split-ids {path} has no column of {lacks}; "
            f"it has {', '.join(map(repr, schema.names))}"
        )
    if kind in ("csv", "tsv"):  # keep an id like "007" as text
        schema = pa.schema(
            [
                (field.name, pa.string() if field.name in (id_column, split_column) else field.type)
                for field in schema
            ]
        )
    for part in read_table_file(path, kind, schema, storage):
        if isinstance(part, Reject):
            raise BuildError(f"--split-ids: {part.detail}")
        ids = as_text(part.column(id_column), id_column)
        yield (
            ids,
            pa.array([split] * len(ids), pa.string())
            if split_column is None
            else as_text(part.column(split_column), split_column),
        )


def _column(schema: pa.Schema, wanted: Sequence[str]) -> str | None:
    by_lower = {name.strip().lower(): name for name in reversed(schema.names)}
    return next((by_lower[name] for name in wanted if name in by_lower), None)
