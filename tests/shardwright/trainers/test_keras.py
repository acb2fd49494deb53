"""`Reader.keras_callback`: a training that was stopped and resumed ends as an undisturbed one."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow.compute as pc
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests.support.small_datasets import Datasets, datasets_fixture  # noqa: F401

EPOCHS, STEPS = 2, 5  # 21 images in batches of 4


class Watch(keras.callbacks.Callback):
    """Notes what `fit` does; stops it after some steps, `by` an error or not."""

    def __init__(self, stop_after: int = 0, by: Any = None) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []
        self._epoch, self._stop_after, self._by = 0, stop_after, by

    def on_epoch_begin(self, epoch: int, *_: Any) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, **_: Any) -> None:
        self.steps.append((self._epoch, batch))
        if len(self.steps) == self._stop_after:
            if self._by:
                raise self._by
            self.model.stop_training = True


def make_model(steps_per_execution: int = 1) -> Any:
    """Make a model whose optimizer has a state, too."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    first = [keras.Input((8, 8, 3)), layers.Rescaling(1 / 255), layers.Flatten()]
    hidden, last = layers.Dense(6, activation="relu"), layers.Dense(3, activation="softmax")
    model = keras.Sequential([*first, hidden, last])
    loss = "sparse_categorical_crossentropy"
    model.compile("adam", loss, run_eagerly=True, steps_per_execution=steps_per_execution)
    return model


def make_reader(datasets: Datasets, **options: Any) -> sw.Reader:
    return datasets.read(shuffle=True, image=sw.TrainImage(8), **options)


def train(model: Any, data: Any, callbacks: Any, **options: Any) -> None:
    options = {"epochs": EPOCHS, "steps_per_epoch": STEPS, **options}
    model.fit(data, callbacks=callbacks, verbose=0, shuffle=False, **options)


def fit(datasets: Datasets, *others: Any, directory: Any = None, **options: Any) -> tuple[Any, Any]:
    """Train as a new process does; return the model and the reader."""
    reader, model = make_reader(datasets), options.pop("model", None) or make_model()
    resume = [reader.keras_callback(directory)] if directory else []
    train(model, reader.tf_data(as_supervised=True), [*resume, *others], **options)
    return model, reader


def all_values(model: Any) -> list[Any]:
    """Return weights, the optimizer's too."""
    return [np.array(value).tolist() for value in [*model.variables, *model.optimizer.variables]]


@pytest.fixture(scope="module")
def undisturbed(datasets: Datasets) -> list[Any]:
    return all_values(fit(datasets)[0])


@pytest.fixture(scope="module")
def stopped_once(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stopped")
    fit(datasets, Watch(STEPS + 3), directory=directory)
    return directory


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A copy of what a training that was stopped in step 3 of the second epoch has saved."""
    return Path(shutil.copytree(stopped_once, tmp_path / "saved"))


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("stop", "first_epoch"),
    [((3,), 0), ((STEPS,), 1), ((STEPS + 3, KeyboardInterrupt), 1), ((2, RuntimeError), 0)],
)
def test_a_stopped_training_ends_as_an_undisturbed_one(
    datasets: Datasets, tmp_path: Path, undisturbed: Any, stop: Any, first_epoch: int
) -> None:
    with pytest.raises(stop[1]) if stop[1:] else nullcontext():
        fit(datasets, Watch(*stop), directory=tmp_path)
    watch = Watch()
    model, reader = fit(datasets, watch, directory=tmp_path)
    epochs = range(first_epoch, EPOCHS)
    assert watch.steps == [(epoch, step) for epoch in epochs for step in range(STEPS)]
    assert all_values(model) == undisturbed
    assert reader.state()["position"] == EPOCHS * 21


@pytest.mark.long
@pytest.mark.parametrize("steps", [4, 3])
def test_several_steps_per_execution(datasets: Datasets, tmp_path: Path, steps: int) -> None:
    """Epochs of 4 batches, 2 at a time: the positions are those of all batches taken."""

    def fit_pairs(*others: Any, directory: Path | None = None) -> tuple[Any, Any]:
        options = {"model": make_model(2), "steps_per_epoch": steps}
        return fit(datasets, *others, directory=directory, **options)

    whole, _ = fit_pairs()
    _, reader = fit_pairs(Watch(3), directory=tmp_path)
    assert reader.position == reader.steps.skip(0, 6)
    model, reader = fit_pairs(directory=tmp_path)
    assert reader.position == reader.steps.skip(0, 8)
    assert all_values(model) == all_values(whole)


@pytest.mark.long
def test_saved_files_are_of_one_step(datasets: Datasets, stopped: Path, undisturbed: Any) -> None:
    """Killed between two files, a training goes on from the older one."""

    def names() -> list[str]:
        return sorted(path.name for path in stopped.iterdir())

    assert names() == ["epoch-1.weights.h5", "training.json"]
    for name in ("part", "epoch-2"):
        (stopped / f"{name}.weights.h5").write_bytes(b"half of a newer one")
    assert all_values(fit(datasets, directory=stopped)[0]) == undisturbed
    assert names() == ["epoch-2.weights.h5", "training.json"]


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


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1, "epoch": 3}'])
def test_other_files_are_refused(datasets: Datasets, tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(UsageError, match=r"training\.json is not a training run .*: delete it"):
        make_reader(datasets).keras_callback(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 2}, "fit counts the epochs, but this Reader has epochs=2: leave epochs"),
        ({"seed": 5}, "this state was saved with seed=0, but the reader has seed=5"),
        ({"where": pc.field("width") > 9}, "of other records"),
    ],
)
def test_other_readers_are_refused(
    datasets: Datasets, stopped: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_reader(datasets, **options).keras_callback(stopped)


def unbuilt_model() -> Any:
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("make", "steps", "message"),
    [
        (make_model, None, r"needs steps_per_epoch=reader\.steps_per_epoch: the reader has no end"),
        (unbuilt_model, STEPS, r"no weights to restore .* start it with keras\.Input"),
    ],
)
def test_other_fits_and_models_are_refused(
    datasets: Datasets, stopped: Path, make: Any, steps: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        fit(datasets, directory=stopped, model=make(), steps_per_epoch=steps)
