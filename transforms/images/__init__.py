"""Images: is this file one, is it whole, and what goes into the shard.

The parts: `image_kinds` (types and names), `image_headers` (formats without a decoder), `image_png` (as strict as
libpng), `image_pixels` (Pillow), `image_encode` (re-encoding).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.images.encode import Encode, EncodeOptions, encode_pixels
from transforms.images.headers import check_gif, read_header, true_format
from transforms.images.jpeg import check_jpeg
from transforms.images.kinds import MAX_GIF_PIXELS, MAX_PIXELS, Header, ImageFault, ImageInfo, too_many_pixels
from transforms.images.pixels import decode_pixels
from transforms.images.png import check_png
from transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

__all__ = [
    "CHECKS",
    "MAX_GIF_PIXELS",
    "MAX_PIXELS",
    "Encode",
    "EncodeOptions",
    "ImageFault",
    "ImageInfo",
    "check_image",
    "encode_image",
]

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
    if check not in CHECKS:
        raise ValueError(f"check must be one of {', '.join(CHECKS)}, got {check!r}")
    if not data:
        raise ImageFault(RejectReason.EMPTY_FILE, "the file has no bytes")
    if check == "none":
        return _info_if_any(data)
    header = read_header(data)
    info = header.info
    if fault := too_many_pixels(info.format, info.width, info.height):
        raise fault
    if stored and header.refusal:
        detail = f"{header.refusal}: TensorFlow does not decode it as it is; encode to png or jpeg"
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    if header.cut or header.odd or check == "decode":
        return _check_pixels(data, header, stored=stored)
    return info


def encode_image(data: bytes, options: EncodeOptions) -> tuple[bytes, ImageInfo]:
    """The bytes to store for one image file, and what they are.

    The same bytes and options give the same result with one version of Pillow. For the first frame of an animation.
    Safe to call from many threads: decoding, resizing and encoding run without the GIL.

    * 'keep': `data` itself, unchecked.
    * 'jpeg': gray stays gray, all else becomes RGB; 4:2:0 chroma, no metadata.
    * 'png': lossless: gray, palette, alpha and 16-bit gray are kept (16-bit colour is read as 8-bit).
    * 'raw': height x width x 3 bytes, uint8 RGB, row by row from the top left, no padding.

    EXIF orientation is applied, as the new bytes carry no EXIF. In 'jpeg' and 'raw' what is transparent becomes
    white. Resizing is bicubic with antialiasing, to exactly the size that is asked for.

    Returns:
        The bytes, and their format ('raw' for bare pixels), size and channels.

    Raises:
        ImageFault: The image does not decode. With 'keep' only EMPTY_FILE.
    """
    if options.encode == "keep":
        return data, check_image(data, "none")
    if not data:
        raise ImageFault(RejectReason.EMPTY_FILE, "the file has no bytes")
    return encode_pixels(data, options)


def _check_pixels(data: bytes, header: Header, *, stored: bool) -> ImageInfo:
    info = header.info
    if info.format == "png" and stored:
        check_png(data, info)
        return info
    if stored and header.cut:  # Pillow may have all pixels it wants by then, TensorFlow insists on the end
        raise ImageFault(RejectReason.TRUNCATED, f"the {info.format} file has {header.cut}: fetch it again")
    image = decode_pixels(data, header)
    if stored and info.format == "jpeg":
        check_jpeg(data)
    elif stored and info.format == "gif":
        check_gif(data, _highest_index(image))
    if info.width and info.height:
        return info
    return ImageInfo(info.format, *image.size, info.channels)  # the decoder made out what the header did not tell


def _highest_index(image: ImageFile) -> float:
    highest = image.getextrema()[1]
    return 0 if isinstance(highest, tuple) else highest  # a program may have told Pillow to apply palettes at once


def _info_if_any(data: bytes) -> ImageInfo:
    try:
        return read_header(data).info
    except ImageFault:  # this check rejects nothing for its content
        return ImageInfo(true_format(data), 0, 0, 0)
