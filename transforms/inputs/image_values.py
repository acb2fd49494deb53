"""Recognize values that are encoded images by their first bytes."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.format.schema import FeatureKind

# Usual names of columns and features that hold images, in the order in which they are tried.
IMAGE_NAMES = (
    "image", "image/encoded", "img", "jpg", "jpeg", "png", "webp", "image_raw", "image_bytes",
    "image_encoded", "encoded_image",
    "encoded", "image/bytes", "img_bytes", "image_jpeg", "image_png", "picture", "pixels",
)  # fmt: skip
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"\0\0\0\x0cjP  ",
)


def has_image_magic(data: bytes) -> bool:
    """Return whether bytes begin like a JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or HEIC.

    Stricter than `file_rules.magic_problem`: a text value may begin with "BM" or "RIFF".
    """
    if data.startswith(_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return True
    return (data[:2] == b"BM" and data[6:10] == bytes(4)) or (
        data[4:8] == b"ftyp" and data[8:12] in (b"avif", b"heic", b"mif1")
    )


def said_kinds(
    columns: Mapping[str, str | None], kinds: Mapping[str, FeatureKind] | None
) -> dict[str, FeatureKind]:
    """Return column -> kind for the columns whose kind `--schema` or `--image-column` sets.

    Args:
        columns: Role -> column given by an option, or None.
        kinds: Column -> kind of the feature that `--schema` fills from it.
    """
    image = columns.get("image")
    return {**(kinds or {}), **({} if image is None else {image: FeatureKind.IMAGE})}
