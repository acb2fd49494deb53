"""The benchmarks as modules."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

import pytest

from tests import ROOT

BENCHMARKS = ROOT / "benchmarks"


@cache
def load(name: str) -> ModuleType:
    """Import a script, which finds its neighbors as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)
