"""Name the keys of a split's statistics that builds write and reports read, and their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from shardwright.format.json_files import Count, Number

LEAKS = "duplicates"  # {other split: images that are in both}
NEAR_LEAKS = "near_duplicates"  # the same of images that are almost equal
NEAR_RECORDS = "near_duplicate_records"  # number of records that are in a group of such images
NEAR_KEYS = frozenset({NEAR_LEAKS, NEAR_RECORDS})
FIXES = "fixes"  # {fault: images}
EXIF_KEPT = "exif_kept"  # no fix: images that viewers turn by their EXIF, and training does not
SIGNALS = "signals"  # {signal: its summary}
CHANNELS = "channels"  # {"basis", "pixels", "mean", "std"} of red, green and blue
FEATURES = "features"  # {feature: the summary of its numbers or lengths}

Labels = dict[Annotated[str, Meta(pattern=r"\A[0-9]{1,18}\Z")], Count]
Triple = tuple[Number, Number, Number]


class Range(Struct):
    """The range of image lengths or sides; there is at least one."""

    min: Count
    max: Count
    sum: Count
    count: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class Histogram(Struct):
    """Counts of numbers between edges."""

    edges: list[Number]
    counts: list[Count]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1 or sorted(self.edges) != self.edges:
            raise ValueError(f"{len(self.counts)} counts need one edge more, ascending")


class Summary(Struct, kw_only=True):
    """A summary of numbers; without finite ones it has only their counts."""

    count: Count = 0
    min: Number | UnsetType = UNSET
    max: Number | UnsetType = UNSET
    mean: Number | UnsetType = UNSET
    std: Number | UnsetType = UNSET
    zeros: Count | UnsetType = UNSET
    histogram: Histogram | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.histogram is not UNSET and UNSET in (self.min, self.max):
            raise ValueError("a histogram needs min and max")


class FeatureSummary(Summary, kw_only=True):
    """A summary of the values of a feature, or of their lengths."""

    of: str


class SignalSummary(Summary, kw_only=True):
    """A summary of a signal of all images, or of a sample."""

    basis: str
    faults: Count = 0


class Channels(Struct):
    """The mean and deviation of each channel, 0 to 1."""

    basis: str
    mean: Triple
    std: Triple


@dataclass(frozen=True, slots=True)
class Leak:
    """The images that a split shares with another one.

    Attributes:
        records: Records of this split whose image is byte for byte in the other split.
        unchecked: Further records with equal length and CRC32C there that were not read.
        examples: Some of them: (id here, id there).
    """

    records: Count
    unchecked: Count
    examples: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "unchecked": self.unchecked,
            "examples": [list(pair) for pair in self.examples],
        }


class SplitStats(Struct, kw_only=True):
    """The statistics of a split; those of other records are fewer."""

    image_length: Range | UnsetType = UNSET
    width: Range | UnsetType = UNSET
    height: Range | UnsetType = UNSET
    labels: Labels = {}
    formats: dict[str, Count] = {}
    fixes: dict[str, Count] = {}
    rejected_labels: Labels = {}
    features: dict[str, FeatureSummary] = {}
    signals: dict[str, SignalSummary] = {}
    channels: Channels | UnsetType = UNSET
    duplicates: dict[str, Leak] = {}
    near_duplicates: dict[str, Leak] = {}
    near_duplicate_records: Count = 0
