"""`Reader.keras_callback`: a training that is stopped anywhere and resumed ends as one that nobody stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests.readers import take
from tests.small_datasets import Datasets

EPOCHS, STEPS = 2, 5  # 21 images in batches of 4


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


class Watch(keras.callbacks.Callback):
    """Notes what `fit` does, and stops it after some steps: by asking, or as a fault would."""

    def __init__(
        self, stop_after: int | None = None, *, by: type[BaseException] | None = None
    ) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []
        self.epoch_ends: list[int] = []
        self._epoch, self._stop_after, self._by = 0, stop_after, by

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self.steps.append((self._epoch, batch))
        if len(self.steps) == self._stop_after:
            if self._by is not None:
                raise self._by
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.epoch_ends.append(epoch)


def make_model(*, num_random: int = 2, steps_per_execution: int = 1) -> Any:
    """With random layers, whose state is in no file of weights, and an optimizer that remembers."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(6, activation="relu"),
            *[keras.layers.Dropout(0.3) for _ in range(num_random)],
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        "adam",
        "sparse_categorical_crossentropy",
        run_eagerly=True,
        steps_per_execution=steps_per_execution,
    )
    return model


def make_reader(datasets: Datasets, **options: Any) -> sw.Reader:
    return sw.Reader(
        datasets["mixed"],
        "all",
        global_batch_size=4,
        shuffle=True,
        image=sw.TrainImage(8),
        **options,
    )


