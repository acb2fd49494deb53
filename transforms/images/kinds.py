"""Define image types, limits and rejections, and recognize files of other kinds."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.images.formats.kinds import GIF_MAGICS, JPEG_MAGIC, MAX_PIXELS, RIFF_MAGIC
from shardwright.images.formats.png import PNG_MAGIC
from shardwright.sizes import counted
from shardwright.transforms.rejects import RejectReason

_ZEROS = bytes(256)  # half a sector of a disk, so that its start may lie before the search
MAX_GIF_PIXELS = MAX_PIXELS // 2
"""Lower for GIF: Pillow repeats its bomb check while decoding one, and warns from here on."""


class RejectedImage(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An image that cannot go into a shard.

    Attributes:
        reason: The typed reason, as counted and reported.
        detail: One line for a person: what was found, and the fix if there is one.
    """

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        # A message may hold lone surrogates, which UTF-8, and so a reject's row, cannot.
        self.detail = detail.encode("utf-8", "backslashreplace").decode()

    def __reduce__(self) -> tuple[type[RejectedImage], tuple[RejectReason, str]]:
        # By default exceptions pickle with their message only, and this one crosses processes.
        return RejectedImage, (self.reason, self.detail)


class ImageInfo(NamedTuple):
    """The properties of a stored image, before any EXIF rotation.

    Attributes:
        format: 'jpeg', 'png', 'gif', 'bmp' or 'webp', by content, not by name. 'raw' for bare
            pixels, 'tensor' for a serialized tensor of them, '' if unknown.
        width: Pixels. For a GIF that of the canvas, or of the first frame if that reaches further;
            TensorFlow decodes that frame's own rectangle only, which is smaller in some files.
        height: Pixels.
        channels: As tf.io.decode_image reports with channels=0: 1 gray, 2 gray + alpha, 3 RGB,
            4 RGBA. A CMYK JPEG reports 3, a palette 3 (4 with transparency).
        orientation: The EXIF orientation, 1 to 8, if requested because the stored bytes no longer
            hold it; 1 is upright.
    """

    format: str
    width: int
    height: int
    channels: int
    orientation: int = 1


class Header(NamedTuple):
    """The result of parsing an image's header.

    Attributes:
        info: Format, size, channels. The size is 0 x 0 if the header lacks it.
        cut: The missing part of the file's end, so that only a full decode can tell whether the
            pixels are complete; "" if the end is there.
        odd: Anything else that only a full decode can settle; "" for nothing.
        refusal: Why TensorFlow does not decode these bytes unchanged; "" for no known reason.
        exif: Offset of a JPEG's EXIF block ("Exif", two zero bytes, a TIFF file); 0 for none.
        inks: True for a JPEG of four components: CMYK or YCCK.
    """

    info: ImageInfo
    cut: str = ""
    odd: str = ""
    refusal: str = ""
    exif: int = 0
    inks: bool = False


def zeroed(data: bytes, start: int) -> str:
    """Return what is odd about data with a lost sector of a disk, "" if there is none.

    Compressed pixels hardly ever have that many zeros, and the search skips most of the bytes.
    """
    return "a sector of zeros" if data.find(_ZEROS, start) >= 0 else ""


def too_many_pixels(image_format: str, width: int, height: int) -> RejectedImage | None:
    """Return the fault of an image with more pixels than the limit, or None."""
    limit = MAX_GIF_PIXELS if image_format == "gif" else MAX_PIXELS
    if width * height <= limit:
        return None
    found = f"{width:,} x {height:,} pixels; a {image_format} may have at most {limit:,}"
    return RejectedImage(RejectReason.TOO_MANY_PIXELS, f"{found}: scale it down first")


# (offset, magic bytes, name) of image formats that readers of shards need not decode. The first
# match counts, so JPEG XR stands before the TIFF magic that it extends. Container formats with
# brands are in _BRANDS.
_OTHER_IMAGES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"II\xbc", "JPEG XR"),
    (0, b"II*\0", "TIFF or camera raw"),
    (0, b"MM\0*", "TIFF or camera raw"),
    (0, b"II+\0", "BigTIFF"),
    (0, b"MM\0+", "BigTIFF"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"8BPS", "Photoshop (PSD)"),
    (0, b"\0\0\1\0", "Windows icon (ICO)"),
    (0, b"\0\0\2\0", "Windows cursor (CUR)"),
    (0, b"qoif", "QOI"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"v/1\1", "OpenEXR"),
    (0, b"DDS ", "DirectDraw surface (DDS)"),
    (0, b"FUJIFILMCCD-RAW", "Fujifilm camera raw"),
    (128, b"DICM", "DICOM"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"\x89JNG\r\n\x1a\n", "JNG"),
    (0, b"\x89MNG\r\n\x1a\n", "MNG"),
    *(
        (0, b"P%d" % kind + space, "netpbm (PNM)")
        for kind in range(1, 8)
        for space in (b"\n", b" ", b"\r\n")
    ),
)

# ISO base media file format (ISO/IEC 14496-12): 'ftyp' at byte 4, then the major brand.
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"
    ),
    b"crx ": "Canon camera raw",
}

# Other files often found under an image's name: (start of the file in lower case, description).
_STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"<!doctype html", "an HTML page, perhaps an error page saved by a download"),
    (b"<html", "an HTML page, perhaps an error page saved by a download"),
    (b"<?xml", "XML, perhaps an error answer of an object store"),
    (b"%pdf", "a PDF document"),
    (b"pk\3\4", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"{", "JSON or other text"),
)

_OWN_MAGIC = (JPEG_MAGIC, PNG_MAGIC, *GIF_MAGICS, RIFF_MAGIC)


def fault_of_stranger(data: bytes) -> RejectedImage:
    """Return the fault of bytes in none of the five formats: another image format, or no image."""
    if len(data) < 8 and any(magic.startswith(data) for magic in _OWN_MAGIC):
        return RejectedImage(
            RejectReason.TRUNCATED,
            f"the file ends after {counted(len(data), 'byte')}, inside its first marker",
        )
    name = _other_image(data)
    if name:
        detail = (
            f"the file is {name}; jpeg, png, gif, bmp and webp are supported: "
            "convert it to PNG or JPEG first"
        )
        return RejectedImage(RejectReason.UNSUPPORTED_FORMAT, detail)
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    guess = next(
        (what for magic, what in _STRANGERS if start.startswith(magic)),
        "not a known image format",
    )
    return RejectedImage(RejectReason.NOT_AN_IMAGE, f"the file starts with {data[:12]!r}: {guess}")


def _other_image(data: bytes) -> str:
    for offset, magic, name in _OTHER_IMAGES:
        if data.startswith(magic, offset):
            return name
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "")
    # An SVG may open with an XML declaration, a doctype and comments (SVG 1.1, section 5.1).
    return "SVG" if data[:1].isascii() and b"<svg" in data[:2048].lower() else ""
