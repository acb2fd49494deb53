"""Records by their number, one at a time or some at once: what map-style datasets of torch and sources of Grain need."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from shardwright.errors import BadExampleError, UsageError
from shardwright.reader.engine import Engine
from shardwright.reader.list_encodings import Sparse
from shardwright.reader.options import ReaderOptions
from shardwright.reader.order import StoredOrder
from shardwright.reader.places import Places, PlaceTable
from shardwright.reader.steps import Remainder

Example = dict[str, Any]


class ExampleSource:
    """A dataset as a sequence of examples: `len(source)`, and `source[number]` in the order they are stored in.

    An example is a dict by feature name of what one row of a batch would be: the image uint8 [height, width, 3] as `image` says,
    or its bytes; numbers as NumPy scalars, texts as str, bytes as bytes, lists as 1-D arrays.

    Any thread may ask. It can be pickled, and works in forked processes: each opens the dataset itself. Of a dataset in a store
    an example's whole shard is downloaded first, so ask for numbers that are near each other, or have all of it in the cache;
    processes that read from stores must be started by "spawn" or "forkserver".

    The random part of an example's image is drawn from (seed, epoch, number): what a reader that does not shuffle draws.

    Attributes:
        options: What is read, and how.

    Args:
        options: Of a reader. Its split, features, image, seed, `where` and stores hold; what concerns batches does not.

    Raises:
        UsageError: A feature is encoded as `Sparse`, which one example has no form for.
        NotADatasetError, StorageError: As for `Reader`.
    """

    def __init__(self, options: ReaderOptions) -> None:
        self._prepare(
            replace(
                options,
                shuffle=False,
                window=None,
                sampling=None,
                epochs=None,
                remainder=Remainder.KEEP,
            )
        )
        self._open()
        for name, encoding in self._engine.columns.encodings.items():
            if isinstance(encoding, Sparse):
                raise UsageError(
                    f"feature {name!r}: Sparse() is a form of batches; for single examples give Dense(...) or no encoding"
                )

    def _prepare(self, options: ReaderOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._owner = 0  # the process that has opened it

    def _open(self) -> None:
        self._engine = Engine(self.options)
        self._places = PlaceTable(
            StoredOrder(self._engine.selection.sizes), self._engine.selection, self.options.seed
        )
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unopened, (self.options,)

    def __repr__(self) -> str:
        """Equal where the examples are equal: Grain compares it when it restores a checkpoint."""
        options = self.options
        names = (
            ", ".join(f"{name}={encoding}" for name, encoding in (options.features or {}).items())
            or "all"
        )
        return f"ExampleSource({self.fingerprint}, {len(self)} records, image={options.image}, features=({names}), seed={options.seed})"

    def __len__(self) -> int:
        self._engine_here()
        return self._places.order.size

    def __getitem__(self, number: SupportsIndex) -> Example:
        """One example.

        Raises:
            IndexError: There are not so many.
            BadExampleError: The record is damaged.
            StorageError: Its shard or index cannot be read.
        """
        return self.example(number)

    def example(self, number: SupportsIndex, *, epoch: int = 0, draw: int | None = None) -> Example:
        """One example as another epoch has it, or with the random part of its image drawn from any `draw`, of 64 bits.

        Raises:
            IndexError, BadExampleError, StorageError: As `source[number]`.
        """
        return self.examples([number], epoch=epoch, draws=None if draw is None else [draw])[0]

    def examples(
        self,
        numbers: Sequence[SupportsIndex],
        *,
        epoch: int = 0,
        draws: Sequence[int] | None = None,
    ) -> list[Example]:
        """Some examples, in this order, decoded by all threads: their images are parts of one array.

        Raises:
            IndexError, BadExampleError, StorageError: As `source[number]`.
        """
        engine = self._engine_here()
        known = [self._check(number) for number in numbers]
        places = self._places.locate(np.array(known, np.int64) + epoch * len(self))
        if draws is not None:
            places = Places(
                places.shards, places.rows, np.array([draw % 2**64 for draw in draws], np.uint64)
            )
        batch, bad = engine.read(places)
        if bad:
            raise BadExampleError(str(bad[0]))
        return [{name: column[row] for name, column in batch.items()} for row in range(len(known))]

    def use_threads(self, threads: int) -> None:
        """How many threads `examples` may use, from now on in this process."""
        self.options = replace(self.options, threads=threads)
        if self._owner != os.getpid() or self._engine.threads != threads:
            self._open()

    @property
    def fingerprint(self) -> str:
        """Equal where the same records are read."""
        return self._engine_here().fingerprint

    @property
    def image_name(self) -> str | None:
        """Of the feature that holds decoded images; None where there is none."""
        image = self._engine_here().columns.image
        return image.name if image is not None and self.options.image is not None else None

    def _check(self, number: SupportsIndex) -> int:
        index, size = operator.index(number), len(self)
        if not -size <= index < size:
            raise IndexError(f"record {index:,} of {size:,}: records are counted from 0")
        return index % size

    def _engine_here(self) -> Engine:
        # In a forked process another thread's locks would stay locked for ever.
        if self._owner != os.getpid():
            with self._lock:
                if self._owner != os.getpid():
                    self._open()
        return self._engine


def _unopened(options: ReaderOptions) -> ExampleSource:
    """A copy in another process opens the dataset when it is first asked."""
    source = ExampleSource.__new__(ExampleSource)
    source._prepare(options)
    return source
