"""`Reader.keras_callback`: a training that was stopped and resumed ends as an undisturbed one."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests.support.readers import take
from tests.support.small_datasets import Datasets, datasets_fixture  # noqa: F401

EPOCHS, STEPS = 2, 5  # 21 images in batches of 4


class Watch(keras.callbacks.Callback):
    """Notes what `fit` does; stops it after some steps, `by` an error or not, or after an epoch."""

    def __init__(self, stop_after: int = 0, by: Any = None, *, stop_epoch: int = -1) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []
        self.epoch_logs: dict[int, list[str]] = {}
        self._epoch, self._stop_after, self._by, self._stop_epoch = 0, stop_after, by, stop_epoch

    def on_epoch_begin(self, epoch: int, *_: Any) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, **_: Any) -> None:
        self.steps.append((self._epoch, batch))
        if len(self.steps) == self._stop_after:
            if self._by:
                raise self._by
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epoch_logs[epoch] = sorted(logs)
        if epoch == self._stop_epoch:
            self.model.stop_training = True


def make_model(*, num_random: int = 2, steps_per_execution: int = 1) -> Any:
    """Make a model with random layers, whose state is in no file of weights, and with Adam's."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    first = [keras.Input((8, 8, 3)), layers.Rescaling(1 / 255), layers.Flatten()]
    hidden, last = layers.Dense(6, activation="relu"), layers.Dense(3, activation="softmax")
    dropouts = [layers.Dropout(0.3) for _ in range(num_random)]
    model = keras.Sequential([*first, hidden, *dropouts, last])
    loss = "sparse_categorical_crossentropy"
    model.compile("adam", loss, run_eagerly=True, steps_per_execution=steps_per_execution)
    return model


def make_reader(datasets: Datasets, **options: Any) -> sw.Reader:
    return datasets.read(shuffle=True, image=sw.TrainImage(8), **options)


def train(model: Any, data: Any, callbacks: Any, **options: Any) -> None:
    options = {"epochs": EPOCHS, "steps_per_epoch": STEPS, **options}
    model.fit(data, callbacks=callbacks, verbose=0, shuffle=False, **options)


def fit(
    datasets: Datasets, *others: Any, directory: Any = None, every: Any = None, **options: Any
) -> tuple[Any, Any]:
    """Train as a new process does; return the model and the reader."""
    reader, model = make_reader(datasets), options.pop("model", None) or make_model()
    resume = [reader.keras_callback(directory, every=every)] if directory else []
    train(model, reader.tf_data(as_supervised=True), [*resume, *others], **options)
    return model, reader


def all_values(model: Any) -> list[Any]:
    """Return weights, the optimizer's too, and the states of random layers."""
    return [np.array(value).tolist() for value in [*model.variables, *model.optimizer.variables]]


@pytest.fixture(scope="module")
def undisturbed(datasets: Datasets) -> list[Any]:
    return all_values(fit(datasets)[0])


