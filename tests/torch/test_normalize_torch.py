"""Normalising in torch: the same numbers as in NumPy, which test_normalize.py compares with keras.applications."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2.functional import normalize as torchvision_normalize

from shardwright.errors import UsageError
from shardwright.images import MODES, normalize, normalizer

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_it_is_what_numpy_gives(mode: str, channels_first: bool) -> None:
    made = normalizer(mode, "torch", channels_first=channels_first)(torch.from_numpy(IMAGES))
    assert made.dtype == torch.float32
    np.testing.assert_allclose(
        made.numpy(), normalize(IMAGES, mode, channels_first=channels_first), atol=2e-5
    )


def test_torch_mode_is_what_torchvisions_weights_take() -> None:
    scaled = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).to(torch.float32) / 255
    expected = torchvision_normalize(scaled, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    made = normalizer("torch", "torch", channels_first=True)(torch.from_numpy(IMAGES))
    torch.testing.assert_close(made, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_bfloat16_travels_without_loss_and_is_rounded_once(mode: str) -> None:
    images = torch.from_numpy(IMAGES)
    exact = normalizer(mode, "torch")(images)
    assert (normalizer(mode, "torch")(images.to(torch.bfloat16)) == exact).all()
    assert (normalizer(mode, "torch", dtype="bfloat16")(images) == exact.to(torch.bfloat16)).all()


def test_on_the_device_of_the_batch() -> None:
    apply = normalizer("caffe", "torch", channels_first=True)
    assert apply(torch.empty(2, 5, 4, 3, dtype=torch.uint8, device="meta")).shape == (2, 3, 5, 4)
    assert apply(torch.from_numpy(IMAGES)).device.type == "cpu"


def test_other_channels_are_refused() -> None:
    with pytest.raises(UsageError, match=r"got \(2, 3, 5, 4\)"):
        normalizer("torch", "torch")(torch.zeros(2, 3, 5, 4))


def test_a_torch_dtype_is_a_name_of_one() -> None:
    assert (
        normalizer("tf", "torch", dtype=torch.bfloat16)(torch.from_numpy(IMAGES)).dtype
        == torch.bfloat16
    )
