"""Name the packages that may be absent, and import parts that need an optional library."""

from __future__ import annotations

import importlib
from typing import Any

from shardwright.errors import UsageError

# Installed with this package, under names that a user's own modules may have, too.
APPLICATION_PACKAGES = ("pipelines", "schemas", "transforms")
_INSTALLS = {
    "jax": "'shardwright[jax]'",
    "keras": "keras",  # on any backend; 'shardwright[tensorflow]' brings it too
    "tensorflow": "'shardwright[tensorflow]'",
    "torch": "'shardwright[torch]'",
}


def import_part(name: str) -> Any:
    """Import and return a module of this package, by its full name.

    Raises:
        UsageError: A library that it needs is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in _INSTALLS:
            raise
        raise UsageError(
            f"this needs {error.name}, which is not installed: pip install {_INSTALLS[error.name]}"
        ) from error
