"""Import the decoding libraries on first use: reading without decoding does not need them.

OpenCV splits large images among its own threads, one pool per process (`cv2.setNumThreads`). Calls
do not share the pool: one that finds it busy runs on its caller's thread. So OpenCV cannot multiply
the reader's threads, and keeps its default.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from shardwright.errors import UsageError
from shardwright.images.forks import enter_thread


@functools.cache
def load_library(module: str) -> Any:
    """Import an optional module.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        found = f"decoding images needs the module {module}, which cannot be imported ({error})"
        raise UsageError(f"{found}: pip install 'shardwright[reader]'") from error


def cv2() -> Any:
    """Return OpenCV, ready for calls in this thread."""
    library = load_library("cv2")
    enter_thread(lambda: _call_once(library))
    return library


def _call_once(library: Any) -> None:
    """Call all functions that decoding uses, so that later calls need no lock of the process."""
    pixels = np.zeros((2, 2, 3), np.uint8)
    library.imdecode(library.imencode(".png", pixels)[1], library.IMREAD_COLOR_RGB)
    library.flip(library.resize(pixels, (1, 1)), 1)


def simplejpeg() -> Any:
    """Return simplejpeg, a wrapper of libjpeg-turbo."""
    return load_library("simplejpeg")
