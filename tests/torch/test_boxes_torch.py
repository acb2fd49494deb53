"""Boxes and masks that move with the image: against torchvision's transforms, and as tensors."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.transforms import v2

import shardwright as sw
from shardwright.format.schema import Feature, FeatureKind
from shardwright.images.boxes import Boxes
from shardwright.images.crops import View, draw_crop, draw_flip
from shardwright.images.masks import show_mask

NUM_CASES = 3_000


def drawn_boxes(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float32]:
    """Return up to 12 boxes xyxy in pixels, some of them small, half of them on whole pixels."""
    count = int(rng.integers(0, 13))
    corners = rng.random((count, 2, 2))
    small = rng.random(count) < 0.3
    corners[small, 1] = corners[small, 0] + rng.random((small.sum(), 2)) * 0.02
    corners = np.sort(corners.clip(0, 1), axis=1) * [width, height]
    if rng.random() < 0.5:
        corners = corners.round()
    return corners.reshape(count, 4).astype(np.float32)


def by_torchvision(pixels: NDArray[np.float32], view: View, rules: Boxes) -> Any:
    """Return the boxes that are left, and which those are.

    Boxes are clamped before they are judged, as torchvision's documentation recommends: resizing in
    float32 may leave a box that ends at the crop's edge 0.00006 pixels outside, and it is dropped.
    """
    boxes: Any = tv_tensors.BoundingBoxes(
        torch.from_numpy(pixels), format="XYXY", canvas_size=view.image_size
    )
    boxes = v2.functional.resized_crop(boxes, *view.crop, size=list(view.size))
    if view.flip:
        boxes = v2.functional.horizontal_flip(boxes)
    boxes = v2.functional.clamp_bounding_boxes(boxes)
    left, kept = v2.functional.sanitize_bounding_boxes(
        boxes, min_size=rules.min_size, min_area=rules.min_area
    )
    return left.numpy(), kept.numpy()


@pytest.mark.long
def test_boxes_are_those_of_torchvision() -> None:
    """Within 0.001 pixels, and the same are left, in 3,000 crops of images of all sizes."""
    rng = np.random.default_rng(30)
    num_kept = num_dropped = 0
    for _ in range(NUM_CASES):
        height, width, *size = (int(side) for side in rng.integers(16, 1200, 4))
        draw = int(rng.integers(0, 2**63))
        crop = draw_crop(draw, height, width, scale=(0.08, 1.0), ratio=(0.5, 2.0))
        view = View((height, width), crop, (size[0], size[1]), draw_flip(draw))
        rules = Boxes("b", min_size=rng.choice([1, 2.5, 8]), min_area=rng.choice([1, 40]))
        pixels = drawn_boxes(rng, height, width)
        stored = pixels[:, [1, 0, 3, 2]] / np.array([height, width] * 2, np.float32)
        found, kept = rules.move(stored, view)
        wanted, wanted_kept = by_torchvision(pixels, view, rules)
        np.testing.assert_array_equal(kept, wanted_kept)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3)
        num_kept += kept.sum()
        num_dropped += (~kept).sum()
    assert min(num_kept, num_dropped) > NUM_CASES


def test_masks_are_those_of_torchvision() -> None:
    """At all pixels of the result whose center is not on the edge of two pixels of the mask."""
    rng = np.random.default_rng(30)
    feature = Feature("mask", FeatureKind.MASK)
    for _ in range(NUM_CASES // 50):
        mask = rng.integers(0, 256, (60, 80), np.uint8)
        size = (int(rng.integers(1, 150)), int(rng.integers(1, 150)))
        draw = int(rng.integers(0, 2**63))
        crop = draw_crop(draw, 60, 80, scale=(0.08, 1.0), ratio=(0.5, 2.0))
        data = cv2.imencode(".png", mask)[1].tobytes()
        shown = show_mask(feature, data, View((60, 80), crop, size, draw_flip(draw)))
        wanted = v2.functional.resized_crop(
            torch.from_numpy(mask)[None],
            *crop,
            size=list(size),
            interpolation=v2.InterpolationMode.NEAREST_EXACT,
        )
        wanted = v2.functional.horizontal_flip(wanted) if draw_flip(draw) else wanted
        down, across = (
            (2 * np.arange(side) + 1) * length % (2 * side) > 0
            for side, length in zip(size, crop[2:], strict=True)
        )
        across = across[::-1] if draw_flip(draw) else across
        np.testing.assert_array_equal(
            shown[..., 0][down][:, across], wanted[0].numpy()[down][:, across]
        )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_boxes_in_a_data_loader(scenes: str, num_workers: int) -> None:
    """Padded boxes are one tensor, others a list of a tensor per image."""
    for max_boxes in (2, None):
        image = sw.TrainImage(32, boxes=sw.Boxes("objects/bbox", max_boxes=max_boxes))
        options: Any = {"batch_size": 8, "epochs": 1, "shuffle": True, "image": image}
        loader = DataLoader(
            sw.Reader(scenes, **options).torch(), batch_size=None, num_workers=num_workers
        )
        names = ["objects/bbox", "objects/label"] + ["objects/bbox_mask"] * bool(max_boxes)
        for found, wanted in zip(loader, sw.Reader(scenes, **options), strict=True):
            assert isinstance(found["objects/bbox"], torch.Tensor if max_boxes else list)
            for name in names:
                for one, other in zip(found[name], wanted[name], strict=True):
                    np.testing.assert_array_equal(one.numpy(), other)


def test_padded_boxes_of_single_examples(scenes: str) -> None:
    """They have one size, so that torch's own `collate_fn` batches them."""
    image = sw.EvalImage(32, boxes=sw.Boxes("objects/bbox", max_boxes=2))
    reader = sw.Reader(scenes, batch_size=8, epochs=1, image=image)
    for found, wanted in zip(
        DataLoader(reader.torch(map_style=True), batch_size=8), reader, strict=True
    ):
        for name in ("objects/bbox", "objects/label", "objects/bbox_mask"):
            np.testing.assert_array_equal(found[name].numpy(), wanted[name])
