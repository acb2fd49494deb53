"""Decode the part of a JPEG under a crop, by the extension `_region`, if it was built.

It is the libjpeg-turbo that Pillow's wheel brings, with an entropy decoder of its own, and gives
the pixels of simplejpeg. What it refuses, simplejpeg decodes as a whole, and tells what is wrong.

The extension replaces a function in a structure that libjpeg-turbo does not publish. So each
process that decodes tries it in another one first, which takes 40 ms.
"""

from __future__ import annotations

import functools
import glob
import importlib
import importlib.util
import os
import subprocess
import sys
from base64 import b64decode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.images.crops import Crop
from shardwright.images.jpeg import JpegHeader, decode_jpeg

OWN, NONE = "shardwright", "none"
_EXTENSION = "shardwright.images._region"
_SPACES = ("YCbCr", "RGB", "Gray")
_LEAST_SIDE = 6  # libjpeg-turbo has faults in images that are narrower than its filters
_SECONDS = 20.0
# Its rows and columns are no multiples of an MCU, its color is subsampled, and it has restarts.
_IMAGE = b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
    "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAA4AEgDASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAA"
    "AAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAk"
    "M2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKT"
    "lJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QA"
    "HwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdh"
    "cRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hp"
    "anN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk"
    "5ebn6Onq8vP09fb3+Pn6/90ABAAH/9oADAMBAAIRAxEAPwDr5b+EqQGFYt9MHJIwRXDQ65dM43bq3LW8aSMMxqcb"
    "ljdnc9LDL2mqFmI83muh0e8jijwW7dK5i5bkkc1kXOrXFu+FJpYuusRh1h10IxGaRn+47Hd6zMsyEIcg1yd0CrEk"
    "dKt6HdvejEh6+tN8QRiKIkY6cVjlmN+qSVJo+dlhXKtzGWJhnAIzTnO9eMVgpcuZepre0seY4DYwa+krZjFanpOu"
    "qKsyA2jtzg0V2drYQugyBRXN/bsVpYwePXYoS+G0iXOBxWVOwtZNldPd6iGiYZ4rhdWus3BI9a+cy/65Wdps+ihH"
    "6qryNyDbMmaguNIWZsgZzWZY6iVIGea6nTZBOorWtgq1GXOzwcwUHedPc//QbpdkLQDtVbXiZYyBya3Xj2j0qpLZ"
    "i4HSlhKmFWtTc8+jRrxj7SWxw9rYlpT8uea3Uh+yoG6YFbNtowRs7abqloI4flHSuudSlVmlHY4a9dzqpLYyRrjw"
    "nbk8UVgXausrYyeaK9SOEwzWx7MFQ5VdHUSOSCDmufvbNpHJwa6R4CMCoGtwxxiuHCL2d3EKWY1Mf7sjl4rZ1k6d"
    "a7XQIjsXNV4tIZ2DBf0rSt1FmvzcVyYjFTrydMulTTnyyLF6/ljH6VWtr1Qee1V7+580Hbj61mqzKc5rghl8nV1O"
    "qpUjb2XQ6OXUo41ySKoyXa337sfpWPOXkHGak0wNBMGk6ZzzX0MMDRp0731PPllsebmif//RD4aaf5tp5ororPXL"
    "WKNQxHAoqpVMSnZIlYeK0MeRBznFVkQGUcUUV6uF2Z5vDmsnc6vTbVDBkjtXP+Iv3LHHX60UV5eGV8Wz1p6VWc/F"
    "IWPNPfHHaiivflBJnJWb5iW0Xe/OKk1ECKHI4I70UV51aT9ske9l6ToNs5W4vpRIQrkc+tFFFe1CEbbHkVZNTaP/"
    "2Q=="
)
# Run with the paths of the extension and of the library; the image comes by stdin.
_TRIAL = """
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
_, path, library = sys.argv
loader = ExtensionFileLoader("_region", path)
region = loader.create_module(ModuleSpec("_region", loader, origin=path))
loader.exec_module(region)
data = sys.stdin.buffer.read()
areas = [(0, 0, 56, 72), (20, 30, 40, 60), (48, 64, 56, 72), (0, 16, 8, 24)]
def parts(own):
    region.load(library, own)
    return [region.decode(data, *area, fast, reduction)
            for area in areas for fast in (False, True) for reduction in (1, 2, 4)]
by_library = parts(False)
print("libjpeg-turbo", flush=True)
if parts(True) == by_library:
    print("shardwright", flush=True)
"""


def decode_region(
    header: JpegHeader, reduction: int, area: Crop, *, fast: bool
) -> tuple[NDArray[np.uint8], int, int]:
    """Return a part of an image that has an area, and its first row and column in the image.

    The pixels are uint8 [height, width, 3], of the image reduced by 1, 2, 4 or 8. The part begins
    at multiples of 8.

    Raises:
        ImageFault: The pixels are damaged or truncated.
    """
    bottom, right = area.top + area.height, area.left + area.width
    try:
        pixels, height, width, top, left = _extension().decode(
            header.data, area.top, area.left, bottom, right, fast, reduction
        )
    except ValueError:
        return decode_jpeg(header, fast=fast, reduction=reduction), 0, 0
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3), top, left


def has_regions(header: JpegHeader) -> bool:
    """Return whether parts of an image can be decoded alone."""
    least = min(header.height, header.width)
    return header.space in _SPACES and least >= _LEAST_SIDE and _extension() is not None


@functools.cache
def part_decoder() -> str:
    """Return what decodes parts of JPEGs: "shardwright", "libjpeg-turbo", or "none".

    "shardwright" is libjpeg-turbo with the entropy decoder of the extension. With "none", whole
    images are decoded.
    """
    paths = _paths()
    if paths is None:
        return NONE
    command = [sys.executable or "python3", "-I", "-c", _TRIAL, *paths]
    try:
        done = subprocess.run(command, input=_IMAGE, capture_output=True, timeout=_SECONDS)
        return (done.stdout.decode().split() or [NONE])[-1]
    except (OSError, subprocess.SubprocessError):
        return NONE


def part_decoder_fix() -> str:
    """Return what to do for `part_decoder` to be "shardwright"; empty if it is."""
    if part_decoder() == OWN:
        return ""
    if importlib.util.find_spec(_EXTENSION) is None:
        return "install a C compiler (Debian: gcc and libc6-dev), then install shardwright again"
    if _paths() is None:
        return "install Pillow from a wheel for Linux or macOS, which brings libjpeg-turbo"
    return "install another release of Pillow: its libjpeg-turbo does not work with the extension"


@functools.cache
def _extension() -> Any:
    """Return the extension with the library loaded; None if there is none that works."""
    paths = _paths()
    if paths is None or part_decoder() == NONE:
        return None
    region = importlib.import_module(_EXTENSION)
    region.load(paths[1], part_decoder() == OWN)
    return region


@functools.cache
def _paths() -> tuple[str, str] | None:
    """Return the paths of the extension and of Pillow's libjpeg-turbo; None if one is missing."""
    extension, pillow = map(importlib.util.find_spec, (_EXTENSION, "PIL"))
    if extension is None or pillow is None or sys.byteorder != "little":
        return None
    folder = os.path.dirname(str(pillow.origin))
    # Of wheels for Linux and macOS; a Pillow of a distribution uses the system's library.
    places = (f"{folder}/../pillow.libs/libjpeg*.62.*", f"{folder}/.dylibs/libjpeg*.62.*")
    libraries = [path for place in places for path in glob.glob(place)]
    has_file = extension.has_location and len(libraries) == 1
    return (str(extension.origin), os.path.realpath(libraries[0])) if has_file else None
