"""Change methods of folders: of those on a disk, and of those in stores, which have their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrap_method(
    name: str,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
    set_attribute: Callable[[type, str, Any], None] = setattr,
) -> None:
    """Replace a method by what `wrap` makes of it."""
    from shardwright.storage.folder import (  # needs obstore, which Airflow's lacks
        Folder,
        StoreFolder,
    )

    for kind in (Folder, StoreFolder):
        if name in vars(kind):
            set_attribute(kind, name, wrap(vars(kind)[name]))
