"""Re-encoding: every image as JPEG, as PNG, or as bare pixels, upright and of one size where that is asked for."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Literal, get_args

from transforms.images.headers import read_header
from transforms.images.kinds import MAX_PIXELS, ImageFault, ImageInfo, too_many_pixels
from transforms.images.pixels import decode_pixels, decoder_faults
from transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image

Encode = Literal["keep", "jpeg", "png", "raw"]

_MAX_SIDE = 65_500  # libjpeg's limit; the other encodings have room for it
_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
_ORIENTATION_TAG, _SHORT = 0x0112, 3


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How images are stored.

    Attributes:
        encode: 'keep' stores the bytes of the file, 'jpeg' and 'png' encode anew, 'raw' stores bare RGB pixels.
        resize: (width, height) in pixels of every stored image; the aspect ratio is not kept. None: as it is.
        quality: Of JPEG, 1 to 100; 90 is below what is visible at training sizes, at about half the bytes of 95.

    Raises:
        ValueError: A value breaks its rule, or the values do not go together.
    """

    encode: Encode = "keep"
    resize: tuple[int, int] | None = None
    quality: int = 90

    def __post_init__(self) -> None:
        if self.encode not in get_args(Encode):
            raise ValueError(f"encode must be one of {', '.join(get_args(Encode))}, got {self.encode!r}")
        if type(self.quality) is not int or not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be a whole number from 1 to 100, got {self.quality!r}: 90 is the default")
        if self.resize is None:
            if self.encode == "raw":
                raise ValueError("encode 'raw' needs one shape for all images, got no resize: give a width and height")
            return
        _check_resize(self.resize)
        if self.encode == "keep":
            size = "x".join(map(str, self.resize))
            raise ValueError(f"encode 'keep' stores files as they are, got resize {size}: choose jpeg, png or raw")


def _check_resize(resize: tuple[int, int]) -> None:
    sides = resize if isinstance(resize, tuple) and len(resize) == 2 else ()
    if not sides or not all(type(side) is int and 1 <= side <= _MAX_SIDE for side in sides):
        rule = f"resize must be two whole numbers of pixels (width, height) from 1 to {_MAX_SIDE:,}"
        raise ValueError(f"{rule}, got {resize!r}: give for example (224, 224)")
    if resize[0] * resize[1] > MAX_PIXELS:
        raise ValueError(f"resize must ask for at most {MAX_PIXELS:,} pixels, got {resize!r}: choose a smaller size")


def encode_pixels(data: bytes, options: EncodeOptions) -> tuple[bytes, ImageInfo]:
    """Decodes, turns upright, converts, resizes and encodes one image; for any `options.encode` but 'keep'.

    Raises:
        ImageFault: The image does not decode.
    """
    header = read_header(data)
    if fault := too_many_pixels(header.info.format, header.info.width, header.info.height):
        raise fault
    # Twice the size keeps what the decoder's coarse scaling does out of sight of the fine one.
    decoded = decode_pixels(data, header, smallest_side=2 * max(options.resize or (0,)))
    with decoder_faults(header):  # a palette that a file lacks shows when it is applied
        image = _fitted(_upright(decoded), options)
    if options.encode == "raw":
        return image.tobytes(), ImageInfo("raw", *image.size, 3)
    if options.encode == "jpeg" and max(image.size) > _MAX_SIDE:
        detail = f"{image.width:,} x {image.height:,} pixels; a JPEG takes {_MAX_SIDE:,} a side: use resize"
        raise ImageFault(RejectReason.TOO_MANY_PIXELS, detail)
    encoded = _saved(image, options)
    return encoded, read_header(encoded).info


def _fitted(image: Image, options: EncodeOptions) -> Image:
    """The mode and the size to store."""
    from PIL.Image import Resampling

    image = _for_png(image, options.resize) if options.encode == "png" else _opaque(image)
    if options.encode == "raw":
        image = image.convert("RGB")
    if options.resize and options.resize != image.size:
        image = image.resize(options.resize, Resampling.BICUBIC)
    return image


def _saved(image: Image, options: EncodeOptions) -> bytes:
    # Pillow would copy colour profile, resolution and comments from here into the file.
    image.info = {key: image.info[key] for key in ("transparency",) if key in image.info}
    if options.encode == "png":
        buffer = BytesIO()
        image.save(buffer, "PNG", compress_level=6)
        return buffer.getvalue()
    if not hasattr(os, "memfd_create"):
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=options.quality)
        return buffer.getvalue()
    # Into a real file descriptor Pillow encodes a JPEG without the GIL, into a BytesIO with it.
    with open(os.memfd_create("shardwright"), "w+b") as file:
        image.save(file, "JPEG", quality=options.quality)
        file.seek(0)
        return file.read()


def _upright(image: Image) -> Image:
    """Applies the EXIF orientation: the new file carries no EXIF to say it."""
    from PIL.Image import Transpose

    turn = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(exif_orientation(image.info.get("exif", b"")))
    if turn is None:
        return image
    info, image = image.info, image.transpose(turn)
    image.info = info
    return image


def exif_orientation(exif: bytes) -> int:
    """Tag 0x0112 of the first directory (TIFF 6.0, pages 14-16), 1 to 8.

    1 (as stored) where the block is absent or malformed: viewers show such an image as it is stored, too.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return 1
    start = struct.unpack_from(order + "I", tiff, 4)[0]
    if start + 2 > len(tiff):
        return 1
    num_entries = struct.unpack_from(order + "H", tiff, start)[0]
    whole = min(num_entries, (len(tiff) - start - 2) // 12)
    for number in range(whole):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * number)
        if tag == _ORIENTATION_TAG and kind == _SHORT and 1 <= value <= 8:
            return int(value)
    return 1


def _for_png(image: Image, resize: tuple[int, int] | None) -> Image:
    """Lossless: what PNG can hold stays as it is, unless resizing needs plain channels."""
    if resize is None and image.mode in _PNG_MODES:
        return image
    if image.mode in ("L", "LA", "RGB", "RGBA", "I;16") and "transparency" not in image.info:
        return image
    return image.convert("RGBA") if image.has_transparency_data else _opaque(image)


def _opaque(image: Image) -> Image:
    """Gray (L) or RGB of 8 bits. What is transparent shows white, as on the page of a browser.

    Deeper gray keeps its high byte, as TensorFlow's decoders do; colour profiles are not applied, which they do
    not do either.
    """
    from PIL import Image as Pil

    if image.mode == "I;16":
        return Pil.frombytes("L", image.size, image.tobytes()[1::2])  # little-endian in memory
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Pil.new("RGBA", image.size, "white")
        return Pil.alpha_composite(white, image).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")
