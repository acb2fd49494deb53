"""Divide a JPEG into tiles without a change of its pixels, by jpegtran of libjpeg-turbo.

It writes the same coefficients with restart markers between them, and all metadata.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from io import BytesIO

from shardwright.errors import BuildError, UsageError
from shardwright.images.jpeg import END, FRAMES, SCAN, jpeg_frame, jpeg_segments
from shardwright.images.kinds import MAX_PIXELS
from shardwright.images.tiles import BASELINE, INTERVAL, has_tiles, tile_interval, with_tile_table
from shardwright.transforms.images.pixels import PIXELS

_GRAY = b"\x11"
_SAMPLING = {_GRAY, *(bytes((luma, 0x11, 0x11)) for luma in (0x11, 0x12, 0x21, 0x22))}
_DIVIDED, _ODD_FILE = 0, (1, 2)  # exit codes: success; an error, or warnings
_MPF = b"MPF\0"


def divided(data: bytes) -> bytes:
    """Return a JPEG with the same pixels, divided into tiles, or unchanged if it cannot be.

    It cannot be if it has several scans (as progressive ones have), restart markers, unusual
    sampling, a width without tiles, or more behind its end, such as a phone's video, which jpegtran
    drops; nor if it is damaged or huge.

    Raises:
        UsageError: As `find_jpegtran`.
        BuildError: jpegtran was killed.
    """
    path, (interval, num_pixels) = find_jpegtran(), _interval_of(data)
    if not interval:
        return data
    with PIXELS.hold(num_pixels):  # jpegtran holds all coefficients
        return _run(path, data, interval)


@functools.cache
def find_jpegtran() -> str:
    """Return the path of jpegtran.

    Raises:
        UsageError: It is not installed, or is one that does not divide JPEGs, as MozJPEG's.
    """
    from PIL import Image

    path = shutil.which("jpegtran")
    if path is None:
        raise UsageError(
            "--crop-tiles with --encode keep needs jpegtran, which is not on PATH: install "
            "libjpeg-turbo's (apt-get install libjpeg-turbo-progs) wherever images are read, or "
            "choose --encode jpeg"
        )
    image = BytesIO()
    Image.new("L", (128, 8)).save(image, "JPEG")
    if not has_tiles(_run(path, image.getvalue(), 2)):
        raise UsageError(
            f"--crop-tiles with --encode keep: {path} does not divide a JPEG into tiles: put "
            "libjpeg-turbo's jpegtran first on PATH, or choose --encode jpeg"
        )
    return path


def _interval_of(data: bytes) -> tuple[int, int]:
    """Return the MCUs of a tile, 0 if a file has to stay as it is, and the image's pixels."""
    segments = list(jpeg_segments(data))
    starts = {marker: start for marker, start, _ in segments}
    num_scans = sum(marker == SCAN for marker, *_ in segments)
    # Of several scans, each could take as long as a whole image.
    is_plain = FRAMES & starts.keys() == {BASELINE} and num_scans == 1
    ends_here = bool(segments) and segments[-1][::2] == (END, len(data))
    has_pictures = any(data.startswith(_MPF, start + 4) for _, start, _ in segments)
    if not is_plain or not ends_here or has_pictures or INTERVAL in starts:
        return 0, 0
    frame = starts[BASELINE]
    _, height, width, components = jpeg_frame(data, frame)
    sampling = data[frame + 11 : frame + 11 + 3 * components : 3]
    if sampling not in _SAMPLING or width * height > MAX_PIXELS:
        return 0, 0
    return tile_interval(width, 8 * (sampling[0] >> 4)), width * height


def _run(path: str, data: bytes, interval: int) -> bytes:
    # Optimal Huffman codes make up for the bytes of the markers.
    command = [path, "-copy", "all", "-optimize", "-restart", f"{interval}B"]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode in _ODD_FILE:
        return data
    if done.returncode != _DIVIDED:
        told = done.stderr.decode(errors="replace").strip() or "it was killed, perhaps for memory"
        raise BuildError(f"{path} ended with {done.returncode}: {told}")
    return with_tile_table(done.stdout)
