"""Images as a trainer takes them: decoded, cut, resized and mirrored in threads, without TensorFlow; normalised on the device."""

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
