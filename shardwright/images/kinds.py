"""Define image types and limits, and tell image formats, and other files, by their first bytes."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.errors import ImageFault
from shardwright.sizes import counted

MAX_PIXELS = 178_956_970
"""Maximum pixels of an image: Pillow's limit for decompression bombs (2 * MAX_IMAGE_PIXELS)."""

MAX_GIF_PIXELS = MAX_PIXELS // 2
"""Lower for GIF: Pillow repeats its bomb check while decoding one, and warns from here on."""

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_JPEG_MAGIC = b"\xff\xd8\xff"
_GIF_MAGICS = (b"GIF87a", b"GIF89a")
_RIFF_MAGIC = b"RIFF"
_ZEROS = bytes(256)  # half a sector of a disk, so that its start may lie before the search


class ImageInfo(NamedTuple):
    """The properties of a stored image, before any EXIF rotation.

    Attributes:
        format: 'jpeg', 'png', 'gif', 'bmp' or 'webp', by content, not by name. 'raw' for bare
            pixels, '' if unknown.
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

    @property
    def size(self) -> str:
        """Width and height in words."""
        return f"{self.width:,} x {self.height:,} pixels"


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


def image_format(start: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' from the first 16 bytes of a file, else ''.

    A text may start with the two letters of a BMP: see `bmp.has_bmp_header`.
    """
    if start.startswith(_JPEG_MAGIC):
        return "jpeg"
    if start.startswith(PNG_MAGIC):
        return "png"
    if start.startswith(_GIF_MAGICS):
        return "gif"
    if start.startswith(_RIFF_MAGIC) and start[8:12] == b"WEBP":
        return "webp"
    return "bmp" if start.startswith(b"BM") else ""


def check_bomb(kind: str, width: int, height: int, limit: int = 0) -> None:
    """Check that an image has no more pixels than the limit; 0 is a build's for the format.

    Raises:
        ImageFault: It has.
    """
    limit = limit or (MAX_GIF_PIXELS if kind == "gif" else MAX_PIXELS)
    if width * height > limit:
        raise ImageFault(
            f"the {kind} image has {width:,} x {height:,} pixels, more than the maximum of "
            f"{limit:,}: scale it down",
            "too_many_pixels",
        )


def check_size(kind: str, height: int, width: int) -> None:
    """Check the size of an image before a reader decodes it, in pixels.

    Raises:
        ImageFault: There are no pixels, or more than MAX_PIXELS.
    """
    if height < 1 or width < 1:
        raise ImageFault(f"the {kind} image has no pixels: its size is {width} x {height}")
    check_bomb(kind, width, height, MAX_PIXELS)


# Magic bytes -> name of image formats that readers of shards need not decode. The first match
# counts, so JPEG XR stands before the TIFF magic that it extends. DICOM has its magic at byte 128,
# and container formats with brands are in _BRANDS.
_OTHER_IMAGES = {
    b"II\xbc": "JPEG XR",
    b"II*\0": "TIFF or camera raw",
    b"MM\0*": "TIFF or camera raw",
    b"II+\0": "BigTIFF",
    b"MM\0+": "BigTIFF",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"\0\0\0\x0cJXL ": "JPEG XL",
    b"\xff\x0a": "JPEG XL",
    b"8BPS": "Photoshop (PSD)",
    b"\0\0\1\0": "Windows icon (ICO)",
    b"\0\0\2\0": "Windows cursor (CUR)",
    b"qoif": "QOI",
    b"#?RADIANCE": "Radiance HDR",
    b"v/1\1": "OpenEXR",
    b"DDS ": "DirectDraw surface (DDS)",
    b"FUJIFILMCCD-RAW": "Fujifilm camera raw",
    b"SIMPLE  =": "FITS",
    b"\x89JNG\r\n\x1a\n": "JNG",
    b"\x89MNG\r\n\x1a\n": "MNG",
    **{
        b"P%d" % kind + space: "netpbm (PNM)"
        for kind in range(1, 8)
        for space in (b"\n", b" ", b"\r\n")
    },
}

# ISO base media file format (ISO/IEC 14496-12): 'ftyp' at byte 4, then the major brand.
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"
    ),
    b"crx ": "Canon camera raw",
}

# Other files often found under an image's name: start of the file in lower case -> description.
_STRANGERS = {
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull`",
    b"<!doctype html": "an HTML page, perhaps an error page saved by a download",
    b"<html": "an HTML page, perhaps an error page saved by a download",
    b"<?xml": "XML, perhaps an error answer of an object store",
    b"%pdf": "a PDF document",
    b"pk\3\4": "a ZIP archive",
    b"\x1f\x8b": "gzip data",
    b"{": "JSON or other text",
}

_OWN_MAGIC = (_JPEG_MAGIC, PNG_MAGIC, *_GIF_MAGICS, _RIFF_MAGIC)


def fault_of_stranger(data: bytes) -> ImageFault:
    """Return the fault of bytes in none of the five formats: another image format, or no image."""
    if len(data) < 8 and any(magic.startswith(data) for magic in _OWN_MAGIC):
        return ImageFault(
            f"the file ends after {counted(len(data), 'byte')}, inside its first marker",
            "truncated",
        )
    if name := other_image(data):
        return ImageFault(
            f"the file is {name}; jpeg, png, gif, bmp and webp are supported: "
            "convert it to PNG or JPEG first",
            "unsupported_format",
        )
    # Behind a byte order mark and blanks, which pages and XML may begin with.
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    guess = _named(_STRANGERS, start) or "not a known image format"
    return ImageFault(f"the file starts with {data[:12]!r}: {guess}", "not_an_image")


def other_image(data: bytes) -> str:
    """Return the name of an image format that readers need not decode, "" for none."""
    if name := _named(_OTHER_IMAGES, data):
        return name
    if data.startswith(b"DICM", 128):
        return "DICOM"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "")
    # An SVG may open with an XML declaration, a doctype and comments (SVG 1.1, section 5.1).
    return "SVG" if data[:1].isascii() and b"<svg" in data[:2048].lower() else ""


def _named(names: dict[bytes, str], data: bytes) -> str:
    """Return the name of the first magic that data starts with, "" for none."""
    return next((name for magic, name in names.items() if data.startswith(magic)), "")
