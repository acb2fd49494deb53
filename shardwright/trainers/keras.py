"""Resume Keras `fit` with the records that come next, and feed Keras without TensorFlow."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from shardwright.errors import UsageError
from shardwright.reader.reader import Reader
from shardwright.reader.state import Pass
from shardwright.storage.folder import Folder
from shardwright.trainers.supervised import SupervisedNames

_LOG = logging.getLogger("shardwright.reader")
_STATE_FILE, _WEIGHTS = "training.json", ".weights.h5"
_STATE_KEYS = {"reader", "epoch", "weights"}


class ResumeTraining(keras.callbacks.Callback):
    """A callback that saves the model with the reader's position, and resumes `fit` from there.

        train = sw.Reader(DATASET, global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
        data, resume = train.tf_data(as_supervised=True), train.keras_callback("run/")
        model.fit(data, steps_per_epoch=500, epochs=900, callbacks=[resume])

    It saves at the end of each epoch of `fit`, which has as many batches as `steps_per_epoch` says.
    The same lines start a run or resume it with the next batch, on any backend. (Keras's
    `BackupAndRestore` begins with the first records again.) A finished run stays saved, and is not
    trained again. Other callbacks must save their own state.

    Args:
        reader: The reader that feeds `fit`, through `tf_data` or `keras`; its `epochs` must be
            None.
        directory: A local folder for the saved run, created if missing; not shared with another
            run or host.

    Raises:
        UsageError: An argument is invalid, or the saved state is of other records.
    """

    def __init__(self, reader: Reader, directory: str | os.PathLike[str]) -> None:
        super().__init__()
        if reader.options.epochs is not None:
            raise UsageError(
                f"fit counts the epochs, but this Reader has epochs={reader.options.epochs}: "
                "leave epochs out of the Reader"
            )
        self._reader = reader
        self._folder = Folder.at(directory)
        self._saved = self._read()
        if self._saved is not None:
            reader.go_to(reader._checked_state(self._saved["reader"]).position)
        # Of the epoch that `fit` is in. The reader's own one is that of batches made ahead.
        self._position = reader.position
        self._num_steps = 0  # done in this epoch

    def _read(self) -> dict[str, Any] | None:
        try:
            record = json.loads(self._folder.read_bytes(_STATE_FILE))
        except FileNotFoundError:
            return None
        except ValueError:
            record = None
        if not isinstance(record, dict) or set(record) != _STATE_KEYS:
            raise UsageError(
                f"{self._folder.path(_STATE_FILE)} is not a training run that this shardwright has "
                "saved: delete it to train from the start"
            )
        return record

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if not self._steps_per_epoch:
            raise UsageError(
                "fit needs steps_per_epoch=reader.steps_per_epoch: the reader has no end"
            )
        # Keras on JAX has looked at a batch, and would go on with the pass after that one.
        self._reader.go_to(self._position)
        self._num_steps = 0
        saved, self._saved = self._saved, None
        if saved is None:
            return
        model = self.model
        if not model.built:
            raise UsageError(
                "the model has no weights to restore the saved ones into: "
                "start it with keras.Input, or call model.build"
            )
        # Its variables are made at the first step, and a file cannot be loaded into none.
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self._folder.path(saved["weights"]))
        model._initial_epoch = saved["epoch"]  # as Keras's BackupAndRestore does

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self._num_steps = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        # Fewer if another callback has stopped it, and more if `steps_per_execution` is no divisor.
        if self._num_steps >= self._steps_per_epoch:
            self._move()
            self._save(epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self.model._initial_epoch = None  # would apply to later calls of fit
        self._move()
        self._reader.go_to(self._position)

    def _move(self) -> None:
        self._position = self._reader.steps.skip(self._position, self._num_steps)
        self._num_steps = 0

    @property
    def _steps_per_epoch(self) -> int:
        return (self.params or {}).get("steps") or 0

    def _save(self, epoch: int) -> None:
        # The state file holds the name of its weights file and is replaced last, so the two match
        # even if the process dies in between.
        folder, weights = self._folder, f"epoch-{epoch}{_WEIGHTS}"
        os.makedirs(folder.uri, exist_ok=True)
        self.model.save_weights(folder.path(f"part{_WEIGHTS}"))
        os.replace(folder.path(f"part{_WEIGHTS}"), folder.path(weights))
        state = self._reader.state_at(self._position)
        record = {"reader": state, "epoch": epoch, "weights": weights}
        folder.write_bytes(_STATE_FILE, json.dumps(record).encode())
        folder.remove_all(
            [name for name in folder.names() if name.endswith(_WEIGHTS) and name != weights]
        )


def make_data(reader: Reader, *, endless: bool = False) -> Iterable[tuple[Any, ...]]:
    """Return (image, label) batches of NumPy arrays, for Keras on JAX or torch without TensorFlow.

        data = sw.Reader(DATASET, global_batch_size=256, shuffle=True, epochs=1).keras()
        model.fit(data, epochs=5, validation_data=test.keras())

    If boxes move with the image, `label` is a dict by feature name, which needs `max_boxes`; if a
    mask does, it is the mask.
    With `remainder="pad"` batches are (image, label, sample weight), with weight 0 for padding
    rows. `weighted_metrics` are then exact, but Keras still divides the loss by all rows.

    Args:
        endless: True if the reader has no end. Then `fit` needs `steps_per_epoch`.

    Returns:
        If endless, a generator over one pass. Otherwise a `keras.utils.PyDataset`: each epoch of
        `fit` and each evaluation is the reader's next pass, and so is what Keras looks at before
        it trains, to learn the shapes.

    Raises:
        UsageError: The reader yields no image or no label, lists of boxes that differ in length,
            `endless` does not fit it, or it is not endless and begins in the middle of a pass.
    """
    if endless != (reader.options.epochs is None):
        raise UsageError(
            f"keras(endless={endless!r}) of a Reader with epochs={reader.options.epochs}: "
            "pass epochs to the Reader, or endless=True to keras() and "
            "steps_per_epoch=reader.steps_per_epoch to fit"
        )
    names = SupervisedNames.of(reader)
    objects = reader.engine.columns.objects
    if objects is not None and objects.mask is None:
        name = objects.boxes.name
        raise UsageError(
            f"feature {name!r} has a list of boxes per image, which Keras cannot batch: "
            f"write boxes=sw.Boxes({name!r}, max_boxes=100), or another number"
        )
    return _stream(reader, names) if endless else _Batches(reader, names)


def _stream(reader: Reader, names: SupervisedNames) -> Iterator[tuple[Any, ...]]:
    yield from map(names.pick, reader._iterate(reader._begin_pass(is_ahead=True)))


class _Batches(keras.utils.PyDataset):
    """Batches of a pass by number, in any order; an epoch of Keras begins the next pass.

    Keras does not say when it begins a loop, but asks for `num_batches` then. With
    `steps_per_epoch` a loop goes on over several epochs.
    """

    def __init__(self, reader: Reader, names: SupervisedNames) -> None:
        super().__init__()
        self._reader = reader
        self._names = names
        self._batches = reader._look_ahead()
        self._is_new = True  # the next pass is still to be begun
        self._pass: Pass | None = None
        self._num_asked = 0  # in this pass
        self._is_in_epoch = False
        _check_whole(reader)

    def __len__(self) -> int:
        return len(self._reader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over a pass of its own."""
        return map(self._names.pick, self._reader)

    @property
    def num_batches(self) -> int:
        """The number of batches of a pass."""
        self._is_new = self._is_new or self._num_asked > 0
        return len(self)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if self._is_new and self._is_in_epoch:
            self._begin()
        # Outside of an epoch Keras looks at first batches, of the pass that is to be begun.
        of = None if self._is_new else self._pass
        start = self._reader._passes.next_start if of is None else of.start
        self._num_asked += of is not None
        return self._names.pick(self._batches.take(self._reader.steps.skip(start, index))[1])

    def on_epoch_begin(self) -> None:
        if self._is_in_epoch:
            _LOG.warning(
                "an epoch of this keras() data begins inside another one, or after one that was "
                "interrupted: a callback that evaluates needs a reader.keras() of its own, as the "
                "epoch that goes on would have other records"
            )
        self._is_in_epoch = True
        if self._is_new:
            self._begin()

    def on_epoch_end(self) -> None:
        self._is_in_epoch = False
        self._batches.clear()

    def _begin(self) -> None:
        passes = self._reader._passes
        if self._num_asked == 1 and passes.last is self._pass is not None:
            passes.go_to(self._pass.start)  # Keras on JAX has looked at a batch
        _check_whole(self._reader)
        self._pass = self._reader._begin_pass(is_ahead=True)
        self._pass.is_ordered, self._pass.position = False, passes.next_start
        self._is_new, self._num_asked = False, 0


def _check_whole(reader: Reader) -> None:
    """Raise `UsageError` if the next pass begins in the middle."""
    if not reader.steps.is_whole(reader._passes.next_start):
        raise UsageError(
            f"keras() of a reader at position {reader.position:,}, in the middle of a pass: Keras "
            "asks for the number of batches once for all epochs. Resume by keras_callback(), or "
            "take tf_data(as_supervised=True)"
        )
