"""Split references by lists of ids (`--split-ids`), for official and earlier splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
from shardwright.transforms.inputs.columns import ROLE_COLUMNS, canonical_splits
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.table_files import (
    read_table_file,
    read_table_schema,
    table_format,
)
from shardwright.transforms.inputs.label_values import as_text
from shardwright.transforms.references import reject_rows, rows_left, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.splits.split_rules import SplitFractions, units_of

_MAX_JSON_BYTES = 4 << 30  # some 100 million ids; more belong in a table
_ID_COLUMNS = (*ROLE_COLUMNS["id"], *ROLE_COLUMNS["image"])
_Rows = Iterator[tuple[pa.Array, pa.Array]]  # ids, splits
ListedIds = Mapping[str, str]  # id -> split, on every worker


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
        return set_column(batch, "split", _listed_splits(batch, ids))
    nulls = pa.nulls(batch.num_rows, pa.string())
    if grouped is None:
        return set_column(batch, "split", nulls)
    drawn = pc.if_else(batch.column("group").is_valid(), grouped.choose(units_of(batch)), nulls)
    return set_column(batch, "split", drawn)


def _listed_splits(batch: pa.RecordBatch, ids: ListedIds) -> pa.Array:
    return pa.array(map(ids.get, batch.column("id").to_pylist()), pa.string())


def take_listed(batch: pa.RecordBatch, ids: ListedIds) -> Iterator[pa.RecordBatch]:
    """Yield the listed rows, if any, with their split."""
    splits = _listed_splits(batch, ids)
    keep = splits.is_valid().to_numpy(zero_copy_only=False)
    yield from rows_left(set_column(batch, "split", splits), keep)


def take_others(batch: pa.RecordBatch, ids: ListedIds) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are not listed, if any."""
    keep = _listed_splits(batch, ids).is_null().to_numpy(zero_copy_only=False)
    yield from rows_left(batch, keep)


def find_used(batch: pa.RecordBatch, ids: ListedIds) -> Iterator[str]:
    """Yield the listed ids that the batch has."""
    yield from filter(ids.__contains__, batch.column("id").to_pylist())


def reject_unused(used: Set[str], ids: ListedIds, known: KnownFile | None) -> Iterator[Reject]:
    """Yield a reject for each listed id that is not `used`, and not of a `known` record.

    Raises:
        BuildError: A split has no ids but such.
    """
    unused = [image_id for image_id in ids if image_id not in used]
    if known is not None:
        places = known.open().find(pa.array(unused, pa.string()))
        unused = [image_id for image_id, place in zip(unused, places, strict=True) if place < 0]
    listed = Counter(ids.values())
    for split, number in Counter(map(ids.__getitem__, unused)).items():
        if number == listed[split]:
            first = next(image_id for image_id in unused if ids[image_id] == split)
            raise BuildError(
                f"--split-ids lists {counted(number, 'id')} for {split}, and INPUT has no image "
                f"with any of them, such as {first!r}: write ids as a build without --split-ids "
                "has them in its index, such as 'cat/1.jpg'"
            )
    detail = (
        f"INPUT has no image with this id, and with {len(unused)} of the {len(ids)} ids that "
        "--split-ids lists"
    )
    for image_id in unused:
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
    found: dict[str, str] = {}
    torn: dict[str, str] = {}
    for split, path in lists.files:
        for ids, stated in _read_file(path, split, lists.storage):
            splits = stated if split else canonical_splits(stated)
            for image_id, name in zip(ids.to_pylist(), splits.to_pylist(), strict=True):
                if image_id is not None and found.setdefault(image_id, name) != name:
                    torn[image_id] = name
    for name in dict.fromkeys(found.values()) | dict.fromkeys(torn.values()):
        if name is None or not is_split_name(name):
            raise BuildError(
                f"--split-ids has the invalid split name {name!r}; "
                "use letters, digits and underscores"
            )
    for image_id, name in torn.items():
        raise BuildError(
            f"--split-ids puts {counted(len(torn), 'id')} in two splits, such as {image_id!r} in "
            f"{found[image_id]} and {name}: keep one"
        )
    return found


def _is_list(path: str) -> bool:
    """Return whether a file has one id per line."""
    return table_format(path) is None and not path.lower().endswith(".json")


def _read_file(path: str, split: str | None, storage: StorageOptions) -> _Rows:
    if table_format(path) is not None:
        yield from _read_table(path, split, storage)
        return
    try:
        text = decode_text(files_of(path, storage).read_bytes(path))
        rows = (
            list(_of_json(load_json(text.encode(), max_bytes=_MAX_JSON_BYTES), split))
            if path.lower().endswith(".json")
            else [(line.strip(), split) for line in text.split("\n") if line.strip()]
        )
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BuildError(
            f"--split-ids {path} cannot be read ({error}): expected one id per line, a table, "
            f'or JSON such as {{"test": ["id", ...]}}'
        ) from error
    if not columns:
        raise BuildError(f"--split-ids {path} lists no ids")
    yield columns[0], columns[1]


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
            yield key, split or value


def _read_table(path: str, split: str | None, storage: StorageOptions) -> _Rows:
    kind = table_format(path) or ""
    schema = read_table_schema([path], kind, storage)
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
