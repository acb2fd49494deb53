"""Prepare images for training without TensorFlow: decode, crop, resize, flip and normalize."""

from shardwright.images.decode import StoredImage
from shardwright.images.normalize import MODES, normalize, normalizer
from shardwright.images.specs import DecodedImage, EvalImage, ImageTransform, TrainImage

__all__ = [
    "MODES",
    "DecodedImage",
    "EvalImage",
    "ImageTransform",
    "StoredImage",
    "TrainImage",
    "normalize",
    "normalizer",
]
