"""Spare the garbage collector objects that live on: it would visit them again and again."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect no garbage while the block runs, because nearly all objects that it makes live on."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@functools.cache
def import_beam() -> None:
    """Import the graphs and Beam, whose objects no collection visits, now or later."""
    with no_collections():
        import shardwright.pipelines.job.graph  # noqa: F401
    gc.freeze()