@pytest.fixture(scope="module")
def stopped_once(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stopped")
    fit(datasets, Watch(3), directory=directory)
    return directory


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A copy of what a training that was stopped in step 3 of 5 has saved."""
    return Path(shutil.copytree(stopped_once, tmp_path / "saved"))


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("stop", "every", "resumed_at"),
    [
        ((3,), None, (0, 3)),
        ((STEPS,), None, (1, 0)),
        ((STEPS + 2,), 3, (1, 2)),
        ((2 * STEPS - 1,), None, (1, 4)),
        ((STEPS + 3, KeyboardInterrupt), None, (1, 0)),
        ((STEPS + 3, RuntimeError), 2, (1, 2)),
        ((2, RuntimeError), 3, (0, 0)),
    ],
)
def test_a_stopped_training_ends_as_an_undisturbed_one(
    datasets: Datasets, tmp_path: Path, undisturbed: Any, stop: Any, every: Any, resumed_at: Any
) -> None:
    with pytest.raises(stop[1]) if stop[1:] else nullcontext():
        fit(datasets, Watch(*stop), directory=tmp_path, every=every)
    watch = Watch()
    model, reader = fit(datasets, watch, directory=tmp_path, every=every)

    epoch, step = resumed_at
    left = {epoch: STEPS - step} | dict.fromkeys(range(epoch + 1, EPOCHS), STEPS)
    assert watch.steps == [(number, done) for number in left for done in range(left[number])]
    assert list(watch.epoch_logs) == list(left)
    assert all_values(model) == undisturbed
    assert reader.state()["position"] == EPOCHS * 21


@pytest.mark.long
def test_stopped_again_and_again(datasets: Datasets, tmp_path: Path, undisturbed: Any) -> None:
    """More than once within an epoch too."""
    for _ in range(2):
        fit(datasets, Watch(2), directory=tmp_path)
    assert all_values(fit(datasets, directory=tmp_path)[0]) == undisturbed


@pytest.mark.long
def test_several_steps_per_execution(datasets: Datasets, tmp_path: Path) -> None:
    """Epochs of 4 steps, 2 at a time: the positions are those of all batches taken."""

    def fit_pairs(*others: Any, directory: Path | None = None) -> tuple[Any, Any]:
        model = make_model(steps_per_execution=2)
        return fit(datasets, *others, directory=directory, model=model, steps_per_epoch=4)

    whole, _ = fit_pairs()
    _, reader = fit_pairs(Watch(3), directory=tmp_path)
    assert reader.position == reader.steps.skip(0, 6)
    model, reader = fit_pairs(directory=tmp_path)
    assert reader.position == reader.steps.skip(0, 8)
    assert all_values(model) == all_values(whole)


def test_batches_made_ahead_do_not_count(datasets: Datasets, tmp_path: Path) -> None:
    _, reader = fit(datasets, Watch(3), directory=tmp_path)
    saved = json.loads((tmp_path / "training.json").read_text())
    assert reader.state() == saved["reader"]
    assert reader.position == 12
    assert (saved["epoch"], saved["step"]) == (0, 3)
    following = make_reader(datasets, state=saved["reader"], features=["image", "id"])
    whole = take(make_reader(datasets, features=["image", "id"]), 4)
    assert take(following, 1)[0]["id"].tolist() == whole[3]["id"].tolist()


@pytest.mark.long
def test_saved_files_are_of_one_step(datasets: Datasets, stopped: Path, undisturbed: Any) -> None:
    """Killed between two files, a training goes on from the older one."""

    def names() -> list[str]:
        return sorted(path.name for path in stopped.iterdir())

    assert names() == ["epoch-0-step-3.weights.h5", "training.json"]
    (stopped / "epoch-0-step-4.weights.h5").write_bytes(b"half of a newer one")
    assert all_values(fit(datasets, directory=stopped)[0]) == undisturbed
    assert names() == ["epoch-2-step-0.weights.h5", "training.json"]


@pytest.mark.long
def test_more_epochs_go_on_and_a_complete_training_stays(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    fit(datasets, directory=tmp_path, epochs=1)
    model, reader = fit(datasets, directory=tmp_path)
    assert all_values(model) == undisturbed

    watch = Watch()
    complete, _ = fit(datasets, watch, directory=tmp_path)
    assert watch.steps == []
    assert all_values(complete)[:4] == undisturbed[:4]

    # Keras has no way but an attribute of the model to set the first epoch of one `fit`.
    train(model, reader.tf_data(as_supervised=True), [watch], epochs=1, steps_per_epoch=1)
    assert watch.steps == [(0, 0)], "a later fit begins with its own first epoch"


@pytest.mark.long
def test_a_second_fit_goes_on_with_the_same_dataset_and_model(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    reader, model = make_reader(datasets), make_model()
    data, resume = reader.tf_data(as_supervised=True), reader.keras_callback(tmp_path)
    train(model, data, [resume], epochs=1)
    train(model, data, [resume], initial_epoch=1)
    assert all_values(model) == undisturbed


@pytest.mark.long_but_first
@pytest.mark.parametrize("order", [1, -1])
def test_others_may_stop_a_resumed_epoch(datasets: Datasets, stopped: Path, order: int) -> None:
    """The end of a resumed epoch is no end of the training, unless another callback says so."""
    reader, watch = make_reader(datasets), Watch(stop_epoch=0)
    callbacks = [reader.keras_callback(stopped), watch][::order]
    train(make_model(), reader.tf_data(as_supervised=True), callbacks)
    assert list(watch.epoch_logs) == [0]


@pytest.mark.long
def test_validation_comes_after_the_rest_of_an_epoch(datasets: Datasets, stopped: Path) -> None:
    held_out = datasets.read(split="test", epochs=1, image=sw.EvalImage(8))
    data, watch = held_out.tf_data(as_supervised=True), Watch()
    fit(datasets, watch, directory=stopped, validation_data=data)
    assert watch.epoch_logs == {0: ["loss", "val_loss"], 1: ["loss", "val_loss"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"is not a saved training run \(.*\): delete it to train from the start"),
        ("[]", "has version None, but this shardwright reads version 1: delete it"),
        ('{"version": 2}', "has version 2, but this shardwright reads version 1: delete it"),
        ('{"version": 1, "epoch": 3}', r"is not a saved training run \(its keys: epoch\): delete"),
    ],
)
def test_other_files_are_refused(
    datasets: Datasets, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(UsageError, match=rf"training\.json {message}"):
        make_reader(datasets).keras_callback(tmp_path)


@pytest.mark.parametrize(
    ("options", "every", "message"),
    [
        ({"epochs": 2}, None, "fit counts the epochs, but this Reader has epochs=2: leave epochs"),
        ({"seed": 5}, None, "this state was saved with seed=0, but the reader has seed=5"),
        ({"where": lambda rows: rows["width"].to_numpy() > 9}, None, "of other records"),
        *(
            ({}, every, f"every={every!r} must be a whole number of steps above 0, or None")
            for every in (0, -1, 2.0, "epoch", True)
        ),
    ],
)
def test_other_readers_and_periods_are_refused(
    datasets: Datasets, stopped: Path, options: dict[str, Any], every: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_reader(datasets, **options).keras_callback(stopped, every=every)


def unbuilt_model() -> Any:
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


LESS_RANDOM = partial(make_model, num_random=1)


@pytest.mark.parametrize(
    ("make", "steps", "message"),
    [
        (make_model, 4, "has 5 steps per epoch, but fit has 4: set steps_per_epoch=5"),
        (make_model, None, r"needs steps_per_epoch=reader\.steps_per_epoch: the reader has no end"),
        (unbuilt_model, STEPS, r"no weights to restore .* start it with keras\.Input"),
        (LESS_RANDOM, STEPS, "model has 1 random layers, but the one saved in .* has 2"),
    ],
)
def test_other_fits_and_models_are_refused(
    datasets: Datasets, stopped: Path, make: Any, steps: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        fit(datasets, directory=stopped, model=make(), steps_per_epoch=steps)
