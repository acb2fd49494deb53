"""The outcome of a repair, file by file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardwright.sizes import counted
from shardwright.terminal import join_lines

_SHOWN = 10  # lost records of a shard in the text; the file of rejects lists all


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record that is damaged and cannot be made again.

    Attributes:
        id: Its id.
        uri: The location of its image at the time of the build.
        why: The reason why its source is of no use.
    """

    id: str
    uri: str
    why: str

    def __str__(self) -> str:
        return f"{self.id} ({self.why})"


@dataclass(slots=True)
class Outcome:
    """The files that a repair mended, and those that it did not.

    Attributes:
        repaired: Files with the content that the manifest states.
        renewed: Files with new content, which the manifest states now.
        lost: Records that a shard lost, by shard.
        failed: Why a file is still broken, by file.
    """

    repaired: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    lost: dict[str, list[LostRecord]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def to_text(self, dataset: str) -> str:
        """Return one line per file, one per shard that lost records, and a summary."""
        lines = [f"{name}: repaired" for name in self.repaired]
        lines += [
            f"{name}: made anew; the manifest states its new content" for name in self.renewed
        ]
        for shard, records in self.lost.items():
            told = show_records(records)
            lines.append(f"{shard}: lost {counted(len(records), 'record')}: {told}")
        lines += [f"{name}: NOT repaired: {why}" for name, why in self.failed.items()]
        done = counted(len(self.repaired) + len(self.renewed), "file")
        summary = f"{dataset}: {done} repaired"
        if self.lost:
            number = sum(map(len, self.lost.values()))
            summary += f", {counted(number, 'record')} lost and listed in rejects/"
        if self.failed:
            summary += f", {counted(len(self.failed), 'file')} still broken"
        return join_lines([*lines, summary])

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "repaired": self.repaired,
            "renewed": self.renewed,
            "lost": {
                shard: [{"id": each.id, "uri": each.uri, "why": each.why} for each in records]
                for shard, records in self.lost.items()
            },
            "failed": self.failed,
        }


def show_records(records: list[LostRecord]) -> str:
    """Return the first records for a message."""
    shown = ", ".join(map(str, records[:_SHOWN]))
    return shown + (f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else "")
