"""Split references by lists of ids (`--split-ids`), for official and earlier splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.json_files import load_json, typed
from shardwright.format.naming import is_split_name
from shardwright.sizes import counted
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.inputs.columns import (
    ROLE_COLUMNS,
    as_text,
    canonical_splits,
    folded,
    role_text,
)
from shardwright.transforms.inputs.file_rules import decode_text
from shardwright.transforms.inputs.formats.table_files import (
    read_table_file,
    read_table_schema,
    table_format,
)
from shardwright.transforms.references import reject_rows, rows_left, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.splits.split_rules import SplitRule, units_of

_MAX_JSON_BYTES = 4 << 30  # some 100 million ids; more belong in a table
_USUAL = {"id": (*ROLE_COLUMNS["id"], *ROLE_COLUMNS["image"]), "split": ROLE_COLUMNS["split"]}
_JSON: Any = dict[str, list[str | int]] | list[str | int]  # ids by split, or of one
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
            has_splits = table_format(named[1]) or named[1].lower().endswith(".json")
            if named[0] is None and not has_splits:
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
    given: bool = False,
    grouped: SplitRule | None = None,
) -> pa.RecordBatch:
    """Return references with a split only where the source (`given`), a list or a group states one.

    A group states the split that `grouped` draws for it, if that is the rule: so a record whose
    group was corrected is where the others of its group are.
    """
    if given:
        return batch
    if ids is not None:
        splits = pa.array(map(ids.get, batch.column("id").to_pylist()), pa.string())
    else:
        splits = pa.nulls(batch.num_rows, pa.string())
        if grouped is not None:
            chosen = grouped.choose(units_of(batch))
            splits = pc.if_else(batch.column("group").is_valid(), chosen, splits)
    return set_column(batch, "split", splits)


def take_listed(batch: pa.RecordBatch, *, listed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a split after `stated_splits`, or those without, if any."""
    is_listed = batch.column("split").is_valid().to_numpy(zero_copy_only=False)
    yield from rows_left(batch, is_listed == listed)


def ids_of(batch: pa.RecordBatch) -> list[str]:
    ids: list[str] = batch.column("id").to_pylist()
    return ids


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
    for split, path in lists.files:
        for image_id, name in _read_file(path, split, lists.storage):
            if name is None or not is_split_name(name):
                raise BuildError(
                    f"--split-ids has the invalid split name {name!r}; "
                    "use letters, digits and underscores"
                )
            if found.setdefault(image_id, name) != name:
                raise BuildError(
                    f"--split-ids puts the id {image_id!r} in two splits, {found[image_id]} and "
                    f"{name}: keep one"
                )
    return found


def _read_file(
    path: str, split: str | None, storage: StorageOptions
) -> Iterator[tuple[str, str | None]]:
    """Yield ids and their splits; `split` overrides those of the file."""
    if table_format(path) is not None:
        yield from _read_table(path, split, storage)
        return
    try:
        text = decode_text(files_of(path, storage).read_bytes(path))
        if path.lower().endswith(".json"):
            found = typed(load_json(text.encode(), max_bytes=_MAX_JSON_BYTES), _JSON)
            lists = found if isinstance(found, dict) else {split: found}
            rows = [
                (str(one), key) for key, ids in lists.items() if split in (None, key) for one in ids
            ]
        else:
            rows = [(line.strip(), split) for line in text.split("\n") if line.strip()]
        names = pa.array([name for _, name in rows], pa.string())
        splits = canonical_splits(names).to_pylist()
    except ValueError as error:
        raise BuildError(
            f"--split-ids {path} cannot be read ({error}): expected one id per line, a table, "
            'or JSON such as {"test": ["id", ...]}'
        ) from error
    if not rows:
        raise BuildError(f"--split-ids {path} lists no ids")
    for (image_id, _), name in zip(rows, splits, strict=True):
        yield image_id, split or name


def _read_table(
    path: str, split: str | None, storage: StorageOptions
) -> Iterator[tuple[str, str | None]]:
    kind = table_format(path) or ""
    schema = read_table_schema([path], kind, storage)
    there = {folded(name): name for name in reversed(schema.names)}
    roles = {
        role: next((there[name] for name in usual if name in there), None)
        for role, usual in _USUAL.items()
    }
    id_column = roles["id"] or (schema.names[0] if len(schema) == 1 else None)
    split_column = None if split else roles["split"]
    if id_column is None or (split is None and split_column is None):
        lacks = "ids (id, image, path, ...)" if id_column is None else "splits (split, subset, ...)"
        raise BuildError(
            f"--split-ids {path} has no column of {lacks}; "
            f"it has {', '.join(map(repr, schema.names))}"
        )
    if kind in ("csv", "tsv"):  # keep an id like "007" as text
        as_texts = {each: pa.string() for each in (id_column, split_column) if each}
        schema = pa.schema([(each.name, as_texts.get(each.name, each.type)) for each in schema])
    for part in read_table_file(path, kind, schema, storage):
        if isinstance(part, Reject):
            raise BuildError(f"--split-ids: {part.detail}")
        ids = as_text(part.column(id_column), id_column).to_pylist()
        splits = canonical_splits(role_text(part, split_column)).to_pylist()
        for image_id, name in zip(ids, splits, strict=True):
            if image_id is not None:
                yield image_id, split or name
