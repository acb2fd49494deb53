"""Statistics of several generations, merged."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shardwright.transforms.versions.counted import _merge_channels


def channels_of(pixels: NDArray[np.float64], basis: str) -> dict[str, object]:
    means, deviations = pixels.mean(0).tolist(), pixels.std(0).tolist()
    return {"basis": basis, "pixels": len(pixels), "mean": means, "std": deviations}


def test_channels_of_parts_merge_to_those_of_all_pixels() -> None:
    parts = [np.random.default_rng(n).random((n, 3)) * n / 50 for n in (10, 50, 1)]
    bases = ("all", "sample of 2", "all")
    found = _merge_channels([channels_of(*each) for each in zip(parts, bases, strict=True)])
    wanted = channels_of(np.concatenate(parts), "all; sample of 2")
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (value if name == "basis" else pytest.approx(value))