def fit(
    datasets: Datasets,
    *others: Any,
    directory: Path | None = None,
    every: int | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """A process that trains: it gives the model and the reader."""
    reader, model = (
        make_reader(datasets),
        make_model(steps_per_execution=options.pop("steps_per_execution", 1)),
    )
    resume = [] if directory is None else [reader.keras_callback(directory, every=every)]
    options = {"epochs": EPOCHS, "steps_per_epoch": STEPS, "verbose": 0, "shuffle": False} | options
    model.fit(reader.tf_data(as_supervised=True), callbacks=[*resume, *others], **options)
    return model, reader


def all_values(model: Any) -> list[Any]:
    """Weights, the optimizer's too, and the states of random layers."""
    return [
        np.array(variable).tolist() for variable in [*model.variables, *model.optimizer.variables]
    ]


@pytest.fixture(scope="module")
def undisturbed(datasets: Datasets) -> list[Any]:
    return all_values(fit(datasets)[0])


@pytest.mark.parametrize(
    ("stop_after", "by", "every", "goes_on_at"),
    [
        (1, None, None, (0, 1)),
        (3, None, None, (0, 3)),
        (STEPS, None, None, (1, 0)),
        (STEPS + 2, None, 3, (1, 2)),
        (2 * STEPS - 1, None, None, (1, 4)),
        (STEPS + 3, KeyboardInterrupt, None, (1, 0)),
        (STEPS + 3, RuntimeError, 2, (1, 2)),
        (2, RuntimeError, 3, (0, 0)),
    ],
)
def test_a_stopped_training_ends_as_an_undisturbed_one(
    datasets: Datasets,
    tmp_path: Path,
    undisturbed: list[Any],
    stop_after: int,
    by: type[BaseException] | None,
    every: int | None,
    goes_on_at: tuple[int, int],
) -> None:
    if by is None:
        fit(datasets, Watch(stop_after), directory=tmp_path, every=every)
    else:
        with pytest.raises(by):
            fit(datasets, Watch(stop_after, by=by), directory=tmp_path, every=every)
    watch = Watch()
    model, reader = fit(datasets, watch, directory=tmp_path, every=every)

    epoch, step = goes_on_at
    assert watch.steps == [(epoch, done) for done in range(STEPS - step)] + [
        (later, done) for later in range(epoch + 1, EPOCHS) for done in range(STEPS)
    ]
    assert watch.epoch_ends == list(range(epoch, EPOCHS))
    assert all_values(model) == undisturbed
    assert reader.state()["position"] == EPOCHS * 21


def test_stopped_again_and_again(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    """More than once within an epoch too."""
    for _ in range(3):
        fit(datasets, Watch(2), directory=tmp_path)
    assert all_values(fit(datasets, directory=tmp_path)[0]) == undisturbed


def test_several_steps_per_execution(datasets: Datasets, tmp_path: Path) -> None:
    """Epochs of 4 steps, 2 at a time: the positions are those of all batches taken."""
    options = {"steps_per_epoch": 4, "steps_per_execution": 2}
    whole, _ = fit(datasets, **options)
    _, stopped = fit(datasets, Watch(3), directory=tmp_path, **options)
    assert stopped.position == stopped.steps.skip(0, 6)

    model, reader = fit(datasets, directory=tmp_path, **options)
    assert reader.position == reader.steps.skip(0, 8)
    assert all_values(model) == all_values(whole)


def test_batches_made_ahead_do_not_count(datasets: Datasets, tmp_path: Path) -> None:
    _, reader = fit(datasets, Watch(3), directory=tmp_path)
    saved = json.loads((tmp_path / "training.json").read_text())

    assert reader.state() == saved["reader"]
    assert reader.position == 12
    assert (saved["epoch"], saved["step"]) == (0, 3)
    next_ids = make_reader(datasets, state=saved["reader"], features=["image", "id"])
    assert (
        take(next_ids, 1)[0]["id"].tolist()
        == take(make_reader(datasets, features=["image", "id"]), 4)[3]["id"].tolist()
    )


def test_what_is_saved_is_of_one_step(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    """Killed between two files, a training goes on from the older one."""
    fit(datasets, Watch(3), directory=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "epoch-0-step-3.weights.h5",
        "training.json",
    ]
    (tmp_path / "epoch-0-step-4.weights.h5").write_bytes(b"half of a newer one")

    model, _ = fit(datasets, directory=tmp_path)
    assert all_values(model) == undisturbed
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "epoch-2-step-0.weights.h5",
        "training.json",
    ]


def test_a_complete_training_is_not_trained_again(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    fit(datasets, directory=tmp_path)
    watch = Watch()
    model, _ = fit(datasets, watch, directory=tmp_path)
    assert watch.steps == []
    assert all_values(model)[:4] == undisturbed[:4]


def test_more_epochs_go_on(datasets: Datasets, tmp_path: Path, undisturbed: list[Any]) -> None:
    fit(datasets, directory=tmp_path, epochs=1)
    assert all_values(fit(datasets, directory=tmp_path)[0]) == undisturbed


def test_a_second_fit_goes_on_with_the_same_dataset_and_model(
    datasets: Datasets, tmp_path: Path, undisturbed: list[Any]
) -> None:
    reader, model = make_reader(datasets), make_model()
    data, resume = reader.tf_data(as_supervised=True), reader.keras_callback(tmp_path)
    model.fit(data, steps_per_epoch=STEPS, epochs=1, callbacks=[resume], shuffle=False, verbose=0)
    model.fit(
        data,
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        initial_epoch=1,
        callbacks=[resume],
        shuffle=False,
        verbose=0,
    )
    assert all_values(model) == undisturbed


def test_a_resumed_training_forgets_where_it_began(datasets: Datasets, tmp_path: Path) -> None:
    """Keras has no other way to tell `fit` of the first epoch, and a later `fit` is to begin where it is told."""
    fit(datasets, Watch(STEPS + 1), directory=tmp_path)
    model, reader = fit(datasets, directory=tmp_path)
    watch = Watch()
    model.fit(
        reader.tf_data(as_supervised=True),
        steps_per_epoch=1,
        epochs=1,
        callbacks=[watch],
        shuffle=False,
        verbose=0,
    )
    assert watch.steps == [(0, 0)]


@pytest.mark.parametrize("first", [True, False])
def test_others_may_stop_a_resumed_epoch(datasets: Datasets, tmp_path: Path, first: bool) -> None:
    """The end of a resumed epoch is no end of the training, unless another callback says so."""
    fit(datasets, Watch(2), directory=tmp_path)
    reader, model, watch = make_reader(datasets), make_model(), Watch()
    stop = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, _: setattr(model, "stop_training", epoch == 0)
    )
    callbacks = [reader.keras_callback(tmp_path), stop, watch]
    model.fit(
        reader.tf_data(as_supervised=True),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        callbacks=callbacks if first else callbacks[::-1],
        shuffle=False,
        verbose=0,
    )
    assert watch.epoch_ends == [0]


def test_validation_comes_after_the_rest_of_an_epoch(datasets: Datasets, tmp_path: Path) -> None:
    held_out = sw.Reader(
        datasets["mixed"], "test", global_batch_size=4, epochs=1, image=sw.EvalImage(8)
    ).tf_data(as_supervised=True)
    fit(datasets, Watch(2), directory=tmp_path, validation_data=held_out)
    watch, seen = Watch(), []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(sorted(logs)))
    fit(datasets, watch, note, directory=tmp_path, validation_data=held_out)
    assert seen == [["loss", "val_loss"]] * EPOCHS


def test_a_reader_with_an_end_is_refused(datasets: Datasets, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"fit counts the epochs, and this Reader has epochs=2: leave them out of the Reader",
    ):
        make_reader(datasets, epochs=2).keras_callback(tmp_path)


@pytest.mark.parametrize("every", [0, -1, 2.0, "epoch", True])
def test_every_is_a_number_of_steps(datasets: Datasets, tmp_path: Path, every: Any) -> None:
    with pytest.raises(UsageError, match=r"every=.* must be a whole number of steps above 0"):
        make_reader(datasets).keras_callback(tmp_path, every=every)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"training\.json is not a saved training \(.*\): delete it to train from the start"),
        ("[]", r"training\.json has version None, and this shardwright reads version 1: delete it"),
        (
            '{"version": 2}',
            r"training\.json has version 2, and this shardwright reads version 1: delete it",
        ),
        (
            '{"version": 1, "epoch": 3}',
            r"training\.json is not a saved training \(it has epoch only\): delete it",
        ),
    ],
)
def test_what_is_no_saved_training_is_refused(
    datasets: Datasets, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        make_reader(datasets).keras_callback(tmp_path)


@pytest.fixture(scope="module")
def stopped_training(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stopped")
    fit(datasets, Watch(3), directory=directory)
    return directory


@pytest.fixture
def stopped(stopped_training: Path, tmp_path: Path) -> Path:
    """A copy of what a training that was stopped had saved."""
    return Path(shutil.copytree(stopped_training, tmp_path / "saved"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 5}, r"this state was taken with seed=0, and the reader has seed=5"),
        ({"where": lambda rows: rows["width"].to_numpy() > 9}, r"of other records"),
    ],
)
def test_other_records_are_refused(
    datasets: Datasets, stopped: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_reader(datasets, **options).keras_callback(stopped)


def test_other_steps_per_epoch_are_refused(datasets: Datasets, stopped: Path) -> None:
    with pytest.raises(
        UsageError, match=r"had 5 steps per epoch, and fit has 4: give it steps_per_epoch=5"
    ):
        fit(datasets, directory=stopped, steps_per_epoch=4)


def test_a_model_without_weights_is_refused(datasets: Datasets, stopped: Path) -> None:
    reader, model = (
        make_reader(datasets),
        keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)]),
    )
    model.compile("sgd", "mse")
    with pytest.raises(UsageError, match=r"no weights yet .* begin it with keras\.Input"):
        model.fit(
            reader.tf_data(as_supervised=True),
            steps_per_epoch=STEPS,
            callbacks=[reader.keras_callback(stopped)],
            shuffle=False,
            verbose=0,
        )


def test_a_model_with_other_random_layers_is_refused(datasets: Datasets, stopped: Path) -> None:
    reader, model = make_reader(datasets), make_model(num_random=1)
    with pytest.raises(
        UsageError, match=r"the model has 1 random layers, and the one saved in .* had 2"
    ):
        model.fit(
            reader.tf_data(as_supervised=True),
            steps_per_epoch=STEPS,
            callbacks=[reader.keras_callback(stopped)],
            shuffle=False,
            verbose=0,
        )


def test_fit_needs_the_number_of_steps(datasets: Datasets, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"fit needs steps_per_epoch=reader\.steps_per_epoch: the reader has no end",
    ):
        fit(datasets, directory=tmp_path, steps_per_epoch=None)
