"""`Reader.keras()`: batches for Keras where TensorFlow is not installed; and Keras on JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests.support.readers import take
from tests.support.small_datasets import Datasets, datasets_fixture  # noqa: F401


def evaluated(datasets: Datasets, **options: Any) -> sw.Reader:
    return datasets.read(**{"epochs": 1, "image": sw.EvalImage(8), **options})


def test_batches_for_keras_of_a_reader_with_an_end(datasets: Datasets) -> None:
    """They come as often as Keras asks, in any order, and a look begins no pass."""
    expected = [(batch["image"], batch["label"]) for batch in evaluated(datasets)]
    data, padded = (evaluated(datasets, remainder=kind).keras() for kind in ("keep", "pad"))
    assert isinstance(data, keras.utils.PyDataset)
    assert len(data) == 6
    for place in [0, 1, 2, 5, 3, 4, 0, 1]:
        for found, wanted in zip(data[place], expected[place], strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert [labels.tolist() for _, labels in data] == [labels.tolist() for _, labels in expected]
    assert [weights.tolist() for _, _, weights in padded] == [[1, 1, 1, 1]] * 5 + [[1, 0, 0, 0]]
    assert padded[5][2].dtype == np.float32
    assert data._reader.epoch == 1, "of the loop"


def test_batches_for_keras_of_an_endless_reader(datasets: Datasets) -> None:
    reader = evaluated(datasets, epochs=None, shuffle=True)
    data = reader.keras(endless=True)
    found = [next(data)[1].tolist() for _ in range(12)]
    assert reader.position == reader.steps.skip(0, 12)
    assert found == [
        batch["label"].tolist()
        for batch in take(evaluated(datasets, epochs=None, shuffle=True), 12)
    ]


@pytest.mark.parametrize(("epochs", "endless"), [(None, False), (2, True)])
def test_endless_batches_need_a_request_and_an_endless_reader(
    datasets: Datasets, epochs: int | None, endless: bool
) -> None:
    """Otherwise `fit` without `steps_per_epoch` would never end its first epoch."""
    reader = evaluated(datasets, epochs=epochs)
    remedy = r"endless=True to keras\(\) and steps_per_epoch=reader\.steps_per_epoch to fit"
    with pytest.raises(
        UsageError, match=rf"{endless}\) of a Reader with epochs={epochs}: .*{remedy}"
    ):
        reader.keras(endless=endless)


@pytest.mark.long
def test_each_epoch_of_fit_is_the_next_of_an_endless_reader(datasets: Datasets) -> None:
    """Training sees the reader's batches in its order, with the steps that the error asks for."""
    options: dict[str, Any] = {"epochs": None, "shuffle": True, "remainder": "keep"}
    reader, twin = evaluated(datasets, **options), evaluated(datasets, **options)
    steps = reader.steps_per_epoch
    trained = fit_watched(reader.keras(endless=True), steps_per_epoch=steps)
    assert trained[-3 * steps :] == [batch["label"].tolist() for batch in take(twin, 3 * steps)]


def fit_watched(data: Any, **options: Any) -> list[list[int]]:
    """Return the labels of each batch that three epochs of `fit` see."""
    seen: list[list[int]] = []
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )

    def loss(labels: Any, logits: Any) -> Any:
        seen.append(np.ravel(labels).tolist())
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    model.compile("sgd", loss, run_eagerly=True)
    fitted = model.fit(data, epochs=3, verbose=0, **options)
    assert fitted.epoch == [0, 1, 2]
    return seen  # Keras may call the loss before, to build it


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [4, 11])
@pytest.mark.parametrize(("kind", "shuffle"), [
    ("keras", True), ("keras", False), ("tf_data", True),
])  # fmt: skip
def test_each_epoch_of_fit_is_the_next_of_a_reader_with_an_end(
    datasets: Datasets, kind: str, shuffle: bool, batch_size: int
) -> None:
    """`fit(reader.keras(), epochs=3)`, evaluating after each; then `fit` goes on.

    `fit` shuffles by default: Keras asks for batches by number, in another order in each epoch.
    """
    in_order: Any = sorted if kind == "keras" and shuffle else list
    options: dict[str, Any] = {
        "shuffle": True, "remainder": "keep", "global_batch_size": batch_size,
    }  # fmt: skip
    reader, twin = (evaluated(datasets, **options) for _ in range(2))
    held_out = evaluated(datasets)
    data, held = (
        part.keras() if kind == "keras" else part.tf_data(as_supervised=True)
        for part in (reader, held_out)
    )
    for number in (1, 2):
        seen = fit_watched(data, validation_data=held, shuffle=shuffle)
        trained = [batch["label"].tolist() for _ in range(3) for batch in twin]
        validated = [batch["label"].tolist() for batch in evaluated(datasets)]
        part = len(trained) // 3
        for epoch in range(3):
            found = seen[len(seen) - (3 - epoch) * (part + len(validated)) :]
            wanted = trained[epoch * part : (epoch + 1) * part]
            assert in_order(found[:part]) == in_order(wanted)
            assert found[part : part + len(validated)] == validated
        assert reader.state_after()["epoch"] == 3 * number
        with pytest.raises(UsageError, match="only you know how many"):
            reader.state()


