"""Normalising as keras.applications does it, in every framework of this environment; torch's part is in tests/torch."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax  # before TensorFlow: the other order can hang
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images import MODES, normalize, normalizer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf

FRAMEWORKS = ("numpy", "jax", "tf", "keras")
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
IMAGES[0, 0, 0], IMAGES[0, 0, 1] = 0, 255
TO_TENSOR = {"numpy": np.asarray, "jax": jax.numpy.asarray, "tf": tf.constant, "keras": tf.constant}


def expected(mode: str, images: NDArray[Any] = IMAGES) -> NDArray[np.float32]:
    preprocess = keras.applications.imagenet_utils.preprocess_input
    return np.asarray(preprocess(images.astype(np.float32), data_format="channels_last", mode=mode))


def as_array(made: Any) -> NDArray[Any]:
    return np.asarray(made)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", MODES)
def test_it_is_preprocess_input(mode: str, framework: str) -> None:
    made = as_array(normalizer(mode, framework)(TO_TENSOR[framework](IMAGES)))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected(mode), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", MODES)
def test_what_travelled_as_bfloat16_is_the_same(mode: str, framework: str) -> None:
    apply, to_tensor = normalizer(mode, framework), TO_TENSOR[framework]
    assert (
        as_array(apply(to_tensor(IMAGES.astype(ml_dtypes.bfloat16))))
        == as_array(apply(to_tensor(IMAGES)))
    ).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", MODES)
def test_a_short_result_is_the_rounded_one(mode: str, dtype: str, framework: str) -> None:
    """Computed in float32, and rounded once at the end: to one part in 256, or in 2,048."""
    made = as_array(normalizer(mode, framework, dtype=dtype)(TO_TENSOR[framework](IMAGES)))
    assert made.dtype.name == dtype
    np.testing.assert_allclose(
        made.astype(np.float32),
        expected(mode),
        rtol=2**-8 if dtype == "bfloat16" else 2**-11,
        atol=2e-5,
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 5, 4, 3), (2, 2, 5, 4, 3)])
def test_channels_first(framework: str, shape: tuple[int, ...]) -> None:
    images = np.resize(IMAGES, shape)
    made = as_array(
        normalizer("caffe", framework, channels_first=True)(TO_TENSOR[framework](images))
    )
    np.testing.assert_allclose(made, np.moveaxis(expected("caffe", images), -1, -3), atol=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_inside_compiled_programs(mode: str) -> None:
    assert np.allclose(jax.jit(normalizer(mode, "jax"))(IMAGES), expected(mode), atol=2e-5)
    assert np.allclose(
        tf.function(normalizer(mode, "tf"), jit_compile=True)(IMAGES), expected(mode), atol=2e-5
    )
    mapped = tf.data.Dataset.from_tensors(IMAGES).map(normalizer(mode, "tf"))
    assert np.allclose(next(iter(mapped)), expected(mode), atol=2e-5)


def test_as_the_first_layer_of_a_model(tmp_path: Any) -> None:
    model = keras.Sequential(
        [
            keras.Input((5, 4, 3), dtype="uint8"),
            normalizer("caffe", "keras"),
            keras.layers.Flatten(),
        ]
    )
    made = model.predict(IMAGES, verbose=0)
    assert np.allclose(made, expected("caffe").reshape(2, -1), atol=2e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.predict(IMAGES, verbose=0) == made).all()
    assert normalizer("tf", "keras", channels_first=True).compute_output_shape((None, 5, 4, 3)) == (
        None,
        3,
        5,
        4,
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize(("policy", "dtype", "expected_dtype"), [
    ("mixed_bfloat16", None, "bfloat16"),
    ("mixed_bfloat16", "float32", "float32"),
    ("float32", None, "float32"),
])  # fmt: skip
def test_a_keras_layer_follows_the_policy(
    policy: str, dtype: str | None, expected_dtype: str
) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        made = normalizer("torch", "keras", dtype=dtype)(TO_TENSOR["keras"](IMAGES))
    finally:
        keras.config.set_dtype_policy(before)
    assert as_array(made).dtype.name == expected_dtype


def test_keras_on_jax() -> None:
    code = (
        "import numpy as np, keras\n"
        "from shardwright.images import normalize, normalizer\n"
        "images = np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3)\n"
        "model = keras.Sequential([keras.Input((4, 4, 3), dtype='uint8'), normalizer('caffe', 'keras', dtype='bfloat16')])\n"
        "made = model.predict(images, verbose=0)\n"
        "assert keras.backend.backend() == 'jax'\n"
        "assert (np.asarray(made) == normalize(images, 'caffe', dtype='bfloat16')).all()\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "KERAS_BACKEND": "jax"}
    )


def test_the_input_stays_as_it_is() -> None:
    floats = IMAGES.astype(np.float32)
    normalize(floats, "torch")
    assert (floats == IMAGES).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("shape", [(2, 5, 4, 1), (2, 3, 5, 4), (2, 5, 4, 4)])
def test_other_channels_are_refused(framework: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"images must be \[..., height, width, 3\], got \(2, "):
        normalizer("torch", framework)(TO_TENSOR[framework](np.zeros(shape, np.uint8)))


def test_wrong_names_are_refused() -> None:
    with pytest.raises(UsageError, match="mode must be one of torch, tf, caffe, got 'imagenet'"):
        normalize(IMAGES, "imagenet")
    for framework in FRAMEWORKS:
        with pytest.raises(UsageError, match="mode must be one of"):
            normalizer("imagenet", framework)
        with pytest.raises(
            UsageError, match="dtype must be one of float32, bfloat16, float16, got 'uint8'"
        ):
            normalizer("torch", framework, dtype="uint8")
    with pytest.raises(
        UsageError, match="framework must be one of numpy, jax, torch, tf, keras, got 'mxnet'"
    ):
        normalizer("torch", "mxnet")
