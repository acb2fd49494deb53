"""Count the records of a version's splits from the statistics of its generations.

The statistics are those of the generations together, without the records taken away. Counts of
classes, formats and sizes are exact. The least and the largest size bound those of the records that
are left. Means and deviations of channels are those of all generations, by their pixels. Other
statistics are those of a generation, and have no place here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from shardwright.format.stats_keys import CHANNELS
from shardwright.transforms.publish.number_sums import merged
from shardwright.transforms.publish.statistics import RANGES, as_published, describe_rows

_COUNTS = ("labels", "formats")


def version_stats(parts: Sequence[Mapping[str, Any]], lost: pa.Table | None) -> dict[str, Any]:
    """Return the statistics of a split.

    Args:
        parts: The published statistics of its parts.
        lost: Index rows of records in these parts that are taken away.
    """
    # As it was published, with statistics that cannot be added.
    if len(parts) == 1 and lost is None:
        return dict(parts[0])
    added = (*RANGES, *_COUNTS)
    told = ({name: part[name] for name in added if name in part} for part in parts)
    stats = as_published(merged(told))
    channels = [part[CHANNELS] for part in parts if CHANNELS in part]
    if lost is not None:
        _subtract(stats, describe_rows(lost))
    return stats | ({CHANNELS: _merge_channels(channels)} if channels else {})


def _subtract(stats: dict[str, Any], lost: Mapping[str, Any]) -> None:
    for name in RANGES:
        if name in lost and name in stats:
            # The least and the largest cannot be subtracted: they stay as bounds.
            sums = {key: stats[name][key] - lost[name][key] for key in ("sum", "count")}
            stats[name] = {**stats[name], **sums}
            if not sums["count"]:
                del stats[name]
    for name in _COUNTS:
        counts = {key: count - lost[name].get(key, 0) for key, count in stats[name].items()}
        stats[name] = {key: count for key, count in counts.items() if count}


def _merge_channels(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return dict(parts[0])
    pixels = sum(part["pixels"] for part in parts)
    means, deviations = [], []
    for channel in range(3):
        mean = math.fsum(part["mean"][channel] * part["pixels"] for part in parts) / pixels
        square = (
            # Variances cannot be averaged, but mean squares can.
            math.fsum(
                (part["std"][channel] ** 2 + part["mean"][channel] ** 2) * part["pixels"]
                for part in parts
            )
            / pixels
        )
        means.append(mean)
        deviations.append(math.sqrt(max(0.0, square - mean**2)))
    basis = "; ".join(dict.fromkeys(str(part["basis"]) for part in parts))
    return {"basis": basis, "pixels": pixels, "mean": means, "std": deviations}
