"""Masks: images whose pixels are class or instance numbers, so that none may be mixed with another."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from transforms.images.checks import check_header, look_at
from transforms.images.encode import on_canvas, sized, upright
from transforms.images.exif import orientation_of
from transforms.images.geometry import Geometry, plan_geometry
from transforms.images.headers import read_header
from transforms.images.kinds import Header, ImageFault, ImageInfo
from transforms.images.metadata import strip
from transforms.images.options import EncodeOptions
from transforms.images.pixels import PIXELS, decoder_faults, open_pixels, pixels_held
from transforms.images.policy import PolicyFault
from transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image


def encode_mask(
    data: bytes, options: EncodeOptions, *, check: str = "header"
) -> tuple[bytes, ImageInfo]:
    """The PNG of one channel to store for a mask, and what it is.

    It is cropped, scaled and filled as an image of its size is by the same options, every pixel from the nearest one and the
    rest 0. A gray PNG that needs nothing of this is stored as it is.

    * A palette's indices are the numbers, as in Pascal VOC; its colours are dropped.
    * Gray of 16 bits stays 16 bits. Gray of 1, 2 or 4 bits is spread over 0 to 255, as all decoders show it.
    * Of RGB with three channels that are the same, one is taken.

    Args:
        data: The whole file; PNG, GIF, BMP or WebP.
        options: Those of the images; of the policy, what changes sizes, and the EXIF rule for the mask's own EXIF.
        check: As of `check_image`; 'none' is as 'header' here.

    Raises:
        ImageFault: The mask does not decode, is coloured, or is a JPEG, whose loss makes numbers of others.
    """
    check = "decode" if check == "decode" else "header"
    header = look_at(data, check)
    if header.info.format == "jpeg":
        detail = "a mask as JPEG: compression has changed its numbers; give the PNG that it was made from"
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    orientation = orientation_of(data, header) if options.actions[PolicyFault.EXIF] == "fix" else 1
    if header.info.format == "png" and data[25] == 0 and orientation == 1:
        size = (header.info.width, header.info.height)
        if plan_geometry(size, options) == Geometry(size, size, size):
            info = check_header(data, header, check, stored=True)
            return strip(
                data, "png", metadata=True, profile=True
            ) if options.strip_metadata else data, info
    return _encoded(data, header, options, orientation)


def _encoded(
    data: bytes, header: Header, options: EncodeOptions, orientation: int
) -> tuple[bytes, ImageInfo]:
    image = open_pixels(data, header)
    sideways = orientation >= 5
    geometry = plan_geometry(image.size[::-1] if sideways else image.size, options)
    with PIXELS.hold(pixels_held(image)), decoder_faults(header):
        image.load()
        numbers = _numbers(image)
        numbers = upright(
            sized(numbers, image.size, geometry.turned() if sideways else geometry, nearest=True),
            orientation,
        )
        numbers = on_canvas(numbers, geometry.canvas)
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
        detail = "a mask in colours, and nothing says which number each is: store class numbers, in gray or with a palette"
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    return channels[0]
