"""Stop an append that would take away much of a dataset, before it writes anything."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from shardwright.errors import BuildError
from shardwright.fail_on import Limit, Measured, exceeded
from shardwright.format import naming
from shardwright.format.index import read_index_of
from shardwright.sizes import counted
from shardwright.storage.addresses import absolute
from shardwright.transforms.changes.known_records import live_rows
from shardwright.transforms.changes.seen_records import NewRecords, SeenRecords, outdated_rows
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.versions.additions import Append

_LOG = logging.getLogger("shardwright.append")
# Without --max-gone an append fails if both are exceeded: small datasets change in larger parts.
_USUAL = (Limit("gone", 10, True), Limit("gone", 20, False))
_COLUMNS = ["id", "uri", "etag"]
_SHOWN = 3
_MOST_READ = 1_000_000  # records of the dataset, to name examples and a cause


def check_gone(append: Append, seen: SeenRecords, *, is_partial: bool) -> None:
    """Stop an append that would take away more records than it may.

    Args:
        append: The append.
        seen: The records of the dataset that INPUT has.
        is_partial: As in `Additions`: then nothing counts as gone.

    Raises:
        BuildError: It would; the message names examples and the likely cause.
        StorageError: The index of the dataset cannot be read.
    """
    _warn_of_changed(append, seen)
    num_gone = append.num_records - seen.num_unchanged - seen.num_changed
    limits = _USUAL if append.max_gone is None else (append.max_gone,)
    kept = append.keep_missing or is_partial
    # The usual case costs nothing: the counts are known from the comparison, and no index is read.
    if kept or not _exceeds(limits, num_gone, append.num_records):
        return
    found = _look(append, seen)
    # Before the error, which names the file.
    write_rejects(append.root.below(append.folder), naming.GONE_REJECTS, found.gone)
    limit = "10% and more than 20 records, the default of --max-gone"
    if append.max_gone is not None:
        limit = f"--max-gone {str(append.max_gone).partition('>')[2]}"
    shown = ", ".join(repr(one.id) for one in found.gone[:_SHOWN])
    raise BuildError(
        f"INPUT {append.source} lacks {num_gone:,} of the {append.num_records:,} records of "
        f"{append.root} ({num_gone / append.num_records:.0%}), such as {shown}. This append would "
        f"take them away, which is more than {limit}. No shard was written; "
        f"{append.folder}/{naming.GONE_REJECTS} lists the records. "
        f"{_cause(append, seen.new, num_gone, found)}. If they are to go, add --max-gone {num_gone}"
    )


def _exceeds(limits: tuple[Limit, ...], number: int, whole: int) -> bool:
    """Return whether a number of records exceeds all limits."""
    return len(exceeded(limits, {"gone": Measured(number, whole)})) == len(limits)


def _warn_of_changed(append: Append, seen: SeenRecords) -> None:
    """Warn if much of the dataset is written again, as after INPUT has moved."""
    if not _exceeds(_USUAL, seen.num_changed, append.num_records):
        return
    before = append.read_base().provenance.get("input") or ""
    cause = (
        f"INPUT was {before} and is {append.source} now, and a record's address is a part of it"
        if absolute(before) != absolute(append.source)
        else "their addresses, their etags (times of modification) or their labels are others"
    )
    _LOG.warning(
        "%s of %s records count as changed and are written again, because %s; no record is taken "
        "away for that",
        f"{seen.num_changed:,}",
        f"{append.num_records:,}",
        cause,
    )


@dataclass(slots=True)
class _Looked:
    """Records of a dataset, of all shards or of the first ones.

    Attributes:
        gone: Those that INPUT lacks.
        kept: Ids of the others.
        etags: Ids of those that INPUT lacks, by etag.
    """

    gone: list[Reject] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    etags: dict[str, str] = field(default_factory=dict)


def _look(append: Append, seen: SeenRecords) -> _Looked:
    """Read the index until it has shown a record that is gone, and `_MOST_READ` records."""
    base, found = append.read_base(), _Looked()
    folder = append.root.below(base.folder)
    outdated = outdated_rows(base, replace(seen, unchanged=seen.unchanged | seen.changed))
    for name, info in base.named_shards():
        if found.gone and len(found.gone) + len(found.kept) > _MOST_READ:
            break
        table = read_index_of(folder, name, info, _COLUMNS)
        ids, uris, etags = (table.column(each).to_pylist() for each in _COLUMNS)
        gone = outdated.get(name, np.zeros(0, np.uint32)).tolist()
        detail = f"INPUT {append.source} lacks this record"
        found.gone += [Reject(ids[row], uris[row], RejectReason.GONE, detail) for row in gone]
        found.etags |= {etags[row]: ids[row] for row in gone if etags[row]}
        found.kept += [ids[row] for row in np.setdiff1d(live_rows(info), gone).tolist()]
    return found


def _cause(append: Append, new: NewRecords, num_gone: int, found: _Looked) -> str:
    """Return the likely cause, as a sentence without its end."""
    names = {_name(one.id): one.id for one in found.gone}
    by_etag = [(found.etags[etag], one) for _, one, etag in new.sample if etag in found.etags]
    by_name = [(names[_name(one)], one) for _, one, _ in new.sample if _name(one) in names]
    # Half of what would match if all had moved: both the new records and the gone ones are samples.
    enough = max(1, len(new.sample) * len(found.gone) / num_gone / 2)
    is_moved = 2 * new.num_records >= num_gone
    # Names such as 0001.png, which every folder and every day has, say nothing.
    has_names = append.lists_all and 2 * len(names) > len(found.gone)
    for pairs, can_tell in ((by_etag, True), (by_name, has_names)):
        if is_moved and can_tell and len(pairs) >= enough:
            old, now = pairs[0]
            return (
                f"The images seem to have moved, which makes other records of them: {old!r} is "
                f"{now!r} now"
            )
    if not append.lists_all:
        return (
            f"INPUT has {counted(new.num_records, 'new record')}: it may be the table or archive "
            "of one day, or of a part of the images; --keep-missing keeps the other records"
        )
    if folders := _lost_folders(found):
        shown = ", ".join(folders[:_SHOWN]) + (", ..." if folders[_SHOWN:] else "")
        return f"INPUT has nothing left below {shown}: check that its disks are mounted"
    return "Check that INPUT is the right address, and that its disk is mounted"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _lost_folders(found: _Looked) -> list[str]:
    """Return the folders without any record left, if most records that are gone were in them."""
    left = {folder for one in found.kept for folder in _folders(one)}
    lost = Counter(
        folder
        for one in found.gone
        for folder in islice((each for each in _folders(one.id) if each not in left), 1)
    )
    most = 2 * lost.total() > len(found.gone)
    return [folder for folder, _ in lost.most_common()] if most else []


def _folders(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the outermost one first: `a/`, `a/b/`."""
    for end, letter in enumerate(path, 1):
        if letter == "/":
            yield path[:end]
