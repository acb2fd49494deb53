"""Normalize images on the device, after a transfer as uint8: as keras.applications, or by mean_std.

Source of the constants: `preprocess_input` of keras/src/applications/imagenet_utils.py.
torchvision's weights use "torch".
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import UsageError
from shardwright.images.libraries import dtype_name, numpy_dtype


class MeanStd(NamedTuple):
    """Mean and standard deviation of red, green and blue, on a scale of 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


_BGR = "caffe"  # the one mode with blue first, also in its constants
_MODES = {
    "torch": MeanStd((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "tf": MeanStd((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    _BGR: MeanStd((103.939 / 255, 116.779 / 255, 123.68 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
MODES = tuple(_MODES)
"""Mode names: "torch" (mean 0, deviation 1 on ImageNet), "tf" (-1 to 1), "caffe" (BGR, mean 0)."""

_DEFAULT_DTYPE = "float32"
_DTYPES = (_DEFAULT_DTYPE, "bfloat16", "float16")


def normalizer(
    mode: str | MeanStd, framework: str, *, dtype: object = _DEFAULT_DTYPE
) -> Callable[[Any], Any]:
    """Return a function that normalizes batches in NumPy or on a JAX, torch or TensorFlow device.

    Args:
        mode: "torch", "tf" or "caffe": see `MODES`; or a dataset's `mean_std()`.
        framework: "numpy", "jax", "torch" or "tf"; imported by this call.
        dtype: Result dtype: "float32", "bfloat16" or "float16". Computed in float32.

    Returns:
        A function of images, RGB, 0 to 255, in uint8, bfloat16 or float32: [..., height, width, 3],
        or [..., 3, height, width], as `Reader.torch()` gives them. The channels stay where they
        are.

    Raises:
        UsageError: The mode, framework or dtype is unknown. From the returned function: neither
            axis has 3 channels.
    """
    _check_mode(mode)
    if framework not in _LIBRARIES:
        raise UsageError(f"framework must be one of {', '.join(_LIBRARIES)}, got {framework!r}")
    _library(framework)  # imported here, and not with the first batch
    # Picklable, for other processes.
    return functools.partial(_normalized, framework, mode, dtype_name(dtype, _DTYPES))


def _array(values: MeanStd, shape: tuple[int, ...], images: Any) -> Any:  # noqa: ARG001
    return np.multiply(values, 255).astype(np.float32).reshape(shape)


class _Library(NamedTuple):
    """The functions of a framework that normalizing calls.

    Attributes:
        cast: Takes an array and the name of a dtype.
        flip: Takes an array and an axis.
        constant: Takes numbers of a scale to 1, the shape of those of 255 that it returns, and an
            array on whose device they are needed.
    """

    cast: Callable[[Any, str], Any]
    flip: Callable[[Any, int], Any]
    constant: Callable[[MeanStd, tuple[int, ...], Any], Any] = _array


def _normalized(framework: str, mode: str | MeanStd, dtype: str, images: Any) -> Any:
    library, shape = _library(framework), tuple(images.shape)
    axis = next((axis for axis in (-1, -3) if len(shape) >= -axis and shape[axis] == 3), None)
    if axis is None:
        told = "[..., height, width, 3] or [..., 3, height, width]"
        raise UsageError(f"images must be {told}, got {shape}")
    of_channels = (2, 3, *[1] * (-1 - axis))
    pair = mode if isinstance(mode, MeanStd) else _MODES[mode]
    mean, deviation = library.constant(pair, of_channels, images)
    ordered = library.flip(images, axis) if mode == _BGR else images
    # In float32, and rounded once at the end: bfloat16 has 8 bits, as many as a pixel.
    return library.cast((library.cast(ordered, "float32") - mean) / deviation, dtype)


def _numpy() -> _Library:
    return _Library(
        lambda array, dtype: np.asarray(array).astype(numpy_dtype(dtype), copy=False), np.flip
    )


def _jax() -> _Library:
    jnp = importlib.import_module("jax.numpy")
    return _Library(jnp.asarray, jnp.flip)


def _torch() -> _Library:
    torch = importlib.import_module("torch")

    @functools.cache  # a copy to the device makes the host wait for it
    def on_device(values: MeanStd, shape: tuple[int, ...], device: Any) -> Any:
        return torch.from_numpy(_array(values, shape, None)).to(device)

    return _Library(
        lambda array, dtype: array.to(getattr(torch, dtype)),
        lambda array, axis: array.flip(axis),
        lambda values, shape, images: on_device(values, shape, images.device),
    )


def _tf() -> _Library:
    tf = importlib.import_module("tensorflow")
    return _Library(tf.cast, tf.experimental.numpy.flip)


_LIBRARIES = {"numpy": _numpy, "jax": _jax, "torch": _torch, "tf": _tf}


@functools.cache
def _library(framework: str) -> _Library:
    return _LIBRARIES[framework]()


def _check_mode(mode: str | MeanStd) -> None:
    if isinstance(mode, MeanStd):
        if min(mode.std) <= 0:
            raise UsageError(f"the standard deviation must be above 0, got {mode.std}")
    elif mode not in _MODES:
        raise UsageError(
            f"mode must be one of {', '.join(_MODES)}, or a dataset's mean_std(), got {mode!r}"
        )
