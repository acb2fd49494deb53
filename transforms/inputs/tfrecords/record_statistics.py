"""Count the kinds and lengths of the features of some records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.example import ExampleFault, parse_feature, split_example
from shardwright.sizes import counted
from shardwright.transforms.inputs.image_values import has_image_magic

_TYPES: Mapping[str, pa.DataType] = {
    "bytes_list": pa.binary(),
    "float_list": pa.float32(),
    "int64_list": pa.int64(),
}


@dataclass(slots=True)
class FeatureStatistics:
    """Statistics of one feature in some records."""

    kinds: Counter[str] = field(default_factory=Counter)  # "bytes_list", ... -> records
    lengths: Counter[int] = field(default_factory=Counter)  # number of values -> records
    images: int = 0  # records whose first value is an image

    def add(self, kind: str | None, values: Sequence[object]) -> None:
        self.lengths[len(values)] += 1
        if kind is not None:
            self.kinds[kind] += 1
            self.images += kind == "bytes_list" and bool(values) and has_image_magic(values[0])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class RecordStatistics:
    """Statistics of some records.

    Attributes:
        num_records: Number of tf.Examples with features.
        features: Key -> statistics, sorted by key.
    """

    num_records: int
    features: Mapping[str, FeatureStatistics]

    def stored(self, key: str) -> pa.DataType:
        """Return the type of a feature's values; binary if no record has one."""
        kinds = self.features[key].kinds
        return _TYPES[max(sorted(kinds), key=kinds.__getitem__)] if kinds else pa.binary()

    def is_scalar(self, key: str) -> bool:
        """Return whether every record has exactly one value."""
        return self.features[key].lengths == {1: self.num_records}

    def has_images(self, key: str) -> bool:
        """Return whether some records hold an image, and each at most one value."""
        seen = self.features[key]
        return bool(seen.images) and max(seen.lengths) == 1

    def __str__(self) -> str:
        return ", ".join(f"{key!r} ({self.stored(key)})" for key in self.features)


def is_sequence_example(data: bytes) -> bool:
    """Return whether a message has a field 2: it is a tf.SequenceExample, no tf.Example."""
    place = 0
    while place < len(data) and data[place] == 0x0A:
        length, shift = 0, 0
        place += 1
        while place < len(data):
            length |= (data[place] & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if data[place - 1] < 0x80:
                break
        place += length
    return place < len(data) and data[place] == 0x12


def statistics_of(records: Iterable[bytes], place: str) -> RecordStatistics:
    """Return statistics of the features of some records.

    Raises:
        UsageError: There are no records, or none is a tf.Example.
    """
    found: dict[str, FeatureStatistics] = {}
    total = good = 0
    for data in records:
        total += 1
        if is_sequence_example(data):
            raise UsageError(
                f"{place} holds tf.SequenceExample records, which are not supported: "
                "write one tf.Example for each image"
            )
        try:
            features = {key: parse_feature(feature) for key, feature in split_example(data).items()}
        except ExampleFault:
            continue
        good += bool(features)
        for key, (kind, values) in features.items():
            found.setdefault(key, FeatureStatistics()).add(kind, values)
    if not good:
        told = (
            f"no tf.Example with features in the first {counted(total, 'record')}: for other "
            "bytes, give --schema FILE.json with "
            '{"features": [{"name": "record", "kind": "bytes"}]}'
        )
        raise UsageError(f"{place}: {told if total else 'no valid record'}")
    return RecordStatistics(good, dict(sorted(found.items())))
