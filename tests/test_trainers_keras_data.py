"""`Reader.keras()`: batches for Keras where there is no TensorFlow; and Keras on JAX."""

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
from tests.readers import take
from tests.small_datasets import Datasets


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def make_model() -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )


def test_batches_for_keras_of_a_reader_with_an_end(datasets: Datasets) -> None:
    """As often as they are asked for, in any order; and the reader stays where it is."""
    reader = sw.Reader(
        datasets["mixed"], "all", global_batch_size=4, epochs=1, image=sw.EvalImage(8)
    )
    expected = [(batch["image"], batch["label"]) for batch in reader]
    data = sw.Reader(
        datasets["mixed"], "all", global_batch_size=4, epochs=1, image=sw.EvalImage(8)
    ).keras()

    assert isinstance(data, keras.utils.PyDataset)
    assert len(data) == 6
    for place in [0, 1, 2, 5, 3, 4, 0, 1]:
        for found, wanted in zip(data[place], expected[place], strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert [labels.tolist() for _, labels in data] == [labels.tolist() for _, labels in expected]


def test_padded_batches_for_keras_have_weights(datasets: Datasets) -> None:
    data = sw.Reader(
        datasets["mixed"],
        "all",
        global_batch_size=4,
        epochs=1,
        image=sw.EvalImage(8),
        remainder="pad",
    ).keras()
    assert [weights.tolist() for _, _, weights in data] == [[1, 1, 1, 1]] * 5 + [[1, 0, 0, 0]]
    assert data[5][2].dtype == np.float32


def test_batches_for_keras_of_an_endless_reader(datasets: Datasets) -> None:
    reader = sw.Reader(
        datasets["mixed"], "all", global_batch_size=4, shuffle=True, image=sw.TrainImage(8)
    )
    data = reader.keras()
    found = [next(data)[1].tolist() for _ in range(12)]
    assert reader.position == 0
    assert found == [batch["label"].tolist() for batch in take(reader, 12)]


def test_an_evaluation_is_that_of_all_records(datasets: Datasets) -> None:
    """The weights of padded rows are 0, through tensors and through arrays."""
    model, found = make_model(), []
    model.compile(
        loss="sparse_categorical_crossentropy",
        weighted_metrics=["sparse_categorical_crossentropy", "accuracy"],
    )
    for size, remainder in [(21, "keep"), (4, "keep"), (4, "pad"), (8, "pad")]:
        reader = sw.Reader(
            datasets["mixed"],
            "all",
            global_batch_size=size,
            epochs=1,
            image=sw.EvalImage(8),
            remainder=remainder,
        )
        for data in (reader.tf_data(as_supervised=True), reader.keras()):
            result = model.evaluate(data, verbose=0, return_dict=True)
            found.append([result["sparse_categorical_crossentropy"], result["accuracy"]])
    np.testing.assert_allclose(found, [found[0]] * 8, rtol=1e-5)


_TRAIN_ON_JAX = """
import sys
dataset, directory, data_of = sys.argv[1:]
if data_of == "keras":
    sys.modules["tensorflow"] = None  # any import of it fails
import jax  # the other way round, TensorFlow and JAX have hung
import numpy as np, keras
import shardwright as sw

class Stop(keras.callbacks.Callback):
    def __init__(self, num_steps):
        super().__init__()
        self.steps_left = num_steps
    def on_train_batch_end(self, batch, logs=None):
        self.steps_left -= 1
        if self.steps_left == 0:
            self.model.stop_training = True

def train(dataset, directory=None, stop_after=0):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Dropout(0.3), layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    reader = sw.Reader(dataset, "all", global_batch_size=4, shuffle=True, image=sw.TrainImage(8))
    held_out = sw.Reader(dataset, "test", global_batch_size=4, epochs=1, image=sw.EvalImage(8), remainder="pad")
    callbacks = [Stop(stop_after)] + ([reader.keras_callback(directory)] if directory else [])
    data = [source.keras() if data_of == "keras" else source.tf_data(as_supervised=True) for source in (reader, held_out)]
    fitted = model.fit(
        data[0], steps_per_epoch=5, epochs=3, validation_data=data[1], callbacks=callbacks, shuffle=False, verbose=0
    )
    return reader.position, fitted.epoch, [np.array(value).tolist() for value in [*model.variables, *model.optimizer.variables]]

assert keras.backend.backend() == "jax"
_, epochs, values = train(dataset)
assert epochs == [0, 1, 2]
position, epochs, stopped = train(dataset, directory, 7)
assert (position, epochs) == (21 + 8, [0, 1]), "two steps into the second epoch"
assert stopped != values
assert train(dataset, directory) == (63, [1, 2], values)
print("the same")
"""


@pytest.mark.parametrize("data_of", ["keras", "tf_data"])
def test_keras_on_jax_trains_and_resumes(datasets: Datasets, tmp_path: Path, data_of: str) -> None:
    """From arrays, where TensorFlow is not installed, and from tensors."""
    command = [sys.executable, "-c", _TRAIN_ON_JAX, datasets["mixed"], str(tmp_path), data_of]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert done.stdout == "the same\n", done.stderr
