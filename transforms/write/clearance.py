"""Give the permission to write, once the whole plan is known and its rejects are listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import google_crc32c
import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.parquet import parquet_bytes
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import (
    Clearance,
    OutputRequest,
    SeenRecords,
    clear_output,
    fingerprint_of,
)
from shardwright.transforms.plan.packing import Layout
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.reject_files import naming_rejects, unpack_rejects, write_reject_rows
from shardwright.transforms.reject_limits import RejectLimits, check_rejects
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.rejects import RejectReason

_ROWS_PER_FILE = 250_000  # a worker sorts those of a file in memory


PlanCheck: TypeAlias = Callable[[SeenRecords, bool], None]
"""Called with the records that INPUT has of the dataset it is added to, and whether INPUT could not
be read to its end; raises a `BuildError` to stop the build before anything is written."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the checks of a plan, before its rejects are written.

    Attributes:
        outcome: The permission to write, or the error that ends the build.
        root: The folder for the files of rejects.
        reject_files: Their names.
    """

    outcome: Clearance | BuildError
    root: Folder
    reject_files: tuple[str, ...]


def judge(
    digests: Sequence[tuple[str, str]],
    *,
    request: OutputRequest,
    layout: Layout,
    vocabularies: Mapping[str, tuple[str, ...]],
    tally: RejectTally,
    limits: RejectLimits,
    seen: SeenRecords | None = None,
    checks: Sequence[PlanCheck] = (),
) -> Verdict:
    """Check the whole plan against OUTPUT, and record it there if its build may go on.

    Args:
        digests: (shard name, digest) of every shard.
        request: The requested output.
        layout: The shards of each split.
        vocabularies: Class names and words, by feature name.
        tally: The counts of all rejects so far.
        limits: The rejects that the build accepts; they are of all inputs, as the limits are.
        seen: The records of the dataset that the build adds to, as far as INPUT has them.
        checks: Asked in turn, then.

    Raises:
        BuildError: OUTPUT holds another build.
        StorageError: INPUT lacks many records of the dataset, whose index cannot be read.
    """
    reasons, root = tally.reasons, request.root
    num_unchanged = 0 if seen is None else seen.num_unchanged
    num_files = -(-sum(reasons.values()) // _ROWS_PER_FILE)
    try:
        tally.check_complete(vocabularies)
        num_records = layout.num_records + num_unchanged
        check_rejects(reasons, num_records, limits, grows=seen is not None)
        if seen is not None:
            for check in checks:
                check(seen, RejectReason.INCOMPLETE in reasons)
    # Kept, not raised: the rejects are written to files first, which the error then names.
    except BuildError as error:
        return Verdict(error, root, naming.reject_files(naming.FAILED_REJECTS, num_files))
    fingerprint = fingerprint_of(digests)
    place = clear_output(request, layout, fingerprint)
    PROGRESS.start(total_images=layout.num_records, total_shards=layout.num_shards)
    clearance = Clearance(
        vocabularies,
        fingerprint,
        reasons,
        unpublished=not place.is_finished,
        folder=place.folder,
        num_unchanged=num_unchanged,
    )
    files = naming.reject_files(naming.PLAN_REJECTS, num_files)
    return Verdict(clearance, root.below(place.folder), files)


def place_rejects(packed: bytes, verdict: Verdict) -> tuple[int, bytes]:
    """Return packed rejects with the number of their file."""
    return google_crc32c.value(packed) % len(verdict.reject_files), packed


def write_placed(placed: tuple[int, Iterable[bytes]], verdict: Verdict) -> tuple[str, FileContent]:
    """Write one file of rejects, and return its name and content."""
    number, batches = placed
    name = verdict.reject_files[number]
    return name, write_reject_rows(verdict.root, name, map(unpack_rejects, batches))


def write_near_duplicates(part: tuple[int, pa.RecordBatch], verdict: Verdict) -> Iterator[str]:
    """Write one part of the list of near-duplicates, unless the build fails; yield its name."""
    number, rows = part
    if isinstance(verdict.outcome, Clearance):
        name = naming.near_duplicates_part(number)
        verdict.root.write_bytes(name, parquet_bytes(pa.table(rows)))
        yield name


def clear(
    verdict: Verdict,
    reject_files: Mapping[str, FileContent],
    near_duplicates: Iterable[str] = (),
) -> Clearance:
    """Return the permission to write, once all rejects and near-duplicates are in these files.

    Raises:
        BuildError: INPUT was not read to its end, or there are too many rejects.
    """
    failed = isinstance(verdict.outcome, BuildError)
    usual = naming.FAILED_REJECTS if failed else naming.PLAN_REJECTS
    # Its name is used only if there are rejects, and an old list would be published with the
    # dataset.
    if usual not in reject_files:
        verdict.root.remove(usual)  # of an earlier try
    if isinstance(verdict.outcome, BuildError):
        with naming_rejects(verdict.root, sorted(reject_files)):
            raise verdict.outcome
    listed = tuple(sorted(near_duplicates))
    return replace(verdict.outcome, reject_files=reject_files, near_duplicates=listed)


def clear_here(
    verdict: Verdict,
    rejects: Iterable[bytes],
    near_duplicates: Iterable[tuple[int, pa.RecordBatch]] = (),
) -> Clearance:
    """Write all rejects and near-duplicates here and permit writing; raise as `clear`."""
    placed: defaultdict[int, list[bytes]] = defaultdict(list)
    for packed in rejects:
        number, _ = place_rejects(packed, verdict)
        placed[number].append(packed)
    files = dict(write_placed(each, verdict) for each in placed.items())
    listed = [name for part in near_duplicates for name in write_near_duplicates(part, verdict)]
    return clear(verdict, files, listed)
