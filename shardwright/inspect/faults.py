"""The result of `verify`: faults, each with its file and record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from shardwright.errors import (
    CredentialsError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from shardwright.format.listed_files import DatasetFault
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines

# Errors of a whole store, which are not faults of a dataset in it.
NO_FAULTS_OF_FILES = (CredentialsError, ThrottledError, TimedOutError, UnreachableError)
MAX_FAULTS_PER_FILE = 1000  # a file full of faults must not fill memory and terminal


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking a dataset.

    Attributes:
        dataset: Its folder.
        num_shards: Number of shards in the manifest.
        num_records: Number of records in these shards; 0 for `verify --quick`.
        num_bytes: Bytes of these shards; 0 for `verify --quick`.
        seconds: Run time.
        faults: Differences that make the dataset unsound.
        notes: Harmless findings, such as shard files that are not in the manifest.
        by: The basis of comparison: "content"; for `verify --quick`, "the store's checksums" or
            "lengths alone".
    """

    dataset: str
    num_shards: int
    num_records: int
    num_bytes: int
    seconds: float
    faults: tuple[DatasetFault, ...]
    notes: tuple[DatasetFault, ...]
    by: str = "content"

    @property
    def is_sound(self) -> bool:
        return not self.faults

    def to_text(self) -> str:
        """Return one line per fault, one per note, the remedy, and a summary."""
        lines = [str(fault) for fault in self.faults]
        lines += [f"note: {note}" for note in self.notes]
        if not self.is_sound:
            lines.append(
                f"`shardwright repair {self.dataset}` makes broken files again from their sources"
            )
        verdict = "sound" if self.is_sound else f"{counted(len(self.faults), 'fault')} found"
        is_read = self.by == "content"
        basis = "" if is_read else f" by {self.by}"
        records = f"{counted(self.num_records, 'record')}, {show_bytes(self.num_bytes)}"
        read = f"{counted(self.num_shards, 'shard')}, {records if is_read else 'nothing read'}"
        line = f"{self.dataset}: {verdict}{basis} ({read}, {self.seconds:.1f} s)"
        return join_lines([*lines, line])

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "sound": self.is_sound,
            "by": self.by,
            "num_shards": self.num_shards,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "seconds": round(self.seconds, 3),
            "faults": [asdict(fault) for fault in self.faults],
            "notes": [asdict(note) for note in self.notes],
        }


def limit_faults(faults: Iterable[DatasetFault]) -> Iterator[DatasetFault]:
    """Yield the first `MAX_FAULTS_PER_FILE` faults of a file, and the number of the others."""
    left = iter(faults)
    yield from islice(left, MAX_FAULTS_PER_FILE)
    for last in left:
        more = f"{1 + sum(1 for _ in left)} more faults in this file are not listed"
        yield DatasetFault.of_file(last.file, more)
