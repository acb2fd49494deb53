"""Open a reader's dataset, and find the position to start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.reader.engine import Engine
from shardwright.reader.options import ReaderOptions
from shardwright.reader.state import ReaderState
from shardwright.reader.steps import Steps

# Number of prefetched batches; two keep every thread busy across batch boundaries.
_BATCHES_AHEAD = 2
_ROWS_AHEAD_PER_THREAD = 16


class OpenedReader(NamedTuple):
    """The parts of a reader.

    Attributes:
        options: Its options, with the window of a saved state and the number of the version.
        engine: Makes the batches.
        steps: Their positions and sizes.
        batches_ahead: Number of batches made ahead.
        position: Where to start.
    """

    options: ReaderOptions
    engine: Engine
    steps: Steps
    batches_ahead: int
    position: int


def open_reader(options: ReaderOptions, state: Mapping[str, Any] | None) -> OpenedReader:
    """Open the dataset; raise as `Reader`.

    Args:
        options: The reader's options.
        state: Position to resume from, None for the start.
    """
    saved = None if state is None else ReaderState.from_json(state)
    if options.shuffle and options.window is None and saved is not None and saved.window:
        # The default depends on the storage; a copy elsewhere must keep the saved window.
        options = replace(options, window=saved.window)
    engine = Engine(options)
    if len(options.datasets) == 1:  # another process that opens it again reads the same version
        options = replace(options, version=engine.version)
    steps = Steps(
        engine.epoch_size,
        options.global_batch_size,
        options.host_index,
        options.host_count,
        options.remainder,
        options.epochs,
    )
    position = 0
    if saved is not None:
        saved.check_same(state_at(saved.position, options, engine))
        position = steps.normalize(saved.position)
    return OpenedReader(options, engine, steps, _batches_ahead(options, engine, steps), position)


def state_at(position: int, options: ReaderOptions, engine: Engine) -> ReaderState:
    """Return the state of a reader at a position."""
    return ReaderState(
        dataset=engine.fingerprint,
        shuffle=options.shuffle,
        seed=options.seed,
        window=engine.window,
        position=position,
        epoch=position // engine.epoch_size,
    )


def _batches_ahead(options: ReaderOptions, engine: Engine, steps: Steps) -> int:
    if options.prefetch is not None:
        return options.prefetch
    rows = engine.threads * _ROWS_AHEAD_PER_THREAD
    return max(_BATCHES_AHEAD, -(-rows // steps.host_batch_size))
