"""Name the packages that may be absent, and import parts that need an optional library."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from shardwright.errors import UsageError

_BUILDER = "apache_beam"
_INSTALLS = {
    "grain": "'shardwright[grain]'",
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


def import_application(name: str) -> Any:
    """Import and return a module of the application, which builds datasets.

    Raises:
        UsageError: Beam is not installed.
    """
    if find_spec(_BUILDER) is None:
        raise UsageError(
            f"this needs {_BUILDER}, which is not installed: pip install 'shardwright[build]'"
        )
    return importlib.import_module(name)


def import_trainer(name: str) -> Any:
    """Import and return the part for a training library, such as "torch"."""
    return import_part(f"shardwright.trainers.{name}")
