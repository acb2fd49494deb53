"""Read records by number, one or several at a time, for torch's map-style datasets and Grain."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from shardwright.errors import BadExampleError, UsageError
from shardwright.reader.encodings import Bags
from shardwright.reader.engine import Engine
from shardwright.reader.options import ReaderOptions
from shardwright.reader.steps import Remainder

Example = dict[str, Any]


class ExampleSource:
    """A dataset as examples by number, in stored order.

    An example is one row of a batch, as a dict by feature name: the image uint8 [height, width, 3]
    as `image` says, or its bytes; numbers as NumPy scalars, text as str, bytes as bytes, lists as
    1-D arrays.

    Thread-safe. It can be pickled, and works in forked processes: each opens the dataset itself. An
    example of a remote dataset needs its whole shard, which is downloaded first: read numbers that
    are close together, or cache the whole dataset. Processes that read from stores must be started
    by "spawn" or "forkserver".

    Augmentation draws from (seed, epoch, number), as in a reader that does not shuffle.

    Attributes:
        options: The options in use.

    Args:
        options: Options of a reader. Split, features, image, seed, `where` and storage apply; batch
            options do not.
        fingerprint: Of the records of the source that this one is a copy of.

    Raises:
        ChangedError: Another process finds another dataset at the address.
        UsageError: The reader is one of several hosts, or has weights; or a feature is a bag of
            words, which needs a batch.
        NotADatasetError, StorageError: As for `Reader`.
    """

    def __init__(self, options: ReaderOptions, fingerprint: str = "") -> None:
        self._fingerprint = fingerprint
        self._owner = 0  # the process that opened the dataset; 0 for none
        self.options = options
        if fingerprint:  # a copy, which opens the dataset on first use
            return
        _check_order(options)
        self.options = replace(
            options, processes=None, shuffle=False, window=None, remainder=Remainder.KEEP
        )
        self._open()
        for name, encoding in self._engine.columns.encodings.items():
            if isinstance(encoding, Bags):
                raise UsageError(
                    f"feature {name!r}: a bag of words is sparse, which needs a batch; "
                    "for single examples pass Dense() or MultiHot()"
                )

    def _open(self) -> None:
        self._engine = Engine.of_same(self.options, self._fingerprint)
        self._fingerprint = self._engine.fingerprint
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return ExampleSource, (self.options, self._fingerprint)

    def __repr__(self) -> str:
        """Return equal text for equal examples: Grain compares it when it restores a checkpoint."""
        options = self.options
        return (
            f"ExampleSource({self._fingerprint}, image={options.image}, "
            f"features={options.features}, seed={options.seed})"
        )

    def __len__(self) -> int:
        return self._engine_here().epoch_size

    def examples(
        self, numbers: Sequence[SupportsIndex], *, epoch: int | Sequence[int] = 0
    ) -> list[Example]:
        """Return examples in this order, decoded by all threads; their images share one array.

        Args:
            numbers: Of the examples.
            epoch: That of their augmentation, or one for each.

        Raises:
            IndexError: A number is out of range.
            BadExampleError: A record is damaged.
            StorageError: A shard or its index cannot be read.
        """
        engine = self._engine_here()
        known = np.array([self._check(number) for number in numbers], np.int64)
        # As positions of a reader in stored order, so both draw the same crops.
        batch, bad = engine.read(known + np.array(epoch, np.int64) * engine.epoch_size)
        if bad:
            raise BadExampleError(str(bad[0]), is_as_built=bad[0].is_as_built)
        return [{name: column[row] for name, column in batch.items()} for row in range(len(known))]

    def use_threads(self, threads: int) -> None:
        """Set the number of threads of `examples` in this process, before it is called first."""
        self._engine_here().threads = threads

    def _check(self, number: SupportsIndex) -> int:
        index, size = operator.index(number), len(self)
        if not -size <= index < size:
            raise IndexError(
                f"record {index:,} of {size:,} is out of range: records are counted from 0"
            )
        return index % size

    def _engine_here(self) -> Engine:
        # Locks that other threads held at the fork stay locked forever in the child. Here without a
        # lock: at worst two threads open the dataset.
        if self._owner != os.getpid():
            self._open()
        return self._engine


def _check_order(options: ReaderOptions) -> None:
    """Raise `UsageError` if the reader has an order that examples by number cannot have."""
    if options.host_count > 1:
        told = f"host_count={options.host_count}: leave it out, and divide the numbers by a sampler"
    elif options.sampling is not None:
        told = f"sampling={options.sampling}: leave it out, and weigh the numbers by a sampler"
    elif len(options.datasets) > 1:
        told = (
            f"weights of {len(options.datasets)} datasets: open one at a time, and mix them there"
        )
    else:
        return
    raise UsageError(f"examples by number have no order of their own, and the reader has {told}")
