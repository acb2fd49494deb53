"""Normalize images on the device, after a transfer as uint8: as keras.applications, or by mean_std.

Source of the constants: `preprocess_input` of keras/src/applications/imagenet_utils.py.
torchvision's weights use "torch".
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.libraries import dtype_name, numpy_dtype


class MeanStd(NamedTuple):
    """Mean and standard deviation of red, green and blue, on a scale of 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class _Mode(NamedTuple):
    """The constants of (image - mean) / deviation, in the model's channel order."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    is_bgr: bool = False


_MODES = {
    "torch": _Mode(
        (0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255)
    ),
    "tf": _Mode((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "caffe": _Mode((103.939, 116.779, 123.68), (1.0, 1.0, 1.0), is_bgr=True),
}
MODES = tuple(_MODES)
"""Mode names: "torch" (mean 0, deviation 1 on ImageNet), "tf" (-1 to 1), "caffe" (BGR, mean 0)."""

_DEFAULT_DTYPE = "float32"
_DTYPES = (_DEFAULT_DTYPE, "bfloat16", "float16")


def normalize(
    images: NDArray[Any],
    mode: str | MeanStd,
    *,
    dtype: object = _DEFAULT_DTYPE,
    channels_first: bool = False,
) -> NDArray[Any]:
    """Normalize images in NumPy: see `normalizer`. The result is a new array."""
    name = dtype_name(dtype, _DTYPES)
    made: NDArray[Any] = _normalized(_numpy(), _check_mode(mode), name, channels_first, images)
    return made


def normalizer(
    mode: str | MeanStd,
    framework: str,
    *,
    dtype: object = None,
    channels_first: bool = False,
) -> Callable[[Any], Any]:
    """Return a function that normalizes batches in NumPy or on a JAX, torch or TensorFlow device.

    For "keras" it is a `keras.layers.Layer` for any backend, to use as a model's first layer and
    saved with the model. Call this function once in a process before loading such a model: it
    registers the layer with Keras.

    Args:
        mode: "torch", "tf" or "caffe": see `MODES`; or a dataset's `mean_std()`.
        framework: "numpy", "jax", "torch", "tf" or "keras"; imported by this call.
        dtype: Result dtype: "float32", "bfloat16" or "float16". Computed in float32. None: float32,
            or Keras's dtype policy.
        channels_first: Return [..., 3, height, width], as torch's models expect, of images whose
            channels are last.

    Returns:
        A function of images, RGB, 0 to 255, in uint8, bfloat16 or float32: [..., height, width, 3],
        or [..., 3, height, width], as `Reader.torch()` gives them, whose channels stay first.

    Raises:
        UsageError: The mode, framework or dtype is unknown. From the returned function: neither
            axis has 3 channels.
    """
    constants = _check_mode(mode)
    if framework not in _LIBRARIES:
        raise UsageError(f"framework must be one of {', '.join(_LIBRARIES)}, got {framework!r}")
    name = None if dtype is None else dtype_name(dtype, _DTYPES)
    if framework == "keras":
        layer: Callable[[Any], Any] = _keras_layer_class()(
            mode, channels_first=channels_first, dtype=name
        )
        return layer
    target = name or _DEFAULT_DTYPE
    if framework == "numpy":  # picklable, for other processes
        return functools.partial(normalize, mode=mode, dtype=target, channels_first=channels_first)
    library = _LIBRARIES[framework]()
    return functools.partial(_normalized, library, constants, target, channels_first)


_Constants = tuple[tuple[float, float, float], tuple[float, float, float]]


def _array(values: _Constants, shape: tuple[int, ...], images: Any) -> Any:  # noqa: ARG001
    return np.array(values, np.float32).reshape(shape)


class _Library(NamedTuple):
    """The functions of a framework that normalizing calls.

    Attributes:
        cast: Takes an array and the name of a dtype.
        flip: Takes an array and an axis.
        move: Takes an array, an axis and the place that it goes to.
        constant: Takes numbers, their shape, and an array on whose device they are needed.
    """

    cast: Callable[[Any, str], Any]
    flip: Callable[[Any, int], Any]
    move: Callable[[Any, int, int], Any]
    constant: Callable[[_Constants, tuple[int, ...], Any], Any] = _array


def _normalized(
    library: _Library, mode: _Mode, dtype: str, channels_first: bool, images: Any
) -> Any:
    shape = tuple(images.shape)
    axis = next((axis for axis in (-1, -3) if len(shape) >= -axis and shape[axis] == 3), None)
    if axis is None:
        told = "[..., height, width, 3] or [..., 3, height, width]"
        raise UsageError(f"images must be {told}, got {shape}")
    of_channels = (2, 3, *[1] * (-1 - axis))
    mean, deviation = library.constant((mode.mean, mode.deviation), of_channels, images)
    ordered = library.flip(images, axis) if mode.is_bgr else images
    # In float32, and rounded once at the end: bfloat16 has 8 bits, as many as a pixel.
    made = (library.cast(ordered, "float32") - mean) / deviation
    if channels_first and axis == -1:
        made = library.move(made, -1, -3)
    return library.cast(made, dtype)


def _numpy() -> _Library:
    return _Library(
        lambda array, dtype: np.asarray(array).astype(numpy_dtype(dtype), copy=False),
        np.flip,
        np.moveaxis,
    )


def _jax() -> _Library:
    jnp = importlib.import_module("jax.numpy")
    return _Library(jnp.asarray, jnp.flip, jnp.moveaxis)


def _torch() -> _Library:
    torch = importlib.import_module("torch")

    @functools.cache  # a copy to the device makes the host wait for it
    def on_device(values: _Constants, shape: tuple[int, ...], device: Any) -> Any:
        return torch.tensor(values, dtype=torch.float32, device=device).reshape(shape)

    return _Library(
        lambda array, dtype: array.to(getattr(torch, dtype)),
        lambda array, axis: array.flip(axis),
        torch.moveaxis,
        lambda values, shape, images: on_device(values, shape, images.device),
    )


def _tf() -> _Library:
    tf = importlib.import_module("tensorflow")
    return _Library(tf.cast, tf.experimental.numpy.flip, tf.experimental.numpy.moveaxis)


def _keras() -> _Library:
    ops = importlib.import_module("keras").ops
    return _Library(ops.cast, ops.flip, ops.moveaxis)


_LIBRARIES = {"numpy": _numpy, "jax": _jax, "torch": _torch, "tf": _tf, "keras": _keras}


@functools.cache
def _keras_layer_class() -> Any:
    keras = importlib.import_module("keras")

    @keras.saving.register_keras_serializable(package="shardwright")
    class Normalize(keras.layers.Layer):  # type: ignore[name-defined]
        """A layer that normalizes RGB images for the models of keras.applications."""

        def __init__(
            self, mode: str | MeanStd, *, channels_first: bool = False, **options: Any
        ) -> None:
            # No autocast: the input would be rounded to the policy's compute dtype, but the
            # computation is in float32.
            super().__init__(autocast=False, **options)
            # A saved layer holds mean and deviation as lists.
            self.mode = mode if isinstance(mode, str) else _mean_std(mode)
            self.channels_first = channels_first
            self.supports_jit = True

        def call(self, images: Any) -> Any:
            return _normalized(
                _keras(), _check_mode(self.mode), self.compute_dtype, self.channels_first, images
            )

        def compute_output_shape(
            self, input_shape: tuple[int | None, ...]
        ) -> tuple[int | None, ...]:
            *rest, height, width, channels = input_shape
            is_moved = self.channels_first and channels == 3
            return (*rest, channels, height, width) if is_moved else input_shape

        def get_config(self) -> dict[str, Any]:
            return {
                **super().get_config(),
                "mode": self.mode if isinstance(self.mode, str) else [*map(list, self.mode)],
                "channels_first": self.channels_first,
            }

    return Normalize


def _mean_std(pair: Sequence[Sequence[float]]) -> MeanStd:
    mean, std = (cast("tuple[float, float, float]", tuple(values)) for values in pair)
    return MeanStd(mean, std)


def _check_mode(mode: str | MeanStd) -> _Mode:
    if isinstance(mode, MeanStd):
        if min(mode.std) <= 0:
            raise UsageError(f"the standard deviation must be above 0, got {mode.std}")
        red, green, blue = (255 * value for value in mode.mean)
        of_red, of_green, of_blue = (255 * value for value in mode.std)
        return _Mode((red, green, blue), (of_red, of_green, of_blue))
    if mode not in _MODES:
        raise UsageError(
            f"mode must be one of {', '.join(_MODES)}, or a dataset's mean_std(), got {mode!r}"
        )
    return _MODES[mode]
