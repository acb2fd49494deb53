"""Decode pixels with Pillow, imported at the first use, and bound how many are in memory."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from shardwright.images.formats.jpeg import essential_jpeg
from shardwright.images.previews import image_openers
from shardwright.transforms.images.kinds import Header, RejectedImage, too_many_pixels
from shardwright.transforms.images.png import essential_png
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


class PixelBudget:
    """A bound on the decoded pixels that all threads of a process hold; large images wait.

    Args:
        num_pixels: The bound. A larger image is decoded alone.
    """

    def __init__(self, num_pixels: int) -> None:
        self._free = self._all = num_pixels
        self._changed = threading.Condition()
        self._waited = threading.local()

    def seconds_waited(self) -> float:
        """Return how long this thread has waited in total."""
        return getattr(self._waited, "seconds", 0.0)

    @contextmanager
    def hold(self, num_pixels: int) -> Iterator[None]:
        """Wait until there is room for so many pixels, and free it at the end."""
        taken = min(num_pixels, self._all)
        with self._changed:
            if self._free < taken:
                start = time.monotonic()
                self._changed.wait_for(lambda: self._free >= taken)
                self._waited.seconds = self.seconds_waited() + time.monotonic() - start
            self._free -= taken
        try:
            yield
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()


# Pillow takes 4 bytes for a pixel, and some steps hold two or three copies: 64 million pixels keep
# two cores below 1 GB. Machines with more cores have more memory, and there an ordinary photograph
# of 12 million pixels on each core should not wait.
PIXELS = PixelBudget(max(64, 12 * (os.cpu_count() or 1)) * 1_000_000)


def open_pixels(data: bytes, header: Header) -> ImageFile:
    """Open an image with Pillow; `load`, in `decoder_faults` and `PIXELS.hold`, decodes it.

    Raises:
        RejectedImage: As `decoder_faults`; TOO_MANY_PIXELS above the limit.
    """
    image_format, source = header.info.format, data
    if image_format == "jpeg":
        source = essential_jpeg(data)
    elif image_format == "png":
        source = essential_png(data)
    with decoder_faults(header):
        image = _openers()[image_format](BytesIO(source))
        if fault := too_many_pixels(image_format, *image.size):
            raise fault
    return image


def pixels_held(image: Image) -> int:
    """Return the memory of decoding, in pixels: a progressive JPEG also holds all coefficients."""
    width, height = image.size
    return width * height * (2 if image.info.get("progressive") else 1)


@contextmanager
def decoder_faults(header: Header) -> Iterator[None]:
    """Turn what Pillow raises over an image's bytes into a RejectedImage.

    Raises:
        RejectedImage: TRUNCATED if the file lacks its end or the decoder reports that,
            UNSUPPORTED_FORMAT for a known variant that Pillow lacks, CORRUPT for all else.
    """
    try:
        yield
    except (RejectedImage, MemoryError):
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


def _fault_of_decoder(error: Exception, header: Header) -> RejectedImage:
    message = " ".join(str(error).split())[:200] or type(error).__name__
    said = f"the {header.info.format} file does not decode ({message})"
    if header.refusal or message.startswith("Unsupported"):
        variant = header.refusal or f"a {header.info.format} variant"
        return RejectedImage(
            RejectReason.UNSUPPORTED_FORMAT, f"{variant}: {said}: convert it first"
        )
    if header.cut or isinstance(error, EOFError) or "truncated" in message.lower():
        return RejectedImage(
            RejectReason.TRUNCATED, f"{said}; {header.cut or 'it is truncated'}: fetch it again"
        )
    return RejectedImage(RejectReason.CORRUPT, f"{said}; {header.odd}" if header.odd else said)
