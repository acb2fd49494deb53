"""The benchmarks as modules."""

from __future__ import annotations

import importlib
import json
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT

BENCHMARKS = ROOT / "benchmarks"


@cache
def load(name: str) -> ModuleType:
    """Import a script, which finds its neighbors as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)


def through_json(report: ModuleType, results: Any) -> Any:
    """Return the results as they are read back from their JSON."""
    return report.unpack(json.loads(json.dumps(report.packed(results))))
