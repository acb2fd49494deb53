"""Name the packages that may be absent, and import parts that need an optional library."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from shardwright.errors import UsageError

# Installed with this package, under names that a user's own modules may have, too.
APPLICATION_PACKAGES = ("pipelines", "schemas", "transforms")
_BUILDER = "apache_beam"
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


def import_application(name: str) -> Any:
    """Import and return a module of the application, which builds datasets.

    Raises:
        UsageError: Beam is not installed.
    """
    if find_spec(_BUILDER) is None:
        raise UsageError(
            f"this needs {_BUILDER}, which is not installed: pip install 'shardwright[build]'"
        )
    import_packages_beside()
    return importlib.import_module(name)


def import_trainer(name: str) -> Any:
    """Import and return the part for a training library, such as "torch"."""
    return import_part(f"shardwright.trainers.{name}")


def import_packages_beside() -> None:
    """Import the application from beside this package, whatever else the path holds.

    Its packages have common names, which the current folder, a folder on PYTHONPATH or another
    distribution may have, too. Worker processes would find those first, so then the environment
    makes them begin with our folder, and leave out the current one.
    """
    root = str(Path(__file__).parents[1])
    for name in APPLICATION_PACKAGES:
        own = PathFinder.find_spec(name, [root])
        if own is None or own.loader is None or name in sys.modules:
            continue
        sys.modules[name] = module_from_spec(own)
        own.loader.exec_module(sys.modules[name])
        first = PathFinder.find_spec(name, ["", *sys.path])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if first is not None and first.origin != own.origin and paths[0] != root:
            os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
            os.environ["PYTHONSAFEPATH"] = "1"
