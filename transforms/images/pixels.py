"""Decode pixels with Pillow, imported at the first use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.headers import read_header
from shardwright.images.jpeg import essential_jpeg
from shardwright.images.kinds import Header, check_bomb
from shardwright.images.png import png_for_pillow
from shardwright.images.previews import image_openers
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.colors import in_mode, opaque
from shardwright.transforms.images.geometry import upright
from shardwright.transforms.images.metadata import orientation_of
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of arrays, by channels


def open_pixels(data: bytes, header: Header) -> ImageFile:
    """Open an image with Pillow; `load`, in `decoder_faults` and `PIXELS.hold`, decodes it.

    Raises:
        ImageFault: As `decoder_faults`; TOO_MANY_PIXELS above the limit.
    """
    image_format, source = header.info.format, data
    if image_format == "jpeg":
        source = essential_jpeg(data)
    elif image_format == "png":
        source = png_for_pillow(data)
    with decoder_faults(header):
        image = _openers()[image_format](BytesIO(source))
        check_bomb(image_format, *image.size)
    return image


def pixels_held(image: Image) -> int:
    """Return the memory of decoding, in pixels: a progressive JPEG also holds all coefficients."""
    width, height = image.size
    return width * height * (2 if image.info.get("progressive") else 1)


@contextmanager
def decoder_faults(header: Header) -> Iterator[None]:
    """Turn what Pillow raises over an image's bytes into an ImageFault.

    Raises:
        ImageFault: TRUNCATED if the file lacks its end or the decoder reports that,
            UNSUPPORTED_FORMAT for a known variant that Pillow lacks, CORRUPT for all else.
    """
    try:
        yield
    # Lack of memory says nothing about the image.
    except (ImageFault, MemoryError):
        raise
    # Decoders raise any exception over hostile bytes, and one image must not end a build.
    except Exception as error:
        raise _fault_of_decoder(error, header) from error


_BLOCK_BYTES = 64 << 20


@functools.cache
def _openers() -> dict[str, Callable[[BytesIO], ImageFile]]:
    from PIL import Image, WebPImagePlugin

    # malloc returns blocks above 32 MB to the system at once. Of smaller ones, Pillow's default, it
    # keeps all that a thread has ever used: 200 MB a thread after an image of 50 million pixels. An
    # image below the block size takes one block of its own size.
    Image.core.set_block_size(_BLOCK_BYTES)  # type: ignore[attr-defined]
    if not WebPImagePlugin.SUPPORTED:
        raise RuntimeError(
            "Pillow must have WebP support, but this build has none: install Pillow's wheel"
        )
    return image_openers()


def _fault_of_decoder(error: Exception, header: Header) -> ImageFault:
    message = " ".join(str(error).split())[:200] or type(error).__name__
    said = f"the {header.info.format} file does not decode ({message})"
    if header.refusal or message.startswith("Unsupported"):
        variant = header.refusal or f"a {header.info.format} variant"
        return ImageFault(f"{variant}: {said}: convert it first", RejectReason.UNSUPPORTED_FORMAT)
    if header.cut or isinstance(error, EOFError) or "truncated" in message.lower():
        return ImageFault(
            f"{said}; {header.cut or 'it is truncated'}: fetch it again", RejectReason.TRUNCATED
        )
    return ImageFault(f"{said}; {header.odd}" if header.odd else said)


def decode_rgb(data: bytes) -> NDArray[np.uint8]:
    """Return an image as uint8 [height, width, 3], upright, with transparent areas white.

    Of an animation, this is the first frame.

    Raises:
        ImageFault: It does not decode.
    """
    header = read_header(data)
    image = open_pixels(data, header)
    with PIXELS.hold(pixels_held(image)), decoder_faults(header):
        image.load()
        return np.array(in_mode(opaque(upright(image, orientation_of(data, header))), "RGB"))


def encode_png(pixels: NDArray[Any]) -> bytes:
    """Return a PNG of uint8 [height, width] or [height, width, 1, 3 or 4].

    It is compressed lightly, because it may be decoded again at once.

    Raises:
        ImageFault: BAD_VALUE for an array of another shape or dtype.
    """
    from PIL import Image

    shown = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = shown.shape[2] if shown.ndim == 3 else 1
    if (
        pixels.dtype != np.uint8
        or shown.ndim not in (2, 3)
        or channels not in _MODES
        or 0 in shown.shape
    ):
        found = f"{list(pixels.shape)} of {pixels.dtype}"
        raise ImageFault(
            f"pixels must be uint8 [height, width] or [height, width, 1, 3 or 4], got {found}",
            RejectReason.BAD_VALUE,
        )
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(shown), _MODES[channels]).save(
        file, "PNG", compress_level=1
    )
    return file.getvalue()
