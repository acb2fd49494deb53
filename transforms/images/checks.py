"""Check that a file is an image, that it is complete, and that TensorFlow decodes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwright.errors import ImageFault
from shardwright.images.gif import check_gif
from shardwright.images.headers import read_header, true_format
from shardwright.images.jpeg import check_jpeg
from shardwright.images.kinds import Header, ImageInfo, check_bomb
from shardwright.images.png import check_png
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.pixels import decoder_faults, open_pixels, pixels_held
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

CHECKS = ("header", "decode", "none")


def check_image(data: bytes, check: str, *, stored: bool = True) -> ImageInfo:
    """Check one image file and return its properties.

    Args:
        data: The whole file.
        check: The depth of the check.
            'header': Format, size, and the presence of the file's end; about 5 microseconds. A file
            that looks odd is decoded, and the decoder decides: no good file is rejected, and no
            truncated file passes.
            'decode': The same, and every image is decoded; for a GIF, the first frame.
            'none': Only that there are bytes; format and size as far as the header states them.
        stored: True if the bytes go into the shard unchanged. Then 'header' and 'decode' also
            reject what Pillow opens, but tf.io.decode_image(channels=3, expand_animations=False) of
            TensorFlow 2.21 rejects or decodes wrong. 'header' does so if the header shows it (WebP
            with alpha or animation, most BMP variants, GIF without colors, lossless JPEG), 'decode'
            also wherever libpng would (a wrong checksum, a missing end). False, for images that
            `store_image` will re-encode, requires only that Pillow opens them.

    Returns:
        The properties. With 'none' an unknown format is '', and an unknown size 0 x 0 with 0
        channels.

    Raises:
        ImageFault: The image is rejected. EMPTY_FILE for no bytes, whatever the check.
        ValueError: `check` is unknown.
    """
    header = look_at(data, check)
    return check_header(data, header, check, stored=stored)


def look_at(data: bytes, check: str) -> Header:
    """Return the header of an image, for the rest of the check.

    Raises:
        ImageFault: As `check_image`, as far as the header shows.
        ValueError: `check` is unknown.
    """
    if check not in CHECKS:
        raise ValueError(f"check must be one of {', '.join(CHECKS)}, got {check!r}")
    if not data:
        raise ImageFault("the file has no bytes", RejectReason.EMPTY_FILE)
    if check == "none":
        return _header_if_any(data)
    header = read_header(data)
    check_bomb(header.info.format, header.info.width, header.info.height)
    return header


def check_header(data: bytes, header: Header, check: str, *, stored: bool) -> ImageInfo:
    """Run the rest of `check_image` after the header, and return the image's properties."""
    info = header.info
    if check == "none":
        return info
    if stored and header.refusal:
        detail = f"{header.refusal}: TensorFlow does not decode it; encode to png or jpeg"
        raise ImageFault(detail, RejectReason.UNSUPPORTED_FORMAT)
    if header.cut or header.odd or check == "decode":
        return _check_pixels(data, header, stored=stored)
    return info


def _check_pixels(data: bytes, header: Header, *, stored: bool) -> ImageInfo:
    info = header.info
    # Not Pillow, which takes some PNGs that libpng, and so TensorFlow, refuses.
    if info.format == "png" and stored:
        with PIXELS.hold(info.width * info.height):
            check_png(data)
        return info
    # Pillow may have all the pixels it wants without the end, but TensorFlow requires the end.
    if stored and header.cut:
        raise ImageFault(
            f"the {info.format} file has {header.cut}: fetch it again", RejectReason.TRUNCATED
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
    # The decoder finds a size that the header lacks.
    return info if info.width and info.height else ImageInfo(info.format, *size, info.channels)


def _highest_index(image: ImageFile) -> float:
    highest = image.getextrema()[1]
    # A tuple if a program has set Pillow to apply palettes at once.
    return 0 if isinstance(highest, tuple) else highest


def _header_if_any(data: bytes) -> Header:
    try:
        return read_header(data)
    except ImageFault:  # the check 'none' rejects nothing for its content
        return Header(ImageInfo(true_format(data), 0, 0, 0))
