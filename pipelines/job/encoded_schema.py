"""Give a schema's images the encoding, shape and dtype of the image options."""

from __future__ import annotations

from dataclasses import replace

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, ExampleSchema, Feature, FeatureKind, Source
from shardwright.transforms.images.options import EncodeOptions


def as_encoded(schema: ExampleSchema, options: EncodeOptions) -> ExampleSchema:
    """Return the schema with the encoding and the shape that the options give to images.

    Raises:
        UsageError: A feature declares another encoding or shape.
    """
    features = [
        _encoded(feature, options) if feature.kind in PICTURES else feature
        for feature in schema.features
    ]
    image = schema.image
    if image is not None and options.tells_orientation and not schema.find(Source.ORIENTATION):
        name = "image/orientation" if "/" in image.name else "orientation"
        features.append(Feature(name, FeatureKind.INT64, Source.ORIENTATION))
    return replace(schema, features=tuple(features))


def _encoded(feature: Feature, options: EncodeOptions) -> Feature:
    stored = _as_stored(feature, options)
    if feature.encoding not in (None, stored.encoding):
        raise UsageError(
            f"--schema: feature {feature.name!r} has the encoding {feature.encoding!r}, and images "
            f"are stored with --encode {options.encode}: give --encode {feature.encoding}, or "
            "declare no encoding"
        )
    if feature.shape and feature.shape != stored.shape:
        raise UsageError(
            f"--schema: feature {feature.name!r} has the shape {feature.shape}, and --resize makes "
            f"it {stored.shape}"
        )
    if feature.dtype not in ("", stored.dtype or "uint8"):
        raise UsageError(
            f"--schema: feature {feature.name!r} has the dtype {feature.dtype!r}, and images are "
            f"stored as {stored.dtype or 'uint8'}: give --encode raw or tensor with --tensor-dtype"
        )
    if feature.normalize not in ("", stored.normalize):
        raise UsageError(
            f"--schema: feature {feature.name!r} has the normalization {feature.normalize!r}: give "
            f"--normalize {feature.normalize}"
        )
    return stored


def _as_stored(feature: Feature, options: EncodeOptions) -> Feature:
    if feature.kind == FeatureKind.MASK:
        shape = (*options.shape[:2], 1) if options.shape else feature.shape
        return replace(feature, encoding="png", shape=shape)
    return replace(
        feature,
        encoding=None if options.encode == "keep" else options.encode,
        shape=options.shape or feature.shape,
        dtype=options.image_dtype,
        normalize=options.normalize or "",
    )
