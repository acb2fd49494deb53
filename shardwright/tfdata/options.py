"""Validate the arguments of `sw.load`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shardwright.errors import UsageError
from shardwright.format.schema import Feature
from shardwright.reader.corpus import Corpus
from shardwright.reader.steps import check_whole
from shardwright.sizes import parse_size
from shardwright.tfdata.kept import (
    IMAGES,
    MEMORY,
    RECORDS,
    KeptImages,
    KeptRecords,
    RecordsInMemory,
    RecordsOnDisk,
    check_room,
)
from shardwright.tfdata.read_plan import ReadPlan

Shape = tuple[int, int, int]
# Smaller records are read in order faster by TensorFlow, larger ones as fast by the index, and
# images alone faster.
_INDEXED_RECORD_BYTES = 16 << 10


@dataclass(frozen=True)
class LoadOptions:
    """The arguments of `sw.load`, by the same names.

    Raises:
        UsageError: A value is invalid.
    """

    batch_size: Any
    image_size: Any
    shuffle: bool
    seed: Any
    window: Any
    decode: bool
    repeat: bool
    drop_remainder: bool
    deterministic: bool
    max_bad_records: Any
    keep: Any
    keep_in: str
    ram_bytes: Any
    threads: Any

    def __post_init__(self) -> None:
        if self.batch_size is not None and not _is_whole(self.batch_size, 1):
            raise UsageError(
                f"batch_size={self.batch_size!r} must be a whole number above 0, "
                "or None for single examples"
            )
        object.__setattr__(
            self, "image_size", _check_image_size(self.image_size, decode=self.decode)
        )
        object.__setattr__(self, "ram_bytes", _check_ram_bytes(self.ram_bytes))
        self._check_order()
        check_whole("max_bad_records", self.max_bad_records, 0)
        if self.threads is not None and not _is_whole(self.threads, 1):
            raise UsageError(
                f"threads={self.threads!r} must be a whole number above 0, "
                "or None for TensorFlow's own threads"
            )
        if self.keep not in (None, RECORDS, IMAGES):
            raise UsageError(
                f"keep={self.keep!r} must be {RECORDS!r}, {IMAGES!r}, or None to keep nothing"
            )
        if self.keep is None and self.keep_in != MEMORY:
            raise UsageError(
                f"keep_in={self.keep_in!r} has no effect without keep: "
                f"set keep={RECORDS!r} or {IMAGES!r}"
            )

    def _check_order(self) -> None:
        if self.seed is not None and type(self.seed) is not int:
            raise UsageError(
                f"seed={self.seed!r} must be a whole number, or None for a different order per run"
            )
        if self.window is None:
            return
        if not _is_whole(self.window, 1):
            raise UsageError(
                f"window={self.window!r} must be a whole number of shards above 0, or None"
            )
        if not self.shuffle:
            raise UsageError(
                f"window={self.window}, the number of shards shuffled together, "
                "needs shuffle=True: set it, or leave window out"
            )

    @property
    def by_number(self) -> bool:
        """True if records are read one by one through the index, not shard by shard."""
        return self.shuffle or self.keep is not None or self.max_bad_records > 0

    def reads_by_index(self, corpus: Corpus) -> bool:
        """Return whether to read by number, which stored order does not need, but may gain from."""
        if self.by_number or corpus.is_remote:
            return self.by_number
        return corpus.has_removed or (
            self.deterministic and corpus.mean_record_bytes >= _INDEXED_RECORD_BYTES
        )

    @property
    def has_full_batches(self) -> bool:
        """True if every batch has `batch_size` records."""
        return self.drop_remainder or self.repeat

    def check_images(self, plan: ReadPlan) -> None:
        """Raise `UsageError` if images of different sizes would have to be batched or kept."""
        if plan.image not in plan.features or not self.decode:
            if self.keep == IMAGES:
                raise UsageError(
                    f"keep={IMAGES!r} keeps decoded images, but none are decoded: "
                    f"set keep={RECORDS!r}, or leave it out"
                )
            return
        if self.image_size is not None or plan.image_shape is not None:
            return
        what = (
            f"batch_size={self.batch_size}"
            if self.batch_size is not None
            else f"keep={IMAGES!r}"
            if self.keep == IMAGES
            else ""
        )
        if what:
            raise UsageError(
                f"{what} needs images of one size, but those of this split differ: "
                "set image_size=(height, width), build with `--encode jpeg --resize WIDTHxHEIGHT`, "
                f"or leave {what.partition('=')[0]} out"
            )

    def keep_records(self, plan: ReadPlan) -> KeptRecords | None:
        """Return the store for records, or None; raise `UsageError` if they do not fit."""
        if self.keep != RECORDS:
            return None
        check_room(RECORDS, self._kept_bytes(plan), self.keep_in, self.ram_bytes)
        if self.keep_in == MEMORY:
            return RecordsInMemory(plan.num_records)
        return RecordsOnDisk(plan.num_records, self.keep_in)

    def keep_images(self, plan: ReadPlan, features: Sequence[Feature]) -> KeptImages | None:
        """Return the store for decoded images, or None; raise `UsageError` if they do not fit."""
        if self.keep != IMAGES or plan.image not in features:
            return None
        check_room(IMAGES, self._kept_bytes(plan), self.keep_in, self.ram_bytes)
        return KeptImages(plan.num_records, self._image_shape(plan), self.keep_in, plan.image_dtype)

    def of_tf_data(self, plan: ReadPlan) -> tf.data.Options:
        """Return the tf.data options for these arguments."""
        options = tf.data.Options()
        options.deterministic = self.deterministic
        # The generators that hold a store's shards in the cache cannot be checkpointed, and
        # TensorFlow would warn about them.
        options.experimental_symbolic_checkpoint = not plan.corpus.is_remote
        # The pipeline's Python functions depend on their arguments only: checkpoints lack no state.
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        options.experimental_warm_start = True
        if self.ram_bytes is not None:
            kept = self._kept_bytes(plan) if self.keep_in == MEMORY else 0
            options.autotune.ram_budget = max(self.ram_bytes - kept, 1)
        if self.threads is not None:
            options.threading.private_threadpool_size = self.threads
            options.autotune.cpu_budget = self.threads
        return options

    def _image_shape(self, plan: ReadPlan) -> Shape:
        shape = (*self.image_size, 3) if self.image_size else plan.image_shape
        assert shape is not None, "check_images rejects images of different sizes"
        return shape

    def _kept_bytes(self, plan: ReadPlan) -> int:
        if self.keep is None:
            return 0
        return plan.num_records * (
            math.prod(self._image_shape(plan)) * np.dtype(plan.image_dtype).itemsize
            if self.keep == IMAGES
            else math.ceil(plan.corpus.mean_record_bytes)
        )


def _is_whole(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _check_image_size(image_size: object, *, decode: bool) -> tuple[int, int] | None:
    if image_size is None:
        return None
    sides = tuple(image_size) if isinstance(image_size, (tuple, list)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise UsageError(
            f"image_size={image_size!r} must be (height, width), two whole numbers above 0"
        )
    if not decode:
        raise UsageError("image_size resizes decoded images: leave it out with decode=False")
    return sides[0], sides[1]


def _check_ram_bytes(ram_bytes: object) -> int | None:
    if ram_bytes is None:
        return None
    if isinstance(ram_bytes, bool) or not isinstance(ram_bytes, (int, str)):
        raise UsageError(
            f"ram_bytes={ram_bytes!r} must be a number of bytes, or a size such as '8GB'"
        )
    return parse_size(str(ram_bytes), "ram_bytes")
