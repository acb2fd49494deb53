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

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
        return np.array(self.mean, np.float32), np.array(self.deviation, np.float32), self.is_bgr


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
    """Normalize images in NumPy.

    Args:
        images: [..., height, width, 3] RGB, 0 to 255, of any dtype.
        mode: "torch", "tf" or "caffe": see `MODES`; or a dataset's `mean_std()`.
        dtype: Result dtype: "float32", "bfloat16" or "float16". Computed in float32.
        channels_first: Return [..., 3, height, width].

    Returns:
        A new array.

    Raises:
        UsageError: The mode or dtype is unknown, or the last axis does not have 3 channels.
    """
    mean, deviation, is_bgr = _check_mode(mode).arrays()
    target = numpy_dtype(dtype_name(dtype, _DTYPES))
    _check_channels(images.shape)
    ordered = images[..., ::-1] if is_bgr else images
    # In float32, and rounded once at the end: bfloat16 has 8 bits, as many as a pixel.
    made = (ordered.astype(np.float32) - mean) / deviation
    return (np.moveaxis(made, -1, -3) if channels_first else made).astype(target, copy=False)


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
        channels_first: Return [..., 3, height, width], as torch's models expect.

    Returns:
        A function of images [..., height, width, 3] RGB, 0 to 255, in uint8, bfloat16 or float32.

    Raises:
        UsageError: The mode, framework or dtype is unknown. From the returned function: the last
            axis does not have 3 channels.
    """
    _check_mode(mode)
    if framework not in _FACTORIES:
        raise UsageError(f"framework must be one of {', '.join(_FACTORIES)}, got {framework!r}")
    return _FACTORIES[framework](
        mode, None if dtype is None else dtype_name(dtype, _DTYPES), channels_first
    )


def _numpy(mode: str | MeanStd, dtype: str | None, channels_first: bool) -> Callable[[Any], Any]:
    return functools.partial(
        normalize, mode=mode, dtype=dtype or _DEFAULT_DTYPE, channels_first=channels_first
    )


def _jax(mode: str | MeanStd, dtype: str | None, channels_first: bool) -> Callable[[Any], Any]:
    jnp = importlib.import_module("jax.numpy")
    mean, deviation, is_bgr = _check_mode(mode).arrays()

    def normalize_jax(images: Any) -> Any:
        _check_channels(images.shape)
        ordered = images[..., ::-1] if is_bgr else images
        made = (jnp.asarray(ordered, jnp.float32) - mean) / deviation
        return (jnp.moveaxis(made, -1, -3) if channels_first else made).astype(
            dtype or _DEFAULT_DTYPE
        )

    return normalize_jax


def _torch(mode: str | MeanStd, dtype: str | None, channels_first: bool) -> Callable[[Any], Any]:
    torch = importlib.import_module("torch")
    target, constants = getattr(torch, dtype or _DEFAULT_DTYPE), _check_mode(mode)

    @functools.cache  # a copy to the device makes the host wait for it
    def constants_on(device: Any) -> Any:
        return torch.tensor(
            (constants.mean, constants.deviation), dtype=torch.float32, device=device
        )

    def normalize_torch(images: Any) -> Any:
        _check_channels(images.shape)
        mean, deviation = constants_on(images.device)
        ordered = images.flip(-1) if constants.is_bgr else images
        made = (ordered.to(torch.float32) - mean) / deviation
        return (made.movedim(-1, -3) if channels_first else made).to(target)

    return normalize_torch


def _tf(mode: str | MeanStd, dtype: str | None, channels_first: bool) -> Callable[[Any], Any]:
    tf, constants = importlib.import_module("tensorflow"), _check_mode(mode)

    def normalize_tf(images: Any) -> Any:
        images = tf.convert_to_tensor(images)
        _check_channels(images.shape)
        ordered = tf.reverse(images, [-1]) if constants.is_bgr else images
        made = (tf.cast(ordered, tf.float32) - constants.mean) / constants.deviation
        if channels_first:
            made = tf.experimental.numpy.moveaxis(made, -1, -3)
        return tf.cast(made, dtype or _DEFAULT_DTYPE)

    return normalize_tf


def _keras(mode: str | MeanStd, dtype: str | None, channels_first: bool) -> Callable[[Any], Any]:
    return _keras_layer_class()(mode, channels_first=channels_first, dtype=dtype)


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
            mean, deviation, is_bgr = _check_mode(self.mode).arrays()
            _check_channels(images.shape)
            ordered = keras.ops.flip(images, axis=-1) if is_bgr else images
            made = (keras.ops.cast(ordered, "float32") - mean) / deviation
            return keras.ops.cast(
                keras.ops.moveaxis(made, -1, -3) if self.channels_first else made,
                self.compute_dtype,
            )

        def compute_output_shape(
            self, input_shape: tuple[int | None, ...]
        ) -> tuple[int | None, ...]:
            *rest, height, width, channels = input_shape
            return (*rest, channels, height, width) if self.channels_first else input_shape

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


def _check_channels(shape: Any) -> None:
    if shape[-1] != 3:
        raise UsageError(f"images must be [..., height, width, 3], got {tuple(shape)}")


_FACTORIES: dict[str, Callable[..., Callable[[Any], Any]]] = {
    "numpy": _numpy,
    "jax": _jax,
    "torch": _torch,
    "tf": _tf,
    "keras": _keras,
}
