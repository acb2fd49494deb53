"""Resume Keras `fit` in mid-epoch, and feed Keras without TensorFlow."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from shardwright.errors import UsageError
from shardwright.reader.reader import Reader
from shardwright.reader.state import Pass, ReaderState
from shardwright.trainers.look_ahead import LookAhead
from shardwright.trainers.supervised import SupervisedNames

_LOG = logging.getLogger("shardwright.reader")
_VERSION = 1
_STATE_FILE = "training.json"
_EPOCH_IS_OVER = object()  # truthy value of `model.stop_training` that no other callback sets


@dataclass(frozen=True)
class TrainingState:
    """The progress of a training run, as stored in `training.json`.

    Attributes:
        reader: Reader state at the first record that the model has not been trained on.
        epoch: Completed epochs of `fit`.
        step: Completed steps of the epoch after those.
        steps_per_epoch: The argument of `fit`.
        weights: File name of the weights of the model and the optimizer.
        seeds: States of the model's random layers, such as Dropout; Keras does not save them with
            the weights.
    """

    reader: dict[str, Any]
    epoch: int
    step: int
    steps_per_epoch: int
    weights: str
    seeds: list[Any]

    @classmethod
    def read(cls, path: Path) -> TrainingState | None:
        """Return the saved state, or None if there is no file.

        Raises:
            UsageError: The file is damaged, or of another version.
        """
        try:
            record = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as fault:
            raise UsageError(
                f"{path} is not a saved training run ({fault}): delete it to train from the start"
            ) from fault
        version = record.pop("version", None) if isinstance(record, dict) else None
        if version != _VERSION:
            raise UsageError(
                f"{path} has version {version!r}, but this shardwright reads version {_VERSION}: "
                "delete it to train from the start"
            )
        if set(record) != set(cls.__dataclass_fields__):
            raise UsageError(
                f"{path} is not a saved training run (its keys: {', '.join(record)}): "
                "delete it to train from the start"
            )
        return cls(**record)

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"version": _VERSION, **asdict(self)}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class ResumeTraining(keras.callbacks.Callback):
    """A callback that saves the model with the reader's position, and resumes `fit` from there.

        train = sw.Reader(DATASET, global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
        data, steps = train.tf_data(as_supervised=True), train.steps_per_epoch
        resume = train.keras_callback("run/", every=500)
        model.fit(data, steps_per_epoch=steps, epochs=90, callbacks=[resume])

    The same lines start a run or resume it with the next batch, on any backend. (Keras's
    `BackupAndRestore` repeats the epoch, with a model already trained on a part of it.) A finished
    run stays saved, and is not trained again.

    Only batches that `fit` has finished count, not those prefetched. A resumed epoch runs its
    remaining steps, and its metrics cover those steps only. All weights, including the
    optimizer's, and all random layers continue as in an uninterrupted run. Other callbacks must
    save their own state.

    Args:
        reader: The reader that feeds `fit`, through `tf_data` or `keras`; its `epochs` must be
            None.
        directory: A local folder for the saved run, created if missing; not shared with another
            run or host.
        every: Save every this many steps, in addition to the end of each epoch.

    Raises:
        UsageError: An argument is invalid, or the saved state is of other records.
    """

    def __init__(
        self, reader: Reader, directory: str | os.PathLike[str], *, every: int | None = None
    ) -> None:
        super().__init__()
        if reader.options.epochs is not None:
            raise UsageError(
                f"fit counts the epochs, but this Reader has epochs={reader.options.epochs}: "
                "leave epochs out of the Reader"
            )
        if every is not None and (type(every) is not int or every < 1):
            raise UsageError(
                f"every={every!r} must be a whole number of steps above 0, "
                "or None to save after each epoch"
            )
        self._reader = reader
        self._directory = Path(directory)
        self._every = every
        self._resumed = TrainingState.read(self._directory / _STATE_FILE)
        if self._resumed is not None:
            saved = ReaderState.from_json(self._resumed.reader)
            saved.check_same(ReaderState.from_json(reader.state_at(saved.position)))
            reader.go_to(saved.position)
        self._epoch = 0
        # Steps of this epoch: those done before it was resumed, and those done in all.
        self._first_step = self._step = 0
        # Of the batches that `fit` has finished; the reader's own is that of those made ahead.
        self._position = self._epoch_position = reader.position  # the latter at step `_first_step`
        self._unsaved_steps = 0

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if not self._steps_per_epoch:
            raise UsageError(
                "fit needs steps_per_epoch=reader.steps_per_epoch: the reader has no end"
            )
        # Keras on JAX has looked at a batch, and would go on with the pass after that one.
        self._reader.go_to(self._position)
        if self._resumed is not None:
            self._restore(self._resumed)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        resumed, self._resumed = self._resumed, None
        self._epoch, self._epoch_position = epoch, self._position
        self._first_step = self._step = 0
        if resumed is None:
            return
        if resumed.epoch != epoch:
            raise UsageError(
                f"the run saved in {self._directory} continues at epoch {resumed.epoch}, "
                f"but fit starts at epoch {epoch}"
            )
        self._first_step = self._step = resumed.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        done = self._first_step + batch + 1
        self._unsaved_steps += done - self._step
        self._step = done
        self._position = self._reader.steps.skip(self._epoch_position, done - self._first_step)
        if done < self._steps_per_epoch:
            if self._every is not None and self._unsaved_steps >= self._every:
                self._save(self._epoch, done)
        elif self._first_step and not self.model.stop_training:
            # Keras runs the full number of steps in a resumed epoch too: stop it early.
            self.model.stop_training = _EPOCH_IS_OVER

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self.model.stop_training is _EPOCH_IS_OVER:
            self.model.stop_training = False
        if self._step < self._steps_per_epoch:  # another callback stopped the training
            self._save(epoch, self._step)
        else:
            self._save(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self.model._initial_epoch = None  # would apply to later calls of fit
        self._reader.go_to(self._position)

    @property
    def _steps_per_epoch(self) -> int:
        return (self.params or {}).get("steps") or 0

    def _restore(self, saved: TrainingState) -> None:
        model = self.model
        if not model.built:
            raise UsageError(
                "the model has no weights to restore the saved ones into: "
                "start it with keras.Input, or call model.build"
            )
        if saved.steps_per_epoch != self._steps_per_epoch:
            raise UsageError(
                f"the run saved in {self._directory} has {saved.steps_per_epoch} steps per epoch, "
                f"but fit has {self._steps_per_epoch}: set steps_per_epoch={saved.steps_per_epoch}"
            )
        # Its variables are made at the first step, and a file cannot be loaded into none.
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self._directory / saved.weights)
        seeds = _seeds(model)
        if len(seeds) != len(saved.seeds):
            raise UsageError(
                f"the model has {len(seeds)} random layers, "
                f"but the one saved in {self._directory} has {len(saved.seeds)}"
            )
        for variable, value in zip(seeds, saved.seeds, strict=True):
            variable.assign(np.array(value, variable.dtype))
        model._initial_epoch = saved.epoch  # as Keras's BackupAndRestore does

    def _save(self, epoch: int, step: int) -> None:
        # The state file holds the name of its weights file and is replaced last, so the two match
        # even if the process dies in between.
        self._directory.mkdir(parents=True, exist_ok=True)
        model, state = self.model, self._reader.state_at(self._position)
        weights = f"epoch-{epoch}-step-{step}.weights.h5"
        temporary = self._directory / "part.weights.h5"
        model.save_weights(temporary)
        temporary.replace(self._directory / weights)
        seeds = [keras.ops.convert_to_numpy(variable).tolist() for variable in _seeds(model)]
        TrainingState(state, epoch, step, self._steps_per_epoch, weights, seeds).write(
            self._directory / _STATE_FILE
        )
        # After the state: until it is replaced, it names the old weights.
        for other in self._directory.glob("epoch-*-step-*.weights.h5"):
            if other.name != weights:
                other.unlink()
        self._unsaved_steps = 0


def _seeds(model: Any) -> list[Any]:
    """Return the model's variables that a weights file does not hold."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


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
    # No PyDataset: Keras 3.15 raises if `ResumeTraining` ends an epoch of one early.
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
        self._batches = LookAhead(reader)
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
