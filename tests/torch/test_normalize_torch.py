"""Normalizing in torch: the numbers of NumPy, which test_normalize.py compares with Keras."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2.functional import normalize as torchvision_normalize

from shardwright.errors import UsageError
from shardwright.images.normalize import MODES, normalizer

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
BATCH = torch.from_numpy(IMAGES)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_the_result_of_numpy(mode: str) -> None:
    made, expected = normalizer(mode, "torch")(BATCH), normalizer(mode, "numpy")(IMAGES)
    assert made.dtype == torch.float32
    np.testing.assert_allclose(made.numpy(), expected, atol=2e-5)
    first = normalizer(mode, "torch")(BATCH.movedim(-1, -3))  # as `Reader.torch()` gives them
    np.testing.assert_allclose(first.numpy(), np.moveaxis(expected, -1, -3), atol=2e-5)


def test_mode_torch_is_the_preprocessing_of_torchvision() -> None:
    scaled = BATCH.permute(0, 3, 1, 2).to(torch.float32) / 255
    expected = torchvision_normalize(scaled, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    made = normalizer("torch", "torch")(BATCH.movedim(-1, -3))
    torch.testing.assert_close(made, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_bfloat16_input_is_exact_and_a_bfloat16_result_rounded_once(mode: str) -> None:
    exact = normalizer(mode, "torch")(BATCH)
    assert (normalizer(mode, "torch")(BATCH.to(torch.bfloat16)) == exact).all()
    for dtype in ("bfloat16", torch.bfloat16):
        short = normalizer(mode, "torch", dtype=dtype)(BATCH)
        assert short.dtype == torch.bfloat16
        assert (short == exact.to(torch.bfloat16)).all()


def test_on_the_device_of_the_batch() -> None:
    apply = normalizer("caffe", "torch")
    assert apply(torch.empty(2, 3, 5, 4, dtype=torch.uint8, device="meta")).shape == (2, 3, 5, 4)
    assert apply(BATCH).device.type == "cpu"


def test_other_numbers_of_channels_are_errors() -> None:
    with pytest.raises(UsageError, match=r"got \(2, 4, 5, 4\)"):
        normalizer("torch", "torch")(torch.zeros(2, 4, 5, 4))
