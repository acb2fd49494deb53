"""Make the bytes to store for one image: its own bytes, stripped bytes, or a re-encoded image.

They depend only on the image, its name, the options, and the version of Pillow. By `encode`:

* 'keep': the bytes themselves, but for the policy's fixes.
* 'jpeg': gray stays gray, all else becomes RGB; 4:2:0 chroma, no metadata.
* 'png': lossless: gray, palette, alpha and 16-bit gray are kept (16-bit color is read as 8-bit).
* 'raw': height x width x 3 values, RGB, row by row from the top left, no padding; 1 value a pixel
  with `grayscale`. A value is a byte.

EXIF orientation is applied, unless the policy keeps it, because the new bytes carry no EXIF. In
'jpeg' and 'raw', transparent areas become white. Resizing is bicubic with antialiasing.
An animation gives its first frame. Decoding, resizing and encoding run without the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.errors import ImageFault
from shardwright.format.stats_keys import EXIF_KEPT
from shardwright.images.headers import read_header
from shardwright.images.kinds import Header, check_bomb
from shardwright.transforms.images.checks import check_header, look_at
from shardwright.transforms.images.encode import encode_pixels, target_of
from shardwright.transforms.images.geometry import may_show_all_of
from shardwright.transforms.images.metadata import orientation_of, strip
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import Look, PolicyFault, find_faults, named_format
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.made_records import ImageToStore


def store_image(
    data: bytes, options: EncodeOptions, *, check: str = "header", name: str = ""
) -> ImageToStore:
    """Check one image file, apply the policy, and return the bytes to store. Thread-safe.

    Args:
        data: The whole file.
        check: As for `check_image`.
        name: The image's name, whose extension may differ from its format; "" for none.

    Raises:
        ImageFault: The image is rejected.
    """
    header = look_at(data, check)
    fixes = _apply_policy(data, header, name, options) if options.watched else ()
    if options.encode == "keep" and not fixes:
        return _kept(data, header, check, options)
    return _encoded_anew(data, header, options, fixes, name)


def check_stated_size(
    data: bytes,
    stated: Sequence[float],
    options: EncodeOptions,
    *,
    check: str,
    stored: ImageToStore | None = None,
) -> None:
    """Check that an image has the shape that its boxes were made on, or a scaled one.

    Args:
        data: The whole file.
        stated: Height and width in pixels, as its annotations state them.
        options: Those of `store_image`, which decide whether EXIF turns the stored pixels.
        check: As for `check_image`.
        stored: What `store_image` made of it, if it did.

    Raises:
        ImageFault: It has another shape, so boxes would be in other places of it.
    """
    size = upright_size(data, options, check, stored)
    if size is None or may_show_all_of(size, stated):
        return
    fix = "correct the size, or give the image that was annotated"
    if may_show_all_of(size[::-1], stated) and orientation_of(data, look_at(data, check)) >= 5:
        other = "keep" if options.actions[PolicyFault.EXIF] == "fix" else "fix"
        fix = f"EXIF turns it, and they are of the other pixels: give --on exif={other}"
    raise ImageFault(
        f"its annotations state {stated[1]:g} x {stated[0]:g} pixels, but it has {size[1]} x "
        f"{size[0]}, so its boxes would be in other places: {fix}",
        RejectReason.BAD_VALUE,
    )


def upright_size(
    data: bytes, options: EncodeOptions, check: str, stored: ImageToStore | None = None
) -> tuple[int, int] | None:
    """Return the height and width of an image, turned if the policy turns it; None if unknown.

    Args: as for `check_stated_size`.
    """
    if stored is not None and stored.data is data:
        # The usual case; a look at the header would take as long as all of `store_image`. An image
        # that the policy turns has other bytes.
        info, turns = stored.info, False
    else:
        header = look_at(data, check)
        info = header.info
        turns = options.actions[PolicyFault.EXIF] == "fix" and orientation_of(data, header) >= 5
    if not info.width:
        return None
    return (info.width, info.height) if turns else (info.height, info.width)


def _apply_policy(
    data: bytes, header: Header, name: str, options: EncodeOptions
) -> tuple[str, ...]:
    """Return the faults to fix.

    Raises:
        ImageFault: The policy rejects a fault.
    """
    # Without a size, the file is damaged or unchecked, and the policy does not apply.
    if not header.info.width:
        return ()
    found = find_faults(Look(data, header, name, options.policy), options.watched)
    for fault, text in found.items():
        if options.actions[fault] == "reject":
            chosen = f"--on {fault}=reject"
            if fault == PolicyFault.EXIF and fault not in options.policy.actions:
                chosen = "give --on exif=fix if the boxes are of the turned pixels, else exif=keep"
            raise ImageFault(f"{text} ({chosen})", _REASONS[fault])
    return tuple(map(str, found))


_REASONS = {
    fault: RejectReason(f"policy_{fault}") for fault in PolicyFault if fault != PolicyFault.BOMB
} | {PolicyFault.BOMB: RejectReason.TOO_MANY_PIXELS}


def _kept(data: bytes, header: Header, check: str, options: EncodeOptions) -> ImageToStore:
    info = check_header(data, header, check, stored=True)
    # With the action "fix" it is upright, or it would not be kept.
    orientation = orientation_of(data, header)
    is_unseen = orientation != 1 and not options.tells_orientation
    if options.tells_orientation:
        info = info._replace(orientation=orientation)
    if options.strip_metadata:
        data = strip(data, info.format)
    return ImageToStore(data, info, (EXIF_KEPT,) if is_unseen else ())


def _encoded_anew(
    data: bytes, header: Header, options: EncodeOptions, fixes: tuple[str, ...], name: str = ""
) -> ImageToStore:
    if not header.info.width:
        header = read_header(data)  # raises the fault, if it finds one
    check_bomb(header.info.format, header.info.width, header.info.height)
    encode = _format_of_fix(header, fixes, name) if options.encode == "keep" else options.encode
    return ImageToStore(
        *encode_pixels(data, header, options, target_of(data, header, options, fixes, encode)),
        fixes,
    )


def _format_of_fix(header: Header, fixes: tuple[str, ...], name: str) -> str:
    """Return the format of a fixed image: JPEG stays JPEG, all else becomes PNG, which is lossless.

    A PNG of a photograph would be many times as large as its JPEG.
    """
    if PolicyFault.EXTENSION not in fixes:
        return "jpeg" if header.info.format == "jpeg" else "png"
    named = named_format(name)
    if named not in ("jpeg", "png"):
        detail = (
            f"the name says {named}, the content is {header.info.format}; "
            "only JPEG and PNG are written: rename the file"
        )
        raise ImageFault(detail, _REASONS[PolicyFault.EXTENSION])
    return named
