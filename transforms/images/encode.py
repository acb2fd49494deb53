"""Re-encode images as JPEG, PNG, bare pixels or tensors, upright, in the given size and color."""

from __future__ import annotations

import os
from collections.abc import Collection
from io import BytesIO, FileIO
from typing import TYPE_CHECKING, NamedTuple

from shardwright.transforms.images.exif import orientation_of
from shardwright.transforms.images.geometry import Geometry, Size, plan_geometry
from shardwright.transforms.images.headers import read_header
from shardwright.transforms.images.kinds import Header, ImageInfo, RejectedImage
from shardwright.transforms.images.modes import for_png, in_mode, opaque, plain
from shardwright.transforms.images.options import MAX_JPEG_SIDE, EncodeOptions
from shardwright.transforms.images.pixels import PIXELS, decoder_faults, open_pixels, pixels_held
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.images.profiles import fits, profile_of, to_srgb
from shardwright.transforms.rejects import RejectReason

if TYPE_CHECKING:
    from PIL.Image import Image

_FIX_QUALITY = 95  # of a JPEG that is re-encoded only to fix it


class Target(NamedTuple):
    """The encoding of one image.

    Attributes:
        encode: 'jpeg', 'png', 'raw' or 'tensor'.
        fixes: The names of the faults to fix.
        orientation: The EXIF orientation to apply; 1 for none.
        profile: The source's color profile, b"" if there is none or it is not used.
    """

    encode: str
    fixes: Collection[str] = ()
    orientation: int = 1
    profile: bytes = b""


def target_of(
    data: bytes,
    header: Header,
    options: EncodeOptions,
    fixes: Collection[str] = (),
    encode: str = "",
) -> Target:
    """Return the target of an image with these faults; `encode` replaces the options' 'keep'."""
    orientation = orientation_of(data, header) if options.actions[PolicyFault.EXIF] == "fix" else 1
    profile = profile_of(data, header.info.format) if options.profile != "drop" else b""
    return Target(encode or options.encode, fixes, orientation, profile)


def encode_pixels(
    data: bytes, header: Header, options: EncodeOptions, target: Target
) -> tuple[bytes, ImageInfo]:
    """Decode, convert, crop, scale, rotate and encode one image.

    Raises:
        RejectedImage: The image does not decode, or is too large for a JPEG.
    """
    image: Image = open_pixels(data, header)
    source: Size = image.size
    sideways = target.orientation >= 5
    geometry = plan_geometry(source[::-1] if sideways else source, options)
    _check_canvas(geometry.canvas, target)
    lying = geometry.turned() if sideways else geometry
    with decoder_faults(header):  # covers conversion: a missing palette fails only when applied
        if header.info.format == "jpeg":
            gray = options.grayscale and not target.profile
            image.draft(
                "L" if gray else None, lying.needed(source) if lying.scaled != source else source
            )
        with PIXELS.hold(pixels_held(image)):
            image.load()
            # Each step rebinds `image` to free the previous one, which matters for large images.
            image = _in_srgb(image, options, target)
            if geometry != (image.size, image.size, image.size) or target.orientation != 1:
                image = plain(image)
                image = upright(sized(image, source, lying), target.orientation)
                image = on_canvas(image, geometry.canvas)
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
        raise RejectedImage(RejectReason.TOO_MANY_PIXELS, detail)


def _in_srgb(image: Image, options: EncodeOptions, target: Target) -> Image:
    if not target.profile or options.profile != "srgb":
        return image
    return to_srgb(image if fits(target.profile, image.mode) else plain(image), target.profile)


def _flat(image: Image, options: EncodeOptions, target: Target) -> Image:
    image = opaque(image)
    if options.grayscale:
        return in_mode(image, "L")
    return (
        in_mode(image, "RGB")
        if target.encode != "jpeg" or PolicyFault.GRAYSCALE in target.fixes
        else image
    )


def sized(image: Image, source: Size, geometry: Geometry, *, nearest: bool = False) -> Image:
    """Return the crop of an image, scaled bicubically with antialiasing, or by nearest pixels.

    Args:
        image: Decoded, perhaps at a reduced size.
        source: Its full size.
        geometry: The geometry of the image before rotation.
        nearest: Take nearest pixels, so that none are blended.
    """
    from PIL import Image as Pil

    box = geometry.box(image.size, source)
    if image.size == geometry.crop == geometry.scaled:
        return image
    if geometry.crop == geometry.scaled:
        left, top = int(box[0]), int(box[1])
        return image.crop((left, top, left + geometry.scaled[0], top + geometry.scaled[1]))
    return image.resize(
        geometry.scaled, Pil.Resampling.NEAREST if nearest else Pil.Resampling.BICUBIC, box=box
    )


def on_canvas(image: Image, size: Size) -> Image:
    """Return the image in the middle of a black (or number 0, or transparent) canvas."""
    from PIL import Image as Pil

    if image.size == size:
        return image
    canvas = Pil.new(image.mode, size)
    canvas.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return canvas


def upright(image: Image, orientation: int) -> Image:
    """Return the image with the EXIF orientation applied, as the new file has no EXIF."""
    from PIL.Image import Transpose

    turn = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def _encoded(image: Image, options: EncodeOptions, target: Target) -> tuple[bytes, ImageInfo]:
    channels = len(image.getbands())
    if target.encode in ("raw", "tensor"):
        return _bare(image, options, target), ImageInfo(target.encode, *image.size, channels)
    # Pillow would copy color profile, resolution and comments from here into the file.
    kept = () if PolicyFault.ALPHA in target.fixes else ("transparency",)
    image.info = {key: image.info[key] for key in kept if key in image.info}
    keeps_profile = options.profile == "keep" and fits(target.profile, image.mode)
    extra = {"icc_profile": target.profile} if keeps_profile else {}
    if target.encode == "png":
        buffer = BytesIO()
        image.save(buffer, "PNG", compress_level=6, **extra)
        encoded = buffer.getvalue()
    elif options.encode == "jpeg":
        encoded = _jpeg(image, {"quality": options.quality, **extra})
    else:
        encoded = _jpeg(image, {"quality": _FIX_QUALITY, "subsampling": "4:4:4", **extra})
    return encoded, read_header(encoded).info


def _bare(image: Image, options: EncodeOptions, target: Target) -> bytes:
    """Return raw pixels, in little-endian bytes, or a serialized tensor."""
    if target.encode == "raw" and options.tensor_dtype == "uint8":
        return image.tobytes()
    import numpy as np

    from shardwright.format.tensors import to_tensor_proto

    pixels = np.asarray(image).reshape(image.height, image.width, len(image.getbands()))
    values = pixels if options.tensor_dtype == "uint8" else options.normalization.to_values(pixels)
    return to_tensor_proto(values) if target.encode == "tensor" else values.astype("<f4").tobytes()


def _jpeg(image: Image, options: dict[str, object]) -> bytes:
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
        return os.pread(file.fileno(), file.tell(), 0)
    finally:
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
