"""Make `stats.pb`: the statistics of all splits in the form of TensorFlow Data Validation.

Format: a serialized `DatasetFeatureStatisticsList` of
`tensorflow_metadata/proto/v0/statistics.proto`, which `tfdv.load_stats_binary` reads. The means of
signals are custom statistics of the image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2

from shardwright.format.manifest import Manifest
from shardwright.format.schema import Feature, Source, StoredFeature
from shardwright.format.splits import SplitInfo
from shardwright.format.stats_keys import FEATURES, SIGNALS

_Stats = statistics_pb2.FeatureNameStatistics
_TYPES = {"int64": _Stats.INT, "float": _Stats.FLOAT, "bytes": _Stats.BYTES}


def statistics_proto(manifest: Manifest) -> bytes:
    """Return the bytes of `stats.pb`: one dataset per split, one feature per key of an example."""
    found = statistics_pb2.DatasetFeatureStatisticsList()
    for split in manifest.splits.values():
        dataset = found.datasets.add(name=split.name, num_examples=split.num_records)
        for feature in manifest.schema.features:
            for stored in feature.stored:
                entry = dataset.features.add(type=_TYPES[stored.told_kind])
                entry.path.step.append(stored.key)
                _fill(entry, feature, stored, split)
    return found.SerializeToString(deterministic=True)


def _fill(entry: Any, feature: Feature, stored: StoredFeature, split: SplitInfo) -> None:
    summary = split.stats.get(FEATURES, {}).get(feature.name, {})
    if summary.get("of") == "characters":
        entry.type = _Stats.STRING
        stats = entry.string_stats
        stats.avg_length = summary.get("mean", 0)
    else:
        stats = entry.bytes_stats if entry.type == _Stats.BYTES else entry.num_stats
    _fill_common(stats.common_stats, split.num_records, summary)
    if feature.source == Source.IMAGE:
        _fill_image(entry, split.stats)
    elif feature.source == Source.LABEL and stored == feature.stored[0]:
        _fill_label(stats, split.stats.get("labels", {}))
    elif summary.get("of") == "bytes":
        entry.bytes_stats.avg_num_bytes, entry.bytes_stats.max_num_bytes = (
            summary["mean"],
            summary["max"],
        )
    elif summary.get("of") == "values" and "mean" in summary:
        _fill_numbers(stats, summary)


def _fill_common(common: Any, num_records: int, summary: Mapping[str, Any]) -> None:
    common.num_non_missing = num_records
    if summary.get("of") == "items":
        common.min_num_values, common.max_num_values = summary["min"], summary["max"]
        common.avg_num_values = summary["mean"]
        common.tot_num_values = round(summary["mean"] * summary["count"])
    else:
        common.min_num_values = common.max_num_values = 1
        common.avg_num_values, common.tot_num_values = 1, num_records


def _fill_image(entry: Any, stats: Mapping[str, Any]) -> None:
    if lengths := stats.get("image_length"):
        entry.bytes_stats.avg_num_bytes = lengths["sum"] / lengths["count"]
        entry.bytes_stats.max_num_bytes = lengths["max"]
    for name, signal in stats.get(SIGNALS, {}).items():
        if "mean" in signal:
            entry.custom_stats.add(name=f"{name} ({signal['basis']})", num=signal["mean"])


def _fill_label(stats: Any, labels: Mapping[str, int]) -> None:
    counts = {int(label): count for label, count in labels.items()}
    total = sum(counts.values())
    if not total:
        return
    stats.min, stats.max = min(counts), max(counts)
    stats.mean = sum(label * count for label, count in counts.items()) / total
    squares = sum(label * label * count for label, count in counts.items()) / total
    stats.std_dev = math.sqrt(max(squares - stats.mean**2, 0))
    stats.num_zeros = counts.get(0, 0)
    histogram = stats.histograms.add(type=statistics_pb2.Histogram.STANDARD)
    for label in sorted(counts):
        histogram.buckets.add(low_value=label, high_value=label + 1, sample_count=counts[label])


def _fill_numbers(stats: Any, summary: Mapping[str, Any]) -> None:
    stats.min, stats.max = summary["min"], summary["max"]
    stats.mean, stats.std_dev = summary["mean"], summary["std"]
    stats.num_zeros = summary["zeros"]
    histogram = stats.histograms.add(type=statistics_pb2.Histogram.STANDARD)
    histogram.num_nan = summary.get("nonfinite", 0)
    edges = summary["histogram"]["edges"]
    for low, high, count in zip(edges, edges[1:], summary["histogram"]["counts"], strict=False):
        histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
