"""Validate the arguments of `Reader`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.cache.settings import CacheSettings
from shardwright.errors import UsageError
from shardwright.format.versions import LATEST, VersionKey
from shardwright.images.specs import CropImage, MultiCrop
from shardwright.reader.encodings import Encoding
from shardwright.reader.sampling import Sampling
from shardwright.reader.selection import Condition
from shardwright.reader.steps import Remainder
from shardwright.sizes import check_whole
from shardwright.storage.options import StorageOptions

# Of a process by default: on 16 cores, 8 threads decode more than 16, which wait for its lock.
_MOST_THREADS = 8

Features = Mapping[str, Encoding | None]


@dataclass(frozen=True)
class ReaderOptions:
    """The validated arguments of `Reader`, by the same names.

    Attributes:
        datasets: Address -> weight above 0; of a folder, from the root, as other processes may
            work elsewhere.
        features: Name -> encoding, None as stored; None for all features.
        remainder: Never None.
        storage: Storage options.
        cache: Cache of remote shards; None for the default.

    Raises:
        UsageError: A value is invalid.
    """

    datasets: Mapping[str, float]
    split: str
    global_batch_size: int
    remainder: Remainder
    storage: StorageOptions
    cache: CacheSettings | None
    host_index: int
    host_count: int
    shuffle: bool
    seed: int
    image: CropImage | MultiCrop | None
    features: Features | None
    epochs: int | None
    window: int | None
    where: Condition | None
    sampling: Sampling | None
    max_bad_records: int
    threads: int | None
    processes: int | None
    prefetch: int | None
    version: VersionKey

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.integer):  # whose states would not be JSON
                object.__setattr__(self, name, int(value))
        if type(self.seed) is not int:
            raise UsageError(
                f"seed={self.seed!r} must be a whole number: the same one gives the same order"
            )
        if self.version != LATEST and len(self.datasets) > 1:
            raise UsageError(
                f"version={self.version!r} needs a single dataset, not {len(self.datasets)}: of "
                "several datasets the newest versions are mixed"
            )
        check_whole("max_bad_records", self.max_bad_records, 0)
        for name in ("window", "threads", "processes", "prefetch"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        if self.window is not None and not self.shuffle:
            raise UsageError(
                f"window={self.window} needs shuffle=True: "
                "it is the number of shards that are shuffled together"
            )
        if self.image is not None and not callable(getattr(self.image, "apply", None)):
            raise UsageError(
                f"image={self.image!r} must be sw.TrainImage(...), sw.EvalImage(...), "
                "sw.DecodedImage(...), sw.MultiCrop(...), or None for bytes"
            )
        if self.sampling is not None and not isinstance(self.sampling, Sampling):
            raise UsageError(
                f"sampling={self.sampling!r} must be sw.ClassBalanced(), sw.ClassWeights(...), "
                "or None"
            )

    @property
    def is_masked(self) -> bool:
        """True if batches have a `mask`."""
        return self.remainder == Remainder.PAD


def share_of_cores(num_processes: int) -> int:
    """Return the number of threads for each of some processes that decode."""
    return min(-(-len(os.sched_getaffinity(0)) // num_processes), _MOST_THREADS)


def datasets_of(dataset: object) -> dict[str, float]:
    """Return one address, or several with weights, as {address: weight}."""
    if isinstance(dataset, (str, os.PathLike)):
        return {_from_root(dataset): 1.0}
    if not isinstance(dataset, Mapping) or not dataset:
        raise UsageError(
            f"dataset={dataset!r} must be a folder or an address, "
            "or {address: weight} to mix several"
        )
    for address, weight in dataset.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, (int, float))
            or not 0 < weight < float("inf")
        ):
            raise UsageError(
                f"dataset={{{address!r}: {weight!r}}}: a weight must be a number above 0"
            )
    return {_from_root(address): float(weight) for address, weight in dataset.items()}


def _from_root(address: str | os.PathLike[str]) -> str:
    found = os.fspath(address)
    return found if "://" in found else os.path.abspath(found)


def features_of(features: Sequence[str] | Features | None) -> Features | None:
    """Return names, or names with encodings, as {name: encoding}."""
    if features is None:
        return None
    if isinstance(features, str) or not isinstance(features, Iterable) or not features:
        raise UsageError(
            f"features={features!r} must be a list of one or more names, or {{name: encoding}}"
        )
    if not isinstance(features, Mapping):
        return dict.fromkeys(features)
    for name, encoding in features.items():
        if encoding is not None and not isinstance(encoding, Encoding):
            raise UsageError(
                f"features={{{name!r}: {encoding!r}}}: an encoding must be sw.OneHot, MultiHot, "
                "Dense, Text or None"
            )
    return dict(features)


def batch_size_of(global_batch_size: int | None, batch_size: int | None, host_count: int) -> int:
    """Return the rows of a batch over all hosts, given by either name on a single host."""
    if (global_batch_size is None) == (batch_size is None):
        given = "neither" if batch_size is None else f"{global_batch_size} and {batch_size}"
        raise UsageError(f"give global_batch_size= or batch_size=, one of them, got {given}")
    if batch_size is not None and host_count != 1:
        raise UsageError(
            f"batch_size={batch_size} is for one host, but host_count={host_count}: give "
            "global_batch_size=, the rows of a batch over all hosts"
        )
    return batch_size if global_batch_size is None else global_batch_size  # type: ignore[return-value]


def remainder_of(remainder: Any, *, shuffle: bool) -> Remainder:
    """Return the remainder policy: by default DROP if shuffled, else KEEP."""
    if remainder is None:
        return Remainder.DROP if shuffle else Remainder.KEEP
    try:
        return Remainder(remainder)
    except ValueError:
        raise UsageError(
            f"remainder={remainder!r} must be one of {', '.join(map(repr, map(str, Remainder)))}"
        ) from None
