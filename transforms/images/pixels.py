"""Pixels through Pillow, which is imported at the first image that needs it: headers do without."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from transforms.images.jpeg import essential_jpeg
from transforms.images.kinds import Header, ImageFault, too_many_pixels
from transforms.images.png import essential_png
from transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile


def decode_pixels(data: bytes, header: Header, *, smallest_side: int = 0) -> ImageFile:
    """Decodes the first frame. Pillow's decoders release the GIL.

    Args:
        data: The whole file.
        header: Its header.
        smallest_side: A JPEG may be decoded at 1/2, 1/4 or 1/8 of its size as long as neither side gets below this
            many pixels, which saves most of the time for a large photograph; 0 for full size.

    Returns:
        A loaded Pillow image; of a JPEG, PNG or WebP `info["exif"]` may hold the EXIF block.

    Raises:
        ImageFault: TRUNCATED where the file lacks its end or the decoder says that it is cut short, TOO_MANY_PIXELS,
            UNSUPPORTED_FORMAT for a known variant that Pillow lacks, CORRUPT for all else.
    """
    image_format = header.info.format
    open_image = _openers()[image_format]
    source, exif = data, b""
    if image_format == "jpeg":
        source, exif = essential_jpeg(data)
    elif image_format == "png":
        source = essential_png(data)
    with decoder_faults(header):
        image = open_image(BytesIO(source))
        if fault := too_many_pixels(image_format, *image.size):
            raise fault
        if smallest_side and image_format == "jpeg":
            image.draft(None, (smallest_side, smallest_side))
        image.load()
    if exif:
        image.info["exif"] = exif
    return image


@contextmanager
def decoder_faults(header: Header) -> Iterator[None]:
    """Turns what Pillow raises over an image's bytes into an ImageFault."""
    try:
        yield
    except (ImageFault, MemoryError):
        raise
    except Exception as error:  # decoders answer hostile bytes with any exception: one image must not end a build
        raise _fault_of_decoder(error, header) from error


@functools.cache
def _openers() -> dict[str, Callable[[BytesIO], ImageFile]]:
    # The plugins, not Image.open: it registers some 40 plugins at the first unknown file, tries them in turn whatever
    # the header said, and prints warnings about large images, whose limit is checked here already.
    from PIL import BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

    if not WebPImagePlugin.SUPPORTED:
        raise RuntimeError("Pillow must have WebP support, and this build has none: install Pillow's wheel")
    return {
        "jpeg": JpegImagePlugin.JpegImageFile,
        "png": PngImagePlugin.PngImageFile,
        "gif": GifImagePlugin.GifImageFile,
        "bmp": BmpImagePlugin.BmpImageFile,
        "webp": WebPImagePlugin.WebPImageFile,
    }


def _fault_of_decoder(error: Exception, header: Header) -> ImageFault:
    message = " ".join(str(error).split())[:200] or type(error).__name__
    said = f"the {header.info.format} file does not decode ({message})"
    if header.refusal or message.startswith("Unsupported"):
        variant = header.refusal or f"a {header.info.format} variant"
        return ImageFault(RejectReason.UNSUPPORTED_FORMAT, f"{variant}: {said}: convert it first")
    if header.cut or isinstance(error, EOFError) or "truncated" in message.lower():
        return ImageFault(RejectReason.TRUNCATED, f"{said}; {header.cut or 'it is cut short'}: fetch it again")
    return ImageFault(RejectReason.CORRUPT, f"{said}; {header.odd}" if header.odd else said)
