"""Encode masks: images whose pixels are class or instance numbers, which must not be blended."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from shardwright.errors import ImageFault
from shardwright.images.headers import read_header
from shardwright.images.kinds import Header, ImageInfo
from shardwright.images.png import png_header
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.checks import check_header, look_at
from shardwright.transforms.images.geometry import (
    SIDEWAYS,
    Geometry,
    may_show_all_of,
    plan_geometry,
    shaped,
)
from shardwright.transforms.images.metadata import orientation_of, strip
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.pixels import decoder_faults, open_pixels, pixels_held
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image


def encode_mask(
    data: bytes,
    options: EncodeOptions,
    *,
    check: str = "header",
    image_size: tuple[int, int] | None = None,
) -> tuple[bytes, ImageInfo]:
    """Return the PNG of one channel to store for a mask, and its properties.

    A mask is cropped, scaled and padded like an image of its size, but with the nearest pixel and
    with 0 for padding. A gray PNG that needs no change is stored as it is.

    * A palette's indices are the numbers, as in Pascal VOC; its colors are dropped.
    * 16-bit gray is kept. Gray of 1, 2 or 4 bits is spread over 0 to 255, as all decoders show it.
    * Of RGB with three equal channels, one is taken.

    Args:
        data: The whole file; PNG, GIF, BMP or WebP.
        options: Those of the images. Of the policy, only what changes sizes applies, and the EXIF
            rule for the mask's own EXIF.
        check: As for `check_image`; 'none' acts as 'header'.
        image_size: Height and width of its image, turned as the mask will be; None if unknown.

    Raises:
        ImageFault: The mask does not decode, is in color, is a JPEG, whose lossy compression
            changes numbers, or has another shape than its image.
    """
    check = "decode" if check == "decode" else "header"
    header = look_at(data, check)
    if header.info.format == "jpeg":
        detail = "a mask as JPEG, whose compression changes the numbers: use the original PNG"
        raise ImageFault(detail, RejectReason.UNSUPPORTED_FORMAT)
    orientation = orientation_of(data, header) if options.actions[PolicyFault.EXIF] == "fix" else 1
    size = header.info.height, header.info.width
    size = size[::-1] if orientation >= SIDEWAYS else size
    if image_size is not None and not may_show_all_of(image_size, size):
        raise ImageFault(
            f"a mask of {size[1]} x {size[0]} pixels for an image of {image_size[1]} x "
            f"{image_size[0]}, whose pixels would get numbers of others: give the mask of this "
            "image, or --on exif=fix if EXIF turns the image and the mask is upright",
            RejectReason.BAD_VALUE,
        )
    if header.info.format == "png" and png_header(data).color == 0 and orientation == 1:
        size = (header.info.width, header.info.height)
        if plan_geometry(size, options) == Geometry(size, size, size):
            info = check_header(data, header, check, stored=True)
            return strip(data, "png") if options.strip_metadata else data, info
    return _encoded(data, header, options, orientation)


def _encoded(
    data: bytes, header: Header, options: EncodeOptions, orientation: int
) -> tuple[bytes, ImageInfo]:
    image = open_pixels(data, header)
    size = image.size[::-1] if orientation >= SIDEWAYS else image.size
    geometry = plan_geometry(size, options)
    with PIXELS.hold(pixels_held(image)), decoder_faults(header):
        image.load()
        numbers = shaped(_numbers(image), image.size, geometry, orientation, nearest=True)
        numbers.info = {}
        buffer = BytesIO()
        numbers.save(buffer, "PNG", compress_level=6)
    return buffer.getvalue(), read_header(buffer.getvalue()).info


def _numbers(image: Image) -> Image:
    from PIL import Image as Pil
    from PIL import ImageChops

    if image.mode == "P":
        return Pil.frombytes("L", image.size, image.tobytes())
    if image.mode in ("1", "L", "I;16"):
        return image.convert("L") if image.mode == "1" else image
    channels = image.getchannel(0), *image.split()[1:3]
    if image.mode == "LA":
        return channels[0]
    if any(ImageChops.difference(channels[0], other).getbbox() for other in channels[1:]):
        detail = (
            "a mask in color, without class numbers: store the numbers as gray or with a palette"
        )
        raise ImageFault(detail, RejectReason.UNSUPPORTED_FORMAT)
    return channels[0]
