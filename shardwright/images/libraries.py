"""The libraries that decode, imported when the first image is decoded: reading without decoding does not need them.

OpenCV divides the work on a large image among threads of its own, one pool a process, which `cv2.setNumThreads` sets. Two calls never
share it: a call that finds it busy runs on its caller's thread. So it cannot multiply the reader's threads, and is left as it is.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from shardwright.errors import UsageError


@functools.cache
def load_library(module: str) -> Any:
    """An optional module.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        found = f"decoding images needs the module {module}, which cannot be imported ({error})"
        raise UsageError(f"{found}: pip install 'shardwright[reader]'") from error


def cv2() -> Any:
    """OpenCV."""
    return load_library("cv2")


def simplejpeg() -> Any:
    """libjpeg-turbo."""
    return load_library("simplejpeg")