@pytest.mark.long
def test_an_evaluation_is_that_of_all_records(datasets: Datasets) -> None:
    """The weights of padded rows are 0, through tensors and through arrays."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([layers.Flatten(), layers.Dense(3, activation="softmax")])
    loss, found = "sparse_categorical_crossentropy", []
    model.compile(loss=loss, weighted_metrics=[loss, "accuracy"])
    for size, remainder in [(21, "keep"), (4, "keep"), (8, "pad")]:
        reader = evaluated(datasets, global_batch_size=size, remainder=remainder)
        for data in (reader.tf_data(as_supervised=True), reader.keras()):
            result = model.evaluate(data, verbose=0, return_dict=True)
            found.append([result[loss], result["accuracy"]])
    np.testing.assert_allclose(found, [found[0]] * 6, rtol=1e-5)


_TRAIN_ON_JAX = """
import sys
sys.modules["tensorflow"] = None  # any import of it fails
import jax  # before TensorFlow: in the other order they have hung
import keras, numpy as np
import shardwright as sw

def train(data_of, directory=None, stop_after=0):
    keras.utils.set_random_seed(1)
    layers, steps = keras.layers, []
    dense = layers.Dense(3, activation="softmax")
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), dense])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    options = dict(dataset=sys.argv[1], global_batch_size=4)
    reader = sw.Reader(split="all", shuffle=True, image=sw.TrainImage(8), **options)
    options |= dict(split="test", epochs=1, image=sw.EvalImage(8), remainder="pad")

    def count(*_, **__):
        steps.append(1)
        if len(steps) == stop_after:
            model.stop_training = True

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=count)]
    if directory:
        callbacks.append(reader.keras_callback(directory))
    held_out = data_of(sw.Reader(**options))
    options = dict(validation_data=held_out, callbacks=callbacks, shuffle=False, verbose=0)
    fitted = model.fit(data_of(reader), steps_per_epoch=5, epochs=3, **options)
    variables = [*model.variables, *model.optimizer.variables]
    return reader.position, fitted.epoch, [np.array(value).tolist() for value in variables]

assert keras.backend.backend() == "jax"
arrays = lambda reader: reader.keras(endless=reader.options.epochs is None)
_, epochs, values = train(arrays)
assert epochs == [0, 1, 2]
position, epochs, stopped = train(arrays, sys.argv[2], 7)
assert (position, epochs) == (21 + 8, [0, 1]), "two steps into the second epoch"
assert stopped != values
assert train(arrays, sys.argv[2]) == (63, [1, 2], values), "it resumes at the second epoch"
del sys.modules["tensorflow"]
assert train(lambda reader: reader.tf_data(as_supervised=True), sys.argv[3])[2] == values
print("the same")
"""


@pytest.mark.long
def test_keras_on_jax_trains_and_resumes(datasets: Datasets, tmp_path: Path) -> None:
    """From arrays, where TensorFlow is not installed, and from tensors."""
    folders = [datasets["mixed"], str(tmp_path / "arrays"), str(tmp_path / "tensors")]
    command = [sys.executable, "-c", _TRAIN_ON_JAX, *folders]
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env=env
    )
    assert done.stdout == "the same\n", done.stderr


@pytest.mark.long_but_first
@pytest.mark.parametrize("has_own", [True, False])
def test_an_evaluation_inside_an_epoch(
    datasets: Datasets, has_own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of data of its own, and a look at a batch: each epoch of `fit` still has all records."""
    reader = evaluated(datasets, shuffle=True, remainder="keep")
    data = reader.keras()

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 2:
                self.model.evaluate(reader.keras() if has_own else data, steps=2, verbose=0)
                assert len(data[0][1]) == 4

    seen = fit_watched(data, callbacks=[Watch()])
    told = "an epoch of this keras() data begins inside another one"
    assert {text[: len(told)] for text in caplog.messages} == set() if has_own else {told}
    whole = sorted(label for batch in evaluated(datasets) for label in batch["label"].tolist())
    for epoch in range(3 * has_own):
        trained = seen[len(seen) - (3 - epoch) * 8 :][:8]
        batches = [*trained[:3], *trained[5:8]]  # 2 of the evaluation in between
        assert sorted(int(label) for labels in batches for label in labels) == whole
