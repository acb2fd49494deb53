"""The benchmarks as modules."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@cache
def load(name: str) -> ModuleType:
    """Import a script, which finds its neighbors as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)
