"""Serve a reader to Grain: its batches in its order, or its examples by number.

    reader = sw.Reader("dataset/", global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
    for batch in reader.grain(): ...
    examples = reader.grain_source()
    for batch in examples.shuffle(seed=0).repeat().batch(256).to_iter_dataset().mp_prefetch(): ...

Grain's worker processes need parsed absl flags: in a program without `absl.app.run`, call
`absl.flags.FLAGS.mark_as_parsed()`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grain
import numpy as np

from shardwright.errors import UsageError
from shardwright.images.specs import MultiCrop, TrainImage
from shardwright.reader.batches import Batch
from shardwright.reader.examples import Example, ExampleSource
from shardwright.reader.iteration import BatchIterator
from shardwright.reader.reader import Reader

_LOG = logging.getLogger("shardwright.reader")
_STOP = "stop"  # in the state of an iterator: where its pass ends, None for no end


class GrainBatches(grain.IterDataset[Batch]):
    """A reader's batches in its order, dicts of NumPy arrays by feature name.

    `iter()` begins the reader's next pass. The state of an iterator is the reader's, and the end of
    the pass: Grain's `CheckpointHandler` and Orbax save and restore it. The reader's threads
    decode, and `mp_prefetch` fails: worker processes would each read all batches. Instead of
    Grain's `repeat` give the reader `epochs=N` or None.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader

    def __iter__(self) -> GrainIterator:
        return GrainIterator(self._reader)

    def __str__(self) -> str:
        return f"GrainBatches({self._reader!r})"

    def __reduce__(self) -> Any:
        """Raise `UsageError`: Grain pickles a dataset for its worker processes."""
        raise UsageError(
            "mp_prefetch of reader.grain(): the reader's threads decode its batches already, so "
            "leave mp_prefetch out, or read examples with reader.grain_source()"
        )


class GrainIterator(grain.DatasetIterator[Batch]):
    """An iterator over a reader's pass, whose state Grain saves."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._pass = reader._begin_pass(is_ahead=True)
        self._batches: BatchIterator | None = None

    def __next__(self) -> Batch:
        self._assert_not_closed()
        self.start_prefetch()
        assert self._batches is not None, "start_prefetch makes it"
        return next(self._batches)

    def start_prefetch(self) -> None:
        """Begin to make batches."""
        if self._batches is None:
            self._batches = self._reader._iterate(self._pass)

    def get_state(self) -> dict[str, Any]:
        """Return the reader's state after the last batch yielded, and the end of its pass."""
        return {**self._reader.state_at(self._pass.position), _STOP: self._pass.stop}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, of `get_state` or of a reader.

        Raises:
            UsageError: The state is of other records or another order.
        """
        saved = self._reader._checked_state(state)
        self._end()
        # A state of the reader itself has no end of a pass.
        stop = state.get(_STOP, self._reader.steps.pass_end(saved.position))
        self._pass = self._reader._passes.resume(saved.position, stop)

    def close(self) -> None:
        """Stop making batches."""
        super().close()
        self._end()

    def __str__(self) -> str:
        return f"GrainIterator({self._reader!r})"

    def _end(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None


class GrainExamples(grain.MapDataset[Example]):
    """A reader's examples by number, which Grain orders and batches.

    Item `number` of epoch `e` is `examples[e * len(examples) + number]`: the record with that
    number in stored order, a dict of NumPy arrays and scalars, text as str. Grain's `shuffle` and
    `repeat` count epochs so. The reader's split, features, image, seed and `where` apply; Grain
    makes the batches and their order.

    The random part of an image, as of `TrainImage`, is drawn from (seed, epoch, number). As a data
    source, in `grain.MapDataset.source(...)` or `grain.DataLoader`, this is the first epoch's in
    each epoch, because Grain does not tell sources the epoch: use it as the dataset that it is.

    Raises:
        UsageError: A feature is a bag of words, or as of `ExampleSource`.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._source = ExampleSource(reader.options)
        self._length = len(self._source)
        is_random = isinstance(reader.options.image, TrainImage | MultiCrop)
        self._read = np.zeros(self._length * is_random, np.bool_)  # as records of the first epoch

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        """Return an example; raise what `ExampleSource` raises."""
        return self.slice(index) if isinstance(index, slice) else self._getitems([index])[0]

    def _getitems(self, indices: Sequence[int]) -> Sequence[Example]:
        numbers = [int(index) % self._length for index in indices]
        # Python allows negative numbers, which are of the first epoch.
        epochs = [max(int(index) // self._length, 0) for index in indices]
        if self._read.size:
            first = [number for number, epoch in zip(numbers, epochs, strict=True) if not epoch]
            if self._read[first].any():
                self._read = np.zeros(0, np.bool_)  # once is enough
                _LOG.warning(
                    "records come again with the crops of the first epoch: Grain does not tell a "
                    "source the epoch, so use reader.grain_source() itself, with its repeat()"
                )
            else:
                self._read[first] = True
        return self._source.examples(numbers, epoch=epochs)

    def __repr__(self) -> str:
        """Return equal text for equal examples: Grain compares it when it restores a checkpoint."""
        return repr(self._source)

    __str__ = __repr__
