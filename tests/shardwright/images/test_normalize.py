"""Normalizing as keras.applications does it, in every framework but torch (see tests/torch)."""

from __future__ import annotations

import os
import pickle
from typing import Any

import jax  # before TensorFlow: the other order can hang
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.normalize import MODES, MeanStd, normalizer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
IMAGES[0, 0, 0], IMAGES[0, 0, 1] = 0, 255
TO_TENSOR = {"numpy": np.asarray, "jax": jax.numpy.asarray, "tf": tf.constant}
each_framework = pytest.mark.parametrize("framework", TO_TENSOR)
each_mode = pytest.mark.parametrize("mode", MODES)


def expected(mode: str, images: NDArray[Any] = IMAGES) -> NDArray[np.float32]:
    preprocess = keras.applications.imagenet_utils.preprocess_input
    return np.asarray(preprocess(images.astype(np.float32), data_format="channels_last", mode=mode))


def normalized(mode: str, framework: str, images: Any = IMAGES, **options: Any) -> NDArray[Any]:
    return np.asarray(normalizer(mode, framework, **options)(TO_TENSOR[framework](images)))


@each_framework
@each_mode
def test_it_is_preprocess_input(mode: str, framework: str) -> None:
    floats = IMAGES.astype(np.float32)
    made = normalized(mode, framework, floats)
    assert (floats == IMAGES).all(), "the input changes"
    assert (normalized(mode, framework) == made).all()
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected(mode), rtol=1e-5, atol=2e-5)
    assert (normalized(mode, framework, IMAGES.astype(ml_dtypes.bfloat16)) == made).all()


@each_framework
@pytest.mark.parametrize(("dtype", "rtol"), [("bfloat16", 2**-8), ("float16", 2**-11)])
@each_mode
def test_a_short_result_is_rounded_once(mode: str, dtype: str, rtol: float, framework: str) -> None:
    made = normalized(mode, framework, dtype=dtype)
    assert made.dtype.name == dtype
    np.testing.assert_allclose(made.astype(np.float32), expected(mode), rtol=rtol, atol=2e-5)


@each_framework
@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 5, 4, 3), (2, 2, 5, 4, 3)])
def test_channels_stay_first(framework: str, shape: tuple[int, ...]) -> None:
    """As `Reader.torch()` gives them."""
    images = np.resize(IMAGES, shape)
    first = np.ascontiguousarray(np.moveaxis(images, -1, -3))
    made = normalized("caffe", framework, first)
    np.testing.assert_allclose(made, np.moveaxis(expected("caffe", images), -1, -3), atol=2e-5)


@each_framework
def test_the_function_goes_to_other_processes(framework: str) -> None:
    apply = pickle.loads(pickle.dumps(normalizer("torch", framework)))
    made = np.asarray(apply(TO_TENSOR[framework](IMAGES)))
    assert (made == normalized("torch", framework)).all()


@each_mode
def test_inside_compiled_programs(mode: str) -> None:
    compiled = tf.function(normalizer(mode, "tf"), jit_compile=True)
    mapped = tf.data.Dataset.from_tensors(IMAGES).map(normalizer(mode, "tf"))
    jitted = jax.jit(normalizer(mode, "jax"))
    for made in (jitted(IMAGES), compiled(IMAGES), next(iter(mapped))):
        assert np.allclose(made, expected(mode), atol=2e-5)


@each_framework
@pytest.mark.parametrize("shape", [(2, 5, 4, 1), (2, 5, 4, 4)])
def test_other_numbers_of_channels_are_errors(framework: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        UsageError, match=r"images must be \[..., height, width, 3\] or .*, got \(2, "
    ):
        normalized("torch", framework, np.zeros(shape, np.uint8))


def test_unknown_names_are_errors() -> None:
    told = r"mode must be one of torch, tf, caffe, .*, got 'imagenet'"
    with pytest.raises(UsageError, match=told):
        normalizer("imagenet", "numpy")
    dtypes = "dtype must be one of float32, bfloat16, float16, got 'uint8'"
    for framework in TO_TENSOR:
        with pytest.raises(UsageError, match="mode must be one of"):
            normalizer("imagenet", framework)
        with pytest.raises(UsageError, match=dtypes):
            normalizer("torch", framework, dtype="uint8")
    frameworks = "framework must be one of numpy, jax, torch, tf, got 'mxnet'"
    with pytest.raises(UsageError, match=frameworks):
        normalizer("torch", "mxnet")


def test_a_datasets_mean_and_deviation_normalize() -> None:
    pair = MeanStd((0.1, 0.2, 0.3), (0.5, 0.25, 0.125))
    wanted = (IMAGES / 255 - pair.mean) / pair.std
    assert normalizer(pair, "numpy")(IMAGES) == pytest.approx(wanted, abs=1e-5)
    assert np.asarray(normalizer(pair, "tf")(IMAGES)) == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(UsageError, match="the standard deviation must be above 0, got"):
        normalizer(MeanStd((0.1, 0.2, 0.3), (0.5, 0.0, 0.125)), "numpy")
