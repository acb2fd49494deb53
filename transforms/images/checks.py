"""Checks: is this file an image, is it whole, and does TensorFlow decode it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.images.gif import check_gif
from transforms.images.headers import read_header, true_format
from transforms.images.jpeg import check_jpeg
from transforms.images.kinds import Header, ImageFault, ImageInfo, too_many_pixels
from transforms.images.pixels import PIXELS, decoder_faults, open_pixels, pixels_held
from transforms.images.png import check_png
from transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

CHECKS = ("header", "decode", "none")


def check_image(data: bytes, check: str, *, stored: bool = True) -> ImageInfo:
    """Checks one image file.

    Args:
        data: The whole file.
        check: What to look at.
            'header': Format, size, and whether the end of the file is there: about 5 microseconds. A file that looks
            odd is decoded, and the decoder decides: nothing good is lost, and no file that was cut short passes.
            'decode': The same, and every image is decoded. Of a GIF, the first frame.
            'none': Only whether there are bytes; format and size as far as the header tells them.
        stored: The bytes go into the shard as they are. Then 'header' and 'decode' also refuse what Pillow opens and
            tf.io.decode_image(channels=3, expand_animations=False) of TensorFlow 2.21 does not, or shows wrongly:
            'header' where the header tells it (WebP with alpha or animation, most BMP variants, GIF without colours,
            JPEG that is lossless), 'decode' wherever libpng would (a wrong checksum, a missing end). With False, for
            images that `encode_image` will encode anew, it is enough that Pillow opens them.

    Returns:
        What is stored. With 'none' an unknown format is '', and an unknown size 0 x 0 with 0 channels.

    Raises:
        ImageFault: The image is to be rejected. EMPTY_FILE for no bytes, whatever the check.
        ValueError: No such check.
    """
    header = look_at(data, check)
    return check_header(data, header, check, stored=stored)


def look_at(data: bytes, check: str) -> Header:
    """The header of an image that `check` may go on with.

    Raises:
        ImageFault: As `check_image`, as far as the header tells.
        ValueError: No such check.
    """
    if check not in CHECKS:
        raise ValueError(f"check must be one of {', '.join(CHECKS)}, got {check!r}")
    if not data:
        raise ImageFault(RejectReason.EMPTY_FILE, "the file has no bytes")
    if check == "none":
        return _header_if_any(data)
    header = read_header(data)
    info = header.info
    if fault := too_many_pixels(info.format, info.width, info.height):
        raise fault
    return header


def check_header(data: bytes, header: Header, check: str, *, stored: bool) -> ImageInfo:
    """What is left of `check_image` once the header is read."""
    info = header.info
    if check == "none":
        return info
    if stored and header.refusal:
        detail = f"{header.refusal}: TensorFlow does not decode it as it is; encode to png or jpeg"
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    if header.cut or header.odd or check == "decode":
        return _check_pixels(data, header, stored=stored)
    return info


def _check_pixels(data: bytes, header: Header, *, stored: bool) -> ImageInfo:
    info = header.info
    if info.format == "png" and stored:
        with PIXELS.hold(info.width * info.height):
            check_png(data, info)
        return info
    if (
        stored and header.cut
    ):  # Pillow may have all pixels it wants by then, TensorFlow insists on the end
        raise ImageFault(
            RejectReason.TRUNCATED, f"the {info.format} file has {header.cut}: fetch it again"
        )
    image = open_pixels(data, header)
    size = image.size
    with PIXELS.hold(pixels_held(image)):
        with decoder_faults(header):
            image.load()
        if stored and info.format == "jpeg":
            check_jpeg(data)
        elif stored and info.format == "gif":
            check_gif(data, _highest_index(image))
    # The decoder makes out what the header does not tell.
    return info if info.width and info.height else ImageInfo(info.format, *size, info.channels)


def _highest_index(image: ImageFile) -> float:
    highest = image.getextrema()[1]
    return (
        0 if isinstance(highest, tuple) else highest
    )  # a program may have told Pillow to apply palettes at once


def _header_if_any(data: bytes) -> Header:
    try:
        return read_header(data)
    except ImageFault:  # this check rejects nothing for its content
        return Header(ImageInfo(true_format(data), 0, 0, 0))
