"""What `verify` finds: faults, each with its place, and the whole result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shardwright.sizes import show_bytes

MAX_FAULTS_PER_FILE = 1000  # a file that is wrong all through must not fill memory and terminal


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as the manifest says.

    Attributes:
        file: Relative to the dataset's folder.
        record: The record's number in its file, from 0; None where the fault is not one record's.
        offset: Where the record begins, in bytes; None where the fault is not one record's.
        what: What was found and what was expected.
    """

    file: str
    record: int | None
    offset: int | None
    what: str

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.file}: {self.what}"
        at = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}: record {self.record}{at}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking a dataset.

    Attributes:
        dataset: Its folder.
        num_shards: Shards that the manifest names.
        num_records: Records that were found and looked at, sound or not.
        num_bytes: Bytes of the shards that were read.
        seconds: How long it took.
        faults: In file order.
        by: What content was compared by: "content", or of a quick look "stated checksums" or "lengths".
        notes: What does not make the dataset unsound but may surprise, such as shards that no manifest names.
    """

    dataset: str
    num_shards: int
    num_records: int
    num_bytes: int
    seconds: float
    faults: tuple[Fault, ...]
    notes: tuple[Fault, ...]
    by: str = "content"

    @property
    def is_sound(self) -> bool:
        return not self.faults

    def to_text(self) -> str:
        """A line a fault and a note, and a summary."""
        lines = [str(fault) for fault in self.faults]
        lines += [f"note: {note}" for note in self.notes]
        verdict = (
            "sound"
            if self.is_sound
            else f"{len(self.faults):,} fault{'s' if len(self.faults) > 1 else ''} found"
        )
        if self.by != "content":
            return "\n".join(
                [
                    *lines,
                    f"{self.dataset}: {verdict} by {self.by} ({self.num_shards:,} shards, nothing read, {self.seconds:.1f} s)",
                ]
            )
        looked = f"{self.num_shards:,} shards, {self.num_records:,} records, {show_bytes(self.num_bytes)}, {self.seconds:.1f} s"
        return "\n".join([*lines, f"{self.dataset}: {verdict} ({looked})"])

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


def limit_faults(faults: Iterable[Fault]) -> Iterator[Fault]:
    """At most `MAX_FAULTS_PER_FILE` faults a file, then one that counts the rest."""
    given: dict[str, int] = {}
    for fault in faults:
        given[fault.file] = given.get(fault.file, 0) + 1
        if given[fault.file] <= MAX_FAULTS_PER_FILE:
            yield fault
    for file, number in given.items():
        if number > MAX_FAULTS_PER_FILE:
            yield Fault(
                file,
                None,
                None,
                f"{number - MAX_FAULTS_PER_FILE} more faults in this file are not listed",
            )
