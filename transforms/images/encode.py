"""Re-encode images as JPEG, PNG or bare pixels, upright, in the given size and color."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from io import BytesIO, FileIO
from typing import TYPE_CHECKING, Any, NamedTuple

from shardwright.errors import ImageFault
from shardwright.images.headers import read_header
from shardwright.images.jpeg import MAX_JPEG_SIDE
from shardwright.images.kinds import Header, ImageInfo
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.images.colors import for_png, in_mode, opaque, plain
from shardwright.transforms.images.geometry import SIDEWAYS, Size, plan_geometry, shaped
from shardwright.transforms.images.metadata import orientation_of
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.pixels import decoder_faults, open_pixels, pixels_held
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image

_FIX_QUALITY = 95  # of a JPEG that is re-encoded only to fix it


class Target(NamedTuple):
    """The encoding of one image.

    Attributes:
        encode: 'jpeg', 'png' or 'raw'.
        fixes: The names of the faults to fix.
        orientation: The EXIF orientation to apply; 1 for none.
    """

    encode: str
    fixes: Collection[str] = ()
    orientation: int = 1


def target_of(
    data: bytes,
    header: Header,
    options: EncodeOptions,
    fixes: Collection[str] = (),
    encode: str = "",
) -> Target:
    """Return the target of an image with these faults; `encode` replaces the options' 'keep'."""
    orientation = orientation_of(data, header) if options.actions[PolicyFault.EXIF] == "fix" else 1
    return Target(encode or options.encode, fixes, orientation)


def encode_pixels(
    data: bytes, header: Header, options: EncodeOptions, target: Target
) -> tuple[bytes, ImageInfo]:
    """Decode, convert, crop, scale, rotate and encode one image.

    Raises:
        ImageFault: The image does not decode, or is too large for a JPEG.
    """
    image: Image = open_pixels(data, header)
    source: Size = image.size
    sideways = target.orientation >= SIDEWAYS
    geometry = plan_geometry(source[::-1] if sideways else source, options)
    # Before decoding, which takes most of the time.
    _check_canvas(geometry.canvas, target)
    lying = geometry.turned() if sideways else geometry
    with decoder_faults(header):  # covers conversion: a missing palette fails only when applied
        if header.info.format == "jpeg":
            image.draft(
                "L" if options.grayscale else None,
                lying.needed(source) if lying.scaled != source else source,
            )
        with PIXELS.hold(pixels_held(image)):
            image.load()
            # Each step rebinds `image` to free the previous one, which matters for large images.
            if geometry != (image.size, image.size, image.size) or target.orientation != 1:
                image = shaped(plain(image), source, geometry, target.orientation)
            image = (
                for_png(image, target.fixes, grayscale=options.grayscale)
                if target.encode == "png"
                else _flat(image, options, target)
            )
            return _encoded(image, options, target)


def _check_canvas(canvas: Size, target: Target) -> None:
    if target.encode == "jpeg" and max(canvas) > MAX_JPEG_SIDE:
        detail = (
            f"{canvas[0]:,} x {canvas[1]:,} pixels; "
            f"a JPEG may have at most {MAX_JPEG_SIDE:,} per side: use resize"
        )
        raise ImageFault(detail, RejectReason.TOO_MANY_PIXELS)


def _flat(image: Image, options: EncodeOptions, target: Target) -> Image:
    image = opaque(image)
    if options.grayscale:
        return in_mode(image, "L")
    return (
        in_mode(image, "RGB")
        if target.encode != "jpeg" or PolicyFault.GRAYSCALE in target.fixes
        else image
    )


def _encoded(image: Image, options: EncodeOptions, target: Target) -> tuple[bytes, ImageInfo]:
    channels = len(image.getbands())
    if target.encode == "raw":
        return image.tobytes(), ImageInfo("raw", *image.size, channels)
    # Pillow would copy color profile, resolution and comments from here into the file.
    kept = () if PolicyFault.ALPHA in target.fixes else ("transparency",)
    image.info = {key: image.info[key] for key in kept if key in image.info}
    if target.encode == "png":
        buffer = BytesIO()
        image.save(buffer, "PNG", compress_level=6)
        encoded = buffer.getvalue()
    else:
        is_fixed = options.encode == "keep"
        encoded = _jpeg(
            image,
            {"quality": _FIX_QUALITY, "subsampling": "4:4:4"}
            if is_fixed
            else {"quality": options.quality},
        )
    return encoded, read_header(encoded).info


def _jpeg(image: Image, options: Mapping[str, Any]) -> bytes:
    if not hasattr(os, "memfd_create"):
        buffer = BytesIO()
        image.save(buffer, "JPEG", **options)
        return buffer.getvalue()
    # Pillow releases the GIL to encode a JPEG into a file descriptor, but not into a BytesIO.
    try:
        file = _IDLE.pop()
    except IndexError:
        file = open(os.memfd_create("shardwright"), "w+b", buffering=0)  # noqa: SIM115
    try:
        image.save(file, "JPEG", **options)
        # Up to the position, as the file may still hold the end of a longer image.
        return os.pread(file.fileno(), file.tell(), 0)
    finally:
        # One huge image must not keep its memory until the process ends.
        if file.tell() > _IDLE_BYTES:
            file.truncate(0)
        file.seek(0)
        _IDLE.append(file)


# Files in memory for `_jpeg`, at most one for each thread: to create and free one takes a twentieth
# of the time of a photograph of 500 x 375 pixels.
_IDLE: list[FileIO] = []
_IDLE_BYTES = 1 << 20
# A forked process would share the contents of these files and the position in them.
os.register_at_fork(after_in_child=_IDLE.clear)
