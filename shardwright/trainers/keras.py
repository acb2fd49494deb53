"""Keras: a callback that resumes `fit` in mid-epoch, and batches for Keras where there is no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from shardwright.errors import UsageError
from shardwright.reader.reader import Reader
from shardwright.reader.state import ReaderState
from shardwright.trainers.look_ahead import LookAhead
from shardwright.trainers.supervised import SupervisedNames

_VERSION = 1
_STATE_FILE = "training.json"
_EPOCH_IS_OVER = object()  # a true value of `model.stop_training` that no other callback sets


@dataclass(frozen=True)
class TrainingState:
    """How far a training has come, as `training.json` has it.

    Attributes:
        reader: State of the reader before the first record that the model has not learned from.
        epoch: Epochs of `fit` that are over.
        step: Steps of the next one that are over.
        steps_per_epoch: Of `fit`.
        weights: Name of the file of the model's and the optimizer's weights.
        seeds: States of the model's random layers, such as Dropout, which Keras leaves out of such files.
    """

    reader: dict[str, Any]
    epoch: int
    step: int
    steps_per_epoch: int
    weights: str
    seeds: list[Any]

    @classmethod
    def read(cls, path: Path) -> TrainingState | None:
        """None where there is none. Raises `UsageError` where the file is not what `write` wrote."""
        try:
            record = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as fault:
            raise UsageError(
                f"{path} is not a saved training ({fault}): delete it to train from the start"
            ) from fault
        version = record.pop("version", None) if isinstance(record, dict) else None
        if version != _VERSION:
            raise UsageError(
                f"{path} has version {version!r}, and this shardwright reads version {_VERSION}: delete it to train from the start"
            )
        if set(record) != set(cls.__dataclass_fields__):
            raise UsageError(
                f"{path} is not a saved training (it has {', '.join(record)} only): delete it to train from the start"
            )
        return cls(**record)

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"version": _VERSION, **asdict(self)}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class ResumeTraining(keras.callbacks.Callback):
    """Saves the model together with the reader's position, and has `fit` go on from there, on any backend.

        train = sw.Reader(DATASET, global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
        resume = train.keras_callback("run/", every=500)
        model.fit(train.tf_data(as_supervised=True), steps_per_epoch=train.steps_per_epoch, epochs=90, callbacks=[resume])

    The same lines train from the start, or go on with the very batch that comes next; Keras's `BackupAndRestore` begins the epoch
    again, with a model that has learned from a part of it. A training that is complete stays saved, and is not trained again.

    What counts is the batches that `fit` has come to the end of, not those made ahead. An epoch that is resumed has the steps that
    were left of it, and its metrics are those of these steps. Every weight, of the optimizer too, and every random layer goes on
    as in a run that was never stopped; what other callbacks remember is theirs to save.

    Args:
        reader: What `fit` gets its batches from, by `tf_data` or `keras`. It has no `epochs`.
        directory: A local folder for the saved training, made if need be; of this training and this host alone.
        every: Save after so many steps too, not only after each epoch.

    Raises:
        UsageError: An argument breaks its rule, or what is saved is of other records.
    """

    def __init__(
        self, reader: Reader, directory: str | os.PathLike[str], *, every: int | None = None
    ) -> None:
        super().__init__()
        if reader.steps.end is not None:
            raise UsageError(
                f"fit counts the epochs, and this Reader has epochs={reader.options.epochs}: leave them out of the Reader"
            )
        if every is not None and (type(every) is not int or every < 1):
            raise UsageError(
                f"every={every!r} must be a whole number of steps above 0, or None to save after each epoch"
            )
        self._reader = reader
        self._directory = Path(directory)
        self._every = every
        self._resumed = TrainingState.read(self._directory / _STATE_FILE)
        if self._resumed is not None:
            saved = ReaderState.from_json(self._resumed.reader)
            saved.check_same(ReaderState.from_json(reader.state()))
            reader.go_to(saved.position)
        self._epoch = 0
        self._first_step = self._step = (
            0  # of the epoch: where it was resumed, and how many steps are over
        )
        self._epoch_position = reader.position  # of its step `_first_step`
        self._unsaved_steps = 0

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if not self._steps_per_epoch:
            raise UsageError(
                "fit needs steps_per_epoch=reader.steps_per_epoch: the reader has no end"
            )
        if self._resumed is not None:
            self._restore(self._resumed)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        resumed, self._resumed = self._resumed, None
        self._epoch, self._epoch_position = epoch, self._reader.position
        self._first_step = self._step = 0
        if resumed is None:
            return
        if resumed.epoch != epoch:
            raise UsageError(
                f"what is saved in {self._directory} is of epoch {resumed.epoch}, and fit begins with epoch {epoch}"
            )
        self._first_step = self._step = resumed.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        done = self._first_step + batch + 1
        self._unsaved_steps += done - self._step
        self._step = done
        self._reader.go_to(self._reader.steps.skip(self._epoch_position, done - self._first_step))
        if done < self._steps_per_epoch:
            if self._every is not None and self._unsaved_steps >= self._every:
                self._save(self._epoch, done)
        elif self._first_step and not self.model.stop_training:
            self.model.stop_training = (
                _EPOCH_IS_OVER  # fit would make as many steps as in a whole epoch
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self.model.stop_training is _EPOCH_IS_OVER:
            self.model.stop_training = False
        if self._step < self._steps_per_epoch:  # another callback has stopped the training
            self._save(epoch, self._step)
        else:
            self._save(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self.model._initial_epoch = None  # else it would hold for later calls of fit too

    @property
    def _steps_per_epoch(self) -> int:
        return (self.params or {}).get("steps") or 0

    def _restore(self, saved: TrainingState) -> None:
        model = self.model
        if not model.built:
            raise UsageError(
                "the model has no weights yet to restore the saved ones into: begin it with keras.Input, or call model.build"
            )
        if saved.steps_per_epoch != self._steps_per_epoch:
            raise UsageError(
                f"what is saved in {self._directory} had {saved.steps_per_epoch} steps per epoch, and fit has {self._steps_per_epoch}: "
                f"give it steps_per_epoch={saved.steps_per_epoch}"
            )
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self._directory / saved.weights)
        seeds = _seeds(model)
        if len(seeds) != len(saved.seeds):
            raise UsageError(
                f"the model has {len(seeds)} random layers, and the one saved in {self._directory} had {len(saved.seeds)}"
            )
        for variable, value in zip(seeds, saved.seeds, strict=True):
            variable.assign(np.array(value, variable.dtype))
        model._initial_epoch = saved.epoch  # as Keras's own BackupAndRestore does

    def _save(self, epoch: int, step: int) -> None:
        """The file of the state names that of the weights, so that the two are of the same step wherever this is stopped."""
        self._directory.mkdir(parents=True, exist_ok=True)
        model, state = self.model, self._reader.state()
        weights = f"epoch-{epoch}-step-{step}.weights.h5"
        temporary = self._directory / "part.weights.h5"
        model.save_weights(temporary)
        temporary.replace(self._directory / weights)
        seeds = [keras.ops.convert_to_numpy(variable).tolist() for variable in _seeds(model)]
        TrainingState(state, epoch, step, self._steps_per_epoch, weights, seeds).write(
            self._directory / _STATE_FILE
        )
        for other in self._directory.glob("epoch-*-step-*.weights.h5"):
            if other.name != weights:
                other.unlink()
        self._unsaved_steps = 0


def _seeds(model: Any) -> list[Any]:
    """The variables that a file of weights leaves out."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def make_data(reader: Reader) -> Iterator[tuple[Any, ...]] | keras.utils.PyDataset:
    """(image, label) of a reader's batches, as NumPy arrays, for Keras on JAX or torch where TensorFlow is not installed.

    With `remainder="pad"` it is (image, label, sample weight), and the weights of rows that are no records are 0:
    `weighted_metrics` are then exact, while Keras divides a loss by all rows.

        model.fit(train.keras(), steps_per_epoch=train.steps_per_epoch, epochs=5, validation_data=test.keras())

    Returns:
        Of a reader without end a generator, which is for one `fit`; else a `keras.utils.PyDataset`, from where the reader is now to
        its end, again each time. Reading them leaves the reader where it is.

    Raises:
        UsageError: The reader gives no image or no label.
    """
    names = SupervisedNames.of(reader)
    return _stream(reader, names) if reader.steps.end is None else _Batches(reader, names)


def _stream(reader: Reader, names: SupervisedNames) -> Iterator[tuple[Any, ...]]:
    batches, position = LookAhead(reader), reader.position
    while True:
        position, batch = batches.take(position)
        yield names.pick(batch)


class _Batches(keras.utils.PyDataset):
    """A reading with an end, as often as Keras asks for it; in any order, but fast in the reader's own."""

    def __init__(self, reader: Reader, names: SupervisedNames) -> None:
        super().__init__()
        self._steps = reader.steps
        self._start = 0 if reader.steps.step_at(reader.position) is None else reader.position
        self._names = names
        self._batches = LookAhead(reader)

    def __len__(self) -> int:
        return self._steps.count_steps(self._start) or 0

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        _, batch = self._batches.take(self._steps.skip(self._start, index))
        return self._names.pick(batch)

    def on_epoch_end(self) -> None:
        self._batches.clear()
