"""Read the header of a GIF, and check what TensorFlow requires."""

from __future__ import annotations

import struct

from shardwright.images.formats.gif import IMAGE, TRAILER, first_gif_image, gif_blocks, gif_frame
from shardwright.transforms.images.kinds import Header, ImageInfo, RejectedImage, zeroed
from shardwright.transforms.rejects import RejectReason

_MAX_CODE_SIZE = 8  # giflib's limit, and the format's: an index into 256 colors

_U16_PAIR = struct.Struct("<HH").unpack_from


def read_gif(data: bytes) -> Header:
    """Return the header of a GIF, going up to its first image."""
    width, height = _U16_PAIR(data, 6)
    pos, extensions = first_gif_image(data)
    refusal = ""
    # After an extension without sub-blocks, giflib 5.2's DGifSlurp reads one more, and so takes the
    # next block for data.
    if 0 in [data[start + 2] for start in extensions]:
        refusal = "a GIF with an empty extension before its first image"
    if data[pos] == TRAILER:
        raise RejectedImage(RejectReason.CORRUPT, "a GIF without an image")
    if data[pos] != IMAGE:
        strange = f"a GIF with byte 0x{data[pos]:02x} where its first image should start"
        return Header(ImageInfo("gif", width, height, 3), "", strange, strange)
    left, top, frame_width, frame_height, _, colors, _, codes = gif_frame(data, pos)
    info = ImageInfo("gif", max(width, left + frame_width), max(height, top + frame_height), 3)
    if not colors:
        refusal = "a GIF without a color table"
    elif (code_size := data[codes]) > _MAX_CODE_SIZE:
        refusal = f"a GIF with codes of {code_size} bits (at most {_MAX_CODE_SIZE} are supported)"
    # With the block terminator, because the trailer's byte alone would pass one cut in 256.
    odd = zeroed(data, codes) if data.endswith(b"\0;") else _walk(data, pos)[0]
    return Header(
        info, "", odd if frame_width * frame_height else "a first image without pixels", refusal
    )


def check_gif(data: bytes, highest_index: float) -> None:
    """Check what TensorFlow's giflib requires of a GIF with an image, and Pillow does not.

    Raises:
        RejectedImage: TRUNCATED if a block reaches beyond the file, or the trailer is missing;
            UNSUPPORTED_FORMAT if a pixel of the first frame has a higher index than its color
            table.
    """
    pos, _ = first_gif_image(data)
    num_colors = gif_frame(data, pos).colors
    if highest_index >= num_colors:
        detail = (
            f"a GIF with color index {highest_index} in a table of {num_colors} colors: "
            "TensorFlow rejects it; encode to png or jpeg"
        )
        raise RejectedImage(RejectReason.UNSUPPORTED_FORMAT, detail)
    try:
        odd, end = _walk(data, pos)
    except IndexError as error:
        raise RejectedImage(
            RejectReason.TRUNCATED, "the blocks of the GIF reach beyond its end: fetch it again"
        ) from error
    if not odd and end == len(data):
        what = "the GIF lacks its end, the trailer: fetch it again, or use --check header"
        raise RejectedImage(RejectReason.TRUNCATED, what)


def _walk(data: bytes, pos: int) -> tuple[str, int]:
    """Return what is odd about the blocks of a GIF, or "", and where the last block ends.

    Raises:
        IndexError: The data ends inside a block.
    """
    end = pos
    try:
        for block in gif_blocks(data, pos):
            end = block[1]
    except ValueError as error:
        return str(error), end
    return "", end
