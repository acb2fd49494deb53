"""Turn unexpected exceptions into rejects, so that one image never ends a build."""

from __future__ import annotations

import traceback
from concurrent.futures import CancelledError
from pathlib import Path

from shardwright.errors import ImageFault, ShardwrightError
from shardwright.transforms.rejects import RejectReason

_MESSAGE_LENGTH = 300  # characters; an exception may quote the bytes of the image
_PATH_PARTS = 3  # of the raising file: enough to find it, without the installation folder


def fault_of(error: Exception) -> ImageFault:
    """Return the fault that rejects one image, for an exception raised while processing it.

    Call it in an `except Exception` block around the work on one image.

    Returns:
        A ImageFault unchanged. Any other exception becomes INTERNAL_ERROR with its type, its
        message and the line that raised it.

    Raises:
        ShardwrightError: As given; a store fails or the build must stop, whatever the image.
        CancelledError: As given; the build is stopping.
    """
    if isinstance(error, ImageFault):
        return error
    if isinstance(error, ShardwrightError | CancelledError):
        raise error
    said = " ".join("".join(traceback.format_exception_only(error)).split())[:_MESSAGE_LENGTH]
    frames = traceback.extract_tb(error.__traceback__)
    place = (
        f" ({_short(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})"
        if frames
        else ""
    )
    return ImageFault(said + place, RejectReason.INTERNAL_ERROR)


def _short(filename: str) -> str:
    return "/".join(Path(filename).parts[-_PATH_PARTS:])
